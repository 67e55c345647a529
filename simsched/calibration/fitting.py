"""The parameters of a cluster that can be fitted, prior beliefs on them, and their fit to measurements.

A fit is least squares with a robust loss on top of prior beliefs; it also gives the certainty of its answer.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf, isfinite, log
from typing import Annotated, Final, NamedTuple

import numpy as np

from simsched.base.codec import Among
from simsched.model import Cluster, Floats, Ints

SMALLEST: Final = 1e-3
"""Us below which a cost is not told from none: logarithms need a floor."""


_NEAR: Final = 1e-6  # of a bound, which a fit comes near to and never reaches
NORMAL_95: Final = 1.96
"""Standard deviations on either side of the mean between which a normal variable lies with 95 %."""


class Belief(NamedTuple):
    """Belief on a parameter: mean and standard deviation on its own scale."""

    mean: float
    spread: float


Beliefs = Mapping[str, Belief]

UNKNOWN_COST: Final = Belief(log(0.3), 2.0)
"""What is believed of a cost in us that is given as 0."""


@dataclass(frozen=True, slots=True)
class FreeParameter:
    """One number of the simulator's model that measurements can identify.

    Parameters
    ----------
    name
        The field of `Device`; ``interference.compute.memory`` and the like; ``link.latency``, ``link.bandwidth``.
    spread
        Standard deviation of the prior belief: of its logarithm, or of itself if not `log`.
    in_place
        Standard deviation of the belief from microbenchmarks on its value in place (on cold data, between other
        kernels).
    log
        Whether its logarithm is fitted, which keeps it positive.
    low, high
        Bounds of its value.
    rough
        Whether simulated times change in steps with it, because blocks are issued whole and orders change: slopes
        mislead there, so a search by trial comes first.
    """

    name: str
    spread: float
    in_place: float
    log: bool = True
    low: float = SMALLEST
    high: float = inf
    rough: bool = False

    def inward(self, value: float) -> float:
        """Return a value on the scale on which it is fitted."""
        if self.log:
            return log(max(value, self.low))
        return value

    def outward(self, place: float) -> float:
        """Return the value at a place on that scale."""
        if self.log:
            value = exp(min(place, 700.0))
        else:
            value = place
        if value < self.low + _NEAR:
            return self.low
        return min(value, self.high)

    def belief(self, value: float) -> "Belief":
        """Return the prior belief of a parameter with a given value."""
        if self.log and value < SMALLEST:  # given as free: no order of magnitude to start from
            return UNKNOWN_COST
        return Belief(self.inward(value), self.spread)

    def interval(self, belief: "Belief") -> tuple[float, float, float]:
        """Return its value, and between which it lies with 95 %."""
        low, high = (belief.mean + side * NORMAL_95 * belief.spread for side in (-1, 1))
        return self.outward(belief.mean), self.outward(low), self.outward(high)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest place on that scale."""
        if not self.log:
            return self.low, self.high
        return log(self.low) - 1e-9, log(self.high) if isfinite(self.high) else inf


CLASSES: Final = ("compute", "memory")
OVERHEADS: Final = (
    "launch",
    "launch_latency",
    "record",
    "wait",
    "gap",
    "hop",
    "barrier",
    "barrier_many",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "copy",
)
INTERFERENCE: Final = {f"interference.{CLASSES[i]}.{CLASSES[j]}": (i, j) for i in range(2) for j in range(2)}
LINKS: Final = ("link.latency", "link.bandwidth")
SOLO: Final = ("saturating_warps", "bandwidth", "block_spread", "kernel_latency")
"""Those that say how the time of a kernel alone depends on the number of its blocks."""
RATES: Final = ("bandwidth", "link.bandwidth", "copy_rate")
"""Those of which data sheets and drivers say the most that is possible."""
SHARING: Final = (*SOLO, "crowd_latency", "least_sm_share", "interleave", *INTERFERENCE)
"""Those that say what kernels do to each other; they matter to no kernel alone."""

