"""`Overlaps`: gains of overlaps, the losses in them, and the values of a parameter at which they turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Final

from simsched.base.codec import Amount, Checked, Count, aside
from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.overlap.candidates import shorten_name
from simsched.experiments.result import Doubt, Finding, table_of
from simsched.model import Schedule

HALVES: Final = "half-batches"
"""Name of the overlap of two halves of a batch."""
PREFETCH: Final = "prefetch of weights"
"""Name of the overlap of reads of weights into L2 beside collectives."""
TOGETHER: Final = "all together"
"""Name of all overlaps that add up."""
WORTH: Final = 0.02
"""Gain from which on an overlap is said to pay, by default: published runs of one engine differ by less."""
_MOST_SHOWN: Final = 20
_WIDE: Final = 48  # characters of a name in a table
_WHOLE: Final = 1e-9  # part by which a value may miss a whole number and is one


@dataclass(frozen=True, slots=True)
class Shares(Checked):
    """The division of a device's SMs between two streams with which an overlap is fastest.

    Parameters
    ----------
    side_sms
        SMs of the stream that runs beside the first one; of half-batches that of the second half, or of collectives.
    main_sms
        SMs of the first stream: the others, or all.
    makespan_us
        With this division.
    gain
        As in `Overlap`, with this division.
    """

    SUBJECT = "shares of SMs"
    ERROR = WhatIfError
    side_sms: Count
    main_sms: Count
    makespan_us: Amount
    gain: float


@dataclass(frozen=True, slots=True)
class Overlap(Checked):
    """Operators that run beside others, and the gain.

    Parameters
    ----------
    name
        Operators that are moved to a stream of their own; ``"half-batches"``, ``"prefetch of weights"``, or
        ``"all together"``.
    beside
        Operators that run beside them.
    places
        Times that they are in the graph.
    launched
        ``"first"`` or ``"last"``: whether the host launches them ahead of the operators beside them, whichever is
        faster. Of half-batches ``"apart"`` (a stream each) or ``"collectives apart"``.
    makespan_us
        With the overlap.
    gain, gain_low, gain_high
        Speed with the overlap over speed without it, less 1, and the ends of its 90 % range; None where no range is
        known.
    possible
        Gain if nothing contended and launches and waits cost nothing.
    contention, waits
        Parts of `possible` that are lost to kernels that slow each other or wait for SMs, and to launches and waits
        between streams.
    shares
        The best division of SMs between the streams, which may be worse than none; None if none was asked for.
    """

    SUBJECT = "overlap {0.name!r}"
    ERROR = WhatIfError
    name: str
    beside: str
    places: Count
    launched: str
    makespan_us: Amount
    gain: float
    gain_low: float | None
    gain_high: float | None
    possible: float
    contention: float
    waits: float
    shares: Shares | None = None


@dataclass(frozen=True, slots=True)
class Point(Checked):
    """Gains of overlaps at a value of a parameter.

    Parameters
    ----------
    value
        Of the parameter.
    makespan_us
        Without overlaps.
    gain, gain_low, gain_high
        By the name of the overlap.
    """

    SUBJECT = "point {0.value!r}"
    ERROR = WhatIfError
    value: float
    makespan_us: Amount
    gain: Mapping[str, float]
    gain_low: Mapping[str, float]
    gain_high: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Turn(Checked):
    """Values of a parameter at which an overlap begins or ends to pay.

    Parameters
    ----------
    name
        Of the overlap.
    pays
        ``"below"`` or ``"above"`` a value, ``"between"`` or ``"outside"`` two, ``"always"`` or ``"never"``.
    at
        The values, rising; none where it always or never pays.
    low, high
        The 90 % range of a single value; None for an end that lies beyond the values that were simulated, and where
        gains cross more than once.
    exceptions
        Values that were simulated at which it is the other way round.
    """

    SUBJECT = "turn of {0.name!r}"
    ERROR = WhatIfError
    name: str
    pays: str
    at: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    exceptions: tuple[float, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """The outermost whole numbers at which it pays, next to the values.

        >>> Turn("shared", "below", (52.8,)).ends, Turn("halves", "above", (3.3,)).ends
        ((52,), (4,))
        """
        up_to = [floor(at * (1 + _WHOLE)) for at in self.at]
        onward = [ceil(at * (1 - _WHOLE)) for at in self.at]
        match self.pays:
            case "below":
                return (up_to[0],)
            case "above":
                return (onward[0],)
            case "between":
                return (onward[0], up_to[1])
            case "outside":
                return (up_to[0], onward[1])
            case _:
                return ()

    def place(self, parameter: str) -> str:
        """Return the whole numbers of a parameter at which it pays, in words.

        >>> Turn("shared", "below", (52.8,)).place("batch"), Turn("halves", "between", (2.1, 8.0)).place("batch")
        ('up to batch 52', 'from batch 3 to 8')
        """
        ends = [f"{end:,}" for end in self.ends]
        match self.pays:
            case "below":
                return f"up to {parameter} {ends[0]}"
            case "above":
                return f"from {parameter} {ends[0]}"
            case "between":
                return f"from {parameter} {ends[0]} to {ends[1]}"
            case "outside":
                return f"up to {parameter} {ends[0]} and from {ends[1]}"
            case _:
                return self.pays


@dataclass(frozen=True, repr=False, eq=False)
class Overlaps(Finding):
    """Gains of overlaps; prints as a table, plots gains over the parameter.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    execution
        ``"graph"`` (captured), ``"events"`` (launched by a lean host) or ``"eager"`` (by PyTorch's host).
    makespan_us
        Of one operator after the other.
    rows
        Overlaps by falling gain; all together last.
    parameter
        Name of the parameter that was varied; None if none was.
    points
        Gains by rising value of it.
    turns
        Of each overlap, the values at which it begins or ends to pay.
    doubt
        Sources of the ranges, and the parameter on which the best gain depends most.
    plans
        The schedule of each overlap, by name; none once read from a file.
    measured_us
        Measured time of the step, over which gains are then; None for the simulated time.
    untried, untried_us
        Branches that were not simulated, since others could save more, and the most that one of them saves.
    is_divided
        Whether divisions of SMs were tried.
    worth
        Gain from which on an overlap is said to pay.
    """

    VIEW = "overlaps"
    FORMAT = "simsched.overlap"
    execution: str
    makespan_us: Amount
    rows: tuple[Overlap, ...]
    parameter: str | None = None
    points: tuple[Point, ...] = ()
    turns: tuple[Turn, ...] = ()
    doubt: Doubt | None = None
    plans: Mapping[str, Schedule] | None = aside()
    measured_us: Amount | None = None
    untried: Count = 0
    untried_us: Amount = 0.0
    is_divided: bool = False
    worth: float = WORTH

    def row(self, name: str) -> Overlap:
        """Return the overlap of a name.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError("overlap", name, [row.name for row in self.rows])

    def sentences(self) -> tuple[str, ...]:
        """Return lines on the turns, on overlaps that the table leaves out, and on the doubt."""
        if not self.rows and not self.turns:
            return ("Nothing could run beside anything else: each operator needs the one before it.",)
        lines = [self._sentence(turn) for turn in self.turns]
        if self.turns:
            lines.insert(0, f"An overlap pays where it gains {100 * self.worth:g} % or more.")
        hidden = len(self.rows) - len(self._table_rows())
        if hidden:
            lines.append(f"{hidden} more gain less: see --json.")
        if self.untried:
            most = format_time(self.untried_us)
            lines.append(f"{self.untried} more were not simulated: each saves {most} at most.")
        if self.doubt is not None:
            lines.append(f"Ranges of gains hold with 90 %, {self.doubt.basis}.")
            text = str(self.doubt)
            lines.append(f"{text[0].upper()}{text[1:]}.")
        return tuple(lines)

    def _sentence(self, turn: Turn) -> str:
        first = f"{self.points[0].value:,.0f}"
        last = f"{self.points[-1].value:,.0f}"
        if turn.pays in ("always", "never"):
            return f"{turn.name}: {turn.pays} pays from {self.parameter} {first} to {last}."
        text = f"{turn.name}: pays {turn.place(str(self.parameter))}"
        if turn.low is not None or turn.high is not None:
            if turn.low is None:
                low = first
            else:
                low = f"{turn.low:,.0f}"
            if turn.high is None:
                high = last
            else:
                high = f"{turn.high:,.0f}"
            text += f" ({low} to {high})"
        if turn.exceptions:
            text += f", but for {', '.join(f'{value:,.0f}' for value in turn.exceptions)}"
        return f"{text}."

    def _table_rows(self) -> list[Overlap]:
        """Return the rows of the table: those that gain most, and all together."""
        joint = [row for row in self.rows if row.name == TOGETHER]
        single = [row for row in self.rows if row.name != TOGETHER]
        return single[:_MOST_SHOWN] + joint

    def table(self) -> Any:
        """Return the rows as a table of texts, with sentences on their turns."""
        headings = ("overlap", "places", "launched", "latency", "gain", "could be", "contention", "waits")
        more = ("best with SMs", "gain") if self.is_divided else ()
        rows = [
            (
                shorten_name([row.name], _WIDE),
                str(row.places),
                row.launched,
                format_time(row.makespan_us),
                _percent(row.gain, row.gain_low, row.gain_high),
                _percent(row.possible),
                _percent(-row.contention),
                _percent(-row.waits),
                *(_division_cells(row.shares) if self.is_divided else ()),
                row.beside,
            )
            for row in self._table_rows()
        ]
        title = f"{self.graph} on {self.cluster}: {format_time(self.makespan_us)} one operator after the other"
        if self.measured_us is not None:
            title += f"; gains are over {format_time(self.measured_us)}, as measured"
        if self.rows and self.rows[0].gain >= self.worth:
            best = 0
        else:
            best = -1
        every = (*headings, *more, "beside")
        return table_of(title, every, rows, note=self.sentences(), best=best, left=(0, 2, len(every) - 1))


def _division_cells(shares: Shares | None) -> tuple[str, str]:
    """Return the cells of a division of SMs."""
    if shares is None:
        return ("-", "-")
    return (f"{shares.side_sms} beside {shares.main_sms}", _percent(shares.gain))


def _percent(value: float, low: float | None = None, high: float | None = None) -> str:
    text = f"{100 * value:+.1f} %"
    if low is None or high is None:
        return text
    return f"{text} ({100 * low:+.1f} to {100 * high:+.1f})"
