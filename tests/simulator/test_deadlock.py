"""Programs that wait for ever: the error names the waits."""

import pytest
from hand_made import hand_made, lower, waiting

import simsched as ss
from simsched.base.errors import DeadlockError

pytestmark = pytest.mark.usefixtures("both_engines")


def document(cluster, execution="events", **options):
    """a on gpu0 feeds b on gpu1, c on gpu1 feeds d on gpu0; as a JSON document of the program."""
    return lower("a=10 b=10 c=10 d=10", "ab=100 cd=100", "a c@1 b@1 d", cluster, execution, **options).to_dict()


def crossed(cluster, do="wait", **options):
    """The same, but each thread first waits for what its consumer reads: the last wait on stream 0."""
    data = document(cluster, **options)
    for thread in data["threads"]:
        at = max(i for i, row in enumerate(thread) if row["do"] == do and row.get("stream", 0) == 0)
        thread.insert(0, thread.pop(at))
    return ss.Program.from_dict(data)


@pytest.mark.parametrize("overheads", [{}, {"launch": 4.0, "wait": 1.0, "record": 1.0}])
def test_crossed_waits_of_two_threads(overheads):
    """Each thread first waits for what the other records only after its own wait."""
    cluster = hand_made(2, **overheads)
    with pytest.raises(DeadlockError) as caught:
        ss.simulate(crossed(cluster), cluster)
    text = str(caught.value)
    assert "\n" not in text
    for part in ("on gpu0 for event", "on gpu1 for event", "behind the copy of 'a'", "behind the copy of 'c'"):
        assert part in text
    assert text.count("whose record has not been issued") == 2


def test_crossed_host_waits():
    """The same with hosts that block for the data itself."""
    cluster = hand_made(2)
    with pytest.raises(DeadlockError, match=r"on gpu0 for event .*'c'.* on gpu1 for event .*'a'"):
        ss.simulate(crossed(cluster, "sync", transfers="blocking"), cluster)


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


def test_many_waits_are_counted():
    """Ten streams behind events that nobody records: six are named, the rest counted."""
    with pytest.raises(DeadlockError, match="event 0, which nobody records"):  # the only thread waits for the first
        ss.simulate(waiting(10), hand_made())
    with pytest.raises(DeadlockError, match="and 4 more"):  # a captured graph is issued as a whole: all are held up
        ss.simulate(waiting(10, "graph"), hand_made())