_PERHAPS_NONE: Final = {
    "graph_issue": FreeParameter("graph_issue", 0.3, 0.1, log=False, low=0.0, high=20.0),
    "graph_join": FreeParameter("graph_join", 0.7, 0.2, log=False, low=0.0, high=50.0),
}
"""Costs that some devices do not have at all: not their logarithm is believed to be near to something."""

PARAMETERS: Final[Mapping[str, FreeParameter]] = {
    each.name: each
    for each in (
        *(_PERHAPS_NONE.get(name, FreeParameter(name, 0.7, 0.1, rough=name == "launch_latency")) for name in OVERHEADS),
        FreeParameter("crowd_latency", 0.3, 0.1, log=False, low=0.0, high=20.0),
        FreeParameter("saturating_warps", 0.4, 0.2, low=0.25, high=128.0, rough=True),
        FreeParameter("bandwidth", 0.2, 0.2, rough=True),
        FreeParameter("block_spread", 0.06, 0.04, log=False, low=0.0, high=0.3, rough=True),
        FreeParameter("kernel_latency", 1.0, 0.5, log=False, low=0.0, high=20.0),
        FreeParameter("least_sm_share", 0.25, 0.2, log=False, low=0.0, high=1.0),
        FreeParameter("interleave", 0.4, 0.2, log=False, low=0.0, high=1.0, rough=True),
        *(FreeParameter(name, 0.1, 0.06, log=False, low=0.0, high=3.0) for name in INTERFERENCE),
        FreeParameter("link.latency", 0.7, 0.1),
        FreeParameter("link.bandwidth", 0.5, 0.1),
        FreeParameter("copy_rate", 0.5, 0.1),
    )
}
"""Parameters by name, in the order in which tables list them."""


def values_of(cluster: Cluster) -> dict[str, float]:
    """Return the value of each parameter that can be fitted in a cluster, by name: of its first device and link."""
    device = cluster.devices[0]
    values = {name: getattr(device, name) for name in PARAMETERS if "." not in name}
    values |= {name: device.interference[i][j] for name, (i, j) in INTERFERENCE.items()}
    values |= {name: getattr(link, name.removeprefix("link.")) for _, _, link in cluster.links[:1] for name in LINKS}
    return {name: float(values[name]) for name in PARAMETERS if isfinite(values.get(name, inf))}


def with_values(cluster: Cluster, values: Mapping[str, float]) -> Cluster:
    """Return a cluster with other values of some parameters.

    All devices get the same; links keep their proportions to the first one.
    """
    changes = {name: value for name, value in values.items() if name not in INTERFERENCE and name not in LINKS}
    rows = [list(row) for row in cluster.devices[0].interference]
    for name, (i, j) in INTERFERENCE.items():
        rows[i][j] = values.get(name, rows[i][j])
    changed = cluster.replace_devices(**changes, interference=rows)
    if not cluster.links or not any(name in values for name in LINKS):
        return changed
    prior = values_of(cluster)
    latency, bandwidth = (values[name] / prior[name] if name in values and prior.get(name) else 1.0 for name in LINKS)
    links = tuple(
        (a, b, replace(link, latency=link.latency * latency, bandwidth=link.bandwidth * bandwidth))
        for a, b, link in cluster.links
    )
    return replace(changed, links=links)


RETIRED: Final = ("sm_sensitivity", "dram_sensitivity")
"""Parameters of earlier models, which older files have."""


class ParameterRow(NamedTuple):
    """A parameter of the devices after a fit.

    Parameters
    ----------
    name
        Field of `Device`, or ``interference.compute.memory``, ``link.bandwidth`` and the like.
    value, prior
        Fitted, and before; the same for a parameter that was not identified. Us, or bytes per us.
    low, high
        Ends of its 95 % interval, by the fit or by the prior belief.
    identified
        Whether measurements identify it.
    note
        Why not, or an empty text.
    """

    name: Annotated[str, Among((*PARAMETERS, *RETIRED))]
    value: float
    prior: float
    low: float
    high: float
    identified: bool
    note: str = ""

    @property
    def belief(self) -> Belief:
        """The belief in the parameter on the scale on which it is fitted."""
        low, mean, high = map(PARAMETERS[self.name].inward, (self.low, self.value, self.high))
        return Belief(mean, max((mean - low) / NORMAL_95, (high - mean) / NORMAL_95, 1e-6))  # a bound may cut one off


