"""Batches on Dask: a cluster of this machine, and one at an address."""

from contextlib import contextmanager

import pytest
from distributed import LocalCluster
from execution_cases import allocate, run, squares, where, wrong_at_11

from simsched.base.errors import StudyError
from simsched.experiments.study.execution import pool_of, pools


@contextmanager
def served(**more):
    """A scheduler with a worker, in this process, and a pool of it."""
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(**settings, **more, host="tcp://127.0.0.1", silence_logs=50) as local,
        pool_of(local.scheduler_address) as pool,
    ):
        yield local, pool


def test_rows_and_what_functions_raise():
    with pool_of("dask", 1) as pool:
        assert run(range(20), squares, pool)[0] == [row for item in range(20) for row in squares(item)]
        with pytest.raises(ArithmeticError, match="eleven"):
            run(range(20), wrong_at_11, pool)


def test_rows_share_the_memory_of_a_worker():
    """Each of two threads has 2 GB."""
    with served(memory_limit="4GB") as (_, pool):
        assert run([1], allocate, pool)[0] == [{"item": 1}]
        with pytest.raises(MemoryError):
            run([3], allocate, pool)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lambda local: local.close(), "is lost: .*; what was done is kept: run again$"),
        (lambda local: local.scale(0), "has no workers .*; what was done is kept$"),
    ],
)
def test_a_scheduler_at_an_address_that_is_lost(monkeypatch, end, text):
    """It, or its workers, end after the first rows, and are not waited for long."""
    for name, seconds in {"_ANSWER": 2, "_GONE": 2, "_COUNT_AGAIN": 0.2}.items():
        monkeypatch.setattr(pools, name, seconds)
    kept = []
    with served() as (local, pool):
        assert pool.workers == 2

        def keep(rows):
            kept.extend(rows)
            end(local)

        with pytest.raises(StudyError, match=text) as caught:
            run(range(10_000), where, pool, keep=keep)
    assert "\n" not in str(caught.value)
    assert 0 < len(kept) < 10_000


def test_no_scheduler_at_an_address(monkeypatch):
    monkeypatch.setattr(pools, "_ANSWER", 1)
    with pytest.raises(StudyError, match=r"^no Dask scheduler answers at tcp://127\.0\.0\.1:1: "):
        pool_of("tcp://127.0.0.1:1").__enter__()
