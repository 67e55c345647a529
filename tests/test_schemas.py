"""The kinds of files: those of the release of 2026-11-22 open, and schemas accept what loaders accept."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
from documents import DOCUMENTS as MADE
from documents import document
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from strategies import graphs, schedules

import simsched as ss
import workloads
from simsched.base.errors import SimschedError, UnknownNameError
from simsched.cli.run import run
from simsched.experiments.documents import DOCUMENTS, schema
from simsched.model.cluster import DEVICES

FILES = Path(__file__).parent / "files"
each_format = pytest.mark.parametrize("name", DOCUMENTS)


@cache
def validator(name):
    return Draft202012Validator(schema(name))


def complaints(name, data):
    """What a schema has against a document, as files hold it."""
    found = validator(name).iter_errors(json.loads(json.dumps(data, allow_nan=False)))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message:.200}" for error in found]


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.json")))
def test_a_file_of_the_release_of_2026_11_22_opens(name):
    """And what is made of it is written so that it opens again."""
    found = DOCUMENTS[name].load(FILES / f"{name}.json")
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False)) if name != "simsched.study" else found.to_dict()
    assert DOCUMENTS[name].from_dict(again).to_dict() == found.to_dict()


@each_format
def test_a_schema_says_what_each_field_is(name):
    """Whole: it refers to nothing outside of itself; strict; and no field is described by its name alone."""
    found = schema(name)
    Draft202012Validator.check_schema(found)
    for part in [found, *found.get("$defs", {}).values()]:
        assert part["additionalProperties"] is False
        for field, value in part["properties"].items():
            assert "const" in value or value["description"] != field, f"{part['title']}: {field}"
            assert re.fullmatch(r"#/\$defs/\w+", value.get("$ref", "#/$defs/x"))
    assert complaints(name, document(name)) == []


def test_the_command_prints_them(capsys):
    assert run(["list", "formats", "--schema", "simsched.program"]) == 0
    assert json.loads(capsys.readouterr().out) == schema("simsched.program")
    with pytest.raises(UnknownNameError, match=r"unknown schema 'simsched.graf'; .*simsched\.graph"):
        schema("simsched.graf")


def test_networks_and_presets():
    plan = ss.schedule(workloads.load("inception_v3"), ss.Cluster.preset("h100", 9), "hios-lp")
    assert complaints("simsched.program", plan.lower(ss.Cluster.preset("h100", 9)).to_dict()) == []
    for gpu in DEVICES:
        cluster = ss.Cluster.preset(gpu, 2)
        assert complaints("simsched.cluster", cluster.to_dict()) == []
        assert ss.Cluster.from_dict(json.loads(json.dumps(cluster.to_dict()))) == cluster


@settings(max_examples=15)
@given(plan=graphs(max_ops=5).flatmap(lambda graph: schedules(graph)))
def test_any_schedule(plan):
    """Also one that cannot run; the program of one that can."""
    assert complaints("simsched.schedule", plan.to_dict()) == []
    try:
        program = plan.lower(ss.Cluster.preset("v100", 3))
    except SimschedError:
        return
    assert complaints("simsched.program", program.to_dict()) == []


WRONG = (None, -1, "x", True, "", 1.5, 2**60, [])
SLOW = ("profile", "calibration", "comparison", "whatif", "accuracy")  # of which reading takes milliseconds
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


def verdict(load, *arguments):
    """What a loader has against a document, None if nothing."""
    try:
        load(*arguments)
    except SimschedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", MADE)
def test_what_a_schema_refuses_the_loader_refuses(name):
    """In one line that names the file; the loader refuses more, of what stands in several places."""
    data, load = document(name), DOCUMENTS[name].from_dict
    assert verdict(load, data) is None
    apart = []
    for change in spoilt(data, EVERY_VALUE or name.rpartition(".")[2] not in SLOW):
        refusal = verdict(load, data, "file.json")
        if refusal is None and not validator(name).is_valid(data):
            apart.append(f"{change}: accepted by the loader alone")
        if refusal is not None and (not refusal.startswith("file.json") or "\n" in refusal):
            apart.append(f"{change}: {refusal}")
    assert apart == []
