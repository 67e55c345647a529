"""Imports run downward only: read from the source, so that no import has to run."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent

# Rooms from the ground up; a module may import from its own room and from those below it.
ROOMS = (
    ("simsched.base",),
    ("simsched.model",),
    ("simsched.rewriting",),
    ("simsched.simulator", "simsched.schedulers"),
    ("simsched.bounds", "simsched.optimum"),
    ("simsched.calibration",),
    ("simsched.experiments",),
    ("simsched.testing",),
    ("simsched.show",),
    ("simsched",),
    ("workloads",),
    ("hwbackend",),
    ("simsched.cli", "simsched.__main__", "validation"),
)
PACKAGES = ("simsched", "workloads", "hwbackend")
SHARED_BY_SCHEDULERS = tuple(
    f"simsched.schedulers.{name}" for name in ("list_scheduling", "instance", "protocol", "stage_costs")
)
HEAVY = {
    "matplotlib",
    "llvmlite",
    "scipy",
    "networkx",
    "simpy",
    "rich",
    "typer",
    "pandas",
    "cupy",
    "torch",
    "onnx",
    "ortools",
    "dask",
    "distributed",
    "pyarrow",
    "plotly",
}
# optional packages, and the modules that may import them
OPTIONAL = {
    "cupy": ("hwbackend.cuda",),
    "cupyx": ("hwbackend.cuda",),
    "ortools": ("simsched.optimum",),
    "dask": ("simsched.experiments.study.execution.pools",),
    "distributed": ("simsched.experiments.study.execution.pools",),
    "plotly": ("simsched.show.report",),
    "pyarrow": ("simsched.experiments.result",),
    "torch": ("hwbackend.torch", "workloads.formats.torch"),
    "onnx": ("workloads.formats.onnx",),
}


def modules(planted=None):
    """Every module of the packages by dotted name, with its path and its text; code may be planted by path."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        where = path.relative_to(ROOT)
        parts = where.with_suffix("").parts
        text = path.read_text(encoding="utf-8") + "\n" + (planted or {}).get(where.as_posix(), "")
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (where, text)
    return found


@cache  # planted trees differ in one file each
def imports(module, is_package, text, known, typing=False):
    """Modules that a module imports (line, name), inside functions and by name too, but none for the type checker."""

    def visit(node):
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.orelse:
                yield from visit(child)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if is_package else module.rpartition(".")[0]
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in known else base
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # what is imported by name
            named = re.fullmatch(r"((?:simsched|workloads|hwbackend)[\w.]*)(:\w+)?", node.value)
            if named and named[1] in known and (named[2] or named[1].count(".") > 1):
                yield node.lineno, named[1]
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return list(visit(ast.parse(text)))


def within(module, *places):
    """Whether a module is one of some modules, or inside one that is a package."""
    return f"{module}.".startswith(tuple(f"{place}." for place in places))


def room(module):
    """The number of the room a module belongs to, or None for others' modules; `simsched` is only its own file."""
    if not within(module, *PACKAGES):
        return None
    for i, names in enumerate(ROOMS):
        if module in names or within(module, *(name for name in names if name != "simsched")):
            return i
    raise LookupError(f"{module} has no room: add it to ROOMS")


def complaints(module, target):
    """What an import breaks."""
    top, family = target.split(".")[0], ".".join(module.split(".")[:3])  # of a scheduler: its file, or its package
    if room(target) is not None and room(target) > room(module):
        yield "it is in a room above"
    if module.startswith("simsched.schedulers."):
        if within(target, "simsched.schedulers") and not within(target, *SHARED_BY_SCHEDULERS, family):
            yield "schedulers do not know each other"
        if within(target, "simsched.simulator"):
            yield "schedulers do not know the simulator"
    if within(module, "simsched.simulator") and within(target, "simsched.schedulers"):
        yield "the simulator does not know the schedulers"
    if within(module, "simsched") and not within(module, *ROOMS[-1]) and top in ("workloads", "hwbackend"):
        yield "the library knows no hardware and no model zoo"
    if top in OPTIONAL and not module.startswith(OPTIONAL[top]):
        yield f"only {'*.py, '.join(OPTIONAL[top])}*.py may"


def found_imports(known, typing=False):
    """Every import of some modules: the module, where it says so, and what it imports."""
    for module, (path, text) in known.items():
        for line, target in imports(module, path.name == "__init__.py", text, frozenset(known), typing):
            yield module, f"{path}:{line}", target


