"""The reference has every public name and every command; the background says what the records say."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
import typer
from site_pages import DOCS, ROOT, built, extension, prose, site

import hwbackend
import simsched
import workloads
from simsched.cli.app import application

REFERENCE = "\n".join(built(path) for name, path in site().items() if name.startswith("reference/api/"))
DOCUMENTED = re.findall(r"^\.\. auto(?:class|exception|function|data):: (\S+)$", REFERENCE, re.M)


@pytest.mark.parametrize("package", [simsched, workloads, hwbackend], ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference(package):
    """By its own name, or where it is another package's by that."""
    handed_on = re.findall(r"^`(\w+)` is `simsched\.(\w+)`\.$", REFERENCE, re.M)
    missing = [
        name
        for name in package.__all__
        if f"{package.__name__}.{name}" not in DOCUMENTED and not (package is hwbackend and (name, name) in handed_on)
    ]
    assert not missing
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


def test_every_package_has_a_room():
    """A package that names what is public is on a page: all but the command line, kernels, and what hands names on."""
    rooms = re.findall(r"<!-- room (\S+)", "\n".join(path.read_text(encoding="utf-8") for path in site().values()))
    packages = [
        ".".join(path.parent.relative_to(ROOT).parts)
        for room in ("*", "base/*", "model/*", "experiments/*", "show/*")
        for path in sorted((ROOT / "simsched").glob(f"{room}/__init__.py"))
        if re.search(r"^__all__", path.read_text(encoding="utf-8"), re.M)
    ]
    assert [name for name in packages if name not in rooms] == [
        "simsched.cli",
        "simsched.model",
        "simsched.base.jit",
    ]
    for package in (name for name in packages if name in rooms):
        for name in importlib.import_module(package).__all__:
            assert f"simsched.{name}" in DOCUMENTED or f"{package}.{name}" in DOCUMENTED, f"{package}.{name}"


def test_every_scheduler_has_a_section():
    text = built(DOCS / "reference/api/schedulers.md")
    assert re.findall(r"^## `(.+)`$", text, re.M) == list(simsched.SCHEDULERS)


def leaves(command, path):
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        leaf: found
        for name, inner in command.commands.items()
        for leaf, found in leaves(inner, f"{path} {name}").items()
    }


def test_every_command_and_option_is_in_the_reference():
    """Cut at its headings, the page has a section for each command, which names each option of it and no other's."""
    text = built(DOCS / "reference/cli.md")
    sections = dict(re.findall(r"^#{2,4} `(simsched [^`]+)`\n(.*?)(?=^#{2,4} |\Z)", text, re.M | re.S))
    commands = leaves(typer.main.get_command(application()), "simsched")
    assert set(commands) <= set(sections)
    assert {"simsched compare", "simsched study run"} <= set(commands)
    for path, command in commands.items():
        assert command.help.replace("`", "").splitlines()[0] in sections[path].replace("`", "")
        named = re.findall(r"^\| `([^`]+)`", sections[path], re.M)
        assert len(named) == len(command.params)
        for parameter, cell in zip(command.params, named, strict=True):
            assert all(option in cell for option in parameter.opts if option.startswith("-"))


def test_a_page_from_elsewhere_keeps_its_links():
    """What lies in docs stays a link; what is on a page of the site leads there; other files are named."""
    text = "[m](../docs/model.md#rates) [h](hardware/README.md) [u](jit.py) [w](https://example.org) [s](#here)"
    assert extension("pages").relinked(text, ROOT / "validation" / "README.md", "background/validation") == (
        "[m](../model.md#rates) [h](campaign.md) u (`validation/jit.py`) [w](https://example.org) [s](#here)"
    )


def record(name):
    return json.loads((ROOT / "validation" / name).read_text(encoding="utf-8"))


def test_the_evidence_is_that_of_the_records():
    """The numbers of the page on accuracy, recounted from the files that the checks wrote."""
    text = " ".join(prose((DOCS / "background/accuracy.md").read_text(encoding="utf-8")))
    parity, occupancy = record("parity.json"), record("occupancy.json")
    assert f"{sum(run['examples'] for run in parity['runs']):,} random programs" in text
    assert f"{occupancy['cases']:,} random kernels" in text
    assert occupancy["different"] == 0
    verdicts = [claim["verdict"].partition(":")[0] for claim in record("papers.json")["claims"].values()]
    reproduced, differ = verdicts.count("reproduced"), verdicts.count("differs")
    rest = len(verdicts) - reproduced - differ
    assert f"{len(verdicts)} claims" in text
    assert f"{reproduced} reproduced, {differ} differ, {rest} could not be tested" in text
    measured = [path for path in (ROOT / "validation/hardware/measurements").iterdir() if path.is_dir()]
    assert bool(measured) != ("This project has not measured a GPU yet" in text)


def test_the_glossary_has_the_vocabulary():
    text = (DOCS / "background/glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^(\S.*)\n  \S", text.partition("{glossary}")[2], re.M)
    vocabulary = (
        "OpGraph operator edge schedule placement stage group stream program span trace makespan profile "
        "calibration study row device link cluster backend scheduler kernel replay sweep elasticity"
    )
    assert set(vocabulary.split()) | {"cost model", "launch order", "what-if", "critical path"} <= set(terms)
    assert terms == sorted(terms, key=str.lower)
    for term in re.findall(r"\{term\}`(?:[^`<]*<)?([^`<>]+)>?`", text):
        assert term in terms, term


def test_what_makes_the_site_needs_no_network():
    """Nothing is fetched when it is built, and no page asks another host for scripts."""
    tree = ast.parse(Path(DOCS / "conf.py").read_text(encoding="utf-8"))
    values = {
        target.id: node.value for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        if isinstance(target, ast.Name)
    }  # fmt: skip
    extensions = ast.literal_eval(values["extensions"])
    assert not {"sphinx.ext.intersphinx", "sphinx.ext.mathjax", "sphinx.ext.githubpages"} & set(extensions)
    assert ast.literal_eval(values["html_math_renderer"]) == "mathml"


def test_the_summary_of_fuzzing_is_that_of_the_logs():
    """What `validation/README.md` says of spoiled documents, random command lines and mutated schedules, recounted."""
    text = " ".join((ROOT / "validation/README.md").read_text(encoding="utf-8").split())
    assert not any(reader["failures"] for reader in record("fuzz.json")["readers"].values())
    found = record("mutants.json")
    assert not found["failures"]
    for key in ("mutants", "accepted", "refused", "simulated", "edges_seen", "copies_seen"):
        assert f"{found[key]:,}" in text
