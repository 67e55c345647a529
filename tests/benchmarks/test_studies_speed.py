"""Speed of studies, and of the batches that they run in.

HIOS's default DAGs, 200 operators on four A40, with the schedulers of its figures, but LIOS in the place of IOS, whose
search of a second and more would be all that is measured. Targets: from one process to two 90 % of twice as many rows a
second, where the machine allows it, and 5 % of the work for the layer of studies.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter, process_time

import pytest

import simsched as ss
import workloads
from simsched.experiments.evaluation import Yardstick, evaluate
from simsched.experiments.rows import row_of
from simsched.experiments.study.execution import Batches, pool_of
from simsched.experiments.study.study import seed_of

SCHEDULERS = ("sequential", "lios", "inter-lp", "hios-lp", "inter-mr", "hios-mr")


def hios(instances):
    """As many DAGs with six schedulers each."""
    return ss.Study("speed", SCHEDULERS, {"kind": "layered"}, {"gpu": "a40", "gpus": 4}, seeds=instances)


def by_hand(study, instances):
    """The rows of some instances as a script makes them, which writes nothing down: seconds of wall and of CPU."""
    begun, cpu = perf_counter(), process_time()
    rows = []
    for instance in instances:
        graph = workloads.random_layered(rng=seed_of(study.seed, instance, 0))
        cluster = ss.Cluster.preset("a40", 4)
        yardstick, baseline = Yardstick(graph, cluster), None
        for name in SCHEDULERS:
            found = evaluate(graph, cluster, scheduler=name, bound=yardstick.bound)
            baseline = found.trace.makespan if baseline is None else baseline
            rows.append(row_of(name, found, baseline))
    return perf_counter() - begun, process_time() - cpu, [row.makespan_us for row in rows]


def plainly(study, n):
    """Wall time of the same work in n processes that know nothing of each other: what the machine can do."""
    with ProcessPoolExecutor(n, get_context("forkserver")) as pool:
        for size in (1, None):  # first each loads machine code
            parts = [study.instances[i::n][:size] for i in range(n)]
            seconds = max(wall for wall, *_ in pool.map(by_hand, [study] * n, parts))
    return seconds


def test_rows_per_second(tmp_path, note):
    """1,002 rows in this process, in one and in two others, and as a script makes them."""
    study = hios(167)
    by_hand(study, study.instances[:2])
    wall, cpu, makespans = by_hand(study, study.instances)
    rate = {"by hand": len(study) / wall}
    for name, how in (("serial", {"executor": "serial"}), ("one", {"workers": 1}), ("two", {"workers": 2})):
        ss.run_study(hios(2), tmp_path / f"warm-{name}", load=workloads.load_kind, **how)  # the server of processes
        start, used = perf_counter(), process_time()
        found = ss.run_study(study, tmp_path / name, load=workloads.load_kind, **how)
        rate[name] = len(study) / (perf_counter() - start)
        if name == "serial":
            overhead = (process_time() - used) / cpu - 1
        assert [row["makespan_us"] for row in found.rows] == makespans
    note(
        rows_per_s={name: round(value) for name, value in rate.items()},
        overhead_of_cpu=round(overhead, 3),
        scaling=round(rate["two"] / rate["one"] / 2, 3),
        scaling_of_the_machine=round(plainly(study, 1) / plainly(study, 2) / 2, 3),
    )


def nothing(item):
    return [{"item": item}]


def run(pool, items):
    """Items that take no time, each of whose rows comes once."""
    kept = []
    Batches(items, nothing, pool, lambda rows, done: kept.extend(rows), None).run()
    assert sorted(row["item"] for row in kept) == list(items)


@pytest.mark.parametrize("executor", ["serial", "processes", "dask"])
def test_batches(executor, note, best):
    """From no process to two that work, once the first one of all has been started; and what an item costs."""

    def start():
        with pool_of(executor, 2) as pool:
            run(pool, range(20))

    with pool_of(executor, 2) as pool:
        run(pool, range(100))
        seconds, _ = best(lambda: run(pool, range(20_000)), 3)
    started, _ = best(start, 1 if executor == "dask" else 5)
    note(executor=executor, us_per_item=round(1e6 * seconds / 20_000, 1), ms_to_start=round(1e3 * started, 1))
