"""How the streams of a program become part of one capture, or of the work of another stream."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

S = TypeVar("S", contravariant=True)
E = TypeVar("E", contravariant=True)


class Ordering(Protocol[E, S]):
    """The two calls that order streams."""

    def record(self, event: E, stream: S, /) -> object:
        """Record an event behind the work of a stream."""

    def wait(self, stream: S, event: E, /) -> object:
        """Have a stream wait for an event."""


def issue_within(
    api: Ordering[E, S],
    origin: S,
    others: Sequence[S],
    events: Sequence[E],
    body: Callable[[], object],
    on: Callable[[S], object] = lambda _: None,
) -> None:
    """Issue behind the work of a stream, so that the further work of that stream comes behind all that was issued.

    In a capture of `origin` that makes every other stream part of it: CUDA captures what waits for captured work, and
    refuses to end a capture that a stream has not joined.

    Parameters
    ----------
    origin, others
        The stream, and all other streams that `body` issues to.
    events
        An event for the fork and one for each of `others`; an event belongs to the device of its stream.
    on
        Makes the device of a stream current, where the calls need it.
    """
    api.record(events[0], origin)
    for other in others:
        api.wait(other, events[0])
    body()
    for other, event in zip(others, events[1:], strict=True):
        on(other)
        api.record(event, other)
        api.wait(origin, event)
