"""What a user can call to check a scheduler or a backend: each broken promise is found, by its name."""

import itertools
import json
import textwrap
from dataclasses import replace

import pytest

import hwbackend
import simsched as ss
from simsched.base.errors import SchedulerError
from simsched.cli.run import run
from simsched.testing import check_backend, check_scheduler

COUNT = itertools.count()


def dealing(graph, cluster, cost):
    return ss.Schedule(graph, [ss.Placement(name, stream=i % 2) for i, name in enumerate(graph.order)])


def backwards(graph, cluster, cost):
    return ss.Schedule(graph, [ss.Placement(name) for name in reversed(graph.order)])


def another_each_time(graph, cluster, cost):
    return ss.Schedule(graph, [ss.Placement(name, stream=next(COUNT) % 3) for name in graph.order])


def failing(graph, cluster, cost):
    raise ZeroDivisionError("of mine")


def refusing(graph, cluster, cost):
    raise SchedulerError("I take none")


def caring(graph, cluster, cost):
    if len(graph) > 5:
        raise SchedulerError("too large")
    return dealing(graph, cluster, cost)


def test_a_good_one_keeps_all():
    found = check_scheduler(dealing, sizes=(10, 20))
    assert (found.broken, [each.kept for each in found.promises]) == ((), [True] * 5)
    found.require()


def here(scheduler):
    """The same, which other processes cannot import: what it does there is not tried."""
    return lambda graph, cluster, cost: scheduler(graph, cluster, cost)


def test_one_that_takes_small_graphs_alone():
    found = check_scheduler(here(caring), sizes=())
    assert [each.kept for each in found.promises] == [True, True, None, True, True]
    assert "graphs refused" in found.promises[0].detail


@pytest.mark.parametrize(
    ("scheduler", "promise", "detail"),
    [
        (backwards, "its schedules are valid", "it is launched before"),
        (another_each_time, "the same call gives the same", "two calls give two schedules"),
        (failing, "its schedules are valid", "it raised ZeroDivisionError: of mine"),
        (refusing, "its schedules are valid", "it refuses every graph; one on 1 x a100: I take none"),
    ],
)
def test_the_broken_promise_is_named(scheduler, promise, detail):
    found = check_scheduler(here(scheduler), sizes=(5,))
    assert found.broken[0].text.startswith(promise)
    assert detail in found.broken[0].detail
    with pytest.raises(SchedulerError, match=r"breaks [1-5] of 5 promises"):
        found.require()


def test_one_that_follows_the_seed_of_hashes(tmp_path, monkeypatch, capsys):
    """Seen from another process; the command line says so in a line, and its status is 2."""
    (tmp_path / "hashed.py").write_text(
        textwrap.dedent("""
        import simsched as ss
        def by_hash(graph, cluster, cost):
            return ss.Schedule(graph, [ss.Placement(n, stream=hash(n) % 4) for n in graph.order])
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["check", "hashed:by_hash"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: hashed:by_hash breaks 1 of 5 promises: it gives the same schedules whatever the")
    assert run(["check", "lios", "--json"]) == 0
    assert {row["kept"] for row in json.loads(capsys.readouterr().out)["promises"]} == {True}


def replaying(change):
    """A backend whose replays are made of its own: `change` is given those, the schedule and the options."""
    backend = hwbackend.get("synthetic", gpu="a40")
    replay = backend.replay
    backend.replay = lambda plan, **options: change(replay, plan, options)
    return backend


@pytest.mark.parametrize(
    ("field", "value", "promise"),
    [
        ("latency", (1.0, 2.0), "every repeat has a latency"),
        ("max_relative_error", 0.1, "outputs are those of one operator after the other"),
        (
            "environment",
            dict.fromkeys(("backend", "device", "date", "python"), "x") | {"commit": ""},
            "it says where and when it measured",
        ),
    ],
)
def test_a_spoilt_backend_is_found_out(field, value, promise):
    backend = replaying(lambda replay, plan, options: replace(replay(plan, **options), **{field: value}))
    assert promise in [each.text for each in check_backend(backend).broken]


def test_a_backend_that_runs_anything_is_found_out():
    def any_number(replay, plan, options):
        return replay(plan, repeats=max(1, int(options["repeats"])), warmup=max(0, options["warmup"]))

    (broken,) = check_backend(replaying(any_number)).broken
    assert (broken.text, broken.detail) == ("what it cannot run is refused", "0 repeats: it is not refused")
