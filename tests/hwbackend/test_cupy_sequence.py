"""Which calls of CUDA the cupy backend makes for a program, in which order, and what time it reads off them."""

import re
from functools import partial
from itertools import combinations
from zlib import crc32

import pytest
from fake_cuda import FakeCuda, synth
from hypothesis import given, settings
from hypothesis import strategies as st
from shortened import program_of, synths

from hwbackend.cupy_backend import CupyBackend
from hwbackend.cupy_streams import Streams
from simsched.calibration.training import random_schedule
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Placement, Schedule

DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def made_ready(fake, placements, execution, edges=DIAMOND, **options):
    """Return what is ready to run, with the calls made so far forgotten."""
    backend = CupyBackend(api=fake, **options)
    graph = backend.realise(synths("abcd"[: len(placements)], edges))
    program = Schedule(graph, placements, execution=execution).lower(backend.cluster)
    work = backend._work_on(graph)
    backend._conditions  # noqa: B018  enables peer access
    fake.calls.clear()
    return backend._run(program, work)


# what is told of a call's arguments: events, streams, or as they are
TOLD = {
    "launch": "{0} s{3}", "record": "record e{0} s{1}", "wait": "wait s{0} e{1}", "elapsed": "elapsed e{0} e{1}",
    "synchronize_stream": "synchronize_stream s{0}", "begin_capture": "begin_capture s{0}",
    "end_capture": "end_capture s{0}", "upload_graph": "upload_graph s{1}", "launch_graph": "launch_graph s{1}",
    "copy": "copy {2} s{3}", "copy_peer": "copy_peer {3}>{1} {4} s{5}", "set_device": "gpu {0}",
}  # fmt: skip


def told(fake, *skipped):
    """Calls as text: streams and events are numbered as they come."""
    numbers = {"s": {}, "e": {}}

    def numbered(rest, match):
        kind, value = match[1], rest[int(match[2])]
        return f"{kind}{numbers[kind].setdefault(value, len(numbers[kind]))}" if kind else str(value)

    found = []
    for name, *rest in fake.calls:
        if name not in skipped:
            found.append(re.sub(r"(\b[se])?\{(\d)\}", partial(numbered, rest), TOLD.get(name, name)))
    return found


def test_events_on_one_gpu():
    """a, b and d on stream 0, c on stream 1: c waits for a, d for c, so that nothing ends behind stream 0."""
    fake = FakeCuda()
    placements = [Placement("a"), Placement("b"), Placement("c", stream=1), Placement("d")]
    with made_ready(fake, placements, "events") as run:
        fake.calls.clear()
        run.once()
    assert told(fake)[:16] == [
        "gpu 0", "record e0 s0",
        "gpu 0", "synth s0", "record e1 s0", "synth s0",
        "wait s1 e1", "synth s1", "record e2 s1", "wait s0 e2", "synth s0",
        "gpu 0", "record e3 s0",
        "gpu 0", "synchronize", "elapsed e0 e3",
    ]  # fmt: skip
    assert not fake.live


def test_stages_drain_the_streams_of_a_stage():
    """Stages {a}, {b, c}, {d}: before each of the last two the host waits for the streams of the stage before it."""
    fake = FakeCuda()
    placements = [
        Placement("a"), Placement("b", stage=1), Placement("c", stream=1, stage=1, group=1), Placement("d", stage=2),
    ]  # fmt: skip
    with made_ready(fake, placements, "stages") as run:
        fake.calls.clear()
        run.once()
    assert told(fake, "set_device")[:10] == [
        "record e0 s0", "synth s0", "synchronize_stream s0", "synth s0", "synth s1", "synchronize_stream s0",
        "synchronize_stream s1", "synth s0", "record e1 s0", "synchronize",
    ]  # fmt: skip


def test_a_graph_is_captured_once_and_launched_once_per_run():
    """Stream 1 is forked from stream 0 and joined to it; a run is one launch between two records."""
    fake = FakeCuda()
    placements = [Placement("a"), Placement("b"), Placement("c", stream=1), Placement("d")]
    with made_ready(fake, placements, "graph") as run:
        del fake.calls[: [call[0] for call in fake.calls].index("begin_capture")]
        assert told(fake, "set_device")[:16] == [
            "begin_capture s0", "record e0 s0", "wait s1 e0",
            "synth s0", "record e1 s0", "synth s0", "wait s1 e1", "synth s1", "record e2 s1", "wait s0 e2", "synth s0",
            "record e3 s1", "wait s0 e3", "end_capture s0",
            "upload_graph s0", "synchronize",
        ]  # fmt: skip
        fake.calls.clear()
        run.once()
        assert told(fake, "set_device") == [
            "record e0 s0", "launch_graph s0", "record e1 s0", "synchronize", "elapsed e0 e1"
        ]  # fmt: skip
    assert not fake.live


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


LOWERINGS = [{}, {"threads": "one"}, {"transfers": "blocking"}, {"events": "literal"}]


