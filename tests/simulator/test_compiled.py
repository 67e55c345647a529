"""The compiled engine against the reference engine: every column of every span, in the same order; and which runs."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from drawn import COSTS, chooser, exchanging, program
from hand_made import hand_made, lower
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import made, placements

import simsched as ss
import workloads
from simsched.base.errors import ClusterError, DeadlockError, ProgramError
from simsched.base.jit.pieces import running
from simsched.model.program import COPY
from validation.evidence import FOLDER, keep

EXACT = ("kind", "item", "op", "device", "stream", "cause")
TIMES = ("start", "end", "ready", "solo")
CURVES = ("time", "sm", "dram", "warps", "active_sms")


def busy(seed):
    """A larger program that keeps its devices oversubscribed."""
    return program(Random(seed), 10, 60)


def edited(rng, seed):
    """A program of which rows were taken out or moved: it may be refused, run, or wait for ever."""
    cluster, before, _ = rng.choice((lambda: program(rng), lambda: busy(seed), lambda: exchanging(rng)))()
    data = before.to_dict()
    for _ in range(rng.randint(1, 3)):
        threads = [thread for thread in data["threads"] if thread]
        thread = rng.choice(threads)
        row = thread.pop(rng.randrange(len(thread)))
        if row["do"] in ("launch", "copy") or rng.random() < 0.5:
            thread = rng.choice(threads) if row["do"] == "record" else thread
            thread.insert(rng.randint(0, len(thread)), row)
    try:
        return cluster, ss.Program.from_dict(data), None
    except ProgramError:
        return cluster, before, None


def busy_exchanging(seed):
    """A larger program with collectives."""
    return exchanging(Random(seed), 10, 60)


seeds = st.integers(0, 2**32)
DRAWN = {
    "small": st.builds(program, chooser),
    "busy": st.builds(busy, seeds),
    "edited": st.builds(edited, chooser, seeds),
    "exchanging": st.builds(exchanging, chooser),
    "busy exchanging": st.builds(busy_exchanging, seeds),
}


def outcomes(program, cluster, jitter=None):
    """The traces of both engines, or the errors they end with."""
    for engine in ("reference", "compiled"):
        try:
            yield ss.simulate(program, cluster, jitter=jitter, rng=0, engine=engine)
        except (DeadlockError, ClusterError) as error:
            yield error


def assert_parity(plan):
    """Both engines say the same: spans, load curves, or the message of an error."""
    cluster, program, jitter = plan
    expected, found = outcomes(program, cluster, jitter)
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
        np.testing.assert_allclose(steps(ours), steps(theirs), rtol=1e-9, atol=1e-12)


def steps(load):
    """The points of a load curve, without those that repeat the one before but for the last bit of a sum."""
    rows = np.stack([getattr(load, name) for name in CURVES], 1)
    return rows[np.append(True, ~np.isclose(rows[1:, 1:], rows[:-1, 1:], rtol=1e-12, atol=1e-15).all(1))]


def try_many(drawn, count, **options):
    relaxed = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), **options)
    relaxed(given(plan=drawn)(assert_parity))()


@pytest.mark.parametrize(
    ("kind", "count"), [("small", 120), ("busy", 40), ("edited", 80), ("exchanging", 120), ("busy exchanging", 40)]
)
def test_parity(kind, count):
    try_many(DRAWN[kind], count)


@pytest.mark.evidence
def test_parity_of_many_programs():
    """50,000 in all, as optimised, unoptimised and uncompiled kernels; the log is `validation/parity.json`."""
    examples = {"O3": 40_000, "O0": 9_000, "0": 1_000}
    for how, count in examples.items():
        for drawn in DRAWN.values():
            with running(how):
                try_many(drawn, count // len(DRAWN), database=None)
    keep(FOLDER / "parity.json", {"examples": examples, "different": 0})


def chains(n, word, apart, nbytes=0):
    """Operators as `word` says them of i, and edges from each to the one so many behind it."""
    return " ".join(map(word, range(n))), " ".join(f"o{i}-o{i + apart}={nbytes}" for i in range(n - apart))


def test_blocks_shorter_than_an_instant():
    """Twenty waves of some fs each, two of which may end together: by itself as among others."""
    cluster = hand_made(sms=4, blocks_per_sm=1, block_spread=0.3, launch=2.0)
    assert_parity((cluster, lower("a=3e-8#80x256 b=3e-8#80x256", "", "a b", cluster), None))


@pytest.mark.parametrize("order", ["1023", "2013", "3012"])
@pytest.mark.parametrize("threads", ["one", "device"])
def test_of_copies_without_a_way_the_first_in_the_program_counts(order, threads):
    """All start in one instant; the one that is named is the first that a host issues."""
    places = " ".join(f"a{i}@{i}" for i in order) + " b0@1 b1@0 b2@3 b3@2"
    cluster, edges = hand_made(4), "a0-b0=10 a1-b1=10 a2-b2=10 a3-b3=10"
    program = lower("a0=1 a1=1 a2=1 a3=1 b0=1 b1=1 b2=1 b3=1", edges, places, cluster, threads=threads)
    expected, found = outcomes(program, ss.Cluster(cluster.devices))
    first = program.devices[program.device[program.action == COPY][0]]
    assert f"no links lead from {first} to" in str(expected)
    assert (type(found), str(found)) == (ClusterError, str(expected))


def test_many_waves_and_many_streams():
    """Two kernels of a million blocks beside each other, and 40 streams on 32 queues."""
    cluster = hand_made(launch=1.0, gap=0.5, hop=0.3)
    plan = chains(40, lambda i: f"o{i}={3 + i}#{10**6 if i < 2 else 7}x256", 7)
    assert_parity((cluster, lower(*plan, None, cluster), None))


def test_a_share_of_slots_that_is_whole_but_for_rounding():
    """Of 50 slots 0.58 are 29, though 0.58 * 50 is a little less."""
    assert int(0.58 * 50) == 28
    cluster = hand_made(blocks_per_sm=5, interleave=0.58)
    assert_parity((cluster, lower("a=10#200x32 b=10#200x64", "", None, cluster), None))


def test_runs_in_threads():
    """The loop runs without the interpreter's lock and shares nothing: eight threads find what one finds."""
    cluster = hand_made(2, launch=1.0, gap=0.5, hop=0.3)
    plan = chains(60, lambda i: f"o{i}={3 + i % 5}#{7 + i}x256", 7, 100)
    program = lower(*plan, " ".join(f"o{i}/{i % 3}@{i % 2}" for i in range(60)), cluster)
    with ThreadPoolExecutor(8) as pool:
        traces = list(pool.map(lambda _: ss.simulate(program, cluster, engine="compiled"), range(32)))
    expected = ss.simulate(program, cluster, engine="reference")
    for trace in traces:
        assert trace.end.tolist() == expected.end.tolist()


