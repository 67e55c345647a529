"""Times, utilizations and transfers of random graphs: one rule and one set of parameters for all families."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Amount, Range, Share
from simsched.base.errors import GraphError
from simsched.model.graph import Numbered, OpGraph
from workloads.checks import generator
from workloads.random_dags.edges import Floats, Ints, ends_of

MOST_OPS: Final = 10**8  # an edge is a number below n_ops ** 2, which must fit into 64 bits
MOST_EDGES: Final = 2 * 10**8

Count = Annotated[int, Range(1, MOST_OPS)]
Span = tuple[Amount, Amount]

WORK_TIME: Final[Span] = (180.0, 220.0)

FLOP_PER_MOVED_ELEMENT: Final = 100.0
"""FLOP per element of the output that an operator computes in the time in which it moves the element."""

_TIME_DIGITS: Final = 1
_UTILIZATION_DIGITS: Final = 4


class Weights:
    """The parameters that all families share, checked, and the graph with weights that they draw.

    Parameters
    ----------
    subject
        Name of the function, ``random_`` and the family.
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
        devices. None: no exact times, the edges' bytes and the links decide.
    min_transfer
        Least transfer time of an edge in us, where `comm_ratio` is not None.

    Raises
    ------
    GraphError
        If a range ends before it begins, or there is no such generator.

    Notes
    -----
    Draws are uniform in [0, 1) and their number depends on the sizes alone, so that with the same seed
    other ranges, or another `comm_ratio`, leave the edges as they are: one thing varies at a time.
    """

    def __init__(
        self,
        subject: str,
        *,
        rng: np.random.Generator | int,
        time: Span = (100.0, 4000.0),
        utilization: tuple[Share, Share] | None = (0.6, 1.0),
        comm_ratio: Amount | None = 0.8,
        min_transfer: Amount = 100.0,
    ) -> None:
        self.subject = subject
        self.rng = generator(subject, rng)
        self._time = time
        self._utilization = utilization
        self._comm_ratio = comm_ratio
        self._min_transfer = min_transfer
        for name, (low, high) in {"time": time, "utilization": utilization or (1.0, 1.0)}.items():
            if low > high:
                raise GraphError(f"{subject}: {name} must not end before it begins, but {low!r} > {high!r}")
        self._factor: Floats
        self._busy: Floats

    def draw(self, n_ops: int, *, in_steps: bool = False) -> None:
        """Draw the weights of the operators, all times, then all utilizations; `in_steps` of 0.1 us and 0.0001.

        Families that know their number of operators draw before the edges, so that parameters of
        the structure leave the times as they are.
        """
        self._factor = self._within("time", self._time, _TIME_DIGITS if in_steps else None, n_ops)
        # drawn also where there is none: the edges stay the same
        ends = self._utilization or (1.0, 1.0)
        self._busy = self._within("utilization", ends, _UTILIZATION_DIGITS if in_steps else None, n_ops)

    def graph(
        self,
        src: Sequence[Ints],
        dst: Sequence[Ints],
        *,
        work: Floats | None = None,
        of_consumer: bool = False,
        output_nbytes: Floats | float = 0.0,
        kind: str | tuple[Ints, tuple[str, ...]] = "op",
        flops: npt.ArrayLike = 0.0,
    ) -> OpGraph:
        """Make the graph ``family-n_ops`` of the operators whose weights were drawn last.

        Parameters
        ----------
        src, dst
            Indices of the operators of the edges, in pieces; the graph has them in rising order.
        work
            Share of the reference operator's work, shape (n_ops,); None for 1.
        of_consumer
            Whether `comm_ratio` multiplies the time of an edge's consumer, not of its producer.
        output_nbytes
            Bytes of each operator's output, which its edges carry.
        kind, flops
            As in `OpGraph.from_columns`.
        """
        n_ops = len(self._factor)
        edges = np.concatenate(src) * n_ops + np.concatenate(dst)
        edges.sort()
        begins, ends = ends_of(edges, n_ops)
        del edges, src, dst
        if work is None:
            time = self._factor
        else:
            time = self._factor * work
        transfer: npt.ArrayLike = np.nan
        if self._comm_ratio is not None:
            with np.errstate(over="ignore"):  # the graph refuses a transfer that is not finite, and names it
                transfer = self._comm_ratio * time[ends if of_consumer else begins]
            transfer = np.maximum(self._min_transfer, transfer)
        return OpGraph.from_columns(
            Numbered("op", n_ops),
            begins,
            ends,
            name=f"{self.subject.removeprefix('random_').replace('_', '-')}-{n_ops}",
            kind=kind,
            edge_nbytes=output_nbytes if isinstance(output_nbytes, float) else output_nbytes[begins],
            edge_transfer=transfer,
            flops=flops,
            time=time,
            utilization=np.nan if self._utilization is None else self._busy,
        )

    def affordable(self, n_ops: int, n_edges: int, remedy: str) -> None:
        """Refuse a graph that is larger than any that is made, before anything of that size is."""
        if n_ops > MOST_OPS or n_edges > MOST_EDGES:
            raise GraphError(
                f"{self.subject}: {remedy}: up to {n_ops} operators and {n_edges} edges,"
                f" but a random graph has at most {MOST_OPS} and {MOST_EDGES}"
            )

    def _within(self, name: str, ends: Span, digits: int | None, n_ops: int) -> Floats:
        low, high = ends
        if digits is None:
            # the least rounding of the sum may not leave the range
            return np.minimum(low + (high - low) * self.rng.random(n_ops), high)
        scale = 10**digits
        first = int((Decimal(repr(low)) * scale).to_integral_value(ROUND_CEILING))
        last = int((Decimal(repr(high)) * scale).to_integral_value(ROUND_FLOOR))
        if first > last or last > 2**53:
            raise GraphError(f"{self.subject}: {name} has no steps of {1 / scale} from {low!r} to {high!r}")
        steps: Ints = self.rng.integers(first, last + 1, size=n_ops)
        return np.asarray(steps / scale, np.float64)