@given(
    seed=st.integers(0, 10_000), gpus=st.integers(1, 2), streams=st.integers(1, 8),
    execution=st.sampled_from(["events", "stages"]), options=st.sampled_from(LOWERINGS),
)  # fmt: skip
@settings(max_examples=40)
def test_nothing_ends_after_the_latency(seed, gpus, streams, execution, options):
    """Whatever streams are not looked at, and in whatever order they run: no kernel ends behind the last event."""
    ends = []

    def noted(memory, arguments, start, end):
        synth(memory, arguments, start, end)
        ends.append(end)

    fake = FakeCuda(gpus, seed, kernels={"synth": noted})
    backend = CupyBackend(api=fake)
    edges = [edge for edge in combinations("abcdefgh", 2) if crc32(f"{seed}{edge}".encode()) % 3 == 0]
    graph = backend.realise(synths("abcdefgh", edges))
    plan = random_schedule(graph, backend.cluster, rng=seed, streams=streams, execution=execution)
    if execution == "stages":
        options = {}
    with backend._run(plan.lower(backend.cluster, **options), backend._work_on(graph)) as run:
        ends.clear()
        latency = run.once()
        begin = fake._events[run._begin].last.time
    assert len(ends) == 8
    assert max(ends) - begin <= 1e3 * latency + 1e-6


PAIR = [Placement("a", device="gpu0"), Placement("b", device="gpu1")]


def test_a_copy_between_gpus_runs_behind_its_source_and_ends_on_the_first_stream():
    """a on GPU 0, b on GPU 1: the copy waits for a on a stream of GPU 0, b's stream for the copy; GPU 1 is joined."""
    fake = FakeCuda(gpus=2)
    with made_ready(fake, PAIR, "events", edges=[("a", "b")]) as run:
        fake.calls.clear()
        run.once()
        calls = told(fake)
    order = [
        "record e0 s0", "synth s0", "record e1 s0", "wait s1 e1", "copy_peer 0>1 1024 s1", "record e2 s1", "wait s2 e2",
    ]  # fmt: skip
    places = [calls.index(call) for call in [*order, "synth s2"]]
    assert places == sorted(places)
    (end,) = (call.split()[1] for call in calls if call.startswith("record") and call.endswith("s2"))
    after = calls[calls.index(f"wait s0 {end}") - 1 :]
    assert after[0] == "gpu 0"
    assert after[2].split()[::2] == ["record", "s0"]
    assert [call.split()[0] for call in after[3:]] == ["gpu", "synchronize"] * 2 + ["elapsed"]
    assert after[-1] == f"elapsed e0 {after[2].split()[1]}"
    assert not fake.live


def test_virtual_devices_copy_within_the_gpu():
    """Output of 1024 bytes, an edge of 5120: first 4096 bytes are moved from and to a buffer of their own."""
    fake = FakeCuda()
    backend = CupyBackend(api=fake, virtual_devices=2)
    graph = backend.realise(synths("ab", [("a", "b")], nbytes=5120.0))
    replay = backend.replay(Schedule(graph, PAIR), repeats=2)
    copies = [call for call in fake.calls if call[0] == "copy"]
    assert [call[3] for call in copies[:2]] == [4096, 1024]
    assert copies[0][1:3] != copies[1][1:3]
    assert "copy_peer" not in fake.count
    assert {device for call in fake.calls if call[0] == "set_device" for device in call[1:]} == {0}
    assert replay.cluster.devices[1].name == "gpu1"
    assert not fake.live


def test_latency_and_spans_of_a_chain():
    """Two kernels of 10 us on one stream; the host takes 0.5 us to set the device and 4 us to launch.

    Plain: the first kernel is there 0.5 + 4 us after the first event, and they end 20 us later: 24.5 us. Traced: a
    kernel of 1 us that ends with reading the clock is launched first: what comes 4.5 us after its launch begins at 3.5.
    """
    fake = FakeCuda()
    backend = CupyBackend(api=fake)
    replay = backend.replay(Schedule(synths("ab", [("a", "b")]), [Placement("a"), Placement("b")]), repeats=5)
    assert replay.latency == pytest.approx([24.5] * 5)
    spans = [(span.op, span.start, span.end) for span in replay.trace.spans]
    assert [(op, round(start, 6), round(end, 6)) for op, start, end in spans] == [("a", 3.5, 13.5), ("b", 13.5, 23.5)]
    assert replay.max_relative_error == 0.0


@pytest.mark.parametrize(("cold", "fills"), [(False, 0), (True, 8)])
def test_runs_are_counted_and_the_cache_is_filled_only_if_asked(cold, fills):
    """A cold run fills a buffer of twice the L2 of 60 MiB first: 3 + 2 timed runs and 1 + 2 traced ones."""
    fake = FakeCuda()
    plan = Schedule(synths("ab", [("a", "b")]), [Placement("a"), Placement("b")])
    replay = CupyBackend(api=fake, cold=cold).replay(plan, repeats=2, warmup=3)
    assert sum(call[0] == "fill" and call[3] == 120 * 2**20 for call in fake.calls) == fills
    assert replay.environment["cold"] == ("yes" if cold else "no")


def test_priorities_of_streams_are_dense():
    """Priorities 5 and 7 of two streams: 7 is the last and becomes 0, 5 goes before it and becomes -1."""
    fake = FakeCuda()
    rows = [Placement("a", stream=0, priority=5), Placement("b", stream=1, priority=7)]
    CupyBackend(api=fake).replay(Schedule(synths("ab", []), rows), repeats=1)
    assert [call[1] for call in fake.calls if call[0] == "stream"][-2:] == [-1, 0]
