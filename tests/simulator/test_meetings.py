"""What holds for collectives of every run: ranks begin and end together, and one stands for all that are alike."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from drawn import chooser, exchanging, operator
from hand_made import hand_made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simsched as ss
from simsched.base.errors import DeadlockError
from simsched.model.trace.timeline import KERNEL


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=st.builds(exchanging, chooser))
def test_ranks_begin_together_and_end_together(plan):
    """In one instant, none before it is ready; and none takes less than it takes alone."""
    cluster, program, jitter = plan
    try:
        trace = ss.simulate(program, cluster, jitter=jitter, rng=0)
    except DeadlockError:  # for want of hardware queues or of room
        return
    rows = {op: row for row, op in enumerate(trace.op.tolist()) if trace.kind[row] == KERNEL}
    for meeting in program.graph.meetings:
        ranks = [rows[member] for member in meeting.members]
        assert len(np.unique(trace.start[ranks])) == len(np.unique(trace.end[ranks])) == 1
        assert (trace.ready[ranks] <= trace.start[ranks]).all()
        assert ((trace.end - trace.start)[ranks] >= trace.solo[ranks] * (1 - 1e-9) - 1e-9 * trace.start[ranks]).all()


def rank_program(rng, n, group):
    """Operators of one rank in launch order, and their streams: collectives have the group of their number, or none."""
    ops, streams = [], []
    for i in range(rng.randint(2, 7)):
        if rng.random() < 0.5:
            ops.append(operator(rng, f"o{i}"))
        else:
            operation = rng.choice(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
            collective = ss.Collective(operation, rng.choice((100.0, 1e3, 1e4)), n, group and f"{group}{i}")
            kernels = (ss.Kernel(rng.choice((1, 5, 20)), threads=256),)
            ops.append(ss.Operator(f"o{i}", collective=collective, kernels=kernels))
        streams.append(rng.randrange(3))
    return ops, streams


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), n=st.integers(2, 4), mesh=st.booleans(), overhead=st.sampled_from([0.0, 1.0]))
def test_a_symmetric_collective_is_exact_where_ranks_run_the_same_program(seed, n, mesh, overhead):
    """n ranks, each on a device of its own, and one rank whose peers are not simulated: the same times."""
    cluster = hand_made(n, link=ss.Link(100.0, start=2.0, step=1.0, efficiency=0.5), launch=overhead, block_spread=0.1)
    if not mesh:
        links = tuple((device.name, "switch", ss.Link(100.0, start=2.0, step=1.0)) for device in cluster.devices)
        cluster = replace(cluster, links=links)
    ops, streams = rank_program(Random(seed), n, None)
    alone = ss.simulate(
        ss.Schedule(ss.OpGraph(ops), [ss.Placement(op.name, stream=s) for op, s in zip(ops, streams, strict=True)]),
        cluster,
    ).operator_times()
    every, places = [], []
    for rank in range(n):
        ops, streams = rank_program(Random(seed), n, "g")
        every += [replace(op, name=f"{op.name}@{rank}") for op in ops]
        places += [ss.Placement(f"{op.name}@{rank}", f"gpu{rank}", s) for op, s in zip(ops, streams, strict=True)]
    together = ss.simulate(ss.Schedule(ss.OpGraph(every), places), cluster).operator_times()
    for name, times in alone.items():
        for rank in range(n):
            assert together[f"{name}@{rank}"] == pytest.approx(times, rel=1e-9)
