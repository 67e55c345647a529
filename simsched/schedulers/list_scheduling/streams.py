"""Streams: their idle intervals, and what starting an operator on one of them costs."""

from math import inf

from simsched.schedulers.list_scheduling.tables import Gap, Lists, Stream


def find_gap(s: Lists, stream: Stream, there: float, us: float) -> int:
    """Return the place of the first idle interval of a stream that an operator fits into, -1 if there is none."""
    end = stream.first + stream.n_gaps
    low, high = stream.first, end
    while low < high:  # the first that ends when the inputs are there, or later
        middle = (low + high) >> 1
        if s.gaps[middle].end >= there:
            high = middle
        else:
            low = middle + 1
    for at in range(low, end):
        s.work += 1
        if max(s.gaps[at].start, there) + us <= s.gaps[at].end:
            return at
    return -1


def use(s: Lists, stream: Stream, at: int, start: float, end: float) -> None:
    """Take a part of the idle interval of a stream at a place, or (-1) of the time behind its last operator."""
    if at < 0:
        if s.insertion and start > stream.free:
            add_gap(s, stream, stream.n_gaps, stream.free, start)
        stream.free = end
        return
    gap, behind = s.gaps[at], s.gaps[at].end
    if start > gap.start:
        gap.end = start
        if end < behind:
            add_gap(s, stream, at + 1 - stream.first, end, behind)
    elif end < behind:
        gap.start = end
    else:
        stream.n_gaps -= 1
        for k in range(at, stream.first + stream.n_gaps):
            become(s.gaps[k], s.gaps[k + 1])


def add_gap(s: Lists, stream: Stream, number: int, start: float, end: float) -> None:
    """Add an idle interval before that of a number.

    Those of a stream lie side by side; where no room is left they move to the end of all and get twice as much.
    """
    if stream.n_gaps == stream.room:
        for k in range(stream.n_gaps):
            become(s.gaps[s.gaps_end + k], s.gaps[stream.first + k])
        stream.first, stream.room = s.gaps_end, 2 * stream.room + 4
        s.gaps_end += stream.room
    at = stream.first + number
    for k in range(stream.first + stream.n_gaps, at, -1):
        become(s.gaps[k], s.gaps[k - 1])
    s.gaps[at].start, s.gaps[at].end = start, end
    stream.n_gaps += 1


def become(gap: Gap, other: Gap) -> None:
    """Write an idle interval over another one."""
    gap.start, gap.end = other.start, other.end


def charged_start(s: Lists, i: int, slot: int) -> tuple[float, float]:
    """Return when an operator starts on a stream if launches and events cost time, and when the host has issued it."""
    issued, latest, visit = s.busy, -inf, i * s.n_streams + slot + 1
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        producer = s.ops[s.src[s.in_edge[q]]]
        if producer.slot != slot:
            latest = max(latest, producer.finish + s.hop)
            if producer.seen != visit:  # the host waits once for each
                producer.seen = visit
                issued += s.wait
                if not producer.waited_for:
                    issued += s.record
    start = max(issued + s.launch, s.streams[slot].free + s.gap, latest)
    return start, issued + s.launch * float(s.kernels[i])


def charge(s: Lists, i: int) -> None:
    """Let the host be busy until an operator on its best stream is issued."""
    s.busy = s.issued
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        producer = s.ops[s.src[s.in_edge[q]]]
        if producer.slot != s.slot:
            producer.waited_for = 1
