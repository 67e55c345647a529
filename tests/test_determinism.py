"""The same input gives the same answer, whatever the hash seed of the process, and on a machine with few packages."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import simsched as ss
from simsched.schedulers import SCHEDULERS

# All operators take 10 us and all tensors are equal: whatever is not decided by order is decided by chance.
SCRIPT = """
import json, sys
import numpy as np
import simsched as ss
import workloads
from quick import quick
from simsched.schedulers import SCHEDULERS

rng = np.random.default_rng(7)
names = [f"op{i}" for i in rng.permutation(40)]
pairs = sorted({tuple(sorted(rng.choice(40, 2, replace=False).tolist())) for _ in range(75)})
shuffled = rng.permutation(40)
graph = ss.OpGraph(
    [ss.Operator(names[i], time=10.0, utilization=0.5, block=f"b{i % 3}") for i in range(40)],
    [ss.Edge(names[shuffled[i]], names[shuffled[j]], nbytes=1e6) for i, j in pairs],
)
cluster = ss.Cluster.preset("a40", 4)
answer = {"order": graph.order, "blocks": graph.blocks, "width": graph.width, "longest": graph.longest_path()}
for name in SCHEDULERS:
    plan = ss.schedule(graph, cluster, name, **quick(name, graph))
    trace = ss.simulate(plan, cluster)
    jittered = ss.simulate(plan, cluster, jitter=0.1, rng=3)
    answer[name] = {
        "plan": plan.to_dict(),
        "program": plan.lower(cluster).to_dict(),
        "spans": [[s.kind, s.name, s.device, s.stream, s.start, s.end, s.ready] for s in trace.spans],
        "jittered": [[s.name, s.start, s.end] for s in jittered.spans],
    }
rows = ss.compare(graph, cluster, ["lios-rand", "hios-lp", "nimble"]).to_dict()
for row in rows["rows"]:
    del row["search_s"]
answer["compare"] = rows
answer["drawn"] = [draw(each) for draw in (ss.to_svg, ss.to_dot) for each in (graph, plan)]
net = workloads.load("squeezenet", granularity="operator")
for name in ("autograph", "opara", "ios"):
    answer[f"{name} of a network"] = ss.schedule(net, cluster, name).to_dict()
json.dump(answer, sys.stdout)
"""


def test_answers_do_not_depend_on_the_hash_seed(capsys):
    """In this process, and in one of another seed."""
    exec(SCRIPT, {})
    here = json.loads(capsys.readouterr().out)
    seed = os.environ.get("PYTHONHASHSEED", "")
    environment = os.environ | {"PYTHONHASHSEED": "2" if seed == "1" else "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert [name for name in there if here[name] != there[name]] == []
    assert all(here[name][part] for name in SCHEDULERS for part in ("plan", "program", "spans", "jittered"))


EVERY_SCHEDULER = """
import simsched as ss, workloads
from quick import quick
graph, cluster = workloads.random_layered(n_ops=12, n_layers=4, rng=0), ss.Cluster.preset("a100", 2)
for name in ss.SCHEDULERS:
    plan = ss.schedule(graph, cluster, name, **quick(name, graph))
    print(name, ss.simulate(plan, cluster, engine="compiled").makespan)
"""
OTHERS = """
import sys
print(*sorted({"simpy", "scipy", "networkx", "matplotlib", "rich", "typer"} & set(sys.modules)))
try:
    ss.simulate(plan, cluster, engine="reference")
except ImportError as error:
    print(error)
"""


def test_numpy_and_llvmlite_are_enough(tmp_path, capsys):
    """As on many machines with GPUs: with nothing else every scheduler and the compiled engine work (G1)."""
    homes = {name: Path(find_spec(name).submodule_search_locations[0]).parent for name in ("numpy", "llvmlite")}
    root = Path(ss.__file__).parent.parent
    needed = [path for name, home in homes.items() for path in home.glob(f"{name}*")]
    for path in (*needed, root / "simsched", root / "workloads", Path(__file__).parent / "quick.py"):
        (tmp_path / path.name).symlink_to(path)
    exec(EVERY_SCHEDULER, {})
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "", "SIMSCHED_CACHE_DIR": str(tmp_path / "kept")}
    command = [sys.executable, "-S", "-c", EVERY_SCHEDULER + OTHERS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    *found, others, refused = done.stdout.splitlines()
    assert found == capsys.readouterr().out.splitlines()
    assert others == ""
    assert "pip install simpy" in refused
