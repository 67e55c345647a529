"""Least squares with a robust loss on top of what is believed beforehand, and how sure its answer is."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from simsched.calibration.parameters import PARAMETERS, Belief
from simsched.graph.columns import Floats, Ints

_STEP: Final = 0.04  # on the scale of a parameter: simulated times have small jumps where an order changes
_ROUGH_STEP: Final = 0.1
_FINEST: Final = 0.2  # part of its spread to which a rough parameter is searched for
_MOST_CALLS: Final = 12
_TELLING: Final = 0.6  # part of its spread that a parameter may keep and be called identified
_ROBUST: Final = 2.0  # standard deviations beyond which a residual counts less

Residuals = Callable[[Mapping[str, float]], Floats]
"""From values of parameters to residuals, each over its standard deviation."""


@dataclass(frozen=True)
class Fit:
    """What a fit found.

    Parameters
    ----------
    beliefs
        What is believed of each parameter now.
    draws
        Bootstrap replicates of the identified ones, on their own scale.
    unidentified
        Those that keep what was believed before, with the reason.
    """

    beliefs: Mapping[str, Belief]
    draws: Mapping[str, Floats]
    unidentified: Mapping[str, str]

    @property
    def values(self) -> dict[str, float]:
        """Values of the parameters."""
        return {name: PARAMETERS[name].outward(belief.mean) for name, belief in self.beliefs.items()}


def fit(
    residuals: Residuals,
    groups: Ints,
    before: Mapping[str, Belief],
    identified: Container[str] = (),
    *,
    rng: np.random.Generator,
    bootstrap: int,
    near: Mapping[str, Belief] | None = None,
) -> Fit:
    """Fit parameters to residuals.

    Parameters
    ----------
    residuals
        Called with the values of the parameters.
    groups
        The run that each residual is of, from 0, shape (n_residuals,).
    before
        The parameters, with what is believed of them beforehand.
    identified
        Those of them that earlier measurements identified, whatever these say.
    rng
        For the bootstrap.
    bootstrap
        Number of replicates; 0 for a fit that says neither how sure it is nor what was not identified.
    near
        What a fit to nearly the same residuals found.

    Notes
    -----
    Minimised is ``sum(rho(r_i)) + sum(((u_j - mean_j) / spread_j)^2)`` over the places u of the parameters on their
    scales (mostly logarithms), rho the soft L1 loss. A parameter whose spread the measurements do not bring below
    0.6 of what it was is not identified; it is put back, and the others are fitted again. Where slopes mislead a
    compass search comes first, and slopes are taken over a wider step. A replicate of the
    bootstrap draws runs with replacement, residuals' noise and what was believed before anew, and moves the fit by one
    Gauss-Newton step with the Jacobian as it is at the fit.
    """
    names = list(before)
    found = _minimum(residuals, names, before, None if near is None else np.array([near[name].mean for name in names]))
    if not bootstrap:
        places = zip(names, found.place.tolist(), strict=True)
        return Fit({name: Belief(place, before[name].spread) for name, place in places}, {}, {})
    unidentified = {name: why for name, why in _unidentified(found, names, before).items() if name not in identified}
    free = [name for name in names if name not in unidentified]
    if unidentified and free:
        kept = {name: PARAMETERS[name].outward(before[name].mean) for name in unidentified}
        start = np.array([found.place[names.index(name)] for name in free])
        found = _minimum(lambda values: residuals({**kept, **values}), free, before, start)
    beliefs = dict(before)
    draws: dict[str, Floats] = {}
    if free:
        replicates = _bootstrap(found, groups, [before[name] for name in free], rng, bootstrap)
        for j, name in enumerate(free):
            low, high = PARAMETERS[name].bounds
            draws[name] = np.clip(replicates[:, j], low, high)
            beliefs[name] = Belief(float(found.place[j]), max(float(np.std(replicates[:, j])), 1e-6))
    return Fit(beliefs, draws, unidentified)


@dataclass(frozen=True)
class _Minimum:
    place: Floats
    residual: Floats
    jacobian: Floats


def _minimum(
    residuals: Residuals, names: Sequence[str], before: Mapping[str, Belief], near: Floats | None = None
) -> _Minimum:
    from scipy.optimize import least_squares

    parameters = [PARAMETERS[name] for name in names]
    mean = np.array([before[name].mean for name in names])
    spread = np.array([before[name].spread for name in names])
    low, high = np.array([parameter.bounds for parameter in parameters]).reshape(-1, 2).T
    known: dict[bytes, Floats] = {}

    def at(place: Floats) -> Floats:
        key = place.tobytes()
        if key not in known:
            found = residuals({p.name: p.outward(float(u)) for p, u in zip(parameters, place, strict=True)})
            # soft L1: what is minimised is rho of each measured residual, but the plain square of each belief
            bent = np.sign(found) * np.sqrt(2 * _ROBUST**2 * (np.sqrt(1 + (found / _ROBUST) ** 2) - 1))
            known[key] = np.concatenate([bent, (place - mean) / spread])
        return known[key]

    def slope(place: Floats) -> Floats:
        columns = []
        for j, parameter in enumerate(parameters):
            step = _STEP if place[j] + _STEP <= high[j] else -_STEP
            ends = [place, _moved(place, j, place[j] + step)]
            if parameter.rough:
                steps = (-_ROUGH_STEP, _ROUGH_STEP)
                ends = [_moved(place, j, float(np.clip(place[j] + step, low[j], high[j]))) for step in steps]
            columns.append((at(ends[1]) - at(ends[0])) / (ends[1][j] - ends[0][j]))
        return np.column_stack(columns)

    inside = 1e-9 * np.maximum(1.0, np.abs(low)), 1e-9
    start = np.clip(mean if near is None else near, low + inside[0], high - inside[1])
    rough = [j for j, parameter in enumerate(parameters) if parameter.rough]
    best = start
    if near is None:
        best = _searched(at, start, rough, spread, low + inside[0], high - inside[1])
    found = least_squares(
        at, best, jac=slope, bounds=(low, high), x_scale=np.maximum(spread, 1e-3), max_nfev=_MOST_CALLS,
        xtol=1e-4, ftol=1e-5, gtol=1e-8,
    )  # fmt: skip
    n = len(found.fun) - len(names)
    return _Minimum(np.asarray(found.x), np.asarray(found.fun)[:n], np.asarray(found.jac)[:n])


def _searched(
    at: Callable[[Floats], Floats], start: Floats, rough: Sequence[int], spread: Floats, low: Floats, high: Floats
) -> Floats:
    """Return a place with a lower sum of squares than its neighbours along each rough parameter (compass search)."""
    best, least = start, float(at(start) @ at(start))
    step = spread.copy()
    while rough and (step[rough] > _FINEST * spread[rough]).any():
        for j in rough:
            if step[j] <= _FINEST * spread[j]:
                continue
            for side in (-1, 1):
                tried = _moved(best, j, float(np.clip(best[j] + side * step[j], low[j], high[j])))
                found = at(tried)
                if float(found @ found) < least * (1 - 1e-6):
                    best, least = tried, float(found @ found)
                    break
            else:
                step[j] /= 2
    return best


def _moved(place: Floats, j: int, value: float) -> Floats:
    moved = place.copy()
    moved[j] = value
    return moved


def _unidentified(found: _Minimum, names: Sequence[str], before: Mapping[str, Belief]) -> dict[str, str]:
    """Return which parameters measurements say little of, and why."""
    prior = np.array([before[name].spread for name in names])
    information = found.jacobian.T @ found.jacobian
    covariance = np.linalg.inv(information + np.diag(prior**-2.0))
    reasons: dict[str, str] = {}
    for j, name in enumerate(names):
        if np.sqrt(covariance[j, j]) < _TELLING * prior[j]:
            continue
        alone = (information[j, j] + prior[j] ** -2.0) ** -0.5
        if information[j, j] < 1e-9:
            reasons[name] = "no run depends on it"
        elif alone >= _TELLING * prior[j]:
            reasons[name] = "runs hardly depend on it"
        else:
            scale = np.sqrt(np.diag(covariance))
            alike = np.abs(covariance[j] / (scale * scale[j]))
            alike[j] = 0.0
            reasons[name] = f"cannot be told apart from {names[int(np.argmax(alike))]}"
    return reasons


def _bootstrap(found: _Minimum, groups: Ints, before: Sequence[Belief], rng: np.random.Generator, count: int) -> Floats:
    """Return replicates of the fit, shape (count, n_parameters)."""
    precision = np.array([belief.spread for belief in before]) ** -2.0
    mean = np.array([belief.mean for belief in before])
    n_groups = int(groups.max()) + 1 if len(groups) else 0
    rows = []
    for _ in range(count):
        times = np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)[groups].astype(np.float64)
        drawn = mean + rng.standard_normal(len(mean)) * precision**-0.5
        residual = found.residual + rng.standard_normal(len(found.residual))
        weighted = found.jacobian * times[:, None]
        pull = weighted.T @ residual + precision * (found.place - drawn)
        rows.append(found.place - np.linalg.solve(weighted.T @ found.jacobian + np.diag(precision), pull))
    return np.array(rows).reshape(count, len(mean))
