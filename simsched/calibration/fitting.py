"""Least squares with a robust loss on top of what is believed beforehand, and how sure its answer is."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from simsched.calibration.parameters import PARAMETERS, Belief, Beliefs, ParameterRow
from simsched.model.graph.columns import Floats, Ints

_STEP: Final = 0.04  # on the scale of a parameter: simulated times have small jumps where an order changes
_ROUGH_STEP: Final = 0.1
_FINEST: Final = 0.2  # part of its spread to which a rough parameter is searched for
_SCANNED: Final = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0)  # spreads from where a parameter begins, or was put
_MOST_STEPS: Final = 12
_LENGTHS: Final = (1.0, 0.3, 0.1)
_SETTLED: Final = 0.01  # by which the sum falls in the last step
_TELLING: Final = 0.6  # part of its spread that a parameter may keep and be called identified
_OBJECTION: Final = 4.0  # by which the sum may grow where a parameter is put back: two standard deviations
_SEEN: Final = 1e-3  # standard deviations: a change
_FAR: Final = 3.0  # standard deviations: a residual that contradicts
_ROBUST: Final = 2.0  # standard deviations beyond which a residual counts less

_NONE: Final = "no run depends on it"
_HARDLY: Final = "runs hardly depend on it"

Residuals = Callable[[Mapping[str, float]], Floats]
"""From values of parameters to residuals, each over its standard deviation."""


@dataclass(frozen=True)
class Fit:
    """What a fit found.

    Parameters
    ----------
    beliefs
        What is believed of each parameter now.
    unidentified
        Those that keep what was believed before, with the reason.
    """

    beliefs: Beliefs
    unidentified: Mapping[str, str]

    @property
    def values(self) -> dict[str, float]:
        """Values of the parameters that were identified."""
        known = {name: belief for name, belief in self.beliefs.items() if name not in self.unidentified}
        return {name: PARAMETERS[name].outward(belief.mean) for name, belief in known.items()}

    def updated(self, rows: Sequence[ParameterRow]) -> tuple[ParameterRow, ...]:
        """Return rows with what the fit found; what it could not identify stays as an earlier one left it."""
        found = []
        for row in rows:
            if row.name in self.unidentified:
                row = row if row.identified else row._replace(note=self.unidentified[row.name])
            elif row.name in self.beliefs:
                value, low, high = PARAMETERS[row.name].interval(self.beliefs[row.name])
                row = ParameterRow(row.name, value, row.prior, low, high, True)
            found.append(row)
        return tuple(found)


def fit(
    residuals: Residuals, groups: Ints, before: Beliefs, identified: Container[str], *, near: Beliefs | None = None
) -> Fit:
    """Fit parameters to residuals.

    Parameters
    ----------
    residuals
        Called with values of parameters; those that it is not given have those believed beforehand.
    groups
        The run that each residual is of, from 0, shape (n_residuals,).
    before
        The parameters, with what is believed of them beforehand.
    identified
        Those of them that earlier measurements identified, whatever these say.
    near
        What a fit to nearly the same residuals found.

    Notes
    -----
    Minimised is ``sum(rho(r_i)) + sum(((u_j - mean_j) / spread_j)^2)`` over the places u of the parameters on their
    scales (mostly logarithms), rho the soft L1 loss. A parameter whose spread the measurements do not bring below
    0.6 of what it was is not identified; it is put back, and the others are fitted again, unless the measurements
    object by two standard deviations. Where slopes mislead a scan and a compass search come first, and slopes are
    taken over a wider step.

    Spreads are the limit of a bootstrap that draws runs with replacement, residuals' noise and what was believed before
    anew, and moves the fit by one Gauss-Newton step: with J the Jacobian, P what was believed, ``H = J'J + P`` and
    ``s_g`` the slope of run g's part of the sum, the variance is ``H^-1 + H^-1 (sum_g s_g s_g') H^-1``.
    """
    minimum, names = partial(_Minimum, residuals, before), list(before)
    whole = found = minimum(names, None if near is None else {name: near[name].mean for name in names})
    reasons = {name: why for name, why in _unidentified(found, before).items() if name not in identified}
    if reasons:
        found = minimum([name for name in names if name not in reasons], whole.places)
        if found.cost > whole.cost + len(reasons) * _OBJECTION:  # at least one of them matters
            found, doubtful, reasons = whole, reasons, {}
            for name, why in doubtful.items():
                without = minimum([other for other in found.places if other != name], found.places)
                if without.cost <= found.cost + _OBJECTION:
                    found, reasons[name] = without, why
    for name, why in reasons.items():
        if why in (_NONE, _HARDLY) and _is_contradicted(residuals, found, name, before[name]):
            reasons[name] = "contradicted by runs, which no value of it explains"
    spread = found.spread(groups)
    fitted = {name: Belief(u, s) for (name, u), s in zip(found.places.items(), spread.tolist(), strict=True)}
    return Fit({**before, **fitted}, reasons)


class _Minimum:
    """The least sum of squares of residuals, and of how far parameters are from what was believed of them.

    Attributes
    ----------
    places, cost
        Of the parameters by name, and the sum there.
    residual, jacobian
        Of what was measured, there; the Jacobian may be that of a small step before.
    """

    def __init__(
        self, residuals: Residuals, before: Beliefs, names: Sequence[str], near: Mapping[str, float] | None
    ) -> None:
        self._residuals, self._known = residuals, dict[bytes, Floats]()
        self._parameters = [PARAMETERS[name] for name in names]
        self._rough = [j for j, parameter in enumerate(self._parameters) if parameter.rough]
        self._mean = np.array([before[name].mean for name in names])
        self._spread = np.array([before[name].spread for name in names])
        self._low, self._high = np.array([parameter.bounds for parameter in self._parameters]).reshape(-1, 2).T
        start = np.clip(self._mean if near is None else [near[name] for name in names], self._low, self._high)
        place, jacobian = self._descended(self._searched(start) if near is None else start)
        found = self._at(place)
        n = len(found) - len(names)
        self.places, self.cost = dict(zip(names, place.tolist(), strict=True)), float(found @ found)
        self.residual, self.jacobian = found[:n], jacobian[:n]

    @property
    def covariance(self) -> Floats:
        """As far as residuals have the deviations that they are given."""
        return np.asarray(np.linalg.inv(self.jacobian.T @ self.jacobian + np.diag(self._spread**-2.0)))

    def spread(self, groups: Ints) -> Floats:
        """Return the standard deviation of each parameter, where residuals of a group may be off together."""
        slopes = np.zeros((int(groups.max(initial=-1)) + 1, len(self.places)))
        np.add.at(slopes, groups, self.jacobian * self.residual[:, None])
        off = slopes @ self.covariance
        return np.asarray(np.sqrt(np.diag(self.covariance) + (off**2).sum(axis=0)))

    def _at(self, place: Floats) -> Floats:
        """Return what is squared at a place."""
        key = place.tobytes()
        if key not in self._known:
            found = self._residuals({p.name: p.outward(float(u)) for p, u in zip(self._parameters, place, strict=True)})
            # soft L1: what is minimised is rho of each measured residual, but the plain square of each belief
            bent = np.sign(found) * np.sqrt(2 * _ROBUST**2 * (np.sqrt(1 + (found / _ROBUST) ** 2) - 1))
            self._known[key] = np.concatenate([bent, (place - self._mean) / self._spread])
        return self._known[key]

    def _slope(self, place: Floats) -> Floats:
        """Return how it changes with each parameter."""
        columns = []
        for j, parameter in enumerate(self._parameters):
            ahead = _STEP if place[j] + _STEP <= self._high[j] else -_STEP
            steps = (-_ROUGH_STEP, _ROUGH_STEP) if parameter.rough else (0.0, ahead)
            start, end = (self._moved(place, j, place[j] + step) for step in steps)
            columns.append((self._at(end) - self._at(start)) / (end[j] - start[j]))
        return np.column_stack(columns) if columns else np.zeros((len(self._at(place)), 0))

    def _moved(self, place: Floats, j: int, value: float) -> Floats:
        moved = place.copy()
        moved[j] = np.clip(value, self._low[j], self._high[j])
        return moved

    def _descended(self, place: Floats) -> tuple[Floats, Floats]:
        """Return a least place, and the slopes there or a small step before, by Gauss-Newton steps within bounds.

        A step is shortened until the sum falls. Where it does not, a rough parameter may jump: then they are held.
        """
        for _ in range(_MOST_STEPS):
            found, jacobian = self._at(place), self._slope(place)
            pull = jacobian.T @ found
            stuck = ((place <= self._low) & (pull > 0)) | ((place >= self._high) & (pull < 0))
            for held in ((), self._rough):
                free = np.setdiff1d(np.flatnonzero(~stuck), held)
                part = jacobian[:, free]
                step = np.zeros(len(place))
                step[free] = -np.linalg.solve(part.T @ part, pull[free])
                tried = (np.clip(place + length * step, self._low, self._high) for length in _LENGTHS)
                better = next((each for each in tried if self._at(each) @ self._at(each) < found @ found), None)
                if better is not None:
                    break
            else:
                return place, jacobian
            place = better
            if float(found @ found - self._at(place) @ self._at(place)) < _SETTLED:
                return place, jacobian
        return place, self._slope(place)

    def _searched(self, start: Floats) -> Floats:
        """Return a place with a lower sum of squares than its neighbours along each rough parameter.

        By a scan of each, since where it begins may be flat, then by a compass search.
        """
        best, least = start, float(self._at(start) @ self._at(start))

        def improved(j: int, value: float) -> bool:
            nonlocal best, least
            tried = self._moved(best, j, value)
            found = float(self._at(tried) @ self._at(tried))
            is_better = found < least * (1 - 1e-6)
            if is_better:
                best, least = tried, found
            return is_better

        rough, spread, step = self._rough, self._spread, self._spread.copy()
        for j in rough:
            for times in _SCANNED:
                improved(j, start[j] + times * spread[j])
        while rough and (step[rough] > _FINEST * spread[rough]).any():
            for j in rough:
                if step[j] > _FINEST * spread[j] and not any(improved(j, best[j] + side * step[j]) for side in (-1, 1)):
                    step[j] /= 2
        return best


def _unidentified(found: _Minimum, before: Beliefs) -> dict[str, str]:
    """Return which parameters measurements say little of, and why."""
    names = list(found.places)
    information, covariance = np.diag(found.jacobian.T @ found.jacobian), found.covariance
    reasons: dict[str, str] = {}
    for j, name in enumerate(names):
        told = _TELLING * before[name].spread
        if np.sqrt(covariance[j, j]) < told:
            continue
        if information[j] < 1e-9:
            reasons[name] = _NONE
        elif (information[j] + before[name].spread ** -2.0) ** -0.5 >= told:
            reasons[name] = _HARDLY
        else:
            scale = np.sqrt(np.diag(covariance))
            alike = np.abs(covariance[j] / (scale * scale[j]))
            alike[j] = 0.0
            reasons[name] = f"cannot be told apart from {names[int(np.argmax(alike))]}"
    return reasons


def _is_contradicted(residuals: Residuals, found: _Minimum, name: str, belief: Belief) -> bool:
    """Return whether residuals that other values of a parameter would change are far off where it was put back."""
    values = {other: PARAMETERS[other].outward(place) for other, place in found.places.items()}
    here, outward = residuals(values), PARAMETERS[name].outward
    moved = [residuals({**values, name: outward(belief.mean + times * belief.spread)}) for times in _SCANNED]
    changed = (np.abs(np.array(moved) - here) > _SEEN).any(axis=0)
    return bool((np.abs(here[changed]) > _FAR).any())
