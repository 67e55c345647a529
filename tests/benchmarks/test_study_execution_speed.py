"""Speed of batches on processes: run with ``pytest -m benchmark --benchmark-enable`` and this file, and ``-s``.

Beside each figure stands what the machine itself does at the same time: plain processes that do the same work without
anything between them. Figures stand in `extra_info`.
"""

from time import perf_counter

import pytest

from simsched.experiments.study.execution import Batches, pool_of

ITEMS = 1_000
ROUNDS = 5


def nothing(item):
    return [{"item": item}]


def seconds(pool, function, items):
    """Seconds of a run, each of whose rows came once."""
    kept = []
    begun = perf_counter()
    Batches(items, function, pool, lambda rows, done: kept.extend(rows), lambda item: 0, None).run()
    taken = perf_counter() - begun
    assert sorted(row["item"] for row in kept) == list(items)
    return taken


def test_start(benchmark, note):
    """Two processes from none, once the first one of all has been started."""

    def start():
        with pool_of("processes", 2) as pool:
            return seconds(pool, nothing, range(20))

    start()
    benchmark.pedantic(start, rounds=5)
    note(ms=round(1e3 * benchmark.stats.stats.min, 1))


@pytest.mark.parametrize("executor", ["serial", "processes", "dask"])
def test_items_that_take_no_time(benchmark, executor, note):
    """What an item costs beside its own work."""
    if executor == "dask":
        pytest.importorskip("distributed")
    with pool_of(executor, 2) as pool:
        seconds(pool, nothing, range(100))
        benchmark.pedantic(seconds, (pool, nothing, range(20_000)), rounds=3)
    note(executor=executor, us_per_item=round(1e6 * benchmark.stats.stats.min / 20_000, 1))
