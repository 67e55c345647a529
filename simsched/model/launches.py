"""The launches and copies of a program, by columns."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.numeric import frozen
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats, Ints

Small = npt.NDArray[np.int32]


class Copies(NamedTuple):
    """Copies between devices, by columns.

    Parameters
    ----------
    op
        Operator whose output is copied.
    device
        Where it goes, as an index into the program's devices.
    nbytes, transfer
        Size in bytes, and exact time in us or NaN (see `Edge`).
    """

    op: Small
    device: Small
    nbytes: Floats
    transfer: Floats


def launch_ptr(graph: OpGraph) -> Ints:
    """Return where the launches of each operator begin, shape (n_ops + 1,): one per kernel, at least one."""
    return np.concatenate([[0], np.cumsum(np.maximum(1, np.diff(graph.kernel_ptr)))])


class Launches:
    """The launches of a graph, one per kernel of an operator and at least one, by columns.

    Parameters
    ----------
    graph
        The graph.

    Notes
    -----
    Programs over one graph may share them; `op` and `kernel` are made when they are asked for.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.ptr: Ints = frozen(launch_ptr(graph))

    @cached_property
    def op(self) -> Small:
        """The operator of each launch."""
        return frozen(np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int32), np.diff(self.ptr)))

    @cached_property
    def kernel(self) -> Small:
        """Which kernel of its operator each launch is."""
        return frozen(np.arange(len(self.op), dtype=np.int32) - self.ptr[:-1].astype(np.int32)[self.op])
