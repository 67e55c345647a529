"""The compiled engine against the reference engine: every column of every span, in the same order."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from drawn import COSTS, plans
from hand_made import DEVICE, hand_made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simsched as ss
from simsched.base.errors import ClusterError, DeadlockError, ProgramError
from simsched.base.jit.pieces import running
from simsched.model.program import COPY
from validation.evidence import FOLDER, keep

EXACT = ("kind", "item", "op", "device", "stream", "cause")
TIMES = ("start", "end", "ready", "solo")
ENGINES = ("reference", "compiled")
CURVES = ("time", "sm", "dram", "warps", "active_sms")


@st.composite
def programs(draw):
    """A cluster, a program that runs on it, and a jitter."""
    cluster, schedule, options = draw(plans())
    program = schedule.lower(cluster, **options)
    if schedule.execution != "graph" and draw(st.integers(0, 3)) == 0:
        n, some = len(program), st.sampled_from([0.0, 0.0, 1.0, 1.0, 4.3])
        own = draw(st.none() | st.lists(some | st.just(np.nan), min_size=n, max_size=n))
        program = program.timed(draw(st.none() | st.lists(some, min_size=n, max_size=n)), own)
    return cluster, program, draw(st.sampled_from([None, None, 0.05, 0.5]))


@st.composite
def busy(draw):
    """A larger program that keeps its devices oversubscribed, drawn from a seed."""
    rng = Random(draw(st.integers(0, 2**32)))
    n, n_streams, ticks = rng.randint(10, 60), rng.randint(2, 12), rng.choice([True, False])
    fields = {
        "interleave": rng.choice([0.0, 0.3, 0.5, 1.0]),
        "interference": rng.choice([((0.0, 0.0), (0.0, 0.0)), ((0.06, 0.03), (0.2, 0.5))]),
        "connections": rng.choice([1, 2, 3, 32]),
        "resident_kernels": rng.choice([1, 2, 3, 128]),
        "copy_engines": rng.randint(1, 2),
        "copy_rate": rng.choice([60.0, np.inf]),
        "bandwidth": rng.choice([20.0, 100.0, 1000.0]),
        "shared_memory_per_sm": rng.choice([65536, 65536.5]),
    }
    fields |= {name: rng.choice([0.0, 0.0, 1.0, rng.random()]) for name in COSTS}
    devices = tuple(
        replace(DEVICE, name=f"gpu{i}", sms=rng.choice([1, 4, 10]), **fields) for i in range(rng.randint(1, 3))
    )
    link = ss.Link(rng.choice([50.0, 300.0]), rng.choice([0.0, 1.0]), duplex=rng.random() < 0.5)
    cluster = ss.Cluster(devices, tuple((device.name, "switch", link) for device in devices))
    ops = []
    for i in range(n):
        kernels = tuple(
            ss.Kernel(
                rng.choice([1, 5, 10, 40, 41, 100, rng.randint(1, 3000)]),
                threads=rng.choice([32, 256, 512, 1024]),
                shared_memory=rng.choice([0, 0, 5000, 32768]),
                share=share,
            )
            for share in rng.choice([(), (1.0,), (1.0,), (1.0,), (0.25, 0.75)])
        )
        ops.append(
            ss.Operator(
                f"o{i}",
                time=float(rng.randint(1, 10)) if ticks else rng.uniform(0.1, 30.0),
                kernels=kernels,
                utilization=rng.choice([0.3, 1.0]) if not kernels else None,
                nbytes=rng.choice([0.0, 1e3, 1e4]),
                flops=rng.choice([0.0, 1e3, 1e4]),
                intensity=rng.choice([None, "compute", "memory"]),
            )
        )
    edges = [
        ss.Edge(f"o{u}", f"o{v}", rng.choice([0.0, 60.0, 100.0, 1000.0]), rng.choice([None, None, None, 4.0]))
        for v in range(1, n)
        for u in sorted(rng.sample(range(v), min(v, rng.choice([0, 0, 1, 2]))))
    ]
    graph = ss.OpGraph(ops, edges)
    placements = [
        ss.Placement(f"o{i}", rng.choice(devices).name, rng.randrange(n_streams), priority=rng.choice([0, 0, 0, 1, -1]))
        for i in range(n)
    ]
    execution = rng.choice(["events", "events", "graph"])
    options = {"threads": rng.choice(["device", "one"]), "events": rng.choice(["minimal", "literal"])}
    if execution == "events":
        options["transfers"] = rng.choice(["async", "blocking"])
    program = ss.Schedule(graph, placements, execution).lower(cluster, **options)
    return cluster, program, rng.choice([None, None, 0.05])


@st.composite
def edited(draw):
    """A program of which rows were taken out or moved: it may be refused, run, or wait for ever."""
    cluster, program, _ = draw(programs() | busy())
    data = program.to_dict()
    for _ in range(draw(st.integers(1, 3))):
        threads = [thread for thread in data["threads"] if thread]
        thread = draw(st.sampled_from(threads))
        at = draw(st.integers(0, len(thread) - 1))
        row = thread.pop(at)
        if row["do"] in ("launch", "copy") or draw(st.booleans()):
            thread = draw(st.sampled_from(threads)) if row["do"] == "record" else thread
            thread.insert(draw(st.integers(0, len(thread))), row)
    try:
        return cluster, ss.Program.from_dict(data), None
    except ProgramError:
        return cluster, program, None


def outcome(engine, program, cluster, jitter):
    """The trace of an engine, or the error it ends with."""
    try:
        return ss.simulate(program, cluster, jitter=jitter, rng=0, engine=engine)
    except (DeadlockError, ClusterError) as error:
        return error


def assert_parity(plan):
    """Both engines say the same: spans, load curves, or the message of an error."""
    cluster, program, jitter = plan
    expected, found = (outcome(engine, program, cluster, jitter) for engine in ENGINES)
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return
    assert found.makespan == pytest.approx(expected.makespan, rel=1e-9, abs=0.0)  # known before the spans are made
    for name in EXACT:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype, name
    for name in TIMES:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=0.0, err_msg=name)
    for ours, theirs in zip(found.loads, expected.loads, strict=True):
        mine, other = steps(ours), steps(theirs)
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)


def steps(load):
    """The points of a load curve, without those that repeat the one before but for the last bit of a sum."""
    rows = np.stack([getattr(load, name) for name in CURVES], 1)
    kept = np.append(True, ~np.isclose(rows[1:, 1:], rows[:-1, 1:], rtol=1e-12, atol=1e-15).all(1))
    return rows[kept]


relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@relaxed
@given(plan=programs())
def test_parity(plan):
    assert_parity(plan)


@relaxed
@given(plan=busy())
def test_parity_of_busy_devices(plan):
    assert_parity(plan)


@relaxed
@given(plan=edited())
def test_parity_of_edited_programs(plan):
    assert_parity(plan)


@pytest.mark.evidence
def test_parity_of_many_programs():
    """50,000 in all, as optimised, unoptimised and uncompiled kernels; the log is `validation/parity.json`."""
    examples = {"O3": 40_000, "O0": 9_000, "0": 1_000}
    for how, count in examples.items():
        for drawn in (programs(), busy(), edited()):
            with running(how):
                settings(relaxed, max_examples=count // 3, database=None)(given(plan=drawn)(assert_parity))()
    keep(FOLDER / "parity.json", {"examples": examples, "different": 0})


def both(program, cluster):
    return [outcome(engine, program, cluster, None) for engine in ENGINES]


def test_a_copy_without_a_way_there():
    """Lowered for linked devices and run without links: the error of the cluster, at the first copy that has no way."""
    graph = ss.OpGraph([ss.Operator(name, time=1.0) for name in "ab"], [ss.Edge("a", "b", 10.0)])
    schedule = ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b", "gpu1")])
    linked = hand_made(2)
    expected, found = both(schedule.lower(linked), ss.Cluster(linked.devices))
    assert isinstance(expected, ClusterError)
    assert (type(found), str(found)) == (type(expected), str(expected))


def test_blocks_shorter_than_an_instant():
    """Twenty waves of some fs each, two of which may end together: by itself as among others."""
    cluster = hand_made(sms=4, blocks_per_sm=1, block_spread=0.3, launch=2.0)
    ops = [ss.Operator(name, time=3e-8, kernels=(ss.Kernel(80, threads=256),)) for name in "ab"]
    schedule = ss.Schedule(ss.OpGraph(ops), [ss.Placement("a"), ss.Placement("b")])
    assert_parity((cluster, schedule.lower(cluster), None))


@pytest.mark.parametrize("order", ["1023", "2013", "3012"])
@pytest.mark.parametrize("threads", ["one", "device"])
def test_of_copies_without_a_way_the_first_in_the_program_counts(order, threads):
    """All start in one instant; the one that is named is the first that a host issues."""
    ops = [ss.Operator(f"{k}{i}", time=1.0) for k in "ab" for i in range(4)]
    graph = ss.OpGraph(ops, [ss.Edge(f"a{i}", f"b{i}", 10.0) for i in range(4)])
    placements = [ss.Placement(f"a{i}", f"gpu{i}") for i in order]
    placements += [ss.Placement(f"b{i}", f"gpu{(3 * i + 1) % 4}") for i in range(4)]
    linked = hand_made(4)
    program = ss.Schedule(graph, placements).lower(linked, threads=threads)
    expected, found = both(program, ss.Cluster(linked.devices))
    first = program.devices[program.device[program.action == COPY][0]]
    assert f"no links lead from {first} to" in str(expected)
    assert (type(found), str(found)) == (ClusterError, str(expected))


def test_many_waves_and_many_streams():
    """Two kernels of a million blocks beside each other, and 40 streams on 32 queues."""
    ops = [
        ss.Operator(f"o{i}", time=3.0 + i, kernels=(ss.Kernel(10**6 if i < 2 else 7, threads=256),)) for i in range(40)
    ]
    graph = ss.OpGraph(ops, [ss.Edge(f"o{i}", f"o{i + 7}") for i in range(33)])
    cluster = hand_made(launch=1.0, gap=0.5, hop=0.3)
    schedule = ss.Schedule(graph, [ss.Placement(f"o{i}", stream=i) for i in range(40)])
    assert_parity((cluster, schedule.lower(cluster), None))


def test_a_share_of_slots_that_is_whole_but_for_rounding():
    """Of 50 slots 0.58 are 29, though 0.58 * 50 is a little less."""
    assert int(0.58 * 50) == 28
    ops = [ss.Operator(f"o{i}", time=10.0, kernels=(ss.Kernel(200, threads=32 + 32 * i),)) for i in range(2)]
    cluster = hand_made(blocks_per_sm=5, interleave=0.58)
    schedule = ss.Schedule(ss.OpGraph(ops), [ss.Placement(op.name, stream=i) for i, op in enumerate(ops)])
    assert_parity((cluster, schedule.lower(cluster), None))


def test_runs_in_threads():
    """The loop runs without the interpreter's lock and shares nothing: eight threads find what one finds."""
    ops = [ss.Operator(f"o{i}", time=3.0 + i % 5, kernels=(ss.Kernel(7 + i, threads=256),)) for i in range(60)]
    graph = ss.OpGraph(ops, [ss.Edge(f"o{i}", f"o{i + 7}", 100.0) for i in range(53)])
    cluster = hand_made(2, launch=1.0, gap=0.5, hop=0.3)
    program = ss.Schedule(graph, [ss.Placement(f"o{i}", f"gpu{i % 2}", i % 3) for i in range(60)]).lower(cluster)
    with ThreadPoolExecutor(8) as pool:
        traces = list(pool.map(lambda _: ss.simulate(program, cluster, engine="compiled"), range(32)))
    expected = ss.simulate(program, cluster, engine="reference")
    for trace in traces:
        assert trace.end.tolist() == expected.end.tolist()


def test_whole_numbers_where_floats_are_usual():
    """Costs, rates and sizes given as integers."""
    costs = dict.fromkeys(COSTS, 1)
    cluster = hand_made(2, link=ss.Link(100, 1), interleave=1, bandwidth=1000, copy_engines=3, **costs)
    ops = [ss.Operator(f"o{i}", time=5, nbytes=1000, kernels=(ss.Kernel(20, threads=256),)) for i in range(8)]
    graph = ss.OpGraph(ops, [ss.Edge(f"o{i}", f"o{i + 4}", 100) for i in range(4)])
    schedule = ss.Schedule(graph, [ss.Placement(f"o{i}", f"gpu{i // 4}", i % 4) for i in range(8)])
    assert_parity((cluster, schedule.lower(cluster), None))