def breaches(known):
    """What breaks the rules, one line each."""
    return [
        f"{where}: {module} imports {target}: {complaint}"
        for module, where, target in found_imports(known)
        for complaint in complaints(module, target)
    ]


def circles(known):
    """Files that import each other in a circle, also for the type checker alone."""
    found = found_imports(known, typing=True)
    graph = nx.DiGraph((module, target) for module, _, target in found if target in known and target != module)
    return [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]


TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {} import x\n"


def test_no_files_import_each_other_in_a_circle():
    assert circles(modules()) == []
    (found,) = circles(modules({"simsched/base/errors.py": TYPING.format("simsched.base.io")}))
    assert {"simsched.base.errors", "simsched.base.io"} <= set(found)


def test_imports_run_downward():
    """Every module has a room; what the type checker alone imports does not count."""
    assert breaches(modules()) == []
    assert breaches(modules({"simsched/model/graph/operator.py": TYPING.format("simsched.show.plot")})) == []
    with pytest.raises(LookupError, match=r"simsched\.attic has no room"):
        room("simsched.attic")


ABOVE, OTHERS = "in a room above", "do not know each other"


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("simsched/model/program.py", "def f():\n    from simsched.experiments.comparison import compare", ABOVE),
        ("simsched/model/program.py", "from ..simulator import simulate", ABOVE),
        ("simsched/model/program.py", "from .. import simulator", ABOVE),
        ("simsched/model/graph/operator.py", "import simsched.simulator.evaluator as e", ABOVE),
        ("simsched/model/graph/operator.py", "PLACES = {'html': 'simsched.show.notebook:html'}", ABOVE),
        ("simsched/model/trace/trace.py", "import simsched", ABOVE),
        ("simsched/bounds.py", "if True:\n    import simsched.cli", ABOVE),
        ("simsched/schedulers/lios.py", "from simsched.schedulers import greedy", OTHERS),
        ("simsched/schedulers/lios.py", "from .greedy import greedy", OTHERS),
        ("simsched/schedulers/lios.py", "from simsched.simulator import simulate", "do not know the simulator"),
        ("simsched/simulator/device.py", "from simsched.schedulers import SCHEDULERS", "does not know the schedulers"),
        ("simsched/experiments/comparison.py", "def f():\n    import workloads.registry", "no model zoo"),
        ("simsched/experiments/comparison.py", "import hwbackend", "no model zoo"),
        ("simsched/model/trace/trace.py", "def f():\n    import cupy", "only hwbackend.cuda*.py may"),
        (
            "workloads/registry.py",
            "from torch import nn",
            "only hwbackend.torch*.py, workloads.formats.torch*.py may",
        ),
    ],
)
def test_a_planted_import_is_found(path, code, message):
    assert any(line.startswith(f"{path}:") and message in line for line in breaches(modules({path: code})))


LIGHT = ("simsched; simsched.simulate, simsched.OpGraph", "workloads", "simsched.model.schedule, simsched.base.errors")


@pytest.mark.parametrize("package", LIGHT)
def test_importing_is_light(package):
    """None of the large dependencies is loaded before it is needed."""
    code = f"import sys, {package}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & set(loaded) == set()


def test_every_public_name_can_be_imported():
    import simsched

    for name in simsched.__all__:
        assert getattr(simsched, name) is not None
    assert set(simsched.__all__) <= set(dir(simsched))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simsched.nothing


def test_names_of_test_files_are_unique():
    """Tests lie in folders without ``__init__.py``: of two modules of one name, pytest imports conftest.py alone."""
    names = sorted(path.name for folder in ("tests", "docs") for path in (ROOT / folder).rglob("*.py"))
    assert {name for name in names if names.count(name) > 1} <= {"conftest.py"}


def test_no_pool_copies_this_process():
    """A process copied from one with threads may wait for them for ever: every pool says how its processes begin."""
    paths = [path for folder in (*PACKAGES, "validation", "tests") for path in (ROOT / folder).rglob("*.py")]
    texts = [text for text in (path.read_text() for path in paths) if "ProcessPoolExecutor" in text]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    calls = [ast.unparse(node) for node in nodes]
    pools = [call for call in calls if call.startswith(("ProcessPoolExecutor(", "partial(ProcessPoolExecutor"))]
    assert len(pools) >= 2
    assert [call for call in pools if "get_context" not in call] == []
