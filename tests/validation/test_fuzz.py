"""The fuzz campaign: it finds defects that are planted, accepts a reader without, and no parser fails in seconds."""

import base64
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from simsched.base.errors import FormatError, GraphError
from simsched.base.io import read_json
from simsched.model.graph import OpGraph
from validation import fuzz, fuzz_slice
from validation.fuzz_mutations import spoil
from validation.fuzz_parsers import PARSERS, Parser


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(fuzz_slice, "BATCH", 100)


def clean(path):
    return OpGraph.from_dict(read_json(path), path)


def raises_key_error(path):
    """A field that is looked up without a check."""
    read_json(path)["operators"]
    return clean(path)


def refuses_without_name(path):
    try:
        return clean(path)
    except FormatError as error:
        raise FormatError(str(error).replace(path, "the file")) from error


class BrokenError(GraphError):
    """Goes round the rule of its root that an error is one line."""

    def __str__(self):
        return "net.json:\n" + super().__str__()


def refuses_in_two_lines(path):
    try:
        return clean(path)
    except (FormatError, GraphError) as error:
        raise BrokenError(str(error)) from error


def drops_what_it_read(path):
    return {"operators": len(clean(path))}


def warns(path):
    found = clean(path)
    np.float64(largest(found)) * np.float64(1e300)
    return found


def allocates(path):
    """Twice what it may; untouched, it costs nothing where there is no limit."""
    bytes(2 * fuzz_slice.MEMORY)
    return clean(path)


def largest(graph):
    return max(value for op in graph.operators for value in (op.time or 0.0, op.flops, op.nbytes))


def dies(path):
    if Path(path).read_bytes() == b"\n":  # which every parser is given
        os._exit(7)
    return clean(path)


def sleeps(path):
    found = clean(path)
    if largest(found) != 7.0:
        time.sleep(60)
    return found


def one_operator():
    return (
        b'{"format": "simsched.graph", "version": 1, "operators": [{"name": "a", "time": 5, "flops": 7, "nbytes": 2}]}',
    )


def planted(*calls):
    return Parser(one_operator, "json", "net.json", calls)


def find(error, run):
    """The failure of that text, of the first of up to 20 runs in which it comes up."""
    for seed in range(20):
        for failure in run(seed).failures.values():
            if re.search(error, failure.error):
                return failure
    raise AssertionError(f"not found: {error}")


def find_here(call, error, tmp_path):
    return find(error, lambda seed: fuzz_slice.run(planted(call), "planted", seed, 0.01, tmp_path))


def test_a_clean_reader_passes(tmp_path):
    tally = fuzz_slice.run(planted(clean), "planted", 1, 0.01, tmp_path)
    assert not tally.failures
    assert tally.examples == tally.accepted + tally.refused > 90
    assert min(tally.accepted, tally.refused) > 5


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (raises_key_error, r"^(Key|Type)Error"),
        (refuses_without_name, r"FormatError does not name the file"),
        (refuses_in_two_lines, r"BrokenError of several lines"),
        (drops_what_it_read, r"a dict was read"),
        (warns, r"RuntimeWarning: overflow"),
    ],
)
def test_a_planted_defect_is_found(call, error, tmp_path):
    assert find_here(call, error, tmp_path).where


def test_what_fails_is_made_small(tmp_path):
    """The document has three fields; what is left is an object without the one, and nothing was added."""
    failure = find_here(raises_key_error, "^KeyError", tmp_path)
    found = json.loads(base64.b64decode(failure.document))
    assert "operators" not in found
    assert len(failure.document) <= len(base64.b64encode(one_operator()[0]))


def test_what_is_slow_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_slice, "SECONDS", 0.2)
    assert find_here(sleeps, "^TooSlowError: over 0.2 s", tmp_path).where


def test_the_same_seed_reads_the_same_documents(tmp_path, monkeypatch):
    read = {1: [], 2: [], 3: []}
    monkeypatch.setattr(fuzz_slice, "BATCH", 40)
    for key, seed in ((1, 5), (2, 5), (3, 6)):
        parser = planted(lambda path, key=key: read[key].append(Path(path).read_bytes()) or clean(path))
        fuzz_slice.run(parser, "planted", seed, 0.01, tmp_path)
    assert read[1] == read[2] != read[3]


def test_steps_may_be_any_numbers():
    """The largest numbers that are drawn, for each change at each level."""
    for parser in (PARSERS["dot"], PARSERS["ios"], PARSERS["onnx"]):
        documents = parser.documents()[:2]
        spoiled = [
            spoil(documents, parser.structure, 63, [(level, change, where, where // 2)])
            for level in range(4)
            for change in range(20)
            for where in (0, 1, 40_000, 65_535)
        ]
        assert len(set(spoiled)) > 30


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize(("call", "error"), [(allocates, "MemoryError"), (dies, "the process ended with status 7")])
def test_a_process_of_its_own_has_limits(call, error):
    (failure,) = fuzz.fuzz_in_process(planted(call), "planted", 1, 0.01).failures.values()
    assert failure.error.startswith(error)
    assert failure.document


def test_log(tmp_path, monkeypatch, capsys):
    """Two runs, one behind the other; what else stands in the log stays."""
    log = tmp_path / "fuzz.json"
    log.write_text('{"found and fixed": ["a defect"], "runs": []}')
    monkeypatch.setattr(fuzz, "fuzz_in_process", lambda *arguments: fuzz_slice.run(*arguments[:4], tmp_path))
    command = ["fuzz", "--seconds", "0.1", "--only", "wirings", "--log", str(log)]
    for seed in ("1", "2"):
        monkeypatch.setattr(sys, "argv", [*command, "--seed", seed])
        assert fuzz.main() == 0
    assert "0 failures" in capsys.readouterr().out
    document = read_json(log)
    assert document["found and fixed"] == ["a defect"]
    assert [run["seed"] for run in document["runs"]] == [1, 2]
    found = document["runs"][1]["parsers"]["wirings"]
    assert found["examples"] == found["accepted"] + found["refused"] > 100
    assert found["failures"] == []


@pytest.mark.parametrize("name", [name for name in PARSERS if not name.startswith("report-")])
def test_parsers_for_a_moment(name, tmp_path, monkeypatch):
    """Fewer reports than others, since one takes a tenth of a second; those of folders are left to the campaign."""
    batch, most = (8, 3) if name == "report" else (24, 8)
    monkeypatch.setattr(fuzz_slice, "BATCH", batch)
    documents = PARSERS[name].documents()
    few = PARSERS[name]._replace(documents=lambda: documents[-most:])
    tally = fuzz_slice.run(few, name, 20, 0.01, tmp_path)
    assert tally.failures == {}
    assert tally.examples == tally.accepted + tally.refused > batch
