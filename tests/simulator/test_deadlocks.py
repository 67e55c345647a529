"""Programs that wait for ever: the error names the waits."""

import pytest
from hand_made import hand_made, simulate

import simsched as ss
from simsched.base.errors import DeadlockError, ProgramError, SimschedError

pytestmark = pytest.mark.usefixtures("both_engines")


def document(cluster, execution="events", **options):
    """a on gpu0 feeds b on gpu1, c on gpu1 feeds d on gpu0; as a JSON document of the program."""
    graph = ss.OpGraph(
        [ss.Operator(name, time=10.0) for name in "abcd"], [ss.Edge("a", "b", 100.0), ss.Edge("c", "d", 100.0)]
    )
    where = {"a": "gpu0", "c": "gpu1", "b": "gpu1", "d": "gpu0"}
    schedule = ss.Schedule(graph, [ss.Placement(op, device) for op, device in where.items()], execution)
    return schedule.lower(cluster, **options).to_dict()


def incoming_wait(thread, device, row="wait"):
    """The position of the wait that the consumer on stream 0 of a device makes."""
    return next(i for i, r in enumerate(thread) if r["do"] == row and r["device"] == device and r.get("stream", 0) == 0)


def test_a_document_runs_as_the_program_it_came_from():
    """10 us, a copy of 1 us, 10 us, on both devices: d and b end at 21."""
    cluster = hand_made(2)
    trace = simulate(ss.Program.from_dict(document(cluster)), cluster)
    assert {name: end for name, (_, end) in trace.operator_times().items()} == {"a": 10, "b": 21, "c": 10, "d": 21}


def crossed(cluster, **options):
    data = document(cluster, **options)
    for thread, device in zip(data["threads"], data["devices"], strict=True):
        row = "sync" if options else "wait"
        if row == "sync":  # the last sync of a thread is that of its consumer
            at = max(i for i, r in enumerate(thread) if r["do"] == "sync")
        else:
            at = incoming_wait(thread, device)
        thread.insert(0, thread.pop(at))
    return ss.Program.from_dict(data)


@pytest.mark.parametrize("overheads", [{}, {"launch": 4.0, "wait": 1.0, "record": 1.0}])
def test_crossed_waits_of_two_threads(overheads):
    """Each thread first waits for what the other records only after its own wait."""
    cluster = hand_made(2, **overheads)
    with pytest.raises(DeadlockError) as caught:
        ss.simulate(crossed(cluster), cluster)
    text = str(caught.value)
    assert isinstance(caught.value, SimschedError)
    assert isinstance(caught.value, RuntimeError)
    assert "\n" not in text
    assert "on gpu0 for event" in text
    assert "on gpu1 for event" in text
    assert "behind the copy of 'a'" in text
    assert "behind the copy of 'c'" in text
    assert text.count("whose record has not been issued") == 2


def test_crossed_host_waits():
    """The same with hosts that block for the data itself."""
    cluster = hand_made(2)
    with pytest.raises(DeadlockError, match=r"on gpu0 for event .*'c'.* on gpu1 for event .*'a'"):
        ss.simulate(crossed(cluster, transfers="blocking"), cluster)


@pytest.mark.parametrize("execution", ["events", "graph"])
def test_an_event_that_nobody_records(execution):
    """Without the last record of gpu0's or the only thread, the wait for it never ends."""
    cluster = hand_made(2)
    data = document(cluster, execution)
    thread = data["threads"][0]
    at = max(i for i, row in enumerate(thread) if row["do"] == "record")
    event = thread.pop(at)["event"]
    with pytest.raises(DeadlockError, match=f"event {event}, which nobody records"):
        ss.simulate(ss.Program.from_dict(data), cluster)


def test_a_barrier_behind_a_wait_for_ever():
    """The host stands at a barrier for a kernel that stands behind an event nobody records: both are named."""
    graph = ss.OpGraph([ss.Operator("a", time=1.0), ss.Operator("b", time=1.0)])
    data = ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b")]).lower(hand_made()).to_dict()
    data["events"] = 1
    thread = data["threads"][0]
    thread[1:1] = [{"do": "barrier", "device": "gpu0"}]
    thread[0:0] = [{"do": "wait", "device": "gpu0", "stream": 0, "event": 0}]
    with pytest.raises(DeadlockError) as caught:
        ss.simulate(ss.Program.from_dict(data), hand_made())
    assert "event 0, which nobody records" in str(caught.value)
    assert "host thread 0 at a barrier of gpu0" not in str(caught.value) or "'a'" in str(caught.value)


def test_a_wait_before_the_record_of_the_same_thread():
    """CUDA would make it a no-op: refused when the program is read."""
    graph = ss.OpGraph([ss.Operator("a", time=1.0), ss.Operator("b", time=1.0)], [ss.Edge("a", "b")])
    placements = [ss.Placement("a"), ss.Placement("b", stream=1)]
    data = ss.Schedule(graph, placements).lower(hand_made()).to_dict()
    thread = data["threads"][0]
    thread.insert(0, thread.pop(next(i for i, row in enumerate(thread) if row["do"] == "wait")))
    with pytest.raises(ProgramError, match="waited for before the same thread records it"):
        ss.Program.from_dict(data)


def test_many_waits_are_counted():
    """Ten streams behind events that nobody records: six are named, the rest counted."""
    graph = ss.OpGraph([ss.Operator(f"o{i}", time=1.0) for i in range(10)])
    program = ss.Schedule(graph, [ss.Placement(f"o{i}", stream=i) for i in range(10)]).lower(hand_made())
    data = program.to_dict()
    data["events"] = 10
    waits = [{"do": "wait", "device": "gpu0", "stream": i, "event": i} for i in range(10)]
    launches = data["threads"][0]
    data["threads"][0] = [row for both in zip(waits, launches, strict=True) for row in both]
    # the one issuing thread waits for the first record, and no stream has anything to do
    with pytest.raises(DeadlockError, match="event 0, which nobody records"):
        ss.simulate(ss.Program.from_dict(data), hand_made())
    data["execution"] = "graph"  # a captured graph is issued as a whole: all ten streams are held up
    with pytest.raises(DeadlockError, match="and 4 more"):
        ss.simulate(ss.Program.from_dict(data), hand_made())
