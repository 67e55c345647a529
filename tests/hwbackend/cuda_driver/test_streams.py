"""The cupy backend on a fake CUDA: which calls it makes for a program, what time it reads off them, and that values are
those of sequential execution whatever order streams run in."""

import re
from dataclasses import replace
from functools import partial
from itertools import combinations
from threading import Event
from time import sleep
from zlib import crc32

import numpy as np
import pytest
from fake_cuda import PLACES, FakeCuda, on_fake, synth
from hypothesis import given, settings
from hypothesis import strategies as st
from shortened import in_order, program_of, synths

import workloads
from hwbackend.cuda.clocks import clock_offsets
from hwbackend.cuda.hosts import Hosts
from hwbackend.cuda.kernels.launches import NumberArgument
from hwbackend.cuda.operators import Numbers
from hwbackend.cuda.streams import Streams
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Kernel, Operator, OpGraph

AB, ABC = synths("ab", ["ab"]), synths("abc", ["ab", "bc"])
LOWERINGS = {
    "events": [{}, {"threads": "one"}, {"transfers": "blocking"}, {"events": "literal"}],
    "stages": [{}, {"threads": "one", "transfers": "blocking"}],
    "graph": [{}],
}


# Calls


# what is told of a call's arguments: events, streams, or as they are
TOLD = {
    "launch": "{0} s{3}",
    "record": "record e{0} s{1}",
    "wait": "wait s{0} e{1}",
    "elapsed": "elapsed e{0} e{1}",
    "synchronize_stream": "synchronize_stream s{0}",
    "begin_capture": "begin_capture s{0}",
    "end_capture": "end_capture s{0}",
    "upload_graph": "upload_graph s{1}",
    "launch_graph": "launch_graph s{1}",
    "copy": "copy {2} s{3}",
    "copy_peer": "copy_peer {3}>{1} {4} s{5}",
    "set_device": "gpu {0}",
}


def told(calls, *skipped):
    """Calls as text: streams and events are numbered as they come."""
    numbers = {"s": {}, "e": {}}

    def numbered(rest, match):
        kind, value = match[1], rest[int(match[2])]
        return f"{kind}{numbers[kind].setdefault(value, len(numbers[kind]))}" if kind else str(value)

    return [
        re.sub(r"(\b[se])?\{(\d)\}", partial(numbered, rest), TOLD.get(name, name))
        for name, *rest in calls
        if name not in skipped
    ]


def calls_of(graph, place="one", **columns):
    """The calls that make a program of a schedule ready, and those of a run."""
    fake, backend = on_fake(place)
    graph = backend.realise(graph)
    program = in_order(graph, **columns).lower(backend.cluster)
    work = backend._work_on(graph)
    backend._conditions  # noqa: B018  enables peer access
    before = len(fake.calls)
    with backend._run(program, work) as run:
        ready = len(fake.calls)
        run.once()
        return fake.calls[before:ready], fake.calls[ready:]


DIAMOND = synths("abcd", ["ab", "ac", "bd", "cd"])


def test_events_on_one_gpu():
    """a, b and d on stream 0, c on stream 1: c waits for a, d for c, so that nothing ends behind stream 0."""
    _, calls = calls_of(DIAMOND, stream=[0, 0, 1, 0])
    assert told(calls)[:16] == [
        "gpu 0",
        "record e0 s0",
        "gpu 0",
        "synth s0",
        "record e1 s0",
        "synth s0",
        "wait s1 e1",
        "synth s1",
        "record e2 s1",
        "wait s0 e2",
        "synth s0",
        "gpu 0",
        "record e3 s0",
        "gpu 0",
        "synchronize",
        "elapsed e0 e3",
    ]


