"""Ranges of 90 % around makespans and speedups, from the uncertain numbers of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import erf, exp, hypot, log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from zlib import crc32

import numpy as np

from simsched.calibration.fitting import SMALLEST, with_values
from simsched.experiments.result import Doubt
from simsched.model import Floats, Indices, Operator, OpGraph, Program
from simsched.model.cluster import PRIORS, Cluster, Device, Link
from simsched.model.cluster.device import LARGEST_SPREAD, OVERHEADS
from simsched.model.cluster.presets import FOREIGN
from simsched.model.costmodel import USUAL, CostModel, Rates, Target, bare, operator_times, rooflines
from simsched.simulator.simulate import simulate_worlds

if TYPE_CHECKING:
    from simsched.calibration import Calibration

SURE: Final = 0.9
"""With which a range holds the truth, and from which on one schedule is said to be faster than another."""


class Errors(NamedTuple):
    """Standard deviations of logarithms: how far simulated times are off in a world that is right.

    Parameters
    ----------
    own
        Error of one schedule's time, apart from other schedules.
    common
        Error that all schedules of a graph share.
    gain
        Error of the ratio of two schedules, over its logarithm: large gains are less certain.
    shortfall
        Part of the logarithm of a ratio that measured ones fall short of simulated ones; not a deviation.
    """

    own: float
    common: float = 0.0
    gain: float = 0.0
    shortfall: float = 0.0


MODEL_ERRORS: Final = Errors(0.08, 0.2, 0.3, 0.2)
"""Without a calibration; chosen on published figures and networks on an H100 by `validation.ranges`, which says how
ranges do on those of a paper, or of a network, that had no part in the choice."""
MEASURED_CAPABILITY: Final = "9.0"
"""Compute capability of the H100 that the constants of kernels were measured on."""
MEASURED_COMMON: Final = 0.05
"""Common error on devices of that capability; constants were carried over to all others. Chosen likewise."""
_MEAN_TO_SD: Final = 1.25  # mean absolute value of a normal variable, to its standard deviation
_DRAWS = 32
_FEWEST = 8
_ENOUGH = 2**11  # operators in all worlds, beyond which there are fewer
_MOST = 2**22  # instructions of all programs in all worlds, beyond which there are none
_TELLING: Final = 0.5  # rank correlation, of 32 draws, below which it may be chance
_OF_DEVICES: Final = (
    "launch",
    "launch_latency",
    "record",
    "wait",
    "copy",
    "barrier",
    "barrier_many",
    "gap",
    "hop",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "crowd_latency",
    "interference",
    "least_sm_share",
    "block_spread",
)
_OF_COPIES: Final = ("link.latency", "link.bandwidth")
_OF_EXCHANGES: Final = (*_OF_COPIES, "link.start", "link.step", "link.efficiency")
_SETTLED_BY: Final = {
    "saturating_warps": "solo",
    "bandwidth": "solo",
    "block_spread": "solo",
    "kernel_latency": "solo",
    "interference": "pair",
    "least_sm_share": "pair",
    "interleave": "pair",
    "link": "transfer",
    "copy": "transfer",
    "copy_rate": "transfer",
    **dict.fromkeys((name for name in OVERHEADS if name != "copy"), "overhead"),
}
_NORMAL: Final = np.array([NormalDist().inv_cdf((i + 0.5) / 41) for i in range(41)])
_SLACK: Final = 1e-12  # rounding of a logarithm and back
_OWN: Final = 4096  # factors of operators; operators of the same kind and size share one


class Unsure(NamedTuple):
    """An uncertain number: drawn evenly in its logarithm, or evenly itself if it may be 0.

    `relative`: `low` and `high` are factors of the cluster's number.
    """

    name: str
    low: float
    high: float
    relative: bool = True

    def at(self, part: Floats) -> Floats:
        """Return the values at parts of the way from the least to the most."""
        even = self.low + part * (self.high - self.low)
        return np.exp(np.log(self.low) + part * log(self.high / self.low)) if self.low > 0 else even


class Ranged(NamedTuple):
    """The 90 % range of a schedule's makespan in us, of its speedup, and its place.

    The place is one more than the number of schedules that are faster with 90 %.
    """

    makespan_low_us: float
    makespan_high_us: float
    speedup_low: float | None
    speedup_high: float | None
    place: int


def _is_calibration(target: Target) -> "TypeGuard[Calibration]":
    """Return whether a target is a calibration, whose module a cluster does not need."""
    if isinstance(target, Cluster):
        return False
    from simsched.calibration import Calibration

    return isinstance(target, Calibration)


def unsure_of(target: Target, *, exchanges: bool = False) -> tuple[Unsure, ...]:
    """Return a cluster's uncertain numbers: intervals of its calibration, and priors where it has none.

    With `exchanges`, for graphs that have collectives, numbers of collectives over links are among them.
    """
    if _is_calibration(target):
        fitted = {row.name: row for row in target.parameters if row.identified}
    else:
        fitted = {}
    unsure = [Unsure(row.name, row.low, row.high, relative=False) for row in fitted.values()]
    links = _OF_EXCHANGES if exchanges else _OF_COPIES if bare(target).links else ()
    names = [*_OF_DEVICES, *links]
    for name in names:
        if name not in fitted and not any(other.startswith(f"{name}.") for other in fitted):
            unsure.append(_prior(name))
    if "saturating_warps" not in fitted:
        unsure.append(_prior("saturating_cycles")._replace(name="saturating_warps"))
    return (*unsure, *(Unsure(name, PRIORS[name].low, PRIORS[name].high, relative=False) for name in Rates._fields))


def _prior(name: str) -> Unsure:
    value, low, high, _ = PRIORS[name]
    return Unsure(name, low / value, high / value)


class Outcomes(NamedTuple):
    """Times of programs in the same worlds.

    Parameters
    ----------
    names
        Names of the programs.
    worlds
        Logarithms of makespans in us, shape (n_programs, n_worlds); the last of the programs is the reference, if any.
    points
        Times with all numbers unchanged, shape (n_programs,).
    alike
        Programs of the same number do the same, shape (n_programs,).
    unsure, drawn
        The uncertain numbers, and their values, shape (n_worlds, n_unsure).
    """

    names: tuple[str, ...]
    worlds: Floats
    points: Floats
    alike: Indices
    unsure: tuple[Unsure, ...]
    drawn: Floats

    @property
    def has_reference(self) -> bool:
        """Whether speedups have a reference program."""
        return len(self.worlds) > len(self.names)


def outcomes(
    programs: Mapping[str, Program],
    target: Target,
    cost: CostModel | None = None,
    *,
    reference: Program | None = None,
) -> Outcomes | None:
    """Return programs' times in worlds drawn from all uncertain numbers of a cluster; see `ranges`."""
    cluster = bare(target)
    distinct: dict[Any, int] = {}
    every = [*programs.values(), *([] if reference is None else [reference])]
    which = [distinct.setdefault(_key(program), len(distinct)) for program in every]
    runs = dict(zip(which, every, strict=True))
    if _FEWEST * sum(len(program) for program in runs.values()) > _MOST:
        return None
    draws = min(_DRAWS, max(_FEWEST, _ENOUGH // len(every[-1].graph)))  # as many whatever else is asked about
    unsure = unsure_of(target, exchanges=any(program.graph.meetings for program in every))
    rng = np.random.default_rng([0, 0])  # a Latin hypercube: each number evenly from every part of its way
    parts = (np.array([rng.permutation(draws) for _ in unsure]) + rng.random((len(unsure), draws))) / draws
    drawn = np.array([number.at(part) for number, part in zip(unsure, parts, strict=True)]).T  # (draws, n_unsure)
    cache: dict[Any, Any] = {}
    usual = np.ones(_OWN)
    worlds = [
        (with_numbers(cluster, unsure, values), _Priced(target, cost, cache, rates_of(unsure, values), own))
        for values, own in zip(drawn, own_factors(draws), strict=True)
    ]
    worlds.append((cluster, _Priced(target, cost, cache, USUAL, usual)))
    times = np.log(np.maximum(SMALLEST, simulate_worlds(list(runs.values()), worlds)))[which]
    return Outcomes(tuple(programs), times[:, :-1], times[:, -1], np.array(which, np.int64), unsure, drawn)


def ranges(
    programs: Mapping[str, Program],
    target: Target,
    cost: CostModel | None = None,
    *,
    reference: Program | None = None,
    errors: Errors | None = None,
) -> tuple[dict[str, Ranged], Doubt | None]:
    """Return the 90 % ranges of programs' makespans and of their speedups.

    Parameters
    ----------
    programs
        Programs by name, lowered for the cluster.
    target, cost
        As in `simulate`.
    reference
        Program that speedups are measured against, in the same world; None for no speedups.
    errors
        Errors of the model; by default a calibration's held-out errors, else `uncalibrated_errors`.

    Returns
    -------
    tuple
        A range for each program, and the sources of the ranges; no ranges if the programs are too large for eight
        worlds.

    Notes
    -----
    32 worlds are drawn, down to 8 for graphs of 256 operators and more, independent of the other programs: the same
    question always has the same answer. The worlds are a Latin hypercube over the intervals of all uncertain numbers of
    the cluster, evenly in the logarithm. Operators whose time is a roofline get a new time in each world: by the
    world's rates, and by a factor that all operators of the same kind and size share. A `time` that was given or
    measured stays. All programs run in the same worlds, so errors that two programs share leave their ratio unchanged.
    The errors of the model are added, independent for each program. A range always includes the unchanged simulation.
    """
    times_of = outcomes(programs, target, cost, reference=reference)
    if times_of is None:
        return {}, None
    errors = errors or _model_errors(target)
    times = times_of.worlds
    n = len(times_of.names)
    gains = times_of.points[:n, None] - times_of.points[None, :n]
    apart = times[:n, None] - times[None, :n] - errors.shortfall * gains[..., None]
    chance = 0.5 * (1 + np.vectorize(erf, otypes=[float])(apart / (sqrt(2) * _of_ratios(gains, errors)[..., None])))
    alike = times_of.alike[:n]
    slower = (chance.mean(axis=2) >= SURE) & np.not_equal.outer(alike, alike)  # than whom, with 90 %
    ranges_ = {}
    for i, name in enumerate(times_of.names):
        makespan, speedup = range_of(times_of, i, errors)
        low, high = speedup or (None, None)
        ranges_[name] = Ranged(*makespan, low, high, 1 + int(slower[i].sum()))
    if n:
        best = int(times[:n].mean(axis=1).argmin())
    else:
        best = 0
    if times_of.has_reference and times_of.alike[best] != times_of.alike[-1]:
        gain = times[-1] - times[best]
    else:
        gain = -times[best]
    return ranges_, _doubt(target, times_of.unsure, times_of.drawn, gain, errors.own)


def range_of(known: Outcomes, i: int, errors: Errors) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """Return the 90 % range of makespan of the program at `i`, and of its speedup over the reference."""
    logs = known.worlds[i]
    point = float(known.points[i])
    makespan = _range(logs, point, hypot(errors.own, errors.common))
    if not known.has_reference:
        return makespan, None
    base = known.worlds[-1]
    if np.array_equal(logs, base):
        return makespan, (1.0, 1.0)
    gain = float(known.points[-1]) - point
    return makespan, _range(base - logs - errors.shortfall * gain, gain, float(_of_ratios(gain, errors)))


def _of_ratios(gains: Any, errors: Errors) -> Any:
    """Return the standard deviations of ratios of two schedules, given their logarithms."""
    return np.hypot(sqrt(2) * errors.own, errors.gain * gains)


def _key(program: Program) -> tuple[Any, ...]:
    """Return a key that differs between programs whose times differ."""
    columns = program.thread_ptr, program.action, program.device, program.stream, program.argument, program.priority
    return id(program.graph), program.execution, program.partitions, *(column.tobytes() for column in columns)


@cache
def own_factors(draws: int) -> Floats:
    """Return the factors of operators that do different things, shape (draws, _OWN)."""
    return _prior("operator").at(np.random.default_rng([0, 1]).random((draws, _OWN)))


def rates_of(unsure: Sequence[Unsure], values: Floats) -> Rates:
    """Return the rates that were drawn."""
    return Rates(
        **{number.name: float(x) for number, x in zip(unsure, values, strict=True) if number.name in Rates._fields}
    )


def with_numbers(cluster: Cluster, unsure: Sequence[Unsure], values: Floats) -> Cluster:
    """Return the cluster with the drawn numbers."""
    drawn = {number: float(x) for number, x in zip(unsure, values, strict=True) if number.name not in Rates._fields}
    factors = {number.name: x for number, x in drawn.items() if number.relative}
    of_links = {name.removeprefix("link."): factors[name] for name in _OF_EXCHANGES if name in factors}
    kinds = [_scale(device, factors) for device in cluster.kinds]
    devices = tuple(
        replace(kinds[kind], name=device.name)
        for kind, device in zip(cluster.kind.tolist(), cluster.devices, strict=True)
    )
    own = {number.name: x for number, x in drawn.items() if not number.relative}
    return with_values(replace(cluster, devices=devices).with_links(lambda link: _scaled_link(link, of_links)), own)


def _scaled_link(link: Link, factors: Mapping[str, float]) -> Link:
    changes = {name: getattr(link, name) * x for name, x in factors.items()}
    return replace(link, **changes | {"efficiency": min(1.0, changes.get("efficiency", link.efficiency))})


def _scale(device: Device, factors: Mapping[str, float]) -> Device:
    changes: dict[str, Any] = {
        name: getattr(device, name) * x for name, x in factors.items() if not name.startswith(("link.", "interference"))
    }
    for name, most in (("block_spread", LARGEST_SPREAD), ("least_sm_share", 1.0)):
        changes[name] = min(most, changes.get(name, getattr(device, name)))
    by = factors.get("interference", 1.0)
    (a, b), (c, d) = device.interference
    return replace(device, **changes, interference=((a * by, b * by), (c * by, d * by)))


class _Priced:
    """Cost model of a world: times that all worlds share, and rooflines at this world's rates.

    `known` holds, by graph and device, the values that all worlds share.
    """

    def __init__(
        self, target: Target, cost: CostModel | None, known: dict[Any, Any], rates: Rates, own: Floats
    ) -> None:
        self._target = target
        self._cost = cost
        self._known = known
        self._rates = rates
        self._own = own

    def __call__(self, op: Operator, device: Device) -> float:
        return float(self.operator_times(OpGraph([op]), device, np.zeros(1, np.int64))[0])

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of some operators on a device."""
        key = id(graph), device.name
        if key not in self._known:  # with the graph, so that its id stays in use
            self._known[key] = graph, *_shared_times(graph, self._target, bare(self._target)[device.name], self._cost)
        _, shared, does = self._known[key]
        times: Floats = shared[ops]
        rows = np.flatnonzero(np.isnan(times))
        if len(rows):
            usual = bare(self._target)[device.name]  # kernels are chosen once, not in each world
            slower = self._rates.memory_factor * usual.bandwidth / device.bandwidth
            rates = self._rates._replace(memory_factor=slower)
            found = rooflines(graph, ops[rows], usual, rates)
            if graph.meetings:  # loads on links differ between worlds
                codes, collectives = graph.labels("collective")
                exchanging = np.array([each is not None for each in collectives])[codes[ops[rows]]]
                found[exchanging] = rooflines(graph, ops[rows][exchanging], device)
            times[rows] = found * self._own[does[ops[rows]]]
        return times


def _shared_times(graph: OpGraph, target: Target, device: Device, cost: CostModel | None) -> tuple[Floats, Indices]:
    """Return the times that are the same in all worlds, NaN where they are not, and which factor each operator has."""
    if cost is None:
        times = graph.time
    else:
        times = operator_times(graph, device, cost)
    if cost is None and _is_calibration(target):  # not as good as measured where scaled
        times = np.where([target.is_measured(op) for op in graph.operators], times, np.nan)
    codes, kinds = graph.labels("kind")
    does = zip(codes.tolist(), graph.flops.tolist(), graph.nbytes.tolist(), strict=True)
    texts = (f"{kinds[code]} {flops} {nbytes}" for code, flops, nbytes in does)
    return times, np.array([crc32(text.encode(errors="backslashreplace")) % _OWN for text in texts], np.int64)


def _range(logs: Floats, point: float, error: float) -> tuple[float, float]:
    """Return the 90 % range of a number, given its logarithm in each world and its unchanged logarithm."""
    low, high = np.quantile(np.add.outer(logs, error * _NORMAL), [(1 - SURE) / 2, (1 + SURE) / 2])
    return exp(min(low, point - _SLACK)), exp(max(high, point + _SLACK))


def uncalibrated_errors(cluster: Cluster) -> Errors:
    """Return the errors of the model on a cluster without a calibration.

    Errors that schedules share are smaller where every device is of the generation that kernels were measured on.
    """
    if all(device.capability == MEASURED_CAPABILITY for device in cluster.kinds):
        return MODEL_ERRORS._replace(common=MEASURED_COMMON)
    return MODEL_ERRORS


def _model_errors(target: Target) -> Errors:
    if _is_calibration(target):
        held_out = target.error
    else:
        held_out = None
    if held_out is None:
        return uncalibrated_errors(bare(target))
    return Errors(max(0.01, _MEAN_TO_SD * held_out.mean))


def _doubt(target: Target, unsure: Sequence[Unsure], drawn: Floats, asked: Floats, error: float) -> Doubt:
    """Return the uncertain number that correlates most with some logarithms, one in each world."""
    ranked = np.argsort(np.argsort(np.column_stack([drawn, asked]), axis=0), axis=0).astype(np.float64)
    correlations = np.zeros(len(unsure))
    if np.ptp(asked) > 0:
        with np.errstate(invalid="ignore"):
            correlations = np.nan_to_num(np.atleast_2d(np.corrcoef(ranked.T))[-1, :-1])
    most = int(np.abs(correlations).argmax())
    telling = bool(abs(correlations[most]) >= _TELLING)
    name = unsure[most].name
    family = next((_SETTLED_BY[key] for key in (name, name.split(".")[0]) if key in _SETTLED_BY), None)
    settled = "the times of its operators in place (`simsched profile`)"
    if family is not None and telling:
        settled = f"the microbenchmarks {family}/ (`simsched profile`, `calibrate`)"
    if _is_calibration(target):
        date = target.provenance.get("date", "")
        basis = f"calibrated {date[:10]}".strip()
    else:
        basis = "uncalibrated"
    foreign = sorted({device.model for device in bare(target).kinds if device.model in FOREIGN})
    if foreign:
        basis = f"{basis}, with kernels of an A100 assumed for {', '.join(foreign)}"
    return Doubt(
        len(drawn), basis, error, name if telling else None, float(correlations[most]) if telling else None, settled
    )