def test_whole_numbers_where_floats_are_usual():
    """Costs, rates and sizes given as integers."""
    cluster = hand_made(
        2, link=ss.Link(100, 1), interleave=1, bandwidth=1000, copy_engines=3, **dict.fromkeys(COSTS, 1)
    )
    plan = chains(8, lambda i: f"o{i}=5#20x256", 4, 100)
    assert_parity((cluster, lower(*plan, "o0 o1/1 o2/2 o3/3 o4@1 o5/1@1 o6/2@1 o7/3@1", cluster), None))


def test_a_cluster_of_many_nodes():
    """64 devices behind NVSwitches and a network between nodes of 8: copies inside and between nodes."""
    cluster, graph = ss.Cluster.preset("h100", n_gpus=64), workloads.random_layered(n_ops=300, n_layers=10, rng=3)
    moved = ss.OpGraph(graph.operators, [ss.Edge(e.src, e.dst, 1e5 * (1 + i % 7)) for i, e in enumerate(graph.edges)])
    assert_parity((cluster, ss.schedule(moved, cluster, "round-robin").lower(cluster), None))


# Choosing an engine ------------------------------------------------------------------------------

PLAN, CLUSTER = ss.Schedule(made("a=1"), placements("a")), ss.Cluster.preset("a100")


def test_the_compiled_engine_is_the_usual_one():
    """Its trace makes spans when they are asked for; the reference makes them at once."""
    found = {engine: "start" in vars(ss.simulate(PLAN, CLUSTER, engine=engine)) for engine in ("auto", "reference")}
    assert found == {"auto": False, "reference": True}


def test_a_schedule_is_lowered_once():
    first = PLAN.lower(CLUSTER)
    assert ss.simulate(PLAN, CLUSTER).program is ss.simulate(PLAN, CLUSTER).program is first
    assert PLAN.lower(CLUSTER, events="literal") is not first
    assert ss.simulate(PLAN, CLUSTER.without_overheads()).makespan < ss.simulate(PLAN, CLUSTER).makespan
    with pytest.raises(ValueError, match="read-only"):
        first.action[0] = 1


def test_unknown_engine():
    with pytest.raises(ss.SimschedError, match="unknown engine 'gpu'; known are: auto, compiled, reference"):
        ss.simulate(PLAN, CLUSTER, engine="gpu")