def test_stages_drain_the_streams_of_a_stage():
    """Stages {a}, {b, c}, {d}: before each of the last two the host waits for the streams of the stage before it."""
    _, calls = calls_of(DIAMOND, execution="stages", stream=[0, 0, 1, 0], stage=[0, 1, 1, 2], group=[0, 0, 1, 0])
    assert told(calls, "set_device")[:10] == [
        "record e0 s0",
        "synth s0",
        "synchronize_stream s0",
        "synth s0",
        "synth s1",
        "synchronize_stream s0",
        "synchronize_stream s1",
        "synth s0",
        "record e1 s0",
        "synchronize",
    ]


def test_a_graph_is_captured_once_and_launched_once_per_run():
    """Stream 1 is forked from stream 0 and joined to it; a run is one launch between two records."""
    before, calls = calls_of(DIAMOND, execution="graph", stream=[0, 0, 1, 0])
    begin = [call[0] for call in before].index("begin_capture")
    assert told(before[begin:], "set_device")[:16] == [
        "begin_capture s0",
        "record e0 s0",
        "wait s1 e0",
        "synth s0",
        "record e1 s0",
        "synth s0",
        "wait s1 e1",
        "synth s1",
        "record e2 s1",
        "wait s0 e2",
        "synth s0",
        "record e3 s1",
        "wait s0 e3",
        "end_capture s0",
        "upload_graph s0",
        "synchronize",
    ]
    assert told(calls, "set_device") == [
        "record e0 s0",
        "launch_graph s0",
        "record e1 s0",
        "synchronize",
        "elapsed e0 e1",
    ]


def test_a_copy_between_gpus_runs_behind_its_source_and_ends_on_the_first_stream():
    """a on GPU 0, b on GPU 1: the copy waits for a on a stream of GPU 0, b's stream for the copy; GPU 1 is joined."""
    calls = told(calls_of(AB, "two", device=[0, 1])[1])
    order = [
        "record e0 s0",
        "synth s0",
        "record e1 s0",
        "wait s1 e1",
        "copy_peer 0>1 1024 s1",
        "record e2 s1",
        "wait s2 e2",
    ]
    places = [calls.index(call) for call in [*order, "synth s2"]]
    assert places == sorted(places)
    (end,) = (call.split()[1] for call in calls if call.startswith("record") and call.endswith("s2"))
    after = calls[calls.index(f"wait s0 {end}") - 1 :]
    assert after[0] == "gpu 0"
    assert after[2].split()[::2] == ["record", "s0"]
    assert [call.split()[0] for call in after[3:]] == ["gpu", "synchronize"] * 2 + ["elapsed"]
    assert after[-1] == f"elapsed e0 {after[2].split()[1]}"


def test_virtual_devices_copy_within_the_gpu():
    """Output of 1024 bytes, an edge of 5120: first 4096 bytes are moved from and to a buffer of their own."""
    fake, backend = on_fake("virtual")
    graph = backend.realise(synths("ab", ["ab"], nbytes=5120.0))
    replay = backend.replay(in_order(graph, device=[0, 1]), repeats=2)
    copies = [call for call in fake.calls if call[0] == "copy"]
    assert [call[3] for call in copies[:2]] == [4096, 1024]
    assert copies[0][1:3] != copies[1][1:3]
    assert "copy_peer" not in fake.count
    assert {call for call in fake.calls if call[0] == "set_device"} == {("set_device", 0)}
    assert replay.cluster.devices[1].name == "gpu1"


def test_priorities_of_streams_are_dense():
    """Priorities 5 and 7 of two streams: 7 is the last and becomes 0, 5 goes before it and becomes -1."""
    calls, _ = calls_of(synths("ab", []), stream=[0, 1], priority=[5, 7])
    assert [call[1] for call in calls if call[0] == "stream"][-2:] == [-1, 0]


A, B, C = ((LAUNCH, row) for row in range(3))
NOTED, WAITED, SYNCED = (RECORD, 0), (WAIT, 0), (SYNC, 0)
DRAINED = BARRIER, -1
MOVED = COPY, 0


