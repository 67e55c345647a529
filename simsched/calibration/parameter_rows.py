"""Rows of a calibration's table of parameters, from fits."""

from collections.abc import Mapping, Sequence

from simsched.calibration.fitting import Fit
from simsched.calibration.parameters import (
    NORMAL_95,
    PARAMETERS,
    Belief,
    ParameterRow,
    prior_beliefs,
    values_of,
    with_values,
)
from simsched.model.cluster import Cluster


def prior_rows(cluster: Cluster) -> tuple[ParameterRow, ...]:
    """Return the parameters of a cluster of which nothing was measured yet."""
    beliefs = prior_beliefs(cluster)
    rows = []
    for name, value in values_of(cluster).items():
        _, low, high = _interval(name, beliefs[name])
        rows.append(ParameterRow(name, value, value, low, high, False, "nothing was measured that depends on it"))
    return tuple(rows)


def updated(rows: Sequence[ParameterRow], found: Fit) -> tuple[ParameterRow, ...]:
    """Return rows with what a fit found; what it could not identify stays as an earlier one left it."""
    return tuple(_updated(row, found) for row in rows)


def _updated(row: ParameterRow, found: Fit) -> ParameterRow:
    name = row.name
    if name in found.unidentified:
        return row if row.identified else row._replace(note=found.unidentified[name])
    if name not in found.beliefs:
        return row
    value, low, high = _interval(name, found.beliefs[name])
    return ParameterRow(name, value, row.prior, low, high, True)


def _interval(name: str, belief: Belief) -> tuple[float, float, float]:
    """Return the value, and between which it lies with 95 %."""
    outward, (mean, spread) = PARAMETERS[name].outward, belief
    return outward(mean), outward(mean - NORMAL_95 * spread), outward(mean + NORMAL_95 * spread)


def beliefs_of(prior: Cluster, rows: Sequence[ParameterRow]) -> dict[str, Belief]:
    """Return what rows say of the parameters of a cluster; of those not identified, what was believed beforehand."""
    beliefs = prior_beliefs(prior)
    return beliefs | {row.name: row.belief for row in rows if row.identified}


def with_rows(prior: Cluster, rows: Sequence[ParameterRow]) -> Cluster:
    """Return a cluster with those values of parameters that were identified."""
    return with_values(prior, identified(rows))


def identified(rows: Sequence[ParameterRow]) -> Mapping[str, float]:
    """Return the values of the parameters that were identified, by name."""
    return {row.name: row.value for row in rows if row.identified}
