"""JSON Schemas: what the library writes they accept, and what they say of a document, its loader says too."""

import json
import os
import re
from dataclasses import fields
from functools import cache
from itertools import chain

import pytest
from documents import DOCUMENTS, document
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from strategies import graphs, schedules

import simsched as ss
import workloads
from simsched.base.errors import SimschedError, UnknownNameError
from simsched.base.schemas import SCHEMAS, schema
from simsched.calibration import Calibration
from simsched.calibration.parameters import PARAMETERS
from simsched.cli.run import run
from simsched.experiments.accuracy import Outcome
from simsched.experiments.comparison import Comparison, Row
from simsched.experiments.study import run_study
from simsched.experiments.study.store import read_study
from simsched.experiments.whatif import (
    Answer,
    BreakEven,
    Crossing,
    Elasticity,
    Explanation,
    Robust,
    Robustness,
    Sensitivity,
    Suggestion,
    Sweep,
    Throughput,
)
from simsched.model.cluster import DEVICES, Cluster, Device, Link
from simsched.model.graph import DTYPE_NBYTES, Edge, Kernel, Operator, OpGraph
from simsched.model.profile import MeasuredCopy, MeasuredKernel, MeasuredOperator, Profile, Provenance, Replay
from simsched.model.profile.device import MeasuredDevice
from simsched.model.program import ACTIONS, Program
from simsched.model.schedule import Placement, Schedule
from simsched.show.study.figure_tables import StudyFigure
from workloads.registry import load_kind

each_format = pytest.mark.parametrize("name", SCHEMAS)


@cache
def validator(name):
    return checker(schema(name))


def checker(found):
    """A validator that has looked once for what is inside of a schema, and not for each reference."""
    return Draft202012Validator(found, registry=(Resource.from_contents(found) @ Registry()).crawl())


def complaints(name, data):
    """What a schema has against a document, as files hold it."""
    found = validator(name).iter_errors(json.loads(json.dumps(data, allow_nan=False)))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message:.200}" for error in found]


class TestSchemas:
    @each_format
    def test_is_a_schema_and_says_what_each_field_is(self, name):
        """Strict, described, and whole: it refers to nothing outside of itself."""
        found = schema(name)
        Draft202012Validator.check_schema(found)
        parts = list(objects(found))
        for part in (part for part in parts if part.get("type") == "object" and "properties" in part):
            assert "additionalProperties" in part
            for field, value in part["properties"].items():
                assert value is False or {"description", "const", "$ref"} & set(value), field
        ids = {part["$id"] for part in parts if "$id" in part}
        targets = {part["$ref"].split("#")[0] for part in parts if "$ref" in part}
        assert targets - {""} <= ids

    def test_fields_are_those_of_the_classes(self):
        """What a class holds, its schema describes, under the same names."""
        inside = {name: schema(name).get("$defs") for name in SCHEMAS}
        for kind, format_, part, but in (
            (Operator, "graph", "operator", ()),
            (Kernel, "graph", "kernel", ()),
            (Edge, "graph", "edge", ()),
            (Placement, "schedule", "placement", ()),
            (Device, "cluster", "device", ("sm_sensitivity", "dram_sensitivity")),
            (Link, "cluster", "link", ("ends",)),
            (MeasuredOperator, "profile", "operator", ()),
            (MeasuredKernel, "profile", "kernel", ()),
            (MeasuredCopy, "profile", "copy", ()),
            (MeasuredDevice, "profile", "device", ()),
            (Provenance, "profile", "provenance", ()),
            (StudyFigure, "study", "figure", ()),
            (Outcome, "validation", "outcome", ("error",)),
            (Row, "comparison", "row", ()),
        ):
            described = inside[f"simsched.{format_}"][part]["properties"]
            assert {field.name for field in fields(kind)} | set(but) == set(described), kind
        rows = (("sensitivity", "rows", Elasticity), ("breakeven", "crossings", Crossing),
                ("explanation", "suggestions", Suggestion), ("robustness", "rows", Robust))  # fmt: skip
        for format_, key, kind in rows:
            described = schema(f"simsched.{format_}")["properties"][key]["items"]["properties"]
            assert [field.name for field in fields(kind)] == list(described)
        operator = inside["simsched.graph"]["operator"]["properties"]
        assert set(operator["dtype"]["enum"]) == {*DTYPE_NBYTES, None}
        assert inside["simsched.calibration"]["parameter"]["properties"]["name"]["enum"] == [
            *PARAMETERS,
            "sm_sensitivity",
            "dram_sensitivity",
        ]
        instructions = inside["simsched.program"]["instruction"]["oneOf"]
        assert [each["properties"]["do"]["const"] for each in instructions] == list(ACTIONS)

    def test_one_that_is_not_known(self):
        with pytest.raises(UnknownNameError, match=r"unknown schema 'simsched.graf'; .*simsched\.graph"):
            schema("simsched.graf")

    def test_each_is_made_anew(self):
        schema("simsched.graph")["title"] = "spoilt"
        assert schema("simsched.graph")["title"] == "Graph of operators"

    def test_the_command_prints_them(self, capsys):
        assert run(["list", "formats", "--schema", "simsched.program"]) == 0
        assert json.loads(capsys.readouterr().out) == schema("simsched.program")
        assert run(["list", "formats", "--schema", "graph"]) == 2
        assert "unknown schema 'graph'" in capsys.readouterr().err


