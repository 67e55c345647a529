"""What every backend promises, on every backend that can be used here.

The schedules are few and fixed, so that a backend which only answers from files can be given them beforehand.
"""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwbackend import get
from simsched import Edge, Operator, OpGraph, Placement, Schedule
from simsched.base.errors import BackendError, SimschedError
from simsched.calibration.training import random_schedule
from simsched.model.profile import Profile, Replay
from simsched.model.program import EXECUTIONS, LAUNCH
from simsched.model.trace import COPY, KERNEL

REPEATS = 3


@dataclass(frozen=True)
class Candidate:
    """A backend: how it is made, by how many us its clocks may err, and whether it may be missing here."""

    name: str
    make: Callable[[], Any]
    clock: float = 0.0
    optional: bool = False
    marks: tuple[Any, ...] = ()


def backends_here() -> Iterator[Candidate]:
    """Yield the backends that can be tried here; all promises are tested on each."""
    yield Candidate("synthetic", partial(get, "synthetic", gpu="k80", outliers=0.2))
    yield Candidate("synthetic-2", partial(get, "synthetic", gpu="a40", gpus=2))
    yield Candidate("recorded", _recorded, 1e-5)  # times are written to a picosecond
    yield Candidate("cupy", _cupy_on_a_fake, 1.0)
    yield Candidate("torch", partial(get, "torch", device="cpu"), 5.0, optional=True, marks=(pytest.mark.torch,))


def _cupy_on_a_fake() -> Any:
    backend = importlib.import_module("hwbackend.cupy_backend")
    return backend.CupyBackend(virtual_devices=2, api=importlib.import_module("fake_cuda").FakeCuda())


def _recorded() -> Any:
    """Return a backend with the files of all runs that are asked for below."""
    source = get("synthetic", gpu="k80")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source.profile(diamond(), in_situ=1).save(folder / "profile.json")
        for i, plan in enumerate(plans(source)):
            source.replay(plan, repeats=REPEATS, warmup=0).save(folder / f"run-{i}.json")
        return get("recorded", folder=folder)


@dataclass(frozen=True)
class Measured:
    """A backend, and what it measured for these tests."""

    backend: Any
    clock: float
    plans: tuple[Schedule, ...]
    runs: tuple[Replay, ...]
    profile: Profile


def diamond(name="diamond"):
    """Two branches of two operators between a source and a sink: small, of different loads, and none with kernels."""
    times = {"source": (40.0, 0.3), "left": (90.0, 0.9), "right": (60.0, 0.6), "left2": (30.0, 1.0),
             "right2": (120.0, 0.4), "sink": (20.0, 0.1)}  # fmt: skip
    edges = (("source", "left"), ("source", "right"), ("left", "left2"), ("right", "right2"), ("left2", "sink"),
             ("right2", "sink"))  # fmt: skip
    return OpGraph(
        [Operator(op, time=time, utilization=load) for op, (time, load) in times.items()],
        [Edge(src, dst, nbytes=4096.0) for src, dst in edges],
        name,
    )


def plans(backend):
    """Return two random schedules of each kind of execution."""
    return tuple(
        random_schedule(
            diamond(), backend.cluster, rng=seed, streams=1 + seed, execution=execution, name=f"{execution}-{seed}"
        )
        for execution in EXECUTIONS
        for seed in (1, 2)
    )


@cache
def measured(name):
    """Return what a backend measured, or the reason why there is none."""
    candidate = next(c for c in CANDIDATES if c.name == name)
    try:
        backend = candidate.make()
    except (ImportError, SimschedError) as error:
        if not candidate.optional:
            raise
        return str(error)
    runs = tuple(backend.replay(plan, repeats=REPEATS, warmup=1) for plan in plans(backend))
    return Measured(backend, candidate.clock, plans(backend), runs, backend.profile(diamond(), in_situ=1, rng=0))


CANDIDATES = tuple(backends_here())


@pytest.fixture(params=[pytest.param(c.name, marks=c.marks) for c in CANDIDATES])
def found(request):
    result = measured(request.param)
    if isinstance(result, str):
        pytest.skip(f"{request.param} cannot be used here: {result}")
    return result


def test_every_repeat_has_a_latency(found):
    for run in found.runs:
        assert len(run.latency) == REPEATS
        assert all(isfinite(latency) and latency > 0 for latency in run.latency)


def test_what_ran_is_the_program_of_the_schedule(found):
    for plan, run in zip(found.plans, found.runs, strict=True):
        program = plan.over(found.backend.realise(plan.graph)).lower(found.backend.cluster)
        assert run.program.execution == plan.execution
        for column in ("thread_ptr", "action", "device", "stream", "argument"):
            assert np.array_equal(getattr(run.program, column), getattr(program, column))
        assert run.cluster == found.backend.cluster


