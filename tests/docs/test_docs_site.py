"""The reference has every public name and every command; the background says what the records say.

The build of the site itself refuses links, anchors, pictures and terms that lead nowhere, and public names of the three
packages that no page has.
"""

import importlib
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import pytest

import simsched
from validation.fuzz import commands

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def record(name):
    return json.loads(read(f"validation/{name}"))


@cache
def extension():
    """docs/_ext/pages.py, which is no package and not on the path."""
    spec = importlib.util.spec_from_file_location("docs_pages", DOCS / "_ext" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def built(pattern):
    """The text of the pages that fit a pattern, with what their comments stand for."""
    pages = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in sorted(DOCS.glob(pattern))}
    return "\n".join(extension().completed(path.read_text(encoding="utf-8"), name) for name, path in pages.items())


def test_every_public_name_of_a_package_is_in_the_reference():
    """All but those of the command line and of kernels, and those that `simsched.model` hands on."""
    documented = re.findall(r"^\.\. auto(?:class|exception|function|data):: (\S+)$", built("reference/api/*.md"), re.M)
    names = [
        (package, name)
        for room in ("*", "base/*", "model/*", "experiments/*", "show/*")
        for path in sorted((ROOT / "simsched").glob(f"{room}/__init__.py"))
        for package in [".".join(path.parent.relative_to(ROOT).parts)]
        if package not in ("simsched.cli", "simsched.base.jit", "simsched.model")
        for name in getattr(importlib.import_module(package), "__all__", ())
    ]
    assert len(names) > 100
    for package, name in names:
        assert {f"{package}.{name}", f"simsched.{name}"} & {*documented}, (package, name)


def test_every_scheduler_has_a_section():
    assert re.findall(r"^## `(.+)`$", built("reference/api/schedulers.md"), re.M) == list(simsched.SCHEDULERS)


def test_every_command_and_option_is_in_the_reference():
    """Cut at its headings, the page has a section for each command, which names each option of it and no other's."""
    sections = dict(
        re.findall(r"^#{2,4} `simsched ([^`]+)`\n(.*?)(?=^#{2,4} |\Z)", built("reference/cli.md"), re.M | re.S)
    )
    for path, parameters in commands():
        named = re.findall(r"^\| `([^`]+)`", sections[" ".join(path)], re.M)
        for parameter, cell in zip(parameters, named, strict=True):
            assert all(option in cell for option in parameter.opts if option.startswith("-"))


def test_a_page_from_elsewhere_keeps_its_links():
    """What lies in docs stays a link; what is on a page of the site leads there; other files are named."""

    def relinked(text):
        return extension().relinked(text, ROOT / "validation" / "README.md", "background/validation")

    text = "[m](../docs/model.md#rates) [h](hardware/README.md) [u](jit.py) [w](https://example.org) [s](#here)"
    assert relinked(text) == (
        "[m](../model.md#rates) [h](campaign.md) u (`validation/jit.py`) [w](https://example.org) [s](#here)"
    )
    with pytest.raises(FileNotFoundError, match=r"validation/README\.md: jot\.py"):
        relinked("[u](jot.py)")
    assert built("**/*.md")


def test_the_evidence_is_that_of_the_records():
    """The numbers of the page on accuracy, recounted from the files that the checks wrote."""
    text = " ".join(read("docs/background/accuracy.md").split())
    parity, occupancy = record("parity.json"), record("occupancy.json")
    assert f"{sum(run['examples'] for run in parity['runs']):,} random programs" in text
    assert f"{occupancy['cases']:,} random kernels" in text
    assert occupancy["different"] == 0
    measured = [path for path in (ROOT / "validation/hardware/measurements").iterdir() if path.is_dir()]
    assert bool(measured) != ("This project has not measured a GPU yet" in text)


def test_the_glossary_has_the_vocabulary():
    terms = re.findall(r"^(\S.*)\n  \S", read("docs/background/glossary.md").partition("{glossary}")[2], re.M)
    vocabulary = (
        "OpGraph operator edge schedule placement stage group stream program span trace makespan profile "
        "calibration study row device link cluster backend scheduler kernel replay sweep elasticity"
    )
    assert {*vocabulary.split(), "cost model", "launch order", "what-if", "critical path"} <= {*terms}
    assert terms == sorted(terms, key=str.lower)


def test_what_makes_the_site_needs_no_network():
    """Nothing is fetched when it is built, and no page asks another host for scripts."""
    assert not re.search("intersphinx|mathjax|githubpages", read("docs/conf.py"))
    assert re.search('^html_math_renderer = "mathml"$', read("docs/conf.py"), re.M)


def test_the_summary_of_fuzzing_is_that_of_the_logs():
    """What `validation/README.md` says of spoiled documents, random command lines and mutated schedules, recounted."""
    text = " ".join(read("validation/README.md").split())
    assert not any(reader["failures"] for reader in record("fuzz.json")["readers"].values())
    found = record("mutants.json")
    assert not found["failures"]
    for key in ("mutants", "accepted", "refused", "simulated", "edges_seen", "copies_seen"):
        assert f"{found[key]:,}" in text
