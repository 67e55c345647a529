"""Traces that are not what they should be: one line that names the file, the place and the field."""

import copy
import gzip
import itertools
import json

import pytest
from kineto_traces import A100, KinetoTrace, forked, small_network

from simsched import Operator, OpGraph
from simsched.base.errors import FormatError, UnknownNameError
from workloads.formats.kineto import read_kineto
from workloads.formats.kineto import text as kineto_text

WITH_A_COPY = small_network(n_steps=2, annotated=True)
WITH_A_COPY.copy(WITH_A_COPY.call("cudaMemcpyAsync", 5.0), 60.0, 1.0)
VALID = WITH_A_COPY.text()
DOCUMENT = json.loads(VALID)


def refusal(data, tmp_path):
    """What is said to a file of some bytes."""
    path = tmp_path / "trace.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(FormatError) as caught:
        read_kineto(path)
    message = str(caught.value)
    assert "trace.json" in message
    return message


def first(cat):
    return next(k for k, event in enumerate(DOCUMENT["traceEvents"]) if event["cat"] == cat)


def changed(cat, field, value):
    """The document with a field of its own or of the first event of a category replaced; `...` deletes it."""
    document = copy.deepcopy(DOCUMENT)
    place = document["traceEvents"][first(cat)] if cat else document
    *way, last = field.split(".", 1)
    for step in way:
        place = place[step]
    place[last] = value
    if value is ...:
        del place[last]
    return json.dumps(document)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON at line 1, column 1: Expecting value"),
        (b"{}", "expected an object with 'traceEvents'"),
        (b'{"traceEvents": [], "x": NaN}', "NaN is not a number that can be used"),
        (b'{"traceEvents": 3}', "field 'traceEvents' must be a list"),
        (b'{"traceEvents": [3]}', "traceEvents[0]: expected an object with a field 'ph'"),
        (b'{"traceEvents": [{"ph": "M"}, {}]}', "traceEvents[1]: expected an object with a field 'ph'"),
        (b'{"traceEvents": [], "more": [{"ph": "X"}]}', "there are events outside of the field 'traceEvents'"),
        (b'{"traceEvents": []}', "no operator and no kernel was recorded; profile with ProfilerActivity.CPU"),
        (b'{"traceEvents": [{"ph": "X", "cat": []}]}', "traceEvents[0]: a field has the wrong type"),
        (b"\xff\xfe{}", "not a text file (invalid start byte at byte 0)"),
        (b"\x1f\x8b", "the gzip file is truncated"),
        (gzip.compress(VALID.encode(), mtime=0)[:-50], "the gzip file is truncated"),
        (gzip.compress(VALID.encode(), mtime=0)[:-8] + b"\x00" * 8, "the gzip file is damaged"),
        (changed("cpu_op", "name", ...), "field 'name' is missing"),
        (changed("cpu_op", "name", 3), "field 'name' must be a text that is not empty, not 3"),
        (changed("cpu_op", "name", "\ud800"), "field 'name' holds half of a character"),
        (changed("kernel", "args.correlation", ...), "field 'correlation' is missing"),
        (changed("kernel", "args.stream", -1), "field 'args.stream' must be a number below 2^31, not -1"),
        (changed("kernel", "args.grid", 3), "a field has the wrong type"),
        (changed("kernel", "args.grid", [0, 1, 1]), "'args.grid' must be whole numbers of at least 1, not [0, 1, 1]"),
        (changed("kernel", "args.grid", [10**12] * 3), "kernel: blocks must be a whole number of at least 1 up to 2^"),
        *(
            (changed(None, "schemaVersion", one), f"field 'schemaVersion' is {one!r}; this release reads 1")
            for one in (2, "1", None, True)
        ),
        (changed(None, "deviceProperties", [{}]), "deviceProperties[0]: field 'id' is missing"),
        (changed(None, "deviceProperties", [A100 | {"numSms": "84"}]), "[0]: field 'numSms' must be a whole number"),
        (changed(None, "deviceProperties", [A100 | {"numSms": 0}]), "device 'NVIDIA A100-SXM4-40GB': sms must be a "),
        (changed("gpu_memcpy", "args.bytes", "4 KB"), "field 'args.bytes' must be a whole number, not '4 KB'"),
        (changed("kernel", "args.shared memory", -1), "field 'args.shared memory' must be a whole number, not -1"),
    ],
    ids=itertools.count(),
)
def test_not_a_trace(data, message, tmp_path):
    assert message in refusal(data, tmp_path)