def test_each_launch_and_copy_has_one_span(found):
    for run in found.runs:
        trace = run.trace
        for kind, n in ((KERNEL, len(run.program.launch_op)), (COPY, len(run.program.copies.op))):
            assert sorted(trace.item[trace.kind == kind].tolist()) == list(range(n))
        assert len(trace) == len(run.program.launch_op) + len(run.program.copies.op)
        assert (trace.end >= trace.start).all()
        assert (trace.start >= 0).all()


def spans(run, kind, count):
    """Return start and end of each launch or copy."""
    rows = np.flatnonzero(run.trace.kind == kind)
    times = np.zeros((count, 2))
    times[run.trace.item[rows]] = np.column_stack([run.trace.start[rows], run.trace.end[rows]])
    return times


def test_nothing_starts_before_what_it_reads_is_there(found):
    """On its device where it was made there, else at the end of a copy, which starts when it has been made."""
    for run in found.runs:
        program = run.program
        copies, operators = program.copies, run.trace.operator_times()
        times = spans(run, COPY, len(copies.op))
        where = device_of_operators(program)
        for edge in program.graph.edges:
            src, dst = program.graph.index[edge.src], program.graph.index[edge.dst]
            ready = operators[edge.src][1]
            if where[src] != where[dst]:
                mine = (copies.op == src) & (copies.device == where[dst])
                assert mine.any()
                assert times[mine, 0].min() >= ready - found.clock
                ready = times[mine, 1].min()
            assert operators[edge.dst][0] >= ready - found.clock


def device_of_operators(program):
    rows = np.flatnonzero(program.action == LAUNCH)
    device = np.empty(len(program.graph), np.int64)
    device[program.launch_op[program.argument[rows]]] = program.device[rows]
    return device


def test_kernels_of_a_stream_follow_each_other(found):
    for run in found.runs:
        program = run.program
        times = spans(run, KERNEL, len(program.launch_op))
        ends = {}
        for i in np.flatnonzero(program.action == LAUNCH).tolist():
            stream = int(program.device[i]), int(program.stream[i])
            start, end = times[program.argument[i]]
            assert start >= ends.get(stream, 0.0) - found.clock
            ends[stream] = end


def test_all_kinds_of_execution_ran(found):
    assert {run.program.execution for run in found.runs} == set(EXECUTIONS)


def test_outputs_are_those_of_sequential_execution(found):
    for run in found.runs:
        assert run.max_relative_error is not None
        assert run.max_relative_error <= 1e-5


def test_it_says_where_and_when_it_was_measured(found):
    for run in found.runs:
        for key in ("backend", "device", "date", "commit", "python"):
            assert run.environment[key]


def test_a_replay_comes_back_from_a_file(found, tmp_path):
    run = found.runs[0]
    run.save(tmp_path / "run.json")
    again = Replay.load(tmp_path / "run.json")
    assert (again.latency, again.name, again.max_relative_error) == (run.latency, run.name, run.max_relative_error)
    assert again.environment == run.environment
    assert again.cluster == run.cluster
    np.testing.assert_allclose(again.trace.end, run.trace.end, atol=1e-5)


def test_a_realised_graph_has_kernels_and_the_same_edges(found):
    graph, realised = diamond(), found.backend.realise(diamond())
    assert realised.names == graph.names
    assert [(edge.src, edge.dst) for edge in realised.edges] == [(edge.src, edge.dst) for edge in graph.edges]
    assert all(op.kernels and op.flops + op.nbytes > 0 for op in realised.operators)
    assert found.backend.realise(realised) == realised


def test_a_profile_has_every_operator(found):
    profile = found.profile
    assert [op.name for op in profile.operators] == list(diamond().names)
    assert profile.graph == found.backend.realise(diamond())
    assert profile.cluster == found.backend.cluster
    for op in profile.operators:
        assert len(op.samples) >= 1
        assert all(isfinite(sample) and sample > 0 for sample in op.samples)
        assert len(op.kernels) == len(profile.graph[op.name].kernels)
    assert any(run.name.startswith("in-situ/") for run in profile.runs)


def test_a_profile_comes_back_from_a_file(found, tmp_path):
    found.profile.save(tmp_path / "profile.json")
    again = Profile.load(tmp_path / "profile.json")
    assert again.operators == found.profile.operators
    assert again.graph == found.profile.graph
    assert [run.latency for run in again.runs] == [run.latency for run in found.profile.runs]


def test_a_schedule_for_more_devices_is_refused(found):
    missing = f"gpu{len(found.backend.cluster)}"
    plan = Schedule(OpGraph([Operator("op", time=50.0, utilization=0.5)]), [Placement("op", missing)])
    with pytest.raises(BackendError, match=missing) as error:
        found.backend.replay(plan, repeats=1, warmup=0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 0), (-1, 0), (1.5, 0), (1, -1), (True, 0)])
def test_numbers_of_repeats_that_cannot_be_are_refused(found, repeats, warmup):
    with pytest.raises(BackendError, match="must be a whole number of at least"):
        found.backend.replay(found.plans[0], repeats=repeats, warmup=warmup)
