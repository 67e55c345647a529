"""Fuzzing: planted defects are found, no reader fails in a slice, and what was found before stays mended."""

import base64
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path

import pytest
from documents import asked, document
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from simsched.base.errors import ClusterError, FormatError, GraphError, SimschedError
from simsched.base.io import read_json
from simsched.experiments.documents import DOCUMENTS, schema
from simsched.experiments.whatif import Answer
from simsched.model.graph import OpGraph
from validation import fuzz
from validation.fuzz import READERS, Reader, command, commands, run, run_apart, words_of
from validation.spoiling import values


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    fuzz.fill(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    """With one seed, of one operator."""
    row = {"name": "a", "time": 5, "flops": 7, "nbytes": 2}
    (tmp_path / "net.json").write_text(json.dumps({"format": "simsched.graph", "version": 1, "operators": [row]}))
    return tmp_path


def batches_of(monkeypatch, count):
    monkeypatch.setattr(fuzz, "_SETTINGS", settings(fuzz._SETTINGS, max_examples=count))


# --- inputs


@pytest.mark.parametrize("name", ["graph", "program", "study", "robustness"])
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_are_those_of_the_schema(name, data):
    whole = schema(f"simsched.{name}")
    value = data.draw(values(whole, whole.get("$defs", {})))
    assert [error.message for error in Draft202012Validator(whole).iter_errors(value)] == []


def test_every_option_has_words():
    """By its name or its type; what is left over names files that are written."""
    written = set()
    for path, parameters in commands():
        for one in parameters:
            if one.name not in fuzz._WORDS and type(one.type).__name__ not in (*fuzz._OF_TYPES, "BoolParamType"):
                assert one.metavar in ("FILE", "FOLDER"), (path, one.name)
                written.add(one.name)
    assert written == set("output perfetto gantt box tornado plot program scatter svg dot keep tex beside".split())  # noqa: SIM905


def test_words_of_arguments_options_and_flags():
    parameters = {one.name: one for one in dict(commands())["simulate",]}
    once = settings(phases=[Phase.generate], max_examples=1000)  # nothing is to be shrunk
    for line in ("dot-2.dot", "--gpus 0", "--gpus 2", "--json"):
        one = parameters["as_json" if line == "--json" else "gpus" if "--gpus" in line else "graph"]
        assert find(words_of(one), lambda found, line=line: found == line.split(), settings=once)


# --- planted defects


def clean(path):
    return OpGraph.from_dict(read_json(path), path)


def raises_key_error(path):
    """A field that is looked up without a check."""
    read_json(path)["operators"]
    return clean(path)


def refuses(change):
    """A reader whose refusals are others."""

    def call(path):
        try:
            return clean(path)
        except (FormatError, GraphError) as error:
            raise change(str(error), path) from error

    return call


class BrokenError(GraphError):
    """Goes round the rule of its root that an error is one line."""

    def __str__(self):
        return "net.json:\n" + super().__str__()


class Forgetful(OpGraph):
    """Its first operator is lost when it is written."""

    def to_dict(self):
        found = super().to_dict()
        return found | {"operators": found["operators"][1:]}


def sleeps(path):
    if clean(path).operators[0].flops != 7.0:
        time.sleep(60)


def dies(path):
    if Path(path).read_bytes().endswith(b"}"):
        return clean(path)
    os._exit(7)


def allocates(path):
    """Twice what it may; untouched, it costs nothing where there is no limit."""
    bytes(1 << 30)
    return clean(path)


def test_a_clean_reader_passes_and_the_same_seed_reads_the_same(folder, monkeypatch):
    batches_of(monkeypatch, 60)
    seed, read = (folder / "net.json").read_bytes(), {}
    for number in ("5", "5 again", "6"):
        documents = read[number] = []
        (folder / "net.json").write_bytes(seed)
        reader = Reader((lambda path, to=documents: to.append(Path(path).read_bytes()) or clean(path),), "net.json")
        tally = run(reader, number[0], 0.0, folder)
        assert not tally.failures
        assert tally.examples == tally.accepted + tally.refused > 50
        assert min(tally.accepted, tally.refused) > 2
    assert read["5"] == read["5 again"] != read["6"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (raises_key_error, r"^(Key|Type)Error at test_fuzz.py: raises_key_error"),
        (refuses(lambda text, path: FormatError(text.replace(path, "it"))), r"^FormatError does not name the file"),
        (refuses(lambda text, path: BrokenError(text)), r"^BrokenError of no line, several"),
        (
            lambda path: Forgetful.from_dict(read_json(path), path),
            "not the same after a round trip|^IndexError|^GraphE",
        ),
        (lambda path: warnings.warn("overflow", RuntimeWarning, stacklevel=1) or clean(path), "^RuntimeWarning"),
        (sleeps, r"^over 0.1 s at test_fuzz.py: sleeps"),
    ],
)
def test_a_planted_defect_is_found(call, error, folder, monkeypatch):
    """What fails is made small: of the document one field is left out, or all of it, and nothing was added."""
    batches_of(monkeypatch, 100)
    seed = (folder / "net.json").read_bytes()
    for number in range(9):
        (folder / "net.json").write_bytes(seed)
        reader = Reader((call,), "net.json", seconds=0.1 if call is sleeps else 20.0)
        failures = run(reader, str(number), 0.0, folder).failures
        found = [failure["document"] for what, failure in failures.items() if re.search(error, what)]
        if found:
            break
    document = base64.b64decode(found[0])
    if call is raises_key_error:
        assert b"operators" not in document
        assert len(document) <= len(seed)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize(
    ("call", "error"), [(allocates, "MemoryError"), (dies, "the process ended with status 7")], ids=["memory", "death"]
)
def test_a_process_of_its_own_has_limits(call, error, folder, monkeypatch):
    monkeypatch.setitem(READERS, "planted", Reader((call,), "net.json"))
    failures = run_apart("planted", "1", 0.0, folder).failures
    assert any(what.startswith(error) and failure["document"] for what, failure in failures.items())


