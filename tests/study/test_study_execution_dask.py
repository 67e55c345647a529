"""Batches on Dask: a cluster of this machine, and one at an address."""

import os
import signal
from functools import partial

import pytest
from execution_cases import fatal, hang, ordered, run, squares, where

from simsched.base.errors import StudyError
from simsched.experiments.study.execution import cluster, pool_of

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def dask():
    with pool_of("dask", 2) as pool:
        yield pool


def test_rows_are_the_same(dask):
    expected = [row for rows in squares(range(100)) for row in rows]
    assert ordered(run(range(100), squares, dask)[0]) == expected
    factor = 3
    local = run(range(5), lambda items: [[{"item": item, "is": factor * item}] for item in items], dask)[0]
    assert [row["is"] for row in ordered(local)] == [0, 3, 6, 9, 12]


def test_a_worker_killed_from_outside(dask):
    killed, kept = [], []

    def keep(rows):
        kept.extend(rows)
        if not killed:
            killed.append(rows[0]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    run(range(100), partial(where, seconds=0.005), dask, keep=keep)
    assert [row["item"] for row in ordered(kept)] == list(range(100))
    assert {row["pid"] for row in kept} - set(killed)


def test_an_item_that_ends_its_process(dask):
    kept, _ = run(range(10, 20), fatal, dask, died=lambda item, timed_out: [{"item": item, "pid": timed_out}])
    assert [row["item"] for row in ordered(kept)] == list(range(10, 20))
    assert [row["pid"] for row in kept if row["item"] == 13] == [False]


def test_time_limits(dask):
    """In a thread."""
    kept, _ = run(
        ["loop", "sum"], hang, dask, group=lambda item: item, time_limit=0.2,
        died=lambda item, timed_out: [{"item": item, "status": "ended" if timed_out else "died"}],
    )  # fmt: skip
    assert [row["status"] for row in ordered(kept)] == ["stopped", "ended"]


def test_an_error_of_the_function(dask):
    with pytest.raises(ZeroDivisionError):
        run(range(10), lambda items: 1 // 0, dask)


def test_a_scheduler_at_an_address_that_is_lost(monkeypatch):
    """It is closed after the first rows, and not waited for long."""
    from distributed import LocalCluster

    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": "127.0.0.1:0"}
    kept = []
    monkeypatch.setattr(cluster, "_PATIENCE", 2)
    with (
        LocalCluster(**settings, host="tcp://127.0.0.1", silence_logs=50) as local,
        pool_of(local.scheduler_address) as pool,
    ):
        assert pool.workers == 4  # two batches for each thread
        assert len(run(range(20), squares, pool)[0]) == 24

        def keep(rows):
            kept.extend(rows)
            local.close()

        with pytest.raises(StudyError, match="run again") as caught:
            run(range(10_000), where, pool, keep=keep)
    assert "\n" not in str(caught.value)
    assert kept


def test_a_scheduler_that_has_no_workers_any_more(monkeypatch):
    """They are retired after the first rows, and no others come: nothing is waited for then."""
    from distributed import LocalCluster

    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    kept = []
    for name, seconds in {"_PATIENCE": 2, "_COUNT_AGAIN": 0.2}.items():
        monkeypatch.setattr(cluster, name, seconds)
    with (
        LocalCluster(**settings, host="tcp://127.0.0.1", silence_logs=50) as local,
        pool_of(local.scheduler_address) as pool,
    ):

        def keep(rows):
            kept.extend(rows)
            local.scale(0)

        with pytest.raises(StudyError, match="has no workers any more; what was done is kept: run again"):
            run(range(10_000), where, pool, keep=keep)
    assert 0 < len(kept) < 10_000


def test_no_scheduler_at_an_address(monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    with (
        pytest.raises(StudyError, match=r"^no Dask scheduler answers at tcp://127\.0\.0\.1:1: "),
        pool_of("tcp://127.0.0.1:1"),
    ):
        pass
