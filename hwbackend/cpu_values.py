"""What operators compute on the cpu backend: few numbers, of which each depends on what the operator reads."""

from typing import Final

import numpy as np

from simsched.base.errors import BackendError
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats
from simsched.model.program import LAUNCH, Program

_WIDTH: Final = 16
_TOLERANCE: Final = 1e-6


class OutputValues:
    """Outputs of the operators of a program, on each device.

    An operator's output is numbers of its own, drawn at random, plus half of the mean of those that it reads. It
    reads them as its first block begins, and writes as its last one ends.

    Parameters
    ----------
    program
        What runs.
    rng
        Draws the numbers.
    """

    def __init__(self, program: Program, *, rng: np.random.Generator | int) -> None:
        graph = program.graph
        ptr, incoming = graph.incoming
        self._own: Floats = np.random.default_rng(rng).uniform(0.5, 1.5, (len(graph), _WIDTH))
        self._reads = [graph.src[incoming[ptr[i] : ptr[i + 1]]] for i in range(len(graph))]
        self._graph: OpGraph = graph
        self._target = program.copies.device.tolist()
        self._source = program.copies.op.tolist()
        launches = np.flatnonzero(program.action == LAUNCH)
        self._home = np.zeros(len(graph), np.int64)
        self._home[program.launch_op[program.argument[launches]]] = program.device[launches]
        self._found: Floats = np.empty((len(program.devices), len(graph), _WIDTH))
        self._sums: Floats = np.empty((len(graph), _WIDTH))
        self._expected: Floats = self._own.copy()
        for i in graph.order_index.tolist():
            if len(self._reads[i]):
                self._expected[i] += 0.5 * self._expected[self._reads[i]].mean(axis=0)
        self.poison()

    def poison(self) -> None:
        """Forget all outputs: what reads one that is not there shows."""
        self._found.fill(np.nan)
        self._sums.fill(np.nan)

    def read(self, op: int, device: int) -> None:
        """Read what an operator needs, as it begins."""
        reads = self._reads[op]
        self._sums[op] = 0.5 * self._found[device][reads].mean(axis=0) if len(reads) else 0.0

    def write(self, op: int, device: int) -> None:
        """Write the output of an operator, as it ends."""
        np.add(self._own[op], self._sums[op], out=self._found[device, op])

    def copied(self, copy: int, device: int) -> None:
        """Copy an output to another device."""
        op = self._source[copy]
        self._found[self._target[copy], op] = self._found[device, op]

    def error(self) -> float:
        """Return the largest difference from sequential execution, over the largest value of that output.

        Raises
        ------
        BackendError
            If an output differs, or was not written.
        """
        found = self._found[self._home, np.arange(len(self._graph))]
        difference = np.abs(found - self._expected).max(axis=1) / np.abs(self._expected).max(axis=1)
        wrong = ~(difference <= _TOLERANCE)
        if wrong.any():
            i = next(i for i in self._graph.order_index.tolist() if wrong[i])
            raise BackendError(
                f"the output of {self._graph.names[i]!r} differs from that of sequential execution (relative error "
                f"{difference[i]:.3g}): it read what had not been written yet; the program lacks a wait"
            )
        return float(difference.max())
