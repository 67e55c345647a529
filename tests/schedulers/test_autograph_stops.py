"""What stops AutoGraph, and what it refuses."""

import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from autograph_cases import Pair, forked

from simsched.base.errors import CostError
from simsched.model import Cluster
from simsched.schedulers import deadline, schedule
from simsched.schedulers.autograph import autograph

ONE = Cluster.preset("a100").without_overheads()


def run(graph, **options):
    return schedule(graph, ONE, autograph, **options)


# Stopped -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched(Pair):
    """The same rule, which tells of each match and of each application."""

    tell: Callable = print

    def matches(self, draft):
        for match in super().matches(draft):
            self.tell("match")
            yield match

    def apply(self, draft, match):
        self.tell("apply")
        return super().apply(draft, match)


def stopped(tell, **options):
    """What the search says of itself when it was stopped, and what was told."""
    told = []

    def telling(what):
        told.append(what)
        tell(told)

    plan = run(forked(40), rules=[Watched(8.0, tell=telling)], size_l=8, size_u=16, **options)
    plan.check(ONE)
    return plan.search, told


def test_a_time_limit_between(monkeypatch):
    """By a clock that only the rule moves, 0.02 s a graph: after eight the limit of 0.15 s is over, nothing more is
    derived, and the schedule is whole."""
    now = [0.0]
    monkeypatch.setattr(deadline, "running_time", lambda: now[0])
    search, _ = stopped(lambda told: now.append(now.pop() + 0.02 * (told[-1] == "apply")), time_limit=0.15)
    assert search["stopped"] == "time limit"
    assert 8 <= search["candidates"] <= 9


def press(told, what, times):
    if told.count(what) == times and told[-1] == what:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_returns_the_best_so_far(caplog):
    """Pressed while the third graph is derived."""
    search, told = stopped(lambda told: press(told, "apply", 3))
    assert search["stopped"] == "interrupted"
    assert "autograph: stopped (interrupted)" in caplog.text
    assert told.count("apply") < 40


def test_ctrl_c_while_matches_are_counted():
    """Before the graph is cut: matches are counted no further, and the graph stays in one piece."""
    search, told = stopped(lambda told: press(told, "match", 1))
    assert search["stopped"] == "interrupted"
    assert (search["subgraphs"], told) == (1, ["match"])


def test_a_profile_that_does_not_know_new_operators_says_so():
    def measured(op, _device):
        if "+" in op.name:
            raise CostError(f"operator {op.name!r} was not measured")
        return op.time

    with pytest.raises(CostError, match=r"'b1\+c1' was not measured"):
        schedule(forked(), ONE, autograph, measured, rules=[Pair(8.0)])