def prior_rows(cluster: Cluster) -> tuple[ParameterRow, ...]:
    """Return the parameters of a cluster before any measurement."""
    rows = []
    for name, value in values_of(cluster).items():
        _, low, high = PARAMETERS[name].interval(PARAMETERS[name].belief(value))
        rows.append(ParameterRow(name, value, value, low, high, False, "nothing was measured that depends on it"))
    return tuple(rows)


def beliefs_of(prior: Cluster, rows: Sequence[ParameterRow]) -> dict[str, Belief]:
    """Return beliefs from rows on the parameters of a cluster; prior beliefs for parameters that are not identified."""
    beliefs = {name: PARAMETERS[name].belief(value) for name, value in values_of(prior).items()}
    return beliefs | {row.name: row.belief for row in rows if row.identified}


def identified_values(rows: Sequence[ParameterRow]) -> Mapping[str, float]:
    """Return the values of the parameters that were identified, by name."""
    return {row.name: row.value for row in rows if row.identified}


# The fit ----------------------------------------------------------------------------------------

_STEP: Final = 0.04  # on the scale of a parameter: simulated times have small jumps where an order changes
_ROUGH_STEP: Final = 0.1
_FINEST: Final = 0.2  # part of its spread to which a rough parameter is searched for
_SCANNED: Final = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0)  # spreads from where a parameter begins, or was put
_MOST_STEPS: Final = 12
_LENGTHS: Final = (1.0, 0.3, 0.1)
_SETTLED: Final = 0.01  # least fall of the sum in a step that is not the last
_TELLING: Final = 0.6  # part of its spread that a parameter may keep and be called identified
_OBJECTION: Final = 4.0  # most growth of the sum where a parameter is put back: two standard deviations
_SEEN: Final = 1e-3  # standard deviations: a change
_FAR: Final = 3.0  # standard deviations: a residual that contradicts
_ROBUST: Final = 2.0  # standard deviations beyond which a residual counts less

_NONE: Final = "no run depends on it"
_HARDLY: Final = "runs hardly depend on it"

Residuals = Callable[[Mapping[str, float]], Floats]
"""From values of parameters to residuals, each over its standard deviation."""


@dataclass(frozen=True)
class Fit:
    """Result of a fit.

    Parameters
    ----------
    beliefs
        Belief in each parameter after the fit.
    unidentified
        Parameters that keep their prior belief, with the reason.
    """

    beliefs: Beliefs
    unidentified: Mapping[str, str]

    @property
    def values(self) -> dict[str, float]:
        """Values of the parameters that were identified."""
        identified = {name: belief for name, belief in self.beliefs.items() if name not in self.unidentified}
        return {name: PARAMETERS[name].outward(belief.mean) for name, belief in identified.items()}

    def update_rows(self, rows: Sequence[ParameterRow]) -> tuple[ParameterRow, ...]:
        """Return rows with the fit's results; parameters that it could not identify keep an earlier fit's."""
        new_rows = []
        for row in rows:
            if row.name in self.unidentified:
                if not row.identified:
                    row = row._replace(note=self.unidentified[row.name])
            elif row.name in self.beliefs:
                value, low, high = PARAMETERS[row.name].interval(self.beliefs[row.name])
                row = ParameterRow(row.name, value, row.prior, low, high, True)
            new_rows.append(row)
        return tuple(new_rows)


