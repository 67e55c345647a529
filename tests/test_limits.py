"""What is too large is refused in one line, before it is read; sizes are those of files with holes, or small limits."""

import gzip
import json
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hwbackend
import simsched as ss
from simsched.base import io
from simsched.base.errors import FileError, FormatError, GraphError, SimschedError
from simsched.base.io import read_bytes
from simsched.base.limits import MOST
from simsched.experiments.accuracy import validate
from simsched.experiments.study import Study
from simsched.experiments.study.execution import pool_of
from simsched.model.cluster import resize
from simsched.model.graph import Operator, OpGraph
from workloads import from_spec
from workloads.formats import FORMATS, read
from workloads.models.randwire import read_wirings

STUDY = 'name = "a"\nschedulers = ["lios"]\n[workload]\nkind = "layered"\n[cluster]\ngpu = "a100"\n'


@pytest.fixture
def huge(tmp_path):
    """A file of 1 TiB without a block on the disk."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


def refused(call, kind=SimschedError):
    with pytest.raises(kind) as found:
        call()
    text = str(found.value)
    assert len(text) <= 500
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_a_tebibyte_is_refused_by_every_format(name, huge):
    if name == "onnx":
        pytest.importorskip("onnx")
    reason = (
        "1099511627776 bytes are more than protobuf reads"
        if name == "onnx"
        else "it has more than 17,179,869,184 bytes"
    )
    assert f"{huge}: {reason}" in refused(lambda: read(huge, name), FormatError if name == "onnx" else FileError)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_what_has_no_end_is_read_up_to_a_limit():
    assert "it has more than 67,108,864 bytes" in refused(lambda: read_bytes("/dev/zero"), FileError)
    assert read_bytes("/dev/null") == b""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_may_hold_as_much_as_a_file(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for limit in (300_000, 299_999):
        monkeypatch.setattr(io, "MOST_BYTES", limit)
        with ThreadPoolExecutor() as pool:
            written = pool.submit(path.write_bytes, b"x" * 300_000)
            if limit == 300_000:
                assert read_bytes(path) == b"x" * 300_000
            else:
                refused(lambda: read_bytes(path), FileError)
                assert isinstance(written.exception(30), BrokenPipeError | None)  # the reader has had enough


def test_a_file_that_says_nothing_of_its_size_is_read():
    """Files of /proc are regular and have 0 bytes until they are read."""
    if Path("/proc/self/status").exists():
        assert read_bytes("/proc/self/status")


def test_a_gzip_file_is_inflated_up_to_the_limit_of_files(tmp_path, monkeypatch):
    path = tmp_path / "bomb.json"
    path.write_bytes(gzip.compress(bytes(50_000), 9))
    monkeypatch.setattr("workloads.formats.kineto.text.MOST_BYTES", 40_000)
    assert "inflates to over 40000 bytes" in refused(lambda: read(path, "kineto"), FormatError)


def test_names_of_a_megabyte(tmp_path):
    """In our own documents, in DOT, in Python; of an operator, of a graph; one of the longest is read."""
    path, long, longest = tmp_path / "net.json", "n" * 1_000_000, "n" * (1 << 16)
    document = {"format": "simsched.graph", "version": 1, "name": "net", "operators": [{"name": longest}]}
    path.write_text(json.dumps(document))
    assert OpGraph.load(str(path)).names == (longest,)
    for changed in ({"name": long}, {"operators": [{"name": long}]}, {"operators": [{"name": "a", "kind": long}]}):
        path.write_text(json.dumps(document | changed))
        assert "must have at most 65,536 characters" in refused(lambda: OpGraph.load(str(path)))
    dot = tmp_path / "net.dot"
    dot.write_text(f"digraph {{ {long} }}")
    assert "name must have at most 65,536 characters" in refused(lambda: read(dot), GraphError)
    assert "name must have at most 65,536 characters" in refused(lambda: Operator(long), GraphError)
    assert "its name has more" in refused(lambda: OpGraph.from_columns(["a", long], [], []), GraphError)


DEEP, LONG, ONE = 100_000, "9" * 1_000_000, '{"nodes": 1, "edges": []}'
NESTED, KEY, NAMED = "{path}: nested too deeply", "a key in it has 64 parts or more", "{path}"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "a.json",
            '{"format": "simsched.graph", "version": 1, "operators": [{"name": "a", "attributes": {"x": ' + "[" * DEEP,
            NESTED,
        ),
        ("a.json", '{"format": "simsched.schedule", "version": 1, "search": {"x": ' + '{"a":' * DEEP, NESTED),
        ("a.json", '{"traceEvents": [{"ph": "X", "args": ' + "[" * DEEP, NESTED),
        ("a.json", '{"blocks": ' + '{"a":' * DEEP, NESTED),
        ("a.dot", "digraph {" + "subgraph {" * DEEP, NAMED),
        ("a.toml", "x = " + "[" * DEEP, "not valid TOML"),
        ("a.toml", f"[{'.'.join('a' * DEEP)}]\nx = 1\n", KEY),
        ("a.toml", "x = {" + '"a" . ' * DEEP + "b = 1}", KEY),
        ("a.toml", f"[{'.'.join('a' * 63)}]\nx = 1\n", "unknown field 'a'"),
        ("a.toml", STUDY + "".join(f"device.f{i} = [1, 2]\n" for i in range(60)), "more than 1,000,000 rows"),
        ("a.toml", STUDY.replace("name =", f"seeds = {LONG}\nname ="), "not valid TOML: Exceeds the limit"),
        ("a.stg", "999999999999\n0 0 0\n", NAMED),
        ("a.txt", "999999999999\n0 0 1\n", NAMED),
        ("a.stg", f"{LONG}\n", NAMED),
        ("a.dot", f"digraph {{ a [time={LONG}] }}", NAMED),
        ("a.json", f'{{"format": "simsched.graph", "version": {LONG}}}', NAMED),
        ("a.json", f'{{"traceEvents": [{{"ph": "X", "ts": {LONG}}}]}}', NAMED),
        ("wirings", f'{{"stages": [{{"nodes": {10**12}, "edges": []}}, {ONE}, {ONE}, {ONE}]}}', "from 1 to 100,000"),
    ],
    ids=lambda value: value[:30],
)
def test_files_that_ask_for_too_much(name, text, reason, tmp_path):
    """Nested too deeply, or with numbers that say how much there is; long keys and rows of studies."""
    path = tmp_path / name
    path.write_text(text)
    reader = {".toml": Study.from_file, "": read_wirings}.get(path.suffix, read)
    assert reason.format(path=path) in refused(lambda: reader(str(path)))


@pytest.mark.parametrize(
    "spec",
    [
        "random:layered,n_ops=1000000000",
        "random:layered,n_ops=1000,n_edges=1000000000",
        "random:lu,tiles=1000000",
        "random:cholesky,tiles=1000000",
        "random:fft,points=1073741824",
        "random:wavefront,rows=99999,columns=99999",
        "random:erdos-renyi,n_ops=100000000,edge_probability=1",
        "random:transformer-like,n_layers=1000000000",
        "random:inception-like,n_blocks=1000000000",
        "random:watts-strogatz,n_ops=100000000,neighbours=1000000",
        "inception_v3,batch=1000000000000",
        "inception_v3,image_size=1000000000",
        "bert_base,sequence=100000000000",
    ],
)
def test_graphs_too_large_to_be_made(spec):
    assert refused(lambda: from_spec(spec), GraphError)


# How many ------------------------------------------------------------------------------------------

GRAPH = OpGraph([Operator("a", time=10.0)])
CLUSTER = ss.Cluster.preset("a100")
PLAN = ss.schedule(GRAPH, CLUSTER, "sequential")
SYNTHETIC = hwbackend.get("synthetic")
COUNTS = {
    "simulate_many n": lambda n: ss.simulate_many(PLAN, CLUSTER, n, jitter=0.1, rng=0),
    "compare samples": lambda n: ss.compare(GRAPH, CLUSTER, ["lios"], jitter=0.1, rng=0, samples=n),
    "robust samples": lambda n: ss.robust({"lios": PLAN}, CLUSTER, jitter=0.1, samples=n, rng=0),
    "simulate_many workers": lambda n: ss.simulate_many(PLAN, CLUSTER, 2, jitter=0.1, rng=0, workers=n),
    "simulate_batch workers": lambda n: ss.simulate_batch([PLAN], CLUSTER, workers=n),
    "pool_of workers": lambda n: pool_of("processes", n),
    "preset n_gpus": lambda n: ss.Cluster.preset("a100", n),
    "preset gpus_per_node": lambda n: ss.Cluster.preset("a100", 2, gpus_per_node=n),
    "widened n_gpus": lambda n: resize(CLUSTER, n),
    "throughput in_flight": lambda n: ss.throughput(PLAN, CLUSTER, n),
    "replay repeats": lambda n: SYNTHETIC.replay(PLAN, repeats=n),
    "replay warmup": lambda n: SYNTHETIC.replay(PLAN, warmup=n),
    "profile in_situ": lambda n: SYNTHETIC.profile(GRAPH, in_situ=n),
    **{
        f"validate {name}": lambda n, name=name: validate(GRAPH, None, ["lios"], **{name: n})  # no backend is asked
        for name in ("rounds", "training", "random_held_out", "repeats", "warmup")
    },
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts_of_python_have_the_limits_of_the_command_line(case):
    """One more than the most, and a slip of the finger, are refused before anything is begun."""
    name = case.split()[1]
    for number in (MOST[name] + 1, 10**12):
        assert f"{name} must be at most {MOST[name]:,}, not {number:,}" in refused(lambda n=number: COUNTS[case](n))


@pytest.mark.parametrize(("line", "most"), [("samples = 1000001", "1,000,000"), ("jitter = 1001.0", "1000")])
def test_a_study_has_them_too(line, most):
    jitter = "" if "jitter" in line else "jitter = 0.1\n"
    text = f"{STUDY}[simulation]\n{jitter}{line}\n"
    assert most in refused(lambda: Study.from_dict(tomllib.loads(text)))
    too_many = tomllib.loads(STUDY) | {"cluster": {"gpu": "a100", "gpus": 4097}}
    assert "from 1 to 4,096" in refused(lambda: Study.from_dict(too_many))
