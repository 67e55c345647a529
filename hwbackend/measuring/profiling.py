"""Profiles that every backend measures in the same way: operators in place, operators alone, microbenchmarks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from hwbackend.measuring.microbenchmarks import schedules
from simsched.calibration.training import random_schedule, training_schedule
from simsched.model import Floats, Operator, OpGraph, Schedule
from simsched.model.backend import Backend, require_counts
from simsched.model.profile import MeasuredDevice, MeasuredKernel, MeasuredOperator, Profile, Provenance, Replay
from simsched.model.trace import KERNEL

SEQUENTIAL_ORDERS: Final = 5
"""Topological orders in which all operators are run one after the other, for their times in place."""

_REPEATS: Final = 6  # of each schedule
_WARMUP: Final = 2
_LOOP: Final = 12  # times that an operator is run in a loop, of which the first two do not count
_WARM_AFTER: Final = 2


def profile(backend: Backend, graph: OpGraph, in_situ: int, rng: np.random.Generator | int) -> Profile:
    """Measure the operators of a graph on a backend; see `Backend.profile`.

    Notes
    -----
    In place, an operator's samples are its times in five sequential runs in random topological orders on one
    stream, each the median of six repeats; they and `in_situ` schedules as of `training_schedule` are the profile's
    runs, named ``"in-situ/..."``.

    Raises
    ------
    BackendError
        If `in_situ` is no whole number.
    """
    require_counts(0, in_situ=in_situ)
    rng = np.random.default_rng(rng)
    graph = backend.realise(graph)
    if not in_situ:
        loops = [_loop(backend, op) for op in graph.operators]
        return _profile(backend, [op for op, _ in loops], [run for _, run in loops], graph)
    alone = replace(backend.cluster, devices=backend.cluster.devices[:1], links=())
    plans = [random_schedule(graph, alone, rng=rng, streams=1, execution="events") for _ in range(SEQUENTIAL_ORDERS)]
    runs = [_measure(backend, plan, f"in-situ/sequential-{i}") for i, plan in enumerate(plans)]
    operators = [_operator(op, op.name, i, runs) for i, op in enumerate(graph.operators)]
    for i in range(in_situ):
        plan = training_schedule(graph, backend.cluster, i, rng=rng)
        runs.append(_measure(backend, plan, f"in-situ/streams-{i}"))
    return _profile(backend, operators, runs, graph)


def microbenchmarks(backend: Backend) -> Profile:
    """Measure the schedules of `hwbackend.measuring.microbenchmarks` on a backend; see `Backend.microbenchmarks`.

    Its operators are those that a schedule of one operator ran alone.
    """
    runs = [_measure(backend, plan, plan.scheduler) for plan in schedules(backend.cluster)]
    operators = []
    for run in runs:
        graph = run.program.graph
        if len(graph) == 1:
            operators.append(_operator(graph.operator(0), run.name, 0, [run]))
    return _profile(backend, operators, runs)


def _measure(backend: Backend, plan: Schedule, name: str) -> Replay:
    return replace(backend.replay(plan, repeats=_REPEATS, warmup=_WARMUP), name=name)


def _loop(backend: Backend, op: Operator) -> tuple[MeasuredOperator, Replay]:
    """Measure an operator alone, on warm data: several of it in a row."""
    graph = OpGraph([replace(op, name=f"{op.name}#{i}") for i in range(_LOOP)], [], op.name)
    plan = Schedule.from_columns(graph, range(_LOOP), (backend.cluster.devices[0].name,))
    run = _measure(backend, plan, f"solo/loop-{op.name}")
    times = [_kernel_times(run, i) for i in range(_WARM_AFTER, _LOOP)]
    return _from_times(op, op.name, times), run


def _operator(op: Operator, name: str, i: int, runs: Sequence[Replay]) -> MeasuredOperator:
    """Return the times that runs measured of operator `i` of their graph."""
    return _from_times(op, name, [_kernel_times(run, i) for run in runs])


def _from_times(op: Operator, name: str, times: Sequence[Floats]) -> MeasuredOperator:
    """Return a measured operator from start and end of its kernels in each run: its time is that from first to last."""
    rows = np.array(times)  # (n_samples, n_kernels, 2)
    lengths = rows[:, :, 1] - rows[:, :, 0]
    kernels = tuple(MeasuredKernel(op.kind, tuple(lengths[:, k]), launch) for k, launch in enumerate(op.kernels))
    return MeasuredOperator(name, tuple(rows[:, :, 1].max(axis=1) - rows[:, :, 0].min(axis=1)), kernels)


def _kernel_times(run: Replay, i: int) -> Floats:
    """Return start and end in us of the kernels of operator `i`, shape (n_kernels, 2)."""
    trace = run.trace
    ptr = run.program.launches.ptr
    rows = np.flatnonzero((trace.kind == KERNEL) & (trace.op == i))
    times = np.zeros((int(ptr[i + 1] - ptr[i]), 2))
    times[trace.item[rows] - ptr[i]] = np.column_stack([trace.start[rows], trace.end[rows]])
    return times


def _profile(
    backend: Backend, operators: Sequence[MeasuredOperator], runs: Sequence[Replay], graph: OpGraph | None = None
) -> Profile:
    environment = runs[0].environment
    device = backend.cluster.devices[0]
    return Profile(
        tuple(operators),
        device=MeasuredDevice(environment.get("device", device.model), sms=device.sms),
        provenance=Provenance(
            source=backend.name,
            profiler=environment.get("backend"),
            cuda_runtime=environment.get("runtime"),
            cuda_driver=environment.get("driver"),
            date=environment.get("date"),
            iterations=_REPEATS,
            discarded=_WARMUP,
        ),
        runs=tuple(runs),
        graph=graph,
        cluster=backend.cluster,
    )