def objects(part):
    """Every object in a JSON value."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        yield from chain.from_iterable(map(objects, part))


class TestWhatIsWritten:
    @pytest.mark.parametrize("name", DOCUMENTS)
    def test_documents_with_every_field(self, name):
        assert complaints(name, document(name)) == []

    @pytest.mark.parametrize("spec", ["inception_v3", "random:layered,n_ops=30,n_layers=5,n_edges=60"])
    def test_networks(self, spec):
        """With the schedule of a scheduler that rewrites nothing, its program, and the cluster."""
        graph, cluster = workloads.from_spec(spec), ss.Cluster.preset("h100", 9)
        made = ss.schedule(graph, cluster, "hios-lp")
        assert complaints("simsched.schedule", made.to_dict()) == []
        assert complaints("simsched.program", made.lower(cluster).to_dict()) == []
        assert complaints("simsched.cluster", cluster.to_dict()) == []

    @settings(max_examples=15)
    @given(graph=graphs(max_ops=5).flatmap(lambda graph: schedules(graph)))
    def test_any_schedule(self, graph):
        """Also one that cannot run; the program of one that can."""
        assert complaints("simsched.schedule", graph.to_dict()) == []
        cluster = ss.Cluster.preset("v100", 3)
        try:
            program = graph.lower(cluster)
        except SimschedError:
            return
        assert complaints("simsched.program", program.to_dict()) == []

    def test_presets(self):
        for gpu in DEVICES:
            assert complaints("simsched.cluster", ss.Cluster.preset(gpu, 2).to_dict()) == []

    def test_a_study_and_its_rows(self, tmp_path):
        """Rows that were simulated, sampled, refused, and failed for want of a file."""
        (tmp_path / "none.json").write_text("{}")
        whole = ss.Study(
            "rows", ["sequential", {"scheduler": "ios", "r": [1, 2]}, {"scheduler": "search", "evaluations": 5}],
            [{"kind": "layered", "n_ops": 12, "n_layers": 3}, {"kind": "none.json"}, {"kind": "layered", "n_ops": -1}],
            {"gpu": "a40", "gpus": [1, 2]}, simulation={"jitter": 0.02, "samples": 3}, folder=str(tmp_path),
        )  # fmt: skip
        run_study(whole, tmp_path / "rows", load=load_kind, executor="serial")
        assert complaints("simsched.study", json.loads((tmp_path / "rows" / "study.json").read_text())) == []
        rows = [json.loads(line) for line in (tmp_path / "rows" / "rows.jsonl").read_text().splitlines()]
        assert {row["status"] for row in rows} == {"ok", "failed", "refused"}
        assert [line for row in rows for line in complaints("simsched.row", row)] == []


def read_as_study(data, folder):
    (folder / "study.json").write_text(json.dumps(data))
    return read_study(folder)


ANALYSES = (Sweep, Sensitivity, BreakEven, Explanation, Robustness, Throughput)
LOADERS = {
    "simsched.graph": OpGraph.from_dict,
    "simsched.cluster": Cluster.from_dict,
    "simsched.schedule": Schedule.from_dict,
    "simsched.program": Program.from_dict,
    "simsched.profile": Profile.from_dict,
    "simsched.replay": Replay.from_dict,
    "simsched.calibration": Calibration.from_dict,
    "simsched.study": read_as_study,
    "simsched.comparison": Comparison.from_dict,
    **{f"simsched.{kind.FORMAT}": kind.from_dict for kind in ANALYSES},
    "simsched.whatif": Answer.from_dict,
}
WRONG = (None, -1, "x", True, "", 1.5, 2**60, [])
SLOW = ("profile", "calibration", "comparison", "whatif", "study", "breakeven")  # of which reading takes milliseconds
EVERY_VALUE = bool(os.environ.get("SIMSCHED_EVERY_VALUE"))  # also where it takes long


def places(part):
    """Every container in a document with each key of it, once of rows of one shape; no document that stands inside."""
    keys = list(part) if isinstance(part, dict) else range(len(part))
    seen = []
    for key in keys:
        value = part[key]
        if isinstance(part, list):
            shape = sorted(value) if isinstance(value, dict) else type(value)
            if shape in seen:
                continue
            seen.append(shape)
        yield part, key
        if isinstance(value, dict | list) and not is_document(value):
            yield from places(value)


def is_document(value):
    return isinstance(value, dict) and "format" in value


def spoilt(data, all_values):
    """Yield what was done to a document while it is so: fields left out, added, and of every wrong kind.

    Without all values, each place has two of the eight, three apart: every kind comes round in eight places.
    """
    for number, (part, key) in enumerate(places(data)):
        old = part[key]
        for value in WRONG if all_values else (WRONG[number % 8], WRONG[(number + 3) % 8]):
            if value != old or type(value) is not type(old):
                part[key] = value
                yield f"{key} = {value!r}"
        if isinstance(old, dict) and not is_document(old):
            part[key] = old | {"unknown": 1}
            yield f"{key} with an unknown field"
        part[key] = old
        if isinstance(part, dict):
            kept = dict(part)
            del part[key]
            yield f"{key} left out"
            part.update({key: old})
            assert kept == part


# What a schema cannot say, by what loaders say of it: names that refer to nothing, numbers that belong together.
ACROSS_FIELDS = re.compile(
    r"names no operator|unknown device|which is not in the graph"
    r"|there is no (graph|cluster|kernel|operator|device|launch) "
    r"|has no kernel|stands (twice|nowhere)|is placed (twice|nowhere)|is recorded twice|twice, so its rows would count"
    r"|the shares of its kernels must add up to 1|(launches|copies) ran, but|was measured from"
    r"|samples where the operator"
    r"|unknown (scheduler|gpu|link) |has no option|one row per|must rise from 0"
    r"|must hold (start and end|true or false for each)"
    r"|events are more than|needs a stream|could not be broadcast|the file was changed|one schedule for each row"
    r"|must hold those of schedules|as many makespans as|must hold a number for each|must be lists? of|of one length"
    r"|must be a list of numbers|samples of each, in the same order|reasons must be"
)


def verdict(load, *arguments):
    """What a loader has against a document, None if nothing."""
    try:
        load(*arguments)
    except SimschedError as error:
        return str(error)
    return None


def shallow(name):
    """The schema of a format with nothing said of what documents of other formats hold that stand inside."""
    text = json.dumps(schema(name))
    for other in SCHEMAS:
        whole = json.dumps({"$ref": f"urn:{other.replace('.', ':')}:1"})[:-1]
        text = text.replace(whole, '{"type": "object", "required": ["format"]')
    return checker(json.loads(text))


@pytest.mark.parametrize("name", LOADERS)
def test_schema_and_loader_agree(name, tmp_path):
    """A document spoilt in one place is refused by both, or by none; but for what no schema can say."""
    data, load, check = document(name), LOADERS[name], shallow(name)
    where = (tmp_path,) if name == "simsched.study" else ()
    assert verdict(load, data, *where) is None
    apart = []
    for change in spoilt(data, EVERY_VALUE or name.rpartition(".")[2] not in SLOW):
        valid, refusal = check.is_valid(data), verdict(load, data, *where)
        if valid != (refusal is None) and not (valid and ACROSS_FIELDS.search(refusal)):
            apart.append(f"{change}: {refusal or 'accepted by the loader alone'}")
    assert apart == []
