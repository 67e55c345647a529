"""What the packages are made from: versions that agree, extras that exist, files that are listed."""

import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import simsched

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("simsched", "hwbackend", "workloads")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_one_version():
    """Written down in pyproject.toml alone; the installed one, the citation and the changelog are of it."""
    written = PROJECT["project"]["version"]
    assert simsched.__version__ == version("simsched") == written
    assert f"\nversion: {written}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"^## .*{re.escape(written)}", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert not any(f'"{written}"' in path.read_text(encoding="utf-8") for path in SOURCES)


def test_python_versions_agree():
    """The oldest that is allowed is the one that is checked for, and the first of the classifiers."""
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert named[0] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert f"Python {oldest} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_entry_points_can_be_imported():
    module, _, function = PROJECT["project"]["entry-points"]["torch_dynamo_backends"]["simsched"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_command_is_a_script():
    """Its first line becomes the Python of an environment; processes that a command starts read the script, too."""
    scripts = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-scripts"]
    (path,) = scripts
    assert (scripts[path], os.access(ROOT / path, os.X_OK)) == ("simsched", True)
    assert (ROOT / path).read_text(encoding="utf-8").startswith("#!python\n")
    done = subprocess.run([sys.executable, ROOT / path, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"simsched {simsched.__version__}\n"
    runpy.run_path(str(ROOT / path), run_name="__mp_main__")


def test_extras_that_errors_name_exist():
    """Whoever lacks a package is told of an extra of this project; what tests need of some, they have."""
    extras = PROJECT["project"]["optional-dependencies"]
    told = {
        extra
        for path in SOURCES
        for found in re.findall(r"simsched\[([a-z0-9,]+)\]", path.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert told
    assert told <= set(extras)
    for extra in ("cluster", "exact", "onnx", "parquet", "report"):
        assert set(extras[extra]) <= set(extras["test"]), extra


def test_files_that_are_no_modules_lie_in_packages():
    """A wheel holds whole packages: kernels, styles and scripts are in folders with modules."""
    wanted = [
        "simsched/show/report/page.css",
        "simsched/show/report/page.js",
        "hwbackend/cuda/kernels/synth.cu",
        *(f"{package}/py.typed" for package in PACKAGES),
    ]
    for path in wanted:
        assert (ROOT / path).is_file(), path
        assert (ROOT / path).with_name("__init__.py").is_file(), path
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == list(PACKAGES)


def test_the_source_package_holds_what_the_readme_promises():
    """Folders and files of the first level, each from the top: a pattern without a slash would match anywhere."""
    listed = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(name.startswith("/") for name in listed)
    linked = re.findall(r"\]\(([\w.-]+)[/)#]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {"docs", "validation"} <= set(linked)
    assert {f"/{name}" for name in linked} <= set(listed)
    assert {"/tests", *(f"/{package}" for package in PACKAGES)} <= set(listed)
