"""The compiled engine as `simulate` and its kin see it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.program import Program
from simsched.simulator.compiled.plan import Plan, launch_rows, plan_of
from simsched.simulator.compiled.platform import Table
from simsched.simulator.workload import Jitter, demand, factors
from simsched.trace import Load, Trace


def simulate_compiled(
    program: Program,
    cluster: Cluster,
    cost: CostModel | None,
    jitter: Jitter | None,
    rng: np.random.Generator | int | None,
) -> Trace:
    """Return what would run when; spans and load curves are made by a second run, when they are asked for."""
    plan = plan_of(program, cluster)
    launches = launches_of(plan, cost)
    drawn = None if jitter is None else factors(program.graph, jitter, rng)[None]
    run = plan.take()
    makespan = float(run.makespans(launches, drawn)[0])
    plan.spare.append(run)

    def spans() -> tuple[dict[str, npt.NDArray[Any]], list[Load]]:
        run = plan.take()
        found = run.trace_columns(launches, drawn)
        plan.spare.append(run)
        return found

    return Trace.deferred(program, cluster, makespan, spans)


def launches_of(plan: Plan, cost: CostModel | None) -> Table:
    """Return the launches of a plan; those with the default cost model are kept."""
    if cost is None and plan.launches is not None:
        return plan.launches
    program = plan.program
    op = program.launch_op
    launches = launch_rows(op, program.priority[op], demand(program, plan.cluster, cost))
    if cost is None:
        plan.launches = launches
    return launches
