"""A machine with numpy and llvmlite alone, as many with GPUs are: every scheduler and the compiled engine work (G1)."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from quick import quick

import simsched as ss
import workloads

ROOT = Path(ss.__file__).parent.parent
CODE = """
import sys
import simsched as ss, workloads
graph, cluster = workloads.random_layered(n_ops=12, n_layers=4, rng=0), ss.Cluster.preset("a100", 2)
for name, options in {asked!r}.items():
    plan = ss.schedule(graph, cluster, name, **options)
    print(name, ss.simulate(plan, cluster, engine="compiled").makespan)
print(*sorted({{"simpy", "scipy", "networkx", "matplotlib", "rich", "typer"}} & set(sys.modules)))
try:
    ss.simulate(plan, cluster, engine="reference")
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A folder in which Python finds numpy, llvmlite and this library, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    for package in ("numpy", "llvmlite"):
        (home,) = find_spec(package).submodule_search_locations
        for path in Path(home).parent.glob(f"{package}*"):
            (folder / path.name).symlink_to(path)
    for package in ("simsched", "workloads"):
        (folder / package).symlink_to(ROOT / package)
    return folder


def test_every_scheduler_and_the_compiled_engine(bare):
    graph, cluster = workloads.random_layered(n_ops=12, n_layers=4, rng=0), ss.Cluster.preset("a100", 2)
    asked = {name: quick(name, graph) for name in ss.SCHEDULERS}
    environment = {"PYTHONPATH": str(bare), "PATH": "", "SIMSCHED_CACHE_DIR": str(bare / "kept")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", CODE.format(asked=asked)],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    *found, others, refused = done.stdout.splitlines()
    assert others == ""
    assert "pip install simpy" in refused
    plans = {name: ss.schedule(graph, cluster, name, **options) for name, options in asked.items()}
    assert found == [f"{name} {ss.simulate(plan, cluster).makespan}" for name, plan in plans.items()]