@pytest.mark.parametrize(
    ("threads", "ends"),
    [
        ([[(A, 0, 0), (NOTED, 0, 0), (WAITED, 0, 1), (B, 0, 1)]], [(0, 1)]),
        ([[(A, 0, 0), (NOTED, 0, 0), (WAITED, 0, 1), (B, 0, 2)]], [(0, 2), (0, 0)]),  # stream 1 does nothing behind it
        ([[(A, 0, 0), (NOTED, 0, 0), (B, 0, 0), (WAITED, 0, 1), (C, 0, 1)]], [(0, 1), (0, 0)]),  # it goes on itself
        ([[(A, 0, 0), (NOTED, 0, 0), (SYNCED, 0, -1), (B, 0, 1)]], [(0, 1)]),
        ([[(A, 0, 0), (NOTED, 0, 0), (SYNCED, 0, -1)]], [(0, 0)]),  # nothing behind it
        ([[(A, 0, 0), (DRAINED, 0, -1), (B, 0, 1)]], [(0, 1)]),
        ([[(A, 0, 0), (B, 0, 1), (DRAINED, 0, -1)]], [(0, 1), (0, 0)]),  # nothing behind it
        ([[(A, 0, 0), (DRAINED, 1, -1), (B, 1, 0)]], [(1, 0), (0, 0)]),  # of another device
        ([[(A, 0, 0)], [(DRAINED, 0, -1), (B, 1, 0)]], [(1, 0), (0, 0)]),  # by another host thread
        ([[(MOVED, 0, 0), (DRAINED, 0, -1), (A, 0, 1)]], [(0, 1), (0, 0)]),  # which waits for no copy
        ([[(A, 0, 0), (NOTED, 0, 0)], [(WAITED, 0, 1), (B, 0, 1)]], [(0, 1)]),
        ([[(A, 0, 0), (NOTED, 0, 0), (B, 0, 1)], [(WAITED, 0, 1), (C, 0, 1)]], [(0, 1), (0, 0)]),  # one has two threads
    ],
)
def test_which_streams_may_end_last(threads, ends):
    """Instructions of host threads with device and stream, and the streams behind which an event is recorded."""
    rows = [[(action, device, stream, item) for (action, item), device, stream in thread] for thread in threads]
    program = program_of(synths("abc", []), *rows, copies=[(0, 0)])
    assert list(Streams(FakeCuda(2), program, (0, 1)).ends) == ends


def test_host_threads_that_wait_for_each_other_are_refused():
    """Thread 0 waits for event 1 before it records event 0, thread 1 the other way round."""
    graph = synths("ab", [])
    other = [(WAIT, 1, 0, 0), (LAUNCH, 1, 0, 1), (RECORD, 1, 0, 1)]
    stuck = program_of(graph, [(WAIT, 0, 0, 1), (LAUNCH, 0, 0, 0), (RECORD, 0, 0, 0)], other, events=2)
    _, backend = on_fake("two")
    with pytest.raises(BackendError, match="host thread 0 waits for event 1, which is never recorded"):
        backend.replay(stuck)
    fine = program_of(graph, [(LAUNCH, 0, 0, 0), (RECORD, 0, 0, 0), (WAIT, 0, 0, 1)], other, events=2)
    assert backend.replay(fine, repeats=1).max_relative_error == 0.0


def test_a_host_thread_waits_until_a_record_is_issued():
    """The fake refuses a wait for an event that was not recorded. What comes from GPU 0 is issued late: GPU 1's thread
    comes to its wait long before GPU 0's to the record."""
    fake, backend = on_fake("two")
    usual = fake._launch
    fake._launch = lambda *arguments: (sleep(0.002 * (fake._device() == 0)), usual(*arguments))
    assert backend.replay(in_order(ABC, device=[0, 1, 0]), repeats=2).max_relative_error == 0.0


def test_a_thread_that_fails_does_not_leave_the_others_waiting():
    """Thread 1 fails while thread 0 waits at a gate that it would have opened."""
    gate, made = Event(), []
    first, then, again = (partial(made.append, text) for text in ("first", "then", "again"))
    with Hosts(2, [gate]) as hosts:
        with pytest.raises(TypeError, match="int"):
            hosts.run([first], [[gate.wait, then], [partial(int, None), gate.set]])
        hosts.run([], [[again], [gate.set]])
    assert made == ["first", "then", "again"]


