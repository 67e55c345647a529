"""Known collectives of a trace by operation: bytes, measured times and rates beside the model's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from simsched.base.errors import ClusterError
from simsched.base.units import GB_PER_S, format_bytes
from simsched.model import Device, Floats
from workloads.formats.kineto.collectives import RankCollective
from workloads.formats.kineto.exchange_data import NOT_STATED
from workloads.formats.kineto.links import Links

_MOST_REASONS: Final = 5
"""Reasons that a line of text names."""


@dataclass(frozen=True, slots=True)
class RatedCollective:
    """A collective by its operator: its bytes, and its time in us as measured and by the model (None without one)."""

    op: str
    nbytes: float
    measured_us: float
    model_us: float | None

    @property
    def excess_us(self) -> float:
        """By how many us the measured time exceeds the model's; 0 without a model."""
        if self.model_us is None:
            return 0.0
        return self.measured_us - self.model_us


@dataclass(frozen=True, slots=True)
class OperationRates:
    """The known collectives of one operation between so many ranks.

    Parameters
    ----------
    operation, ranks
        As in `Collective`.
    no_model
        Why the model has no time for them; "" if it has.
    collectives
        In the order of the trace.
    """

    operation: str
    ranks: int
    no_model: str
    collectives: tuple[RatedCollective, ...]

    @property
    def nbytes(self) -> float:
        """Bytes of all together, as `Collective` counts them."""
        return sum(one.nbytes for one in self.collectives)

    @property
    def measured_us(self) -> float:
        """Measured time of all together."""
        return sum(one.measured_us for one in self.collectives)

    @property
    def model_us(self) -> float | None:
        """Time of all together by the model, each alone on the usual links of the GPU."""
        if self.no_model:
            return None
        return sum(one.model_us or 0.0 for one in self.collectives)

    @property
    def slowest(self) -> RatedCollective:
        """The one that exceeds the model by most us, on ties the first."""
        return max(self.collectives, key=lambda one: one.excess_us)

    def line(self) -> str:
        """Return the row as a line of text."""
        text = (
            f"{self.operation}: {len(self.collectives)} between {self.ranks} ranks, {format_bytes(self.nbytes)} in "
            f"{_time_and_rate(self.measured_us, self.nbytes)}"
        )
        if self.model_us is None:
            return f"{text}; {self.no_model}"
        text = f"{text}; by the model {_time_and_rate(self.model_us, self.nbytes)}"
        slowest = self.slowest
        if len(self.collectives) == 1 or slowest.excess_us <= 0:
            return text
        return (
            f"{text}; furthest above it {slowest.op}: {format_bytes(slowest.nbytes)} in {slowest.measured_us:.1f} us "
            f"instead of {slowest.model_us:.1f} us"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values; `rate` and `model_rate` are in bytes per us."""
        document: dict[str, Any] = {
            "operation": self.operation,
            "ranks": self.ranks,
            "collectives": len(self.collectives),
            "nbytes": self.nbytes,
            "measured_us": self.measured_us,
            "rate": _rate(self.nbytes, self.measured_us),
            "model_us": self.model_us,
            "model_rate": _rate(self.nbytes, self.model_us),
            "slowest": None,
        }
        if self.no_model:
            return document | {"no_model": self.no_model}
        return document | {"slowest": asdict(self.slowest)}


@dataclass(frozen=True, slots=True)
class CollectiveRates:
    """The collectives of a trace.

    Parameters
    ----------
    operations
        The known ones by operation.
    unknown
        How many are not known, by the reason.
    """

    operations: tuple[OperationRates, ...]
    unknown: Counter[str]

    @property
    def are_stated(self) -> bool:
        """Whether the trace has arguments of any collective."""
        return bool(self.operations) or any(reason != NOT_STATED for reason in self.unknown)

    def lines(self) -> list[str]:
        """Return a line of text for each operation."""
        return [row.line() for row in self.operations]

    def to_dict(self) -> dict[str, Any]:
        """Return the rates as JSON values."""
        return {"known": [row.to_dict() for row in self.operations], "unknown": dict(self.unknown)}


def rates_of(
    collectives: Sequence[RankCollective], times: Floats, names: Sequence[str], device: Device
) -> CollectiveRates:
    """Return the collectives of a trace by operation and ranks, in the order in which they first come.

    Parameters
    ----------
    collectives
        Collectives of a trace.
    times, names
        Time in us and name of each operator.
    device
        The GPU that ran them.
    """
    links = Links.of_traced(device)
    rows: dict[tuple[str, int, str], list[RatedCollective]] = {}
    for one in collectives:
        if one.exchange is not None:
            model_us, no_model = _model_time(one, links)
            key = one.exchange.operation, one.exchange.ranks, no_model
            rate = RatedCollective(names[one.op], one.exchange.bytes, float(times[one.op]), model_us)
            rows.setdefault(key, []).append(rate)
    unknown = Counter(one.data.unknown for one in collectives if one.exchange is None)
    return CollectiveRates(tuple(OperationRates(*key, tuple(its)) for key, its in rows.items()), unknown)


def _model_time(one: RankCollective, links: Links) -> tuple[float | None, str]:
    """Return the time in us that the model gives a collective, or why it gives none."""
    try:
        return links.measured_time(one), ""
    except ClusterError as error:
        return None, str(error)


def _rate(nbytes: float, us: float | None) -> float | None:
    if not us:
        return None
    return nbytes / us


def _time_and_rate(us: float, nbytes: float) -> str:
    rate = _rate(nbytes, us)
    if rate is None:
        return f"{us:.1f} us"
    if rate >= 100 * GB_PER_S:
        return f"{us:.1f} us ({rate / GB_PER_S:,.0f} GB/s)"
    return f"{us:.1f} us ({rate / GB_PER_S:.3g} GB/s)"


def count_of(n: int, noun: str) -> str:
    """Return a number of things as text.

    >>> count_of(1, "stream"), count_of(2, "stream")
    ('1 stream', '2 streams')
    """
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun}s"


def counts_of(reasons: Counter[str]) -> str:
    """Return reasons as text, the most frequent first; several with their counts, the rarest of many together.

    >>> counts_of(Counter({"barrier has no model": 1, "broadcast has no model": 2}))
    'broadcast has no model (2), barrier has no model (1)'
    """
    if len(reasons) == 1:
        return next(iter(reasons))
    named = reasons.most_common(_MOST_REASONS)
    parts = [f"{reason} ({count})" for reason, count in named]
    rest = reasons.total() - sum(count for _, count in named)
    if rest:
        parts.append(f"other reasons ({rest})")
    return ", ".join(parts)
