"""Lowering and list scheduling as Python, as unoptimised and as optimised machine code: the same to the last bit."""

from itertools import product

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.base.errors import ScheduleError
from simsched.base.jit.pieces import running
from simsched.model.lowering import Lowering
from simsched.model.lowering.candidate import Clock
from simsched.model.lowering.lowering import OPTIONS
from simsched.schedulers import schedule

GRAPH = workloads.random_layered(n_ops=24, n_layers=4, comm_ratio=0.8, rng=5)
MIXED = ss.OpGraph.from_columns(
    [f"o{i}" for i in range(len(GRAPH))], GRAPH.src, GRAPH.dst, time=GRAPH.time,
    edge_nbytes=np.arange(len(GRAPH.src)) % 3 * 1e5, edge_transfer=np.where(np.arange(len(GRAPH.src)) % 5, np.nan, 2.0),
)  # fmt: skip
SCHEDULERS = [
    ("lios", {}), ("lios", {"overheads": True, "streams": 3}), ("lios-rand", {}), ("heft", {}),
    ("heft", {"insertion": False}), ("heft", {"streams": 1}), ("peft", {}), ("etf", {}),
]  # fmt: skip
CHOICES = [
    (execution, dict(zip(OPTIONS, choice, strict=True)))
    for execution, choice in product(("events", "stages"), product(*OPTIONS.values()))
]


def scheduled(how, name, options):
    with running(how):
        plans = [schedule(MIXED, ss.Cluster.preset("a40", n), name, **options) for n in (1, 3)]
    return [(plan.estimate, plan.placements) for plan in plans]


def programs(how, execution, options):
    """What becomes of candidates: on few streams, on streams of large numbers, without room for clocks, on none."""
    many = Lowering(MIXED, ("gpu0", "gpu1", "gpu2"), execution, **options)
    many._table["clocks"], many._table.room = np.empty(2, Clock.dtype), 2
    rng, n, found = np.random.default_rng(1), len(MIXED), []
    with running(how):
        for streams in (2, 9, 100_000):
            columns = rng.integers(0, 3, n), rng.integers(0, streams, n), np.sort(rng.integers(0, 5, n))
            program = many.program(np.arange(n), *columns)
            found += [[list(thread) for thread in program.threads], program.copies.op.tolist()]
        with pytest.raises(ScheduleError) as refused:
            many.program(np.arange(n), 0, -1)
    return [*found, str(refused.value)]


@pytest.mark.parametrize(("name", "options"), SCHEDULERS)
def test_lists_agree(name, options):
    interpreted = scheduled("0", name, options)
    assert scheduled("O0", name, options) == interpreted
    assert scheduled("O3", name, options) == interpreted


@pytest.mark.parametrize(("execution", "options"), CHOICES)
def test_programs_agree(execution, options):
    interpreted = programs("0", execution, options)
    assert programs("O0", execution, options) == interpreted
    assert programs("O3", execution, options) == interpreted