# Times


@given(
    seed=st.integers(0, 10_000),
    place=st.sampled_from(["one", "two"]),
    streams=st.integers(1, 8),
    execution=st.sampled_from(["events", "stages"]),
    options=st.sampled_from(LOWERINGS["events"]),
)
@settings(max_examples=40)
def test_nothing_ends_after_the_latency(seed, place, streams, execution, options):
    """Whatever streams are not looked at, and in whatever order they run: no kernel ends behind the last event."""
    ends = []

    def noted(memory, arguments, start, end):
        synth(memory, arguments, start, end)
        ends.append(end)

    fake, backend = on_fake(place, seed, kernels={"synth": noted})
    edges = [edge for edge in combinations("abcdefgh", 2) if crc32(f"{seed}{edge}".encode()) % 3 == 0]
    graph = backend.realise(synths("abcdefgh", edges))
    plan = random_schedule(graph, backend.cluster, rng=seed, streams=streams, execution=execution)
    program = plan.lower(backend.cluster, **(options if execution == "events" else {}))
    with backend._run(program, backend._work_on(graph)) as run:
        ends.clear()
        latency = run.once()
        begin = fake._events[run._begin].last.time
    assert len(ends) == 8
    assert max(ends) - begin <= 1e3 * latency + 1e-6


def test_latency_and_spans_of_a_chain():
    """Two kernels of 10 us on one stream; the host takes 0.5 us to set the device and 4 us to launch.

    Plain: the first kernel is there 0.5 + 4 us after the first event, and they end 20 us later: 24.5 us. Traced: a
    kernel of 1 us that ends with reading the clock is launched first: what comes 4.5 us after its launch begins at 3.5.
    """
    replay = on_fake()[1].replay(in_order(AB), repeats=5)
    assert replay.latency == pytest.approx([24.5] * 5)
    spans = [(span.op, round(span.start, 6), round(span.end, 6)) for span in replay.trace.spans]
    assert spans == [("a", 3.5, 13.5), ("b", 13.5, 23.5)]
    assert replay.max_relative_error == 0.0


@pytest.mark.parametrize(("cold", "fills"), [(False, 0), (True, 8)])
def test_runs_are_counted_and_the_cache_is_filled_only_if_asked(cold, fills):
    """A cold run fills a buffer of twice the L2 of 60 MiB first: 3 + 2 timed runs and 1 + 2 traced ones."""
    fake, backend = on_fake(cold=cold)
    replay = backend.replay(in_order(AB), repeats=2, warmup=3)
    assert sum(call[0] == "fill" and call[3] == 120 * 2**20 for call in fake.calls) == fills
    assert replay.environment["cold"] == ("yes" if cold else "no")


def test_clocks_of_gpus_are_brought_to_one():
    """The clock of GPU 1 is 5 ms ahead, a copy takes 3 us: b begins within 100 us of the end of a, not 5 ms later."""
    for skew in ((0, 5_000_000), (5_000_000, 0)):
        replay = on_fake("two", skew=skew)[1].replay(in_order(AB, device=[0, 1]), repeats=3)
        a, b = (next(s for s in replay.trace.spans if s.op == op and s.kind == "kernel") for op in "ab")
        assert 0.0 <= a.start < a.end
        assert abs(b.start - a.end) < 100.0


def test_the_quickest_reading_of_a_clock_counts():
    """Of the waits of the host two of three end 1 ms late: such a reading is off by half of it; the others by 5 us."""
    fake, usual = FakeCuda(2, skew=(0, 5_000_000)), FakeCuda.synchronize_stream

    def late(stream):
        usual(fake, stream)
        fake.now += 1_000_000 if fake.count["synchronize_stream"] % 3 else 0

    fake.synchronize_stream, functions = late, {}
    for gpu in range(2):
        fake.set_device(gpu)
        functions[gpu] = fake.compile("", ["stamp"], ())
    assert clock_offsets(fake, functions) == pytest.approx({0: 0, 1: 5_000_000}, abs=5_000)


