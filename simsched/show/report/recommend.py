"""Which schedule of a comparison to run."""

from collections.abc import Sequence
from typing import Final

from simsched.experiments.comparison import Comparison, Row
from simsched.experiments.comparison.row import Doubt

_AS_GOOD: Final = 0.01  # of the least makespan


def recommended(comparison: Comparison) -> Row | None:
    """Return the row whose schedule to run, None if there is no schedule.

    Of the schedules within 1 % of the least makespan, which the model cannot tell apart, the simplest: the fewest
    devices, then the fewest streams, then the fewest synchronisations, then the least makespan, then the first.

    >>> rows = (Row("a", 100.0, streams=9, devices=1, syncs=40), Row("b", 100.5, streams=4, devices=1, syncs=70))
    >>> _simplest(rows).scheduler
    'b'
    """
    return _simplest([row for row in comparison.rows if row.makespan_us is not None])


def _simplest(rows: Sequence[Row]) -> Row | None:
    if not rows:
        return None
    least = min(row.makespan_us or 0.0 for row in rows)
    near = [row for row in rows if (row.makespan_us or 0.0) <= (1.0 + _AS_GOOD) * least]
    return min(near, key=lambda row: (row.devices or 0, row.streams or 0, row.syncs or 0, row.makespan_us or 0.0))


def why(comparison: Comparison, chosen: Row) -> str:
    """Return in a sentence or two why a row is recommended."""
    from simsched.base.units import format_time

    best = comparison.best()
    assert best is not None
    assert best.makespan_us is not None
    assert chosen.makespan_us is not None
    text = f"Run {chosen.scheduler}: {format_time(chosen.makespan_us)} simulated"
    if chosen.speedup is not None and chosen.scheduler != "sequential":
        text += f", {chosen.speedup:.2f} times as fast as one operator after the other"
        text += "" if comparison.doubt is None else _between(chosen, comparison.doubt)
    if chosen.over_bound is not None:
        text += f", {100 * (chosen.over_bound - 1):.1f} % above the lower bound"
    text += f", on {_count(chosen.devices, 'device')} with {_count(chosen.streams, 'stream')} and "
    text += f"{_count(chosen.syncs, 'synchronisation')}. "
    if comparison.doubt is not None:
        alike = [row for row in comparison.rows if row.place == 1 and row is not chosen]
        alike.sort(key=lambda row: row.makespan_us or 0.0)
        named = ", ".join(row.scheduler for row in alike[:3]) + (
            f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        )
        text += f"Not told apart at 90 % from {named}: measure them. " if alike else ""
        text += f"{str(comparison.doubt)[0].upper()}{str(comparison.doubt)[1:]}. "
    if chosen is best:
        return text + "No other schedule is simulated faster."
    more = chosen.makespan_us / best.makespan_us - 1 if best.makespan_us else 0.0
    return text + (
        f"{best.scheduler} is {100 * more:.2f} % faster with {_count(best.devices, 'device')}, "
        f"{_count(best.streams, 'stream')} and {_count(best.syncs, 'synchronisation')}: of schedules within 1 %, "
        "which are nearer than the model is right, the simplest is recommended."
    )


def _between(row: Row, doubt: Doubt) -> str:
    """Return between what a speedup lies, and by what."""
    return f" ({row.speedup_low or 1.0:.1f}-{row.speedup_high or 1.0:.1f} with 90 %, {doubt.basis})"


def _count(n: int | None, what: str) -> str:
    return f"{n or 0} {what}{'' if n == 1 else 's'}"
