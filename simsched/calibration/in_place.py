"""Times of operators, and parameters of devices, from runs of a graph as it is used."""

from collections.abc import Container, Mapping, Sequence
from typing import Final

import numpy as np

from simsched.calibration.evidence import MeasuredRun, Values, weighted_median
from simsched.calibration.fitting import Fit, fit
from simsched.calibration.parameters import SHARING, Belief, inflated, with_values
from simsched.model import Cluster, Floats, Ints

_ALONE, _SHARED = 0.04, 0.3
"""Standard deviation of the logarithm of a measured over a simulated time of an operator: alone, and never alone."""

_DURATION: Final = 0.3
_MAKESPAN: Final = 0.02
"""The same of an operator's time and of a makespan where parameters of devices are fitted."""

_DAMPING: Final = 0.7
_SETTLED: Final = 2e-3
_MOST_UPDATES: Final = 8
_ROUNDS: Final = 2


def operator_times(runs: Sequence[MeasuredRun], cluster: Cluster, before: Floats | None = None) -> Floats:
    """Return the time alone of each operator with which simulated times in runs are the measured ones.

    Parameters
    ----------
    runs
        Of one graph.
    cluster
        What they are simulated on.
    before
        Times to begin with, us, shape (n_ops,); None takes measured ones.

    Notes
    -----
    Times are multiplied by measured over simulated until that settles: by a weighted mean over the runs of its
    logarithm, what is far from the weighted median pulled in. A run in which an operator had company weighs less.
    O(runs x simulations), at most eight of them each.
    """
    gap = cluster.devices[0].gap
    measured = np.array([run.durations(gap) for run in runs])  # (n_runs, n_ops)
    spread = np.array([np.hypot(_ALONE, _SHARED * run.overlap) for run in runs])
    weights = spread**-2.0
    n_ops = measured.shape[1]
    times = before
    if times is None:
        times = np.array([weighted_median(measured[:, i], weights[:, i]) for i in range(n_ops)])
    for _ in range(_MOST_UPDATES):
        simulated = np.array([run.by_operator(run.simulated(cluster, times).launches) for run in runs])
        known = (measured > 0) & (simulated > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(known, np.log(measured / simulated), 0.0)
        change = np.array([_middle(ratio[:, i], weights[:, i] * known[:, i], spread[:, i]) for i in range(n_ops)])
        times = times * np.exp(_DAMPING * change)
        if np.abs(change).max() < _SETTLED:
            break
    return times


def _middle(values: Floats, weights: Floats, spread: Floats) -> float:
    """Return a weighted mean, values more than two standard deviations from the weighted median pulled in to there."""
    if not weights.any():
        return 0.0
    centre = weighted_median(values, weights)
    near = centre + np.clip(values - centre, -2 * spread, 2 * spread)
    return float(np.average(near, weights=weights))


def refit(
    runs: Sequence[MeasuredRun], cluster: Cluster, beliefs: Mapping[str, Belief], identified: Container[str] = ()
) -> tuple[Fit, Floats]:
    """Fit times of operators and parameters of devices to runs of a graph, by turns.

    Parameters
    ----------
    runs
        To fit to.
    cluster
        What they ran on, with the values that `beliefs` say nothing of.
    beliefs
        What microbenchmarks said of the parameters, or what was believed before any.
    identified
        Those of them that microbenchmarks identified.

    Returns
    -------
    Fit
        Of the parameters.
    numpy.ndarray
        Times of the operators in us, shape (n_ops,).
    """
    wanted = [name for name in beliefs if name in SHARING or (name not in identified and _matters(name, runs))]
    before = inflated({name: beliefs[name] for name in wanted})
    telling = [run for run in runs if run.is_concurrent]
    if not telling or any(name not in SHARING for name in wanted):
        telling = list(runs)
    groups = _groups(telling)
    fitted = cluster
    times = operator_times(runs, fitted)
    found = None
    for _ in range(_ROUNDS):
        known = times

        def residuals(values: Values, known: Floats = known) -> Floats:
            return _residuals(telling, with_values(cluster, values), known)

        found = fit(residuals, groups, before, identified, near=None if found is None else found.beliefs)
        fitted = with_values(cluster, found.values)
        times = operator_times(runs, fitted, times)
    assert found is not None
    return found, times


def _matters(name: str, runs: Sequence[MeasuredRun]) -> bool:
    """Return whether a parameter can matter to runs: those of captured graphs only where there are any, and so on."""
    if name.startswith("graph_"):
        return any(run.program.execution == "graph" for run in runs)
    if name.startswith(("link.", "copy")):
        return any(len(run.copies) for run in runs)
    if name == "barrier":
        return any(run.program.execution == "stages" for run in runs)
    return True


def _residuals(runs: Sequence[MeasuredRun], cluster: Cluster, times: Floats) -> Floats:
    rows: list[Floats] = []
    for run in runs:
        found = run.simulated(cluster, times)
        measured, simulated = run.durations(cluster.devices[0].gap), run.by_operator(found.launches)
        known = (measured > 0) & (simulated > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            durations = np.where(known, np.log(simulated / measured), 0.0) / _DURATION
        whole = np.log(found.makespan / run.measured) / np.hypot(_MAKESPAN, run.noise)
        rows.append(np.concatenate([[whole], durations]))
    return np.concatenate(rows)


def _groups(runs: Sequence[MeasuredRun]) -> Ints:
    """Return the number of the run that each residual of them is of."""
    return np.concatenate([np.full(1 + len(run.graph), i) for i, run in enumerate(runs)])
