"""Speed of list schedulers: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_list_speed.py -s``.

Figures that are ratios are measured side by side in one run and stand in `extra_info`.
"""

from bisect import bisect_left
from time import perf_counter

import pytest

import simsched as ss
import workloads
from simsched.model.costmodel import default_cost
from simsched.schedulers import schedule
from simsched.schedulers.etf import etf
from simsched.schedulers.heft import heft
from simsched.schedulers.lios import lios
from simsched.schedulers.peft import peft
from workloads.random_dags import random_in_tree

pytestmark = pytest.mark.benchmark

FOUR = ss.Cluster.preset("a40", 4)
SIZES = (200, 1_000, 10_000)


def layered(n_ops):
    """The HIOS paper's layered DAG: 14 layers to 200 operators, 2 edges to an operator, transfers of 0.8 its time."""
    return workloads.random_layered(n_ops=n_ops, n_layers=round(n_ops / 14.3), comm_ratio=0.8, rng=0)


def best(action, rounds):
    """Least milliseconds of some calls."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return round(1e3 * min(times), 3)


def note(benchmark, **figures):
    benchmark.extra_info.update(figures)
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in figures.items()))


class PlainHeft:
    """HEFT in plain Python, as one writes it for speed: lists, and idle intervals looked for behind the inputs alone.

    Devices are equal and edges have exact times; what `heft` makes of that with one stream per device.
    """

    def __init__(self, graph, devices):
        self.time, self.devices = graph.time.tolist(), devices
        self.order = graph.order_index.tolist()
        self.consumers = [[] for _ in self.time]
        self.producers = [[] for _ in self.time]
        for i, j, us in zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_transfer.tolist(), strict=True):
            self.consumers[i].append((j, us))
            self.producers[j].append((i, us))

    def __call__(self):
        time, rank = self.time, [0.0] * len(self.time)
        for i in reversed(self.order):
            longest = 0.0
            for j, us in self.consumers[i]:
                if us + rank[j] > longest:
                    longest = us + rank[j]
            rank[i] = time[i] + longest
        home, finish = [-1] * len(time), [0.0] * len(time)
        starts = [[] for _ in range(self.devices)]
        ends = [[0.0] for _ in range(self.devices)]
        for i in sorted(self.order, key=lambda i: -rank[i]):
            least, own = float("inf"), time[i]
            for d in range(self.devices):
                there = 0.0
                for p, us in self.producers[i]:
                    end = finish[p] if home[p] == d else finish[p] + us
                    if end > there:
                        there = end
                begun, over = starts[d], ends[d]
                at = bisect_left(begun, there)
                while at < len(begun):  # between the end before (over[at]) and the start behind (begun[at])
                    start = max(over[at], there)
                    if start + own <= begun[at]:
                        break
                    at += 1
                else:
                    start = max(over[at], there)
                if start + own < least:
                    least, where, place, since = start + own, d, at, start
            starts[where].insert(place, since)
            ends[where].insert(place + 1, least)
            home[i], finish[i] = where, least
        return home, finish


@pytest.mark.parametrize("n_ops", SIZES)
def test_heft_beside_plain_python(benchmark, n_ops):
    """One stream on each of four GPUs: a graph that is made to a schedule that is proved, and the function alone."""
    graph = layered(n_ops)
    plain = PlainHeft(graph, 4)
    home, finish = plain()
    plan = benchmark.pedantic(
        schedule, (graph, FOUR, heft), {"streams": 1}, rounds=300 if n_ops < 10_000 else 30, warmup_rounds=5
    )
    assert plan.device.tolist() == [home[i] for i in plan.op.tolist()]
    assert plan.estimate == max(finish)
    rounds = 200 if n_ops < 10_000 else 20
    ours = best(lambda: schedule(graph, FOUR, heft, streams=1), rounds)
    theirs = best(plain, max(5, rounds // 10))
    note(
        benchmark,
        n_ops=n_ops,
        ms=ours,
        ms_of_the_function=best(lambda: heft(graph, FOUR, default_cost, streams=1), rounds),
        ms_of_check=best(lambda: plan.check(FOUR), rounds),
        ms_of_plain_python=theirs,
        times_plain_python=round(theirs / ours, 1),
    )


@pytest.mark.parametrize("scheduler", [heft, peft, etf, lios])
@pytest.mark.parametrize("n_ops", SIZES)
def test_list_schedulers(benchmark, scheduler, n_ops):
    """As they are by default: two streams on each of four GPUs, eight on one."""
    graph = layered(n_ops)
    plan = benchmark.pedantic(schedule, (graph, FOUR, scheduler), rounds=100 if n_ops < 10_000 else 20, warmup_rounds=5)
    assert graph.longest_path()[0] <= plan.estimate <= graph.time.sum()
    assert plan.n_streams == 8
    note(
        benchmark,
        scheduler=scheduler.__name__,
        n_ops=n_ops,
        ms=best(lambda: schedule(graph, FOUR, scheduler), 100 if n_ops < 10_000 else 20),
    )


@pytest.mark.parametrize("overheads", [False, True])
def test_lios_on_nasnet(benchmark, overheads):
    """374 operators; the paper's own takes 1.79 s."""
    graph = workloads.load("nasnet_a_large")
    plan = benchmark.pedantic(schedule, (graph, FOUR, lios), {"overheads": overheads}, rounds=300, warmup_rounds=5)
    assert len(plan) == 374
    assert plan.estimate < schedule(graph, FOUR, "sequential").estimate
    ms = best(lambda: schedule(graph, FOUR, lios, overheads=overheads), 100)
    note(benchmark, overheads=overheads, ms=ms, times_the_paper=round(1790 / ms))


@pytest.mark.parametrize("scheduler", [heft, peft, etf, lios])
@pytest.mark.parametrize("family", ["layered", "in-tree"])
def test_a_million_operators(benchmark, scheduler, family):
    """From a graph that is made; half of the operators of a tree have no inputs, and are ready at once."""
    graph = layered(1_000_000) if family == "layered" else random_in_tree(1_000_000, rng=0)
    plan = benchmark.pedantic(scheduler, (graph, FOUR, default_cost), rounds=1)
    assert len(plan) == 1_000_000
    assert plan.estimate < graph.time.sum()
    plan.check(FOUR)
    note(benchmark, scheduler=scheduler.__name__, family=family, seconds=round(benchmark.stats.stats.min, 2))
