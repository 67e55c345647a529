"""A device whose numbers are round, and runs on it that are checked for what every trace must hold."""

import re
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
import small

import simsched as ss

DEVICE = replace(
    ss.Cluster.preset("a100").without_overheads().devices[0],
    sms=10,
    threads_per_sm=1024,
    blocks_per_sm=4,
    registers_per_sm=65536,
    shared_memory_per_sm=65536,
    shared_memory_per_block=65536,
    shared_memory_reserved=0,
    shared_memory_granularity=256,
    peak={"fp32": 1000.0},
    bandwidth=1000.0,
    copy_engines=2,
    interference=((0.0, 0.0), (0.0, 0.0)),
    interleave=0.0,
    saturating_warps=32.0,
    block_spread=0.0,
)
"""10 SMs of 1,024 threads, which just keep an SM busy; 1,000 bytes and FLOP per us; no overheads, all blocks alike."""


def hand_made(n_gpus=1, *, link=None, **changes):
    """`n_gpus` such devices with the given fields changed, each pair joined by a link of 100 bytes per us."""
    link = link or ss.Link(100.0)
    devices = tuple(replace(DEVICE, name=f"gpu{i}", **changes) for i in range(n_gpus))
    names = [device.name for device in devices]
    wires = tuple((a, b, link) for i, a in enumerate(names) for b in names[i + 1 :])
    return ss.Cluster(devices, wires)


def grid(name, blocks, time, threads=1024, *, registers=32, shared_memory=0, **fields):
    """An operator of one kernel; blocks of 1,024 threads fill an SM each, so 10 are resident."""
    kernel = ss.Kernel(blocks, threads=threads, registers=registers, shared_memory=shared_memory)
    return ss.Operator(name, time=time, kernels=(kernel,), **fields)


_OPERATOR = re.compile(r"(\w+)=([^%#]+)(?:%(.+))?(?:#(\d+)(?:x(\d+))?)?")


def operators(text, **fields):
    """Operators of "a=10 b=10%0.5 c=10#15 d=10#15x512": us, then utilization, or blocks of 1,024 or 512 threads."""
    found = []
    for word in text.split():
        name, time, utilization, blocks, threads = _OPERATOR.fullmatch(word).groups()
        if blocks:
            found.append(grid(name, int(blocks), float(time), int(threads or 1024), **fields))
        else:
            found.append(ss.Operator(name, time=float(time), utilization=utilization and float(utilization), **fields))
    return found


def lower(ops, edges, placements, cluster, execution="events", timed=None, nbytes=0.0, **options):
    """Lower lists or texts to a program, with options of `Schedule.lower`, and with host times where it is `timed`.

    Texts are those of `operators` above, and of `edges` and `placements` in `small`; without placements each operator
    has a stream of its own.
    """
    ops = operators(ops) if isinstance(ops, str) else ops
    if placements is None:
        placements = [ss.Placement(op.name, stream=s) for s, op in enumerate(ops)]
    elif isinstance(placements, str):
        placements = small.placements(placements)
    program = ss.Schedule(small.made(ops, edges, nbytes=nbytes), placements, execution).lower(cluster, **options)
    return program.timed(*timed) if timed else program


def run(ops, edges, placements, cluster, execution="events", lowered=None, timed=None, nbytes=0.0, **options):
    """Simulate a program of `lower`, for which `lowered` are options, with options of `simulate`."""
    return simulate(
        lower(ops, edges, placements, cluster, execution, timed, nbytes, **lowered or {}), cluster, **options
    )


def simulate(plan, cluster, *args, **options):
    """`simsched.simulate`, and the checks that hold for each of its traces."""
    trace = ss.simulate(plan, cluster, *args, **options)
    check_blame(trace)
    check_streams(trace)
    return trace


def side_by_side(ops, cluster, **options):
    """Run independent operators, each on a stream of its own."""
    return run(ops, [], None, cluster, **options)


def check_blame(trace):
    """The critical path leads without a hole from 0 to the makespan, and its blame adds up to that."""
    path = trace.critical_path()
    near = {"rel": 1e-9, "abs": 1e-9 * trace.makespan}
    assert sum(path.blame.values()) == pytest.approx(trace.makespan, **near)
    assert all(us >= 0 for us in path.blame.values())
    at = 0.0
    for step in path.steps:
        assert step.start == pytest.approx(at, **near)
        assert step.end > step.start
        at = step.end
    assert at == pytest.approx(trace.makespan, **near)
    if trace.makespan:
        assert sum(path.shares.values()) == pytest.approx(1.0, rel=1e-9)


def check_streams(trace):
    """What a stream runs follows each other; nothing starts before it is ready."""
    last = {}
    for span in trace.spans:
        assert span.ready <= span.start <= span.end
        if span.kind in ("kernel", "copy"):
            key = (span.device, span.stream)
            assert span.start >= last.get(key, 0.0) * (1 - 1e-9)
            last[key] = span.end


def assert_times(trace, **expected):
    """Compare start and end of the named operators to a relative 1e-9."""
    found = trace.operator_times()
    for name, (start, end) in expected.items():
        assert found[name] == pytest.approx((start, end), rel=1e-9), name


def assert_blame(trace, **expected):
    """Compare the blame; causes that are not named have none."""
    blame = trace.critical_path().blame
    assert blame == pytest.approx(dict.fromkeys(blame, 0.0) | expected, rel=1e-9, abs=1e-12)


def case(
    ops,
    cluster=None,
    places=None,
    edges="",
    execution="events",
    *,
    blame=None,
    path=None,
    sent=None,
    lowered=None,
    timed=None,
    nbytes=0.0,
    **times,
):
    """Return a check of a run that was worked by hand; without places each operator has a stream of its own.

    It compares start and end of the operators that are named, the blame, the operators on the critical path, and start
    and end of the copies `sent`, where they are given.
    """

    def check():
        trace = run(ops, edges, places, cluster or hand_made(), execution, lowered, timed, nbytes)
        assert_times(trace, **times)
        if blame is not None:
            assert_blame(trace, **blame)
        if path is not None:
            assert trace.critical_path().operators == tuple(path)
        if sent is not None:
            assert copies(trace) == sent

    return check


def waiting(n, execution="events"):
    """A program of n operators, each behind a wait on a stream of its own for an event that nobody records."""
    names = [f"o{i}" for i in range(n)]
    plan = ss.Schedule(ss.OpGraph(map(ss.Operator, names)), [ss.Placement(o, stream=i) for i, o in enumerate(names)])
    data = plan.lower(hand_made()).to_dict() | {"events": n, "execution": execution}
    waits = [{"do": "wait", "device": "gpu0", "stream": i, "event": i} for i in range(n)]
    data["threads"] = [[row for both in zip(waits, *data["threads"], strict=True) for row in both]]
    return ss.Program.from_dict(data)


def copies(trace):
    """Start and end of each copy, in order of time."""
    return [(span.start, span.end) for span in trace.spans if span.kind == "copy"]


@contextmanager
def time_limit(seconds):
    """Fail, rather than hang, when the block takes longer."""

    def stop(*_):
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
