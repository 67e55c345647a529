"""Programs that are simulated, written as traces, and read again: they replay alike, and change alike.

The truth of a change is the simulation of the first program with it: half of its kernels take a quarter of their time.
Waits that a trace names are known; others, and all of captured graphs, are guessed.
"""

import json

import numpy as np
import pytest
from kineto_traces import A100

import simsched as ss
from simsched.experiments.whatif import parse_change
from simsched.model.graph.rearranged import with_times
from simsched.model.program import ACTIONS
from simsched.model.trace.timeline import HOST, KERNEL
from simsched.simulator import simulate
from workloads import from_spec, read_kineto_program
from workloads.formats.kineto.dispatch import as_dispatched
from workloads.formats.kineto.replay import replay_traced, times_alone

CALLS = {
    "launch": "cudaLaunchKernel",
    "record": "cudaEventRecord",
    "wait": "cudaStreamWaitEvent",
    "barrier": "cudaDeviceSynchronize",
}
FAMILIES = ("layered", "series-parallel", "fork-join", "transformer-like")
FEW = ss.Kernel(8, 128, 16)
NAMED = 0.02
"""Part by which a change may be off where waits are named."""
GUESSED = 0.08
CAPTURED = 0.06
"""The same for captured graphs, on average, and the worst."""
WORST = 0.25


def event(cat, name, span, stream, **args):
    start, end = span
    times = {"ts": round(1000 + start, 3), "dur": round(end - start, 3)}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, **times, "args": {"stream": stream, **args}}


def kernel(op, span, stream, correlation, shape=FEW):
    args = {"grid": [shape.blocks, 1, 1], "block": [shape.threads, 1, 1], "registers per thread": shape.registers}
    return event("kernel", f"k{op}_", span, stream, correlation=correlation, device=0, **args)


def spans_of(trace, kind):
    """Start and end of each item of a kind."""
    rows = np.flatnonzero(trace.kind == kind)
    starts = trace.start[rows].tolist()
    ends = trace.end[rows].tolist()
    return dict(zip(trace.item[rows].tolist(), zip(starts, ends, strict=True), strict=True))


def events_of_host(trace, *, named):
    """The events of a program that a host issues one by one; `named`: with the ids of what is waited for."""
    program = trace.program
    spans = spans_of(trace, KERNEL)
    recorded = {}
    events = []
    at = 0.0
    for row, (start, end) in sorted(spans_of(trace, HOST).items()):
        action = ACTIONS[program.action[row]]
        stream = int(program.stream[row])
        argument = int(program.argument[row])
        begin = at if action == "barrier" else start  # the host's own part of a barrier comes after it has waited
        events.append(event("cuda_runtime", CALLS[action], (begin, end), 1, correlation=row + 1))
        if action == "launch":
            shape = trace.graph.operator(argument).kernels[0]
            events.append(kernel(argument, spans[argument], stream, row + 1, shape))
        elif action == "record":
            recorded[argument] = row + 1, stream
        elif action == "wait" and named:
            record, source = recorded[argument]
            ids = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": record, "correlation": row + 1}
            events.append(event("cuda_sync", "Stream Wait Event", (start, end), stream, device=0, **ids))
        at = end
    return events


def events_of_graph(trace, plan):
    """The events of a captured graph, launched once."""
    stream = {row.op: row.stream for row in plan.placements}
    names = trace.graph.names
    call = event("cuda_runtime", "cudaGraphLaunch", (0.0, 8.0), 1, correlation=1)
    return [call, *(kernel(op, span, stream[names[op]], 1) for op, span in spans_of(trace, KERNEL).items())]


class Case:
    """A random graph with random times, its schedule, and the truth of a change; `beside`: with contention."""

    def __init__(self, seed, scheduler, gpu, *, beside=False):
        rng = np.random.default_rng(seed)
        drawn = from_spec(f"random:{FAMILIES[seed % 4]},seed={seed}" + ",n_ops=30" * (seed % 4 == 0))
        self.times = rng.uniform(5.0, 120.0, len(drawn))
        self.changed = np.where(rng.random(len(drawn)) < 0.5, self.times / 4, self.times)
        shapes = [ss.Kernel(blocks, threads, 32) for blocks in (20, 108, 432, 2000, 9000) for threads in (128, 512)]
        drawn_shapes = [shapes[k] if beside else FEW for k in rng.integers(len(shapes), size=len(drawn)).tolist()]
        rows = zip(drawn.names, self.times.tolist(), drawn_shapes, strict=True)
        ops = [ss.Operator(name, "kernel", time=time, kernels=(shape,)) for name, time, shape in rows]
        cluster = ss.Cluster.preset(gpu).replace_devices(contention=beside)
        self.plan = ss.schedule(ss.OpGraph(ops, drawn.edges), cluster, scheduler)
        program = self.plan.lower(cluster)
        self.trace = simulate(program, cluster)
        self.truth = simulate(program.over(with_times(program.graph, self.changed)), cluster).makespan

    def errors(self, events, path):
        """Errors of the replay and of the change, by the trace."""
        path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": events}), encoding="utf-8")
        program = read_kineto_program(path)
        replay = replay_traced(program, [parse_change("contention=false")])
        times = np.array(program.graph.time)
        for i, name in enumerate(program.graph.names[: program.of_trace.n_own]):
            op = int(name[1:].partition("_")[0])
            times[i] *= self.changed[op] / self.times[op]
        changed = simulate(program.over(with_times(program.graph, times)), program.cluster)
        return abs(replay.error), abs(changed.makespan / self.truth - 1)


@pytest.mark.parametrize("scheduler", ["heft", "lios", "greedy", "round-robin", "sequential"])
@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_a_host_issues(seed, scheduler, tmp_path):
    case = Case(seed, scheduler, "a100")
    for named, most in ((True, NAMED), (False, GUESSED)):
        replay, change = case.errors(events_of_host(case.trace, named=named), tmp_path / "trace.json")
        assert replay < 0.01
        assert change < most


def test_captured_graphs(tmp_path):
    """A guess may be wrong, and then a change as well; most are right."""
    changes = []
    for seed in range(12):
        case = Case(seed, "nimble", "h100")
        replay, change = case.errors(events_of_graph(case.trace, case.plan), tmp_path / "trace.json")
        assert replay < 0.02
        changes.append(change)
    assert np.mean(changes) < CAPTURED
    assert max(changes) < WORST


@pytest.mark.parametrize("seed", range(6))
def test_kernels_beside_each_other(seed, tmp_path):
    """Contention explains the starts better, and times alone are found again; no stream is taken to have priority."""
    case = Case(seed, "heft", "a100", beside=True)
    path = tmp_path / "trace.json"
    events = events_of_host(case.trace, named=True)
    path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": events}), encoding="utf-8")
    program = read_kineto_program(path)
    off = replay_traced(program, [parse_change("contention=false")])
    usual = replay_traced(program)
    assert abs(usual.error) < 0.04 < abs(off.error)
    assert not as_dispatched(program).priority.any()
    numbers = [int(name[1:].partition("_")[0]) for name in program.graph.names[: program.of_trace.n_own]]
    alone = times_alone(program)[: len(numbers)] / case.times[numbers]
    assert np.median(alone) == pytest.approx(1.0, abs=0.05)
