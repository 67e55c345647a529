"""`Rewriting`: how the graph that a schedule runs came about from the one that was to be scheduled."""

from dataclasses import dataclass

from simsched.base.codec import Checked, Name, brief
from simsched.base.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Step(Checked):
    """A step of a rewriting: operators that others replace.

    Parameters
    ----------
    rule
        ``"merged"``: several convolutions became one, and slices of it where they are needed; or the name of a
        substitution rule, such as ``"R2"``: see `simsched.rewriting`.
    operators
        Names of the operators that the rule was applied to.
    """

    SUBJECT = "rewriting by {0.rule!r}"
    ERROR = ScheduleError
    rule: Name
    operators: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class RewrittenPart(Checked):
    """A part of a graph, and the steps that were made in it alone.

    Parameters
    ----------
    operators
        Names of all operators of the part; empty: the graph as a whole.
    steps
        One after the other.
    """

    SUBJECT = "part of a rewriting"
    ERROR = ScheduleError
    operators: tuple[Name, ...] = brief(())
    steps: tuple[Step, ...] = brief(())


@dataclass(frozen=True, slots=True)
class Rewriting(Checked):
    """A graph rewritten in parts, which then were joined again.

    Parameters
    ----------
    parts
        Each operator is in one of them; none reads from a later one.
    """

    SUBJECT = "rewriting"
    ERROR = ScheduleError
    parts: tuple[RewrittenPart, ...]