def says(status, text="", out=""):
    return lambda words: [sys.stderr.write(text), sys.stdout.write(out), status][-1]


def writes(name):
    return lambda words: Path(name).write_text("{}") * 0


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (says(70, "error: unexpected KeyError: 'a' (x.py, line 3)\n"), "status 70: error: unexpected KeyError"),
        (says(1), "status 1"),
        (says(2, "error: one\nerror: two\n"), "status 2: error: one error: two"),
        (says(2), "status 2: $"),
        (says(0, "mind\n"), "status 0: mind"),
        (says(0, "warning: mind\n", "{}"), None),
        (says(0, out='{"a": '), "JSONDecodeError"),
        (writes("net.json"), "touched a file that is not named"),
        (writes("u.json"), "touched a file that is not named"),
        (writes("../t.json"), "touched a file that is not named"),
        (writes("t.json"), "JSONDecodeError"),
        (writes("new/.t.json"), "left a temporary file"),
    ],
)
def test_what_a_command_must_not_do_is_seen(action, expected, folder, monkeypatch):
    """A command that reads net.json and was told to write t.json and into a folder."""
    monkeypatch.setattr(fuzz, "run_command", action)
    (folder / "new").mkdir()
    (folder / "new" / "kept").touch()
    words = ["compare", "net.json", "-o", "t.json", "--resume", "new", "--json"]
    content = base64.b64encode((folder / "net.json").read_bytes()).decode()
    (folder / "command.json").write_text(json.dumps({"words": words, "file": "net.json", "content": content}))
    if expected is None:
        command(str(folder / "command.json"))
        return
    with pytest.raises((fuzz.DefectError, json.JSONDecodeError)) as found:
        command(str(folder / "command.json"))
    assert re.match(expected, f"{found.value}" if "JSON" not in expected else type(found.value).__name__)


# --- the readers themselves


@pytest.mark.parametrize("name", READERS)
def test_a_reader_for_a_moment(name, corpus, monkeypatch):
    batches_of(monkeypatch, 8)
    path = sorted(corpus.glob(READERS[name].seeds))[0]
    kept = path.read_bytes()
    tally = run(READERS[name], "20", 0.0, corpus)
    path.write_bytes(kept)
    assert tally.failures == {}
    assert tally.examples == tally.accepted + tally.refused > 2


# --- what was found


def test_what_a_document_lacks():
    lengths = "what was found of 'two': factors, a_us and b_us must be of one length"
    for kind, changed, says in (
        ("breakeven", {"factors": [[0.0, 1.0], [1.0, 2.0]]}, lengths),
        ("accuracy", {"rounds": []}, "(validation: )?rounds must"),
        ("accuracy", {"rounds": [{"schedules": []}]}, "(validation: )?rounds must"),
    ):
        with pytest.raises(SimschedError, match=f"^net.json: {says}"):
            DOCUMENTS[f"simsched.{kind}"].from_dict(document(f"simsched.{kind}") | changed, "net.json")


def test_what_is_simulated_on_a_cluster_that_lacks_a_link():
    """Files are read without simulating; what asks for a trace is told why there is none."""
    gone = {"links": [], "transfer": None}  # copies take what the links say
    text = json.dumps(asked().answer().to_dict())
    answer = json.loads(text, object_hook=lambda one: one | {key: gone[key] for key in gone.keys() & one})
    with pytest.raises(ClusterError, match="no links lead from gpu"):
        assert Answer.from_dict(answer, "net.json").makespan