def fit(
    residuals: Residuals, groups: Ints, before: Beliefs, identified: Container[str], *, near: Beliefs | None = None
) -> Fit:
    """Fit parameters to residuals.

    Parameters
    ----------
    residuals
        Called with values of parameters; missing ones have their prior value.
    groups
        The run that each residual is of, from 0, shape (n_residuals,).
    before
        The parameters, with prior beliefs.
    identified
        Parameters that earlier measurements identified; they stay identified.
    near
        Result of a fit to nearly the same residuals.

    Notes
    -----
    Minimised is ``sum(rho(r_i)) + sum(((u_j - mean_j) / spread_j)^2)`` over the places u of the parameters on their
    scales (mostly logarithms), rho the soft L1 loss. A parameter whose spread the measurements do not bring below 0.6
    of its prior spread is not identified; it is put back, and the others are fitted again, unless the measurements
    object by two standard deviations. Where slopes mislead a scan and a compass search come first, and slopes are taken
    over a wider step.

    Spreads are the limit of a bootstrap that draws runs with replacement, draws residuals' noise and prior beliefs
    again, and moves the fit by one Gauss-Newton step: with J the Jacobian, P the prior precision, ``H = J'J + P`` and
    ``s_g`` the slope of run g's part of the sum, the variance is ``H^-1 + H^-1 (sum_g s_g s_g') H^-1``.
    """
    minimum = partial(_Minimum, residuals, before)
    names = list(before)
    whole = minimum_found = minimum(names, None if near is None else {name: near[name].mean for name in names})
    reasons = {
        name: why for name, why in _unidentified_parameters(minimum_found, before).items() if name not in identified
    }
    if reasons:
        minimum_found = minimum([name for name in names if name not in reasons], whole.places)
        if minimum_found.cost > whole.cost + len(reasons) * _OBJECTION:  # at least one of them matters
            minimum_found = whole
            doubtful = reasons
            reasons = {}
            for name, why in doubtful.items():
                without = minimum([other for other in minimum_found.places if other != name], minimum_found.places)
                if without.cost <= minimum_found.cost + _OBJECTION:
                    minimum_found = without
                    reasons[name] = why
    for name, why in reasons.items():
        if why in (_NONE, _HARDLY) and _is_contradicted(residuals, minimum_found, name, before[name]):
            reasons[name] = "contradicted by runs, which no value of it explains"
    spread = minimum_found.spread(groups)
    fitted = {name: Belief(u, s) for (name, u), s in zip(minimum_found.places.items(), spread.tolist(), strict=True)}
    return Fit({**before, **fitted}, reasons)


