"""Speed of batches on processes: run with ``pytest -m benchmark --benchmark-enable`` and this file, and ``-s``.

Beside each figure stands what the machine itself does at the same time: plain processes that do the same work without
anything between them. Figures stand in `extra_info`.
"""

from functools import partial
from multiprocessing import get_context
from time import perf_counter

import pytest

from simsched.experiments.study.execution import Batches, pool_of

pytestmark = pytest.mark.benchmark

ITEMS = 1_000
ROUNDS = 5


def work(item, steps):
    """A fixed amount of arithmetic."""
    total = 0
    for k in range(steps):
        total += k & item
    return [{"item": item, "total": total}]


def nothing(item):
    return [{"item": item}]


def plain(pipe, items, steps):
    """Do it all, and send it once at the end."""
    pipe.recv()
    pipe.send(len([work(item, steps) for item in items]))


def seconds_plain(workers, steps):
    """Seconds from the start signal until the last of some processes, which have been started before, is done."""
    context = get_context("forkserver")
    pipes, processes = [], []
    for k in range(workers):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=plain, args=(theirs, range(k, ITEMS, workers), steps)))
        processes[-1].start()
        pipes.append(ours)
    for process in processes:
        assert process.is_alive()
    begun = perf_counter()
    for pipe in pipes:
        pipe.send(None)
    assert sum(pipe.recv() for pipe in pipes) == ITEMS
    seconds = perf_counter() - begun
    for process in processes:
        process.join()
    return seconds


def seconds(pool, function, items):
    """Seconds of a run, each of whose rows came once."""
    kept = []
    begun = perf_counter()
    Batches(items, function, pool, lambda rows, done: kept.extend(rows), lambda item: 0, None).run()
    taken = perf_counter() - begun
    assert sorted(row["item"] for row in kept) == list(items)
    return taken


def steps_of_3_ms():
    """Steps of an item of 3 ms on this machine."""
    best = min(_timed(10_000) for _ in range(50))
    return round(10_000 * 3e-3 / best)


def _timed(steps):
    begun = perf_counter()
    work(1, steps)
    return perf_counter() - begun


def note(benchmark, **figures):
    benchmark.extra_info.update(figures)
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in figures.items()))


def test_overhead_and_scaling(benchmark):
    """3 ms per item on 1 and 2 processes, by turns with plain ones; the best of some rounds each."""
    function = partial(work, steps=steps_of_3_ms())
    times = {"one": [], "two": [], "plain_one": [], "plain_two": []}
    with pool_of("processes", 1) as one, pool_of("processes", 2) as two:
        seconds(one, function, range(10))  # processes have been started
        seconds(two, function, range(10))
        for _ in range(ROUNDS):
            times["plain_two"].append(seconds_plain(2, function.keywords["steps"]))
            times["two"].append(seconds(two, function, range(ITEMS)))
            times["plain_one"].append(seconds_plain(1, function.keywords["steps"]))
            times["one"].append(seconds(one, function, range(ITEMS)))
        benchmark.pedantic(seconds, (two, function, range(ITEMS)), rounds=1)
    best = {name: min(found) for name, found in times.items()}
    note(
        benchmark,
        **{f"{name}_s": round(found, 3) for name, found in best.items()},
        overhead_on_1=f"{100 * (best['one'] / best['plain_one'] - 1):.1f} %",
        overhead_on_2=f"{100 * (best['two'] / best['plain_two'] - 1):.1f} %",
        scaling=f"{100 * best['one'] / best['two'] / 2:.0f} %",
        scaling_of_plain_processes=f"{100 * best['plain_one'] / best['plain_two'] / 2:.0f} %",
    )


def test_start(benchmark):
    """Two processes from none, once the first one of all has been started."""

    def start():
        with pool_of("processes", 2) as pool:
            return seconds(pool, nothing, range(20))

    start()
    benchmark.pedantic(start, rounds=5)
    note(benchmark, ms=round(1e3 * benchmark.stats.stats.min, 1))


@pytest.mark.parametrize("executor", ["serial", "processes", "dask"])
def test_items_that_take_no_time(benchmark, executor):
    """What an item costs beside its own work."""
    if executor == "dask":
        pytest.importorskip("distributed")
    with pool_of(executor, 2) as pool:
        seconds(pool, nothing, range(100))
        benchmark.pedantic(seconds, (pool, nothing, range(20_000)), rounds=3)
    note(benchmark, executor=executor, us_per_item=round(1e6 * benchmark.stats.stats.min / 20_000, 1))
