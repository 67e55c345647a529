"""The values that operators compute: each from the values of its inputs that are there when it starts."""

from collections.abc import Iterable
from math import inf, nan

import numpy as np

from simsched.base.errors import BackendError
from simsched.base.units import TIE
from simsched.model import Floats, Ints, Program


class SyntheticValues:
    """Values that the operators of a program compute, on random inputs.

    Parameters
    ----------
    program
        The program that runs.
    launched, copied
        Where each launch runs, shape (n_launches,), and from where each copy goes, shape (n_copies,).
    rng
        Draws a constant for each operator, to which it adds half the mean of its inputs.
    """

    def __init__(self, program: Program, launched: Ints, copied: Ints, *, rng: np.random.Generator) -> None:
        graph = program.graph
        self._program = program
        self._constant: list[float] = rng.uniform(0.5, 1.5, len(graph)).tolist()
        ptr, edges = graph.incoming
        sources = graph.src[edges].tolist()
        self._reads = [sources[a:b] for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)]
        self._home: list[int] = launched[program.launches.ptr[:-1]].tolist()
        copies = program.copies
        self._copies = list(zip(copies.op.tolist(), copied.tolist(), copies.device.tolist(), strict=True))
        self._expected = [nan] * len(graph)
        for i in (graph.index[name] for name in graph.order):
            self._expected[i] = self._value(i, [self._expected[source] for source in self._reads[i]])

    def _value(self, op: int, inputs: Iterable[float]) -> float:
        total = self._constant[op]
        for value in inputs:
            total += 0.5 / len(self._reads[op]) * value
        return total

    def error(self, launches: Floats, copies: Floats) -> float:
        """Return the largest relative error of an output after a run with these starts and ends, shapes (n, 2).

        Raises
        ------
        BackendError
            If an operator or a copy read memory before it was written; the message names both.
        """
        ptr = self._program.launches.ptr
        n = len(self._reads)
        spans = np.concatenate([np.column_stack([launches[ptr[:-1], 0], launches[ptr[1:] - 1, 1]]), copies])
        there: dict[tuple[int, int], tuple[float, float]] = {}  # since when, and the value; all else is poisoned
        for item in np.lexsort([spans[:, 1], spans[:, 0]]).tolist():
            start, end = spans[item].tolist()
            reader = None if item >= n else item
            if reader is None:
                op, home, to = self._copies[item - n]
            else:
                op = item
                home = self._home[item]
                to = self._home[item]
            inputs = []
            for source in [op] if reader is None else self._reads[op]:
                since, value = there.get((source, home), (inf, nan))
                if since > start * (1.0 + TIE):
                    raise self._unwritten(source, reader)
                inputs.append(value)
            if reader is None:
                written = inputs[0]
            else:
                written = self._value(op, inputs)
            if end < there.get((op, to), (inf, nan))[0]:
                there[op, to] = end, written
        ends = ((there[op, self._home[op]][1], expected) for op, expected in enumerate(self._expected))
        return max(abs(value - expected) / abs(expected) for value, expected in ends)

    def _unwritten(self, source: int, reader: int | None) -> BackendError:
        graph = self._program.graph
        if reader is None:
            what = "it was copied"
        else:
            what = f"{graph.names[reader]!r} read it"
        return BackendError(
            f"{graph.name}: the output of {graph.names[source]!r} was not there when {what}: "
            f"the program has no wait for it"
        )
