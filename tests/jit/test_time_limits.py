"""The making of machine code counts in no time limit, and in no time that is told."""

import signal
import sys
import time
from pathlib import Path

import pytest

import simsched as ss
import workloads
from simsched.base.jit import machine_code
from simsched.base.jit.pieces import all_pieces

ROOT = Path(ss.__file__).parent.parent
LIMIT = 1_000.0  # s
GRAPH, CLUSTER = workloads.random_layered(n_ops=8, n_layers=3, rng=3), ss.Cluster.preset("a100", 2)


@pytest.fixture
def slow_code(monkeypatch):
    """All code has to be loaded anew, each piece for longer than the limit, by the clock; alarms ring meanwhile."""
    usual, clock, seconds = machine_code.link, time.perf_counter, [0.0]

    def link(symbol, data):
        seconds.append(seconds[-1] + 2 * LIMIT)
        signal.raise_signal(signal.SIGALRM)
        return usual(symbol, data)

    def late():
        return clock() + seconds[-1]

    for name in ("perf_counter", "monotonic"):
        for module in [time, *(module for key, module in sys.modules.items() if key.startswith("simsched."))]:
            monkeypatch.setattr(module, name, late, raising=False)
    monkeypatch.setattr(machine_code, "link", link)
    for piece in all_pieces(ROOT):
        monkeypatch.setattr(piece, "_natives", {})
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    yield seconds
    signal.signal(signal.SIGALRM, before)


def optimal():
    found = ss.optimal(GRAPH, CLUSTER, time_limit=LIMIT)
    return found.makespan, found.proved, found.search["stopped"]


def scheduled(scheduler, **options):
    plan = ss.schedule(GRAPH, CLUSTER, scheduler, time_limit=LIMIT, **options)
    return ss.simulate(plan, CLUSTER).makespan, plan.search["stopped"], plan.search["time_s"] < LIMIT


def compared():
    return [(row.makespan_us, row.search_s < LIMIT) for row in ss.compare(GRAPH, CLUSTER, ["lios", "ios"]).rows]


@pytest.mark.parametrize(
    "ask",
    [optimal, compared, lambda: scheduled("ios"), lambda: scheduled("search", evaluations=20, rng=0)],
    ids=["optimal", "compare", "ios", "search"],
)
def test_code_that_is_slow_to_make_changes_no_answer(slow_code, ask):
    answer = ask()
    assert len(slow_code) > 1
    assert ask() == answer
    assert "time limit" not in str(answer)
    assert "False" not in str(answer)


def test_code_that_is_slow_to_make_lets_no_row_of_a_study_time_out(slow_code, tmp_path):
    limits = {"time_limit": LIMIT}
    study = ss.Study(
        "limits", ["lios", "hios-lp"], {"kind": "layered", "n_ops": 8, "n_layers": 3}, {"gpu": "a40"}, execution=limits
    )
    rows = ss.run_study(study, tmp_path, load=workloads.load_kind, executor="serial").rows
    assert len(slow_code) > 1
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert all(row[name] < LIMIT for row in rows for name in ("wall.row_s", "wall.search_s", "wall.simulate_s"))