# Values


@pytest.mark.parametrize("place", PLACES)
@given(data=st.data(), seed=st.integers(0, 10_000), execution=st.sampled_from(list(LOWERINGS)))
@settings(max_examples=10)
def test_values_are_right_in_any_order(place, data, seed, execution):
    graph = workloads.random_layered(n_ops=12, n_layers=4, rng=seed)
    graph = OpGraph([replace(op, time=op.time / 20) for op in graph.operators], graph.edges)  # two kernels at most
    _, backend = on_fake(place, seed)
    plan = random_schedule(backend.realise(graph), backend.cluster, rng=seed, execution=execution)
    program = plan.lower(backend.cluster, **data.draw(st.sampled_from(LOWERINGS[execution])))
    assert backend.replay(program, repeats=2, warmup=0).max_relative_error == 0.0


def test_synthetic_kernels_are_as_compiled():
    """The fake compiles synth to 40 registers and 16 bytes of shared memory; what a launch asks for beyond stays."""
    kernels = (Kernel(4, shared_memory=0, share=0.5), Kernel(4, shared_memory=4096, share=0.5))
    _, backend = on_fake()
    graph = backend.realise(OpGraph([Operator("a", "synth", kernels=kernels, flops=1e6)]))
    assert [(k.registers, k.shared_memory) for k in graph.operators[0].kernels] == [(40, 16), (40, 4096)]
    assert backend.realise(graph) is graph


def test_numbers_are_drawn_by_name_and_seed():
    """A number without spread is its mean; one of spread 0.5 is mean + 0.5 z with the z of spread 1."""
    graph = OpGraph([Operator("a", "synth"), Operator("b", "synth")])
    numbers = Numbers(graph, seed=1)
    unit, wide = NumberArgument("constant"), NumberArgument("constant", 3.0, 0.5)
    (z,) = numbers.parameter(0, unit)
    assert numbers.parameter(0, wide).tolist() == [np.float32(3.0) + np.float32(0.5) * z]
    assert numbers.parameter(0, NumberArgument("constant", 2.0, 0.0)).tolist() == [2.0]
    assert numbers.parameter(1, unit)[0] != z
    assert Numbers(graph, seed=2).parameter(0, unit)[0] != z
    assert Numbers(graph, seed=1).parameter(0, unit)[0] == z


def test_a_wait_that_is_missing_shows():
    """Of eight orders, in a CUDA that lets streams run past the waits of a schedule, at least one runs d before c."""
    found = []
    for rng in range(8):
        fake, backend = on_fake("one", rng)
        usual, events = fake.wait, fake._events
        fake.wait = lambda stream, event: events[event].last.capture and usual(stream, event)  # noqa: B023
        try:
            backend.replay(in_order(ABC, stream=[0, 1, 0]), repeats=1)
        except BackendError as error:
            found.append(str(error))
    assert found
    assert all("is not a number under the schedule" in text for text in found)


@pytest.mark.parametrize(
    ("spoils", "says"),
    [
        # the first in the order of the graph is b, not c that reads it
        (lambda run, y: y.fill(np.inf) if run == 2 else None, "output of 'b' is not finite even in sequential"),
        (lambda run, y: np.add(y, run > 3, y), r"output of 'a' on gpu0 differs by .* from that of sequential"),
    ],
)
def test_wrong_values_are_named(spoils, says):
    """Of a, b and c in a row, which are run in sequence first; from the 4th run on one is added to every value."""
    count = [0]

    def kernel(memory, arguments, start, end):
        synth(memory, arguments, start, end)
        count[0] += 1
        spoils(count[0], memory.floats(arguments[3], arguments[4]))

    _, backend = on_fake(kernels={"synth": kernel})
    with pytest.raises(BackendError, match=says):
        backend.replay(in_order(ABC), repeats=1)
