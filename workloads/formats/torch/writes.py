"""Which nodes of a graph of torch.fx a node has to wait for, since memory is written."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workloads.formats.torch.run import Run


class Writes:
    """Who wrote memory last, and who has read it since.

    Parameters
    ----------
    nodes
        All of the graph, in the order in which they run.
    run
        What they touch. Where it does not say, each node that may write waits for all before it, and all after it wait
        for that node.
    may_write
        Whether what a node calls has the name of a function that writes to its argument.
    """

    def __init__(self, nodes: Sequence[Any], run: Run, may_write: Callable[[Any], bool]) -> None:
        self._run = run
        self._position = {node: i for i, node in enumerate(nodes)}
        self._written = run.written
        self._writer: dict[int, Any] = {}
        self._readers: dict[int, dict[Any, None]] = {}  # since the last write
        self._before: dict[Any, tuple[Any, ...]] = {}
        self._barrier: Any = None
        self._since: list[Any] = []
        calls = [] if run.ran else [node for node in nodes if node.op in ("call_function", "call_method")]
        self._guessed = {node for node in calls if may_write(node.target)}

    @property
    def is_guessed(self) -> bool:
        """Whether nodes write of which it is not known where."""
        return bool(self._guessed)

    @property
    def guessed(self) -> list[str]:
        """Names of these nodes."""
        return [node.name for node in self._position if node in self._guessed]

    def awaited(self, node: Any, read: Mapping[Any, float]) -> dict[Any, float]:
        """Return the nodes that a node waits for, with the bytes that it gets from each.

        Parameters
        ----------
        node
            The next in order.
        read
            The nodes that it takes as arguments, as far as they are operators, and the bytes that it reads of each.

        Notes
        -----
        Memory that was written after an argument was made comes from the last that wrote it. What is overwritten is
        ordered after those that read it, by an edge of 0 bytes.
        """
        if self._guessed:
            return self._ordered(node, read)
        if not self._written:
            return dict(read)
        awaited: dict[Any, float] = {}
        older: list[Any] = []
        seen: set[int] = set()
        for producer, nbytes in read.items():
            storages = self._storages(producer)
            seen.update(storages)
            later = self._later(producer, storages)
            for writer in later or (producer,):
                awaited[writer] = max(nbytes, awaited.get(writer, 0.0))
            older += [producer] * bool(later)
        effect = self._run.effects.get(node)
        if effect is not None:
            for storage, nbytes in effect.touched().items():
                writer = self._writer.get(storage)
                if writer is not None and storage not in seen:  # a buffer, which no argument makes
                    awaited[writer] = max(nbytes, awaited.get(writer, 0.0))
            for storage in effect.writes:
                for reader in self._readers.get(storage, ()):
                    awaited.setdefault(reader, 0.0)
        for producer in older:  # what was looked at before it was written to has to be there all the same
            if producer not in awaited and not self._reach(producer, awaited):
                awaited[producer] = 0.0
        awaited.pop(node, None)
        self._note(node, awaited)
        return awaited

    def _ordered(self, node: Any, read: Mapping[Any, float]) -> dict[Any, float]:
        awaited = dict(read)
        if self._barrier is not None:
            awaited.setdefault(self._barrier, 0.0)
        if node in self._guessed:
            for other in self._since:
                awaited.setdefault(other, 0.0)
            self._barrier, self._since = node, []
        else:
            self._since.append(node)
        return awaited

    def _later(self, producer: Any, storages: Sequence[int]) -> list[Any]:
        """Return the last that wrote to what a node made, after it was made."""
        made = self._position[producer]
        writers = dict.fromkeys(self._writer[storage] for storage in storages if storage in self._writer)
        return [writer for writer in writers if self._position[writer] > made]

    def _note(self, node: Any, awaited: Mapping[Any, float]) -> None:
        self._before[node] = tuple(awaited)
        effect = self._run.effects.get(node)
        if effect is None:
            return
        for storage in effect.reads:
            if storage in self._written:
                self._readers.setdefault(storage, {})[node] = None
        for storage in effect.writes:
            self._writer[storage] = node
            self._readers[storage] = {}

    def _reach(self, start: Any, ends: Mapping[Any, float]) -> bool:
        """Say whether nodes wait for another, directly or not."""
        first, waiting, seen = self._position[start], list(ends), set(ends)
        while waiting:
            for other in self._before.get(waiting.pop(), ()):
                if other is start:
                    return True
                if other not in seen and self._position[other] > first:
                    seen.add(other)
                    waiting.append(other)
        return False

    def _storages(self, node: Any) -> list[int]:
        places = (self._run.place(tensor) for tensor in _tensors(self._run.values.get(node)))
        return list(dict.fromkeys(place[0] for place in places if place is not None and place[0] in self._written))


def _tensors(value: Any) -> list[Any]:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]
