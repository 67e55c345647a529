"""The parameters of a cluster that can be fitted, and what is believed of each before anything is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, isfinite, log
from typing import Annotated, Final, NamedTuple

from simsched.base.codec import Among
from simsched.model.cluster import Cluster

SMALLEST: Final = 1e-3
"""Us below which a cost is not told from none: logarithms need a floor."""


_NEAR: Final = 1e-6  # of a bound, which a fit comes near to and never reaches
NORMAL_95: Final = 1.96
"""Standard deviations on either side of the mean between which a normal variable lies with 95 %."""


class Belief(NamedTuple):
    """What is believed of a parameter: mean and standard deviation on its own scale."""

    mean: float
    spread: float


Beliefs = Mapping[str, Belief]

UNKNOWN_COST: Final = Belief(log(0.3), 2.0)
"""What is believed of a cost in us that is given as 0."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of the simulator's model that measurements can tell.

    Parameters
    ----------
    name
        The field of `Device`; ``interference.compute.memory`` and the like; ``link.latency``, ``link.bandwidth``.
    spread
        Standard deviation of what is believed of it beforehand: of its logarithm, or of itself if not `log`.
    in_place
        The same for what microbenchmarks say of how it is in place (on cold data, between other kernels).
    log
        Whether its logarithm is fitted, which keeps it positive.
    low, high
        Bounds of its value.
    rough
        Whether what is simulated makes steps where it changes, because blocks are issued whole and orders change:
        slopes mislead there, so it is searched for by trial too.
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
        return log(max(value, self.low)) if self.log else value

    def outward(self, place: float) -> float:
        """Return the value at a place on that scale."""
        value = exp(min(place, 700.0)) if self.log else place
        if value < self.low + _NEAR:
            return self.low
        return min(value, self.high)

    def belief(self, value: float) -> "Belief":
        """Return what is believed of it beforehand where it is said to have a value."""
        if self.log and value < SMALLEST:  # said to cost nothing: no order of magnitude to go by
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
    "launch", "launch_latency", "record", "wait", "gap", "hop", "barrier", "graph_launch", "graph_node", "copy",
)  # fmt: skip
INTERFERENCE: Final = {f"interference.{CLASSES[i]}.{CLASSES[j]}": (i, j) for i in range(2) for j in range(2)}
LINKS: Final = ("link.latency", "link.bandwidth")
SOLO: Final = ("saturating_warps", "bandwidth", "block_spread", "kernel_latency")
"""Those that say how the time of a kernel alone depends on the number of its blocks."""
RATES: Final = ("bandwidth", "link.bandwidth", "copy_rate")
"""Those of which data sheets and drivers say the most that is possible."""
SHARING: Final = (*SOLO, "least_sm_share", "interleave", *INTERFERENCE)
"""Those that say what kernels do to each other; they matter to no kernel alone."""

PARAMETERS: Final[Mapping[str, Parameter]] = {each.name: each for each in (
    *(Parameter(name, 0.7, 0.1, rough=name == "launch_latency") for name in OVERHEADS),
    Parameter("saturating_warps", 0.4, 0.2, low=0.25, high=128.0, rough=True),
    Parameter("bandwidth", 0.2, 0.2, rough=True),
    Parameter("block_spread", 0.06, 0.04, log=False, low=0.0, high=0.3, rough=True),
    Parameter("kernel_latency", 1.0, 0.5, log=False, low=0.0, high=20.0),
    Parameter("least_sm_share", 0.25, 0.2, log=False, low=0.0, high=1.0),
    Parameter("interleave", 0.4, 0.2, log=False, low=0.0, high=1.0, rough=True),
    *(Parameter(name, 0.1, 0.06, log=False, low=0.0, high=3.0) for name in INTERFERENCE),
    Parameter("link.latency", 0.7, 0.1),
    Parameter("link.bandwidth", 0.5, 0.1),
    Parameter("copy_rate", 0.5, 0.1),
)}  # fmt: skip
"""Parameters by name, in the order in which tables list them."""


def values_of(cluster: Cluster) -> dict[str, float]:
    """Return the value of each parameter that can be fitted in a cluster, by name: of its first device and link."""
    device = cluster.devices[0]
    found = {name: getattr(device, name) for name in PARAMETERS if "." not in name}
    found |= {name: device.interference[i][j] for name, (i, j) in INTERFERENCE.items()}
    found |= {name: getattr(link, name.removeprefix("link.")) for _, _, link in cluster.links[:1] for name in LINKS}
    return {name: float(found[name]) for name in PARAMETERS if isfinite(found.get(name, inf))}


def with_values(cluster: Cluster, values: Mapping[str, float]) -> Cluster:
    """Return a cluster with other values of some parameters.

    All devices get the same; links keep their proportions to the first one.
    """
    changes = {name: value for name, value in values.items() if name not in INTERFERENCE and name not in LINKS}
    rows = [list(row) for row in cluster.devices[0].interference]
    for name, (i, j) in INTERFERENCE.items():
        rows[i][j] = values.get(name, rows[i][j])
    found = cluster.replace_devices(**changes, interference=rows)
    if not cluster.links or not any(name in values for name in LINKS):
        return found
    prior = values_of(cluster)
    latency, bandwidth = (values[name] / prior[name] if name in values and prior.get(name) else 1.0 for name in LINKS)
    links = tuple(
        (a, b, replace(link, latency=link.latency * latency, bandwidth=link.bandwidth * bandwidth))
        for a, b, link in cluster.links
    )
    return replace(found, links=links)


def inflated(beliefs: Beliefs) -> dict[str, Belief]:
    """Return what microbenchmarks say of parameters as they are in place, which is less sure."""
    return {
        name: Belief(belief.mean, min(hypot(belief.spread, PARAMETERS[name].in_place), PARAMETERS[name].spread))
        for name, belief in beliefs.items()
    }


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
        Between which it lies with 95 %, by the fit or by what was believed beforehand.
    identified
        Whether measurements said enough of it.
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
        """What it says of the parameter on the scale on which it is fitted."""
        low, mean, high = map(PARAMETERS[self.name].inward, (self.low, self.value, self.high))
        return Belief(mean, max((mean - low) / NORMAL_95, (high - mean) / NORMAL_95, 1e-6))  # a bound may cut one off


def prior_rows(cluster: Cluster) -> tuple[ParameterRow, ...]:
    """Return the parameters of a cluster of which nothing was measured yet."""
    rows = []
    for name, value in values_of(cluster).items():
        _, low, high = PARAMETERS[name].interval(PARAMETERS[name].belief(value))
        rows.append(ParameterRow(name, value, value, low, high, False, "nothing was measured that depends on it"))
    return tuple(rows)


def beliefs_of(prior: Cluster, rows: Sequence[ParameterRow]) -> dict[str, Belief]:
    """Return what rows say of the parameters of a cluster; of those not identified, what was believed beforehand."""
    beliefs = {name: PARAMETERS[name].belief(value) for name, value in values_of(prior).items()}
    return beliefs | {row.name: row.belief for row in rows if row.identified}


def with_rows(prior: Cluster, rows: Sequence[ParameterRow]) -> Cluster:
    """Return a cluster with those values of parameters that were identified."""
    return with_values(prior, identified(rows))


def identified(rows: Sequence[ParameterRow]) -> Mapping[str, float]:
    """Return the values of the parameters that were identified, by name."""
    return {row.name: row.value for row in rows if row.identified}
