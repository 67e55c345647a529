"""Streams that a wrapper of Inductor switches between; the wrapper imports `fork`."""

from typing import Any


class Forked:
    """The current stream as number 0, and streams beside it that wait for its earlier work.

    Parameters
    ----------
    count
        Streams, the current one among them.
    index
        The CUDA device.
    """

    def __init__(self, count: int, index: int) -> None:
        import torch

        self._cuda = torch.cuda
        current = torch.cuda.current_stream(index)
        self._streams = [current, *(torch.cuda.Stream(index) for _ in range(count - 1))]
        begin = current.record_event()
        for stream in self._streams[1:]:
            stream.wait_event(begin)

    def on(self, stream: int) -> None:
        """Issue the following work to a stream."""
        self._cuda.set_stream(self._streams[stream])

    def record(self, stream: int) -> Any:
        """Return an event after the work that a stream has so far."""
        return self._streams[stream].record_event()

    def wait(self, stream: int, event: Any) -> None:
        """Make later work of a stream wait for an event."""
        self._streams[stream].wait_event(event)

    def join(self) -> None:
        """Return to stream 0, which then waits for all others."""
        self.on(0)
        for stream in self._streams[1:]:
            self._streams[0].wait_event(stream.record_event())


def fork(count: int, index: int) -> Forked:
    """Return streams of a device that begin where its current stream is."""
    return Forked(count, index)
