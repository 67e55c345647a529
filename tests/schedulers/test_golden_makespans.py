"""What every scheduler makes of some workloads: estimate and simulated makespan in us, as recorded.

A change of a scheduler, of the simulator or of a preset shows here first. What is recorded may change only with a
note in the changelog that says why, by

    PYTHONPATH=.:tests python tests/schedulers/test_golden_makespans.py record
"""

import sys
from functools import cache
from pathlib import Path

import pytest
from quick import quick

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.io import dump_json, read_json
from simsched.schedulers import SCHEDULERS

FILE = Path(__file__).parent / "golden" / "makespans.json"
SETTINGS = {
    "squeezenet on v100": ("squeezenet", "v100", 1),
    "inception_v3 on a100": ("inception_v3", "a100", 1),
    "inception_v3 on 2 a40": ("inception_v3", "a40", 2),
    "googlenet by operators on h100": ("googlenet,granularity=operator", "h100", 1),
    "layered on 4 a40": ("random:layered,n_ops=100,n_layers=10,comm_ratio=0.8,seed=1", "a40", 4),
    "cholesky on 2 a100": ("random:cholesky,tiles=6,seed=1", "a100", 2),
}


@cache
def case(setting):
    spec, gpu, n = SETTINGS[setting]
    return workloads.from_spec(spec), ss.Cluster.preset(gpu, n)


def figures(setting, name):
    """Estimate, makespan and what the search counted; or why there is no schedule."""
    graph, cluster = case(setting)
    try:
        plan = ss.schedule(graph, cluster, name, **quick(name, graph))
    except SchedulerError as error:
        return {"refused": str(error)}
    counted = {key: value for key, value in plan.search.items() if isinstance(value, int)}
    return {"estimate": plan.estimate, "makespan": ss.simulate(plan, cluster).makespan, "search": counted}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_as_recorded(setting, name):
    recorded, found = read_json(str(FILE))[setting][name], figures(setting, name)
    assert found.keys() == recorded.keys()
    for key, value in recorded.items():
        if key in ("estimate", "makespan") and value is not None:
            value = pytest.approx(value, rel=1e-9)
        assert found[key] == value, key


def test_every_scheduler_is_recorded():
    for name in SCHEDULERS:
        assert any("makespan" in rows[name] for rows in read_json(str(FILE)).values()), name


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        sys.exit(__doc__)
    rows = {setting: {name: figures(setting, name) for name in SCHEDULERS} for setting in SETTINGS}
    FILE.write_text(dump_json(rows))