def test_cut_anywhere(tmp_path):
    """The message names the line at which the text ends, or one before it."""
    for end in range(0, len(VALID) - 2, 211):
        message = refusal(VALID[:end], tmp_path)
        line = int(message.split("at line ")[1].split(",")[0])
        assert 0 <= VALID[:end].count("\n") + 1 - line <= 12


def test_a_small_file_that_inflates_without_end(tmp_path, monkeypatch):
    """64 MiB of zeros in 64 KiB, 1000 times as much: refused before it is in memory (1 MiB is always allowed)."""
    monkeypatch.setattr(kineto_text, "_SMALL", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(1 << 26), 9))
    most = 400 * path.stat().st_size
    assert most < 1 << 26
    with pytest.raises(FormatError, match=rf"bomb\.json\.gz: inflates to over {most} bytes, so it is not a trace"):
        kineto_text.read_trace(path)


@pytest.mark.parametrize("value", [..., "1", True, -1.0, 1e30, 10**400])
@pytest.mark.parametrize(("cat", "field"), [("cpu_op", "ts"), ("user_annotation", "dur"), ("kernel", "ts")])
def test_wrong_time(cat, field, value, tmp_path):
    message = refusal(changed(cat, field, value), tmp_path)
    assert f"traceEvents[{first(cat)}]: field {field!r} " in message


def graph(kinds):
    return OpGraph([Operator(f"op{k}", kind) for k, kind in enumerate(kinds.split())])


def twice():
    """Two runs in one iteration: which of them is meant cannot be known."""
    trace = KinetoTrace()
    for k in range(2):
        trace.mark("conv1", 100.0 * k, 50.0)
        trace.launched("aten::conv2d", 100.0 * k + 1, 10.0, [(500.0 + k, 0.5, {})])
    return trace


PLAIN, ANNOTATED = small_network(), small_network(annotated=True)


@pytest.mark.parametrize(
    ("trace", "options", "message"),
    [
        (PLAIN, {"level": "middle"}, "unknown level 'middle'; known are: top, leaf"),
        (PLAIN, {"skip": -1}, "skip must be a whole number of iterations, not"),
        (PLAIN, {"skip": 1.5}, "skip must be a whole number of iterations, not"),
        (PLAIN, {"skip": "1"}, "skip must be a whole number of iterations, not"),
        (PLAIN, {"skip": 3}, "there are 3 iterations, of which skip=3 leaves none"),
        (PLAIN, {"iteration": "aten::flatten"}, "no operator ran within an iteration"),
        (
            PLAIN,
            {"graph": graph("conv add linear")},
            "operator 1 of the graph is 'op1' of kind 'add', but 'aten::relu' ran",
        ),
        (PLAIN, {"graph": graph("conv relu")}, "2 of the graph is no further operator, but 'aten::linear' ran"),
        (PLAIN, {"graph": graph("conv relu linear conv")}, "nothing ran for operator 'op3' of kind 'conv'"),
        (PLAIN, {"graph": ["a", "b", "c", "d"]}, "3 operators ran in iteration 0 where the graph has 4"),
        (ANNOTATED, {"graph": ["conv1", "softmax"]}, "operator 'softmax' of the graph is not annotated in iteration 0"),
        (twice(), {"graph": ["conv1"]}, "operator 'conv1' is annotated twice in iteration 0; call the profiler's"),
        (
            forked(True),
            {"captured": ["a", "b"]},
            "iteration 0 launches 4 graph nodes, but captured= names the operators of 2",
        ),
        (forked(False), {"captured": list("abcd")}, "the nodes of the captured graph have no ids"),
    ],
    ids=itertools.count(),
)
def test_options_that_do_not_fit(trace, options, message, read):
    with pytest.raises(UnknownNameError if "unknown" in message else FormatError, match=message):
        read(trace, **options)
