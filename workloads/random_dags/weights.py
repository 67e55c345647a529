"""Times, utilizations and transfers of random graphs: one rule and one set of parameters for all families.

rng
    Generator, or the seed of one.
time
    Range in us. Where all operators of a family are alike, each draws its time uniformly from it.
    Where they are not, it is the range of the family's reference operator, and the times of the
    others are in proportion to their work: each is a draw times the operator's share of the
    reference work. ``(200.0, 200.0)`` draws nothing, ``(180.0, 220.0)`` is noise of 10 %.
utilization
    Range of utilizations, uniform, within (0, 1]; None for operators without one.
comm_ratio
    Transfer time of an edge over the time of its producer, at least 0; it is exact between any two
    devices. In families whose edges know their bytes it may be None: no exact times then, bytes and links decide.
min_transfer
    Least transfer time of an edge in us, where `comm_ratio` is not None.

Draws are uniform in [0, 1) and their number depends on the sizes alone, so that with the same seed
other ranges, or another `comm_ratio`, leave the edges as they are: one thing varies at a time.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.model.graph import Numbered, OpGraph
from workloads.checks import generator, interval, real

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Range = tuple[float, float]

MOST_OPS: Final = 10**8  # an edge is a number below n_ops ** 2, which must fit into 64 bits
MOST_EDGES: Final = 2 * 10**8

# defaults of the families
TIME: Final[Range] = (100.0, 4000.0)
WORK_TIME: Final[Range] = (180.0, 220.0)
UTILIZATION: Final[Range] = (0.6, 1.0)
COMM_RATIO: Final = 0.8
MIN_TRANSFER: Final = 100.0

FLOP_PER_MOVED_ELEMENT: Final = 100.0
"""What an operator that moves data computes in the time that it takes for an element of its output."""

_TIME_DIGITS: Final = 1
_UTILIZATION_DIGITS: Final = 4


class Weighted(NamedTuple):
    """Operators whose weights are drawn, and what their edges cost."""

    n_ops: int
    factor: Floats
    utilization: Floats | None
    comm_ratio: float | None
    min_transfer: float

    def graph(
        self,
        family: str,
        src: Ints,
        dst: Ints,
        *,
        work: Floats | None = None,
        transfer_of: Ints | None = None,
        nbytes: npt.ArrayLike = 0.0,
        kind: str | tuple[Ints, tuple[str, ...]] = "op",
        flops: npt.ArrayLike = 0.0,
    ) -> OpGraph:
        """Make the graph ``family-n_ops``.

        Parameters
        ----------
        family
            First part of the graph's name.
        src, dst
            Indices of the operators of each edge.
        work
            Share of the reference operator's work, shape (n_ops,); None for 1.
        transfer_of
            The operator whose time `comm_ratio` multiplies, for each edge; None for the producer.
        nbytes
            Bytes of each edge.
        kind, flops
            As in `OpGraph.from_columns`.
        """
        time = self.factor if work is None else self.factor * work
        transfer: npt.ArrayLike = np.nan
        if self.comm_ratio is not None:
            with np.errstate(over="ignore"):  # the graph refuses a transfer that is not finite, and names it
                transfer = self.comm_ratio * time[src if transfer_of is None else transfer_of]
            transfer = np.maximum(self.min_transfer, transfer)
        return OpGraph.from_columns(
            Numbered("op", self.n_ops),
            src,
            dst,
            name=f"{family}-{self.n_ops}",
            kind=kind,
            edge_nbytes=nbytes,
            edge_transfer=transfer,
            flops=flops,
            time=time,
            utilization=np.nan if self.utilization is None else self.utilization,
        )


class Weights:
    """The common parameters of a family, checked; `subject` names the family in errors."""

    def __init__(
        self,
        subject: str,
        *,
        rng: Any,
        time: Any,
        utilization: Any,
        comm_ratio: Any,
        min_transfer: Any,
        in_steps: bool = False,
    ) -> None:
        self.subject = subject
        self.rng = generator(subject, rng)
        self._comm_ratio = None if comm_ratio is None else real(subject, "comm_ratio", comm_ratio)
        self._min_transfer = real(subject, "min_transfer", min_transfer)
        self._time = interval(subject, "time", time)
        self._utilization = None if utilization is None else interval(subject, "utilization", utilization)
        if self._utilization is not None and not 0 < self._utilization[0] <= self._utilization[1] <= 1:
            raise GraphError(f"{subject}: utilization must be within (0, 1], not {utilization!r}")
        self._in_steps = in_steps

    def draw(self, n_ops: int) -> Weighted:
        """Draw the weights of some operators: all times, then all utilizations.

        Families that know their number of operators draw before the edges, so that parameters of
        the structure leave the times as they are.
        """
        factor = self._within("time", self._time, _TIME_DIGITS, n_ops)
        # drawn also where there is none: the edges stay the same
        busy = self._within("utilization", self._utilization or (1.0, 1.0), _UTILIZATION_DIGITS, n_ops)
        utilization = None if self._utilization is None else busy
        return Weighted(n_ops, factor, utilization, self._comm_ratio, self._min_transfer)

    def _within(self, name: str, ends: Range, digits: int, n_ops: int) -> Floats:
        low, high = ends
        if not self._in_steps:
            # the least rounding of the sum may not leave the range
            return np.minimum(low + (high - low) * self.rng.random(n_ops), high)
        scale = 10**digits
        first = int((Decimal(repr(low)) * scale).to_integral_value(ROUND_CEILING))
        last = int((Decimal(repr(high)) * scale).to_integral_value(ROUND_FLOOR))
        if first > last or last > 2**53:
            raise GraphError(f"{self.subject}: {name} has no steps of {1 / scale} from {low!r} to {high!r}")
        steps: Ints = self.rng.integers(first, last + 1, size=n_ops)
        return np.asarray(steps / scale, np.float64)


def affordable(subject: str, n_ops: int, n_edges: int, remedy: str) -> None:
    """Refuse a graph that is larger than any that is made, before anything of that size is."""
    if n_ops > MOST_OPS or n_edges > MOST_EDGES:
        raise GraphError(
            f"{subject}: {remedy}: up to {n_ops} operators and {n_edges} edges,"
            f" but a random graph has at most {MOST_OPS} and {MOST_EDGES}"
        )


def probability(subject: str, name: str, value: Any) -> float:
    """Return a number in [0, 1]."""
    share = real(subject, name, value)
    if share > 1:
        raise GraphError(f"{subject}: {name} must be at most 1, not {value!r}")
    return share
