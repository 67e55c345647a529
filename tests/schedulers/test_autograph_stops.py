"""What stops AutoGraph, and what it refuses."""

import logging
import signal

import pytest
from autograph_cases import Pair, forked
from small import made

from simsched.base.errors import CostError, SchedulerError
from simsched.model import Cluster
from simsched.schedulers import deadline, schedule
from simsched.schedulers.autograph import autograph

ONE = Cluster.preset("a100").without_overheads()


def run(graph, **options):
    return schedule(graph, ONE, autograph, **options)


# Stopped -----------------------------------------------------------------------------------------


def test_a_time_limit_between(caplog, monkeypatch):
    """By a clock that only the rule moves, 0.02 s a graph: after eight the limit of 0.15 s is over, nothing more is
    derived, and the schedule is whole."""
    now = [0.0]
    monkeypatch.setattr(deadline, "running_time", lambda: now[0])

    class Slow(Pair):
        def apply(self, draft, match):
            now[0] += 0.02
            return super().apply(draft, match)

    with caplog.at_level(logging.WARNING):
        plan = run(forked(40), rules=[Slow(8.0)], size_l=8, size_u=16, time_limit=0.15)
    assert plan.search["stopped"] == "time limit"
    assert 8 <= plan.search["candidates"] <= 9
    plan.check(ONE)


def test_ctrl_c_returns_the_best_so_far(caplog):
    """Pressed while the third graph is derived."""

    class Interrupted(Pair):
        def apply(self, draft, match):
            asked.append(match)
            if len(asked) == 3:
                signal.raise_signal(signal.SIGINT)
            return super().apply(draft, match)

    asked = []
    with caplog.at_level(logging.WARNING):
        plan = run(forked(40), rules=[Interrupted(8.0)], size_l=8, size_u=16)
    assert plan.search["stopped"] == "interrupted"
    assert "autograph: stopped (interrupted)" in caplog.text
    assert len(asked) < 40
    plan.check(ONE)


def test_ctrl_c_while_matches_are_counted(caplog):
    """Before the graph is cut: matches are counted no further, and the graph stays in one piece."""

    class Many(Pair):
        def matches(self, draft):
            if not counted:
                signal.raise_signal(signal.SIGINT)
            for _ in range(10**6):
                counted.append(draft)
                yield "b1", "c1"

    counted = []
    with caplog.at_level(logging.WARNING):
        plan = run(forked(40), rules=[Many(8.0)], size_l=8, size_u=16)
    assert plan.search["stopped"] == "interrupted"
    assert plan.search["subgraphs"] == len(counted) == 1
    plan.check(ONE)


# Refused -----------------------------------------------------------------------------------------


class Nameless:
    """All of a rule but its name."""

    def matches(self, draft):
        yield from ()

    def apply(self, draft, match):
        return draft


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ["R99"]}, "autograph: rules has no 'R99'"),
        ({"rules": "R1"}, "autograph: rules must be a list of names"),
        ({"rules": [3]}, "autograph: rules must hold names or rules"),
        ({"measure": lambda _: None}, "autograph: measure must return a time in us, not None"),
        ({"rules": [Nameless()]}, "autograph: rules must hold names or rules with `name`"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(SchedulerError) as caught:
        run(forked(), **{"rules": [Pair(8.0)]} | options)
    assert message in str(caught.value)


def test_a_graph_without_shapes_is_refused():
    """Nothing could ever be rewritten, and nobody would know why."""
    graph, text = made("a=1 b=1", "ab"), r"autograph: operator 'a' has no shapes.* give .*`output_shape`.*rules=\(\)"
    with pytest.raises(SchedulerError, match=text):
        run(graph, rules=[Pair(8.0)])
    assert run(graph, rules=()).graph is graph


def test_a_profile_that_does_not_know_new_operators_says_so():
    def measured(op, _device):
        if "+" in op.name:
            raise CostError(f"operator {op.name!r} was not measured")
        return op.time

    with pytest.raises(CostError, match=r"'b1\+c1' was not measured"):
        schedule(forked(), ONE, autograph, measured, rules=[Pair(8.0)])
