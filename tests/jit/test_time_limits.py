"""The making of machine code counts in no time limit: an empty cache gives the answers of a warm one (C1)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simsched

ROOT = Path(simsched.__file__).parent.parent
SLOWLY = """
import json, sys, tempfile, time
from simsched.base.jit import native
made = native.to_object
def slowly(*arguments, **options):
    time.sleep(1.0)
    return made(*arguments, **options)
native.to_object = slowly
import simsched as ss, workloads
graph, cluster = workloads.random_layered(n_ops=8, n_layers=3, rng=3), ss.Cluster.preset("a100", 2)
LIMIT = 2.0
"""
ASKED = {
    "optimal": "o = ss.optimal(graph, cluster, time_limit=LIMIT); answer = o.makespan, o.proved, o.search['stopped']",
    "ios": "p = ss.schedule(graph, cluster, 'ios', time_limit=LIMIT); answer = p.estimate, p.search['stopped']",
    "search": (
        "p = ss.schedule(graph, cluster, 'search', time_limit=LIMIT, evaluations=20, rng=0);"
        " answer = ss.simulate(p, cluster).makespan, p.search['stopped'], p.search['evaluations']"
    ),
    "study": """
study = ss.Study("limits", ["lios", "hios-lp"], {"kind": "layered", "n_ops": 8, "n_layers": 3}, {"gpu": "a40"},
                 execution={"time_limit": LIMIT})
with tempfile.TemporaryDirectory() as folder:
    rows = ss.run_study(study, folder, load=workloads.load_kind, executor="serial").rows
answer = [(row["status"], row["makespan_us"], row["wall.search_s"] < LIMIT) for row in rows]
""",
    "compare": (
        "r = ss.compare(graph, cluster, ['lios', 'ios']);"
        " answer = [(x.makespan_us, x.search_s < LIMIT) for x in r.rows]"
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_empty_cache_gives_the_answer_of_a_warm_one(tmp_path, asked):
    """Each piece takes 1 s more to make, and each answer of some ms may take 2 s: also on a machine that is busy."""

    def answer():
        environment = os.environ | {"SIMSCHED_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        code = f"{SLOWLY}\n{ASKED[asked]}\nprint(json.dumps(answer))"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return json.loads(done.stdout.splitlines()[-1])

    cold = answer()
    assert any(tmp_path.iterdir())
    assert cold == answer()
    assert "time limit" not in str(cold)
    assert "timeout" not in str(cold)
