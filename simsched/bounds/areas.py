"""Work that has to fit between what comes before it and what comes after it."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from simsched.bounds.paths import Setting
from simsched.model.graph.columns import Floats, Ints, distinct

_MOST_THRESHOLDS: Final = 256
_MOST_STEPS: Final = 2**22


def area(head: Floats, work: Floats, tail: Floats, capacity: float) -> float:
    """Return a lower bound in us of the end of all operators, by the work that one resource has to do.

    Parameters
    ----------
    head, tail
        Least time before the start of each operator, and after its end, shape (n_ops,).
    work
        What each takes of the resource, shape (n_ops,).
    capacity
        Of the resource per us.

    Notes
    -----
    The work of any set of operators is done between the least head and the least tail of the set:
    ``min head + work / capacity + min tail``. For a head as threshold the best set is one of those
    with heads from there on and the longest tails. Up to 256 heads are tried, fewer in graphs of more
    than 16,000 operators, of more heads an even choice; the least of all is always among them.
    O(V log V + thresholds V).
    """
    able = work > 0
    if not able.any():
        return 0.0
    by_tail = np.argsort(-tail[able], kind="stable")
    head, work, tail = (column[able][by_tail] for column in (head, work, tail))
    best = 0.0
    for threshold in _thresholds(head).tolist():
        chosen = head >= threshold
        best = max(best, threshold + float((np.cumsum(work[chosen]) / capacity + tail[chosen]).max()))
    return best


def _thresholds(head: Floats) -> Floats:
    values = distinct(head)
    most = max(4, min(_MOST_THRESHOLDS, _MOST_STEPS // len(head)))
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def areas(setting: Setting, head: Floats, tail: Floats) -> Floats:
    """Return for each resource the largest `area`: of all devices, and of those that some operators cannot do without.

    Parameters
    ----------
    head, tail
        As `heads` and `tails` return them, shape (n_kinds, n_ops).

    Returns
    -------
    numpy.ndarray
        In us, shape (n_resources,).

    Notes
    -----
    An operator counts where it takes least. Operators that can run only on some kinds of devices have
    the capacity of those alone.
    """
    head, tail, work = head.min(axis=0), tail.min(axis=0), setting.work.min(axis=1)
    found = np.zeros(len(work))
    for ops, n_devices in _confined(setting):
        for r, capacity in enumerate(setting.capacity.tolist()):
            bound = area(head[ops], work[r, ops], tail[ops], capacity * n_devices)
            found[r] = max(found[r], bound)
    return found


def _confined(setting: Setting) -> Iterator[tuple[Ints, int]]:
    """Yield operators that can run on no other devices than so many: all of them first."""
    runs = np.isfinite(setting.times)  # (n_kinds, n_ops)
    yield np.arange(runs.shape[1]), int(setting.count.sum())
    if not runs.all():
        for kinds in np.unique(runs, axis=1).T:  # (n_sets, n_kinds)
            if not kinds.all():
                yield np.flatnonzero(~runs[~kinds].any(axis=0)), int(setting.count[kinds].sum())
