"""Errors of the library: one tree, each error also the builtin kind it is closest to."""

from difflib import get_close_matches
from typing import Any, Final

from simsched.base.text import printable

_MOST_LISTED: Final = 16
# characters of a long text that are kept: its beginning, and the remedy at its end
_HEAD = 330
_TAIL = 150


class SimschedError(Exception):
    r"""Root of every error the library raises on purpose.

    Its text is one line that can be printed, of at most 500 characters, whatever names and values it quotes.

    >>> print(SimschedError("names no operator: a\nb"))
    names no operator: a\nb
    """

    def __init__(self, text: str = "") -> None:
        text = printable(text)
        super().__init__(text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} ... {text[-_TAIL:]}")


class ArgumentError(SimschedError, TypeError):
    """An argument of a kind that a function does not take."""


class GraphError(SimschedError, ValueError):
    """An invalid operator, edge or graph: cycle, duplicate, NaN cost, ..."""


class ClusterError(SimschedError, ValueError):
    """An invalid device, link or cluster, or a kernel that no such device can hold."""


class ScheduleError(SimschedError, ValueError):
    """A schedule that breaks a dependency, leaves an operator out, or can never finish."""


class ProgramError(SimschedError, ValueError):
    """A program whose instructions contradict each other or its graph."""


class SchedulerError(SimschedError, ValueError):
    """A scheduler that does not suit the graph or was given an option it refuses."""


class CostError(SimschedError, ValueError):
    """A cost model that answered with something other than a finite, non-negative time."""


class SimulationError(SimschedError, ValueError):
    """Arguments with which nothing can be simulated."""


class BackendError(SimschedError, RuntimeError):
    """A backend that cannot run a program: no device, no driver, out of memory, wrong outputs, ..."""


class CalibrationError(SimschedError, ValueError):
    """Measurements from which nothing can be fitted: another graph or device, too few samples, ..."""


class StudyError(SimschedError, ValueError):
    """A study that cannot be run, or a folder of rows that is not this study's, in use, or at odds with itself."""


class WhatIfError(SimschedError, ValueError):
    """A question that does not fit this schedule, cluster or workload: fewer devices than are in use, ..."""


class ReportError(SimschedError, ValueError):
    """Results of which no report can be made: none, or of a kind that is not known."""


class DeadlockError(SimschedError, RuntimeError):
    """A program in which all remaining instructions wait for each other."""


class UnknownNameError(SimschedError, LookupError):
    """An unknown scheduler, workload, preset, ...; the message lists all names, or the closest."""

    def __init__(self, what: str, name: str, known: list[str], also: str = "") -> None:
        self._given = what, name, known, also
        listed = known
        introduced = "known are"
        if len(known) > _MOST_LISTED:
            listed = get_close_matches(name, known, n=4, cutoff=0.0)
            introduced = f"closest of {len(known)} known"
        super().__init__(f"unknown {what} {name!r}; {introduced}: {', '.join(listed)}{also}")

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownNameError, self._given  # worker processes send errors back


class FormatError(SimschedError, ValueError):
    """A file in a wrong form: truncated, wrong version, wrong type, ..."""


class FileError(SimschedError, OSError):
    """A file that cannot be read or written."""


class MissingDependencyError(SimschedError, ImportError):
    """An optional package that is not installed; the message says how to install it."""


def brief_text(value: Any) -> str:
    """Return a value as errors show it: on one line, not too long, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of over 4,300 digits
        text = "a number of thousands of digits"
    except Exception as error:  # of a class of the user's
        text = f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    if len(text) <= 80:
        return text
    return f"{text[:77]}..."