class _Minimum:
    """The least sum of squares of residuals, and of the parameters' distances from their beliefs.

    Attributes
    ----------
    places, cost
        Places of the parameters by name, and the sum there.
    residual, jacobian
        Residuals and their Jacobian there; the Jacobian may be from before a small step.
    """

    def __init__(
        self, residuals: Residuals, before: Beliefs, names: Sequence[str], near: Mapping[str, float] | None
    ) -> None:
        self._residuals = residuals
        self._known = dict[bytes, Floats]()
        self._parameters = [PARAMETERS[name] for name in names]
        self._rough = [j for j, parameter in enumerate(self._parameters) if parameter.rough]
        self._mean = np.array([before[name].mean for name in names])
        self._spread = np.array([before[name].spread for name in names])
        self._low, self._high = np.array([parameter.bounds for parameter in self._parameters]).reshape(-1, 2).T
        start = np.clip(self._mean if near is None else [near[name] for name in names], self._low, self._high)
        place, jacobian = self._descend(self._search(start) if near is None else start)
        terms = self._at(place)
        n = len(terms) - len(names)
        self.places = dict(zip(names, place.tolist(), strict=True))
        self.cost = float(terms @ terms)
        self.residual = terms[:n]
        self.jacobian = jacobian[:n]

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
        """Return the terms of the sum of squares at a place."""
        key = place.tobytes()
        if key not in self._known:
            residuals = self._residuals(
                {p.name: p.outward(float(u)) for p, u in zip(self._parameters, place, strict=True)}
            )
            # soft L1: the sum has rho of each measured residual, but the plain square of each belief
            bent = np.sign(residuals) * np.sqrt(2 * _ROBUST**2 * (np.sqrt(1 + (residuals / _ROBUST) ** 2) - 1))
            self._known[key] = np.concatenate([bent, (place - self._mean) / self._spread])
        return self._known[key]

    def _slope(self, place: Floats) -> Floats:
        """Return how it changes with each parameter."""
        columns = []
        for j, parameter in enumerate(self._parameters):
            if place[j] + _STEP <= self._high[j]:
                ahead = _STEP
            else:
                ahead = -_STEP
            if parameter.rough:
                steps = (-_ROUGH_STEP, _ROUGH_STEP)
            else:
                steps = (0.0, ahead)
            start, end = (self._with_place(place, j, place[j] + step) for step in steps)
            columns.append((self._at(end) - self._at(start)) / (end[j] - start[j]))
        if columns:
            return np.column_stack(columns)
        return np.zeros((len(self._at(place)), 0))

    def _with_place(self, place: Floats, j: int, value: float) -> Floats:
        moved = place.copy()
        moved[j] = np.clip(value, self._low[j], self._high[j])
        return moved

    def _descend(self, place: Floats) -> tuple[Floats, Floats]:
        """Return a least place, and the slopes there or a small step before, by Gauss-Newton steps within bounds.

        A step is shortened until the sum falls. Where it does not, a rough parameter may jump: then they are held.
        """
        for _ in range(_MOST_STEPS):
            terms = self._at(place)
            jacobian = self._slope(place)
            pull = jacobian.T @ terms
            stuck = ((place <= self._low) & (pull > 0)) | ((place >= self._high) & (pull < 0))
            for held in ((), self._rough):
                free = np.setdiff1d(np.flatnonzero(~stuck), held)
                part = jacobian[:, free]
                step = np.zeros(len(place))
                step[free] = -np.linalg.solve(part.T @ part, pull[free])
                tried = (np.clip(place + length * step, self._low, self._high) for length in _LENGTHS)
                better = next((place_ for place_ in tried if self._at(place_) @ self._at(place_) < terms @ terms), None)
                if better is not None:
                    break
            else:
                return place, jacobian
            place = better
            if float(terms @ terms - self._at(place) @ self._at(place)) < _SETTLED:
                return place, jacobian
        return place, self._slope(place)

    def _search(self, start: Floats) -> Floats:
        """Return a place with a lower sum of squares than its neighbours along each rough parameter.

        By a scan of each, since the start may be flat, then by a compass search.
        """
        best = start
        least = float(self._at(start) @ self._at(start))

        def improves(j: int, value: float) -> bool:
            nonlocal best, least
            tried = self._with_place(best, j, value)
            cost = float(self._at(tried) @ self._at(tried))
            is_better = cost < least * (1 - 1e-6)
            if is_better:
                best = tried
                least = cost
            return is_better

        rough = self._rough
        spread = self._spread
        step = self._spread.copy()
        for j in rough:
            for times in _SCANNED:
                improves(j, start[j] + times * spread[j])
        while rough and (step[rough] > _FINEST * spread[rough]).any():
            for j in rough:
                if step[j] > _FINEST * spread[j] and not any(improves(j, best[j] + side * step[j]) for side in (-1, 1)):
                    step[j] /= 2
        return best


def _unidentified_parameters(found: _Minimum, before: Beliefs) -> dict[str, str]:
    """Return the parameters that measurements do not identify, with the reasons."""
    names = list(found.places)
    information = np.diag(found.jacobian.T @ found.jacobian)
    covariance = found.covariance
    reasons: dict[str, str] = {}
    for j, name in enumerate(names):
        threshold = _TELLING * before[name].spread
        if np.sqrt(covariance[j, j]) < threshold:
            continue
        if information[j] < 1e-9:
            reasons[name] = _NONE
        elif (information[j] + before[name].spread ** -2.0) ** -0.5 >= threshold:
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
    here = residuals(values)
    outward = PARAMETERS[name].outward
    moved = [residuals({**values, name: outward(belief.mean + times * belief.spread)}) for times in _SCANNED]
    changed = (np.abs(np.array(moved) - here) > _SEEN).any(axis=0)
    return bool((np.abs(here[changed]) > _FAR).any())
