"""`calibrate` and `recalibrate`: from measurements to a `Calibration`."""

from collections.abc import Container, Sequence
from dataclasses import replace
from math import hypot
from typing import Final

import numpy as np

from simsched.base.errors import CalibrationError
from simsched.base.numeric import is_number
from simsched.calibration import fitting
from simsched.calibration.calibration import Calibration, require_same, scales_of
from simsched.calibration.evidence import FITTED, HELD_OUT, MICROBENCHMARKS, MeasuredRun, Residual, Values, with_shares
from simsched.calibration.microbenchmarks import fit_microbenchmarks
from simsched.model import Cluster, Floats, OpGraph
from simsched.model.profile import Profile, Replay

_FEWEST_TO_HOLD_OUT: Final = 3
_HELD_OUT: Final = 0.25  # part of the runs on several streams
_NOISE: Final = 2.0  # standard errors by which the error over held-out runs may grow


def calibrate(
    cluster: Cluster | None,
    profile: Profile | Sequence[Profile],
    graph: OpGraph | None = None,
    *,
    rng: np.random.Generator | int = 0,
    held_out: float = _HELD_OUT,
) -> Calibration:
    """Fit the parameters of a cluster, and times of operators, to measurements.

    Parameters
    ----------
    cluster
        The cluster to fit, with its parameters before; None takes the backend's.
    profile
        Microbenchmarks, runs of a graph in place, or both; one profile or several.
    graph
        The graph that profiles should be of; another graph's profile is refused.
    rng
        Generator or seed: which runs are held out.
    held_out
        Part of the runs of the graph on several streams that no fit sees. The error is computed on them; the result was
        fitted without them.

    Raises
    ------
    CalibrationError
        If there is nothing to fit, or a profile is of another graph or device.

    Notes
    -----
    The fit has stages, each of which simulates the measured runs until they agree: overheads, kernels alone, pairs of
    kernels, transfers, and at last the graph in place, where times of operators and parameters are fitted by turns,
    with the microbenchmarks' results as prior beliefs.
    """
    if not is_number(held_out) or not 0 <= held_out < 1:
        raise CalibrationError(f"held_out must be in [0, 1), not {held_out!r}")
    rng = np.random.default_rng(rng)
    profiles = (profile,) if isinstance(profile, Profile) else tuple(profile)
    if not profiles:
        raise CalibrationError("there is no profile to calibrate from")
    cluster = _cluster_of(cluster, profiles)
    measured = _graph_of(profiles, graph)
    runs = [MeasuredRun.of(replay) for one in profiles for replay in one.runs]
    in_place = tuple(run for run in runs if run.in_place)
    micro = tuple(run for run in runs if not run.in_place)
    if measured is None and not micro:
        raise CalibrationError("there is nothing to fit: the profile holds neither runs nor operators of a graph")
    unseen = _held_out(in_place, held_out, rng)
    rows, residuals = fit_microbenchmarks(micro, cluster)
    names = () if measured is None else measured.names
    times = {op.name: op.median for one in profiles for op in one.operators if op.name in names and op.median > 0}
    start = Calibration(
        cluster,
        cluster,
        measured,
        times,
        {},
        rows,
        residuals,
        microbenchmarked=rows,
        provenance=_provenance(profiles, len(runs)),
    )
    return _in_place(start, in_place, unseen)


def recalibrate(
    calibration: Calibration, replays: Sequence[Replay], *, rng: np.random.Generator | int = 0
) -> Calibration:
    """Fit times of operators and parameters again, with further runs of the graph.

    Parameters
    ----------
    calibration
        The calibration so far; its runs count as much as further ones. Its held-out runs stay held out.
    replays
        Runs of the same graph. All are fitted to; if none was held out so far, all but a quarter of those on several
        streams.
    rng
        Generator or seed: which of the replays are held out.

    Raises
    ------
    CalibrationError
        If there is no replay, or one is of another graph or device.

    Notes
    -----
    The new fit is used unless the error over all held-out runs grows by more than their noise; then times and
    parameters stay as they were.
    """
    if not replays:
        raise CalibrationError("there are no replays to calibrate from")
    rng = np.random.default_rng(rng)
    more = [MeasuredRun.of(replay) for replay in replays]
    for run, replay in zip(more, replays, strict=True):
        _require_devices(replay.cluster, calibration.prior, f"run {run.name!r}")
        if calibration.graph is not None:
            require_same(run.graph, calibration.graph, f"run {run.name!r}")
    count = int(calibration.provenance.get("runs", "0")) + len(more)
    start = replace(
        calibration, graph=calibration.graph or more[0].graph, provenance={**calibration.provenance, "runs": str(count)}
    )
    runs = (*calibration.runs, *more)
    if not calibration.times:
        return _in_place(start, runs, [False] * len(runs))
    if any(calibration.held_out):
        part = 0.0
    else:
        part = _HELD_OUT
    unseen = (*calibration.held_out, *_held_out(more, part, rng))
    updated = _in_place(start, runs, unseen)
    before = _with_runs(start, runs, unseen)
    if _is_worse(updated, before):
        return before
    return updated


def _in_place(start: Calibration, runs: Sequence[MeasuredRun], unseen: Sequence[bool]) -> Calibration:
    """Return a calibration after its last stage, the runs of the graph in place, if there are any."""
    rows = start.microbenchmarked
    graph = start.graph
    cluster = fitting.with_values(start.prior, fitting.identified_values(rows))
    if not runs:
        if graph is None:
            scales = {}
        else:
            scales = scales_of(graph, start.times, cluster.devices[0])
        return replace(start, cluster=cluster, scales=scales)
    seen = [run for run, hidden in zip(runs, unseen, strict=True) if not hidden]
    graph = with_shares(runs[0].graph if graph is None else graph, seen)
    seen = [run.over(graph) for run in seen]
    fit, fitted_times = refit(seen, cluster, fitting.beliefs_of(start.prior, rows), fitting.identified_values(rows))
    rows = fit.update_rows(rows)
    cluster = fitting.with_values(start.prior, fitting.identified_values(rows))
    times = dict(zip(graph.names, fitted_times.tolist(), strict=True))
    scales = scales_of(graph, times, cluster.devices[0])
    fitted = replace(start, cluster=cluster, graph=graph, times=times, scales=scales, parameters=rows)
    return _with_runs(fitted, runs, unseen)


def _with_runs(fitted: Calibration, runs: Sequence[MeasuredRun], unseen: Sequence[bool]) -> Calibration:
    """Return a calibration with these runs in place, and its report on them."""
    graph = fitted.graph
    assert graph is not None
    runs = [run.over(graph) for run in runs]
    times = np.array([fitted.times[name] for name in graph.names])
    residuals = [row for row in fitted.residuals if row.name.startswith(MICROBENCHMARKS)]
    for run, hidden in zip(runs, unseen, strict=True):
        predicted = run.makespan(fitted.cluster, times)
        residuals.append(Residual(run.name, run.measured, predicted, HELD_OUT if hidden else FITTED))
    return replace(fitted, residuals=tuple(residuals), runs=tuple(runs), held_out=tuple(unseen))


def _is_worse(found: Calibration, before: Calibration) -> bool:
    """Return whether the error over runs that both have not seen has grown by more than noise."""
    grown = [
        abs(now.error) - abs(then.error)
        for now, then in zip(found.residuals, before.residuals, strict=True)
        if now.role == HELD_OUT
    ]
    noise = [run.noise for run, hidden in zip(found.runs, found.held_out, strict=True) if hidden]
    if grown:
        return sum(grown) > _NOISE * float(np.hypot.reduce(noise))
    return False


def _cluster_of(cluster: Cluster | None, profiles: Sequence[Profile]) -> Cluster:
    """Return the cluster to fit; profiles must be of its devices."""
    chosen = cluster or next((one.cluster for one in profiles if one.cluster is not None), None)
    if chosen is None:
        raise CalibrationError("the profile does not say what it was measured on; give a cluster")
    for one in profiles:
        if one.provenance.source:
            where = f"the profile from {one.provenance.source}"
        else:
            where = "the profile"
        if one.cluster is not None:
            _require_devices(one.cluster, chosen, where)
        elif one.device is not None and one.device.sms is not None and one.device.sms != chosen.devices[0].sms:
            raise CalibrationError(
                f"{where} is of {one.device.name!r} with {one.device.sms} SMs, not of {chosen.devices[0].model!r} with "
                f"{chosen.devices[0].sms}; give the cluster that it was measured on"
            )
    return chosen


def _require_devices(measured: Cluster, cluster: Cluster, what: str) -> None:
    """Refuse measurements of other devices."""
    theirs, ours = (", ".join(f"{d.name} ({d.model}, {d.sms} SMs)" for d in one.devices) for one in (measured, cluster))
    if theirs != ours:
        raise CalibrationError(
            f"{what} was measured on {theirs}, not on {ours}; give the cluster that it was measured on"
        )


def _graph_of(profiles: Sequence[Profile], graph: OpGraph | None) -> OpGraph | None:
    """Return the graph that was measured; all profiles and their runs in place must be of it."""
    graphs = [(one.graph, f"the profile of {one.graph.name!r}") for one in profiles if one.graph is not None]
    runs = [run for one in profiles for run in one.runs if not run.name.startswith(MICROBENCHMARKS)]
    graphs += [(run.program.graph, f"run {run.name!r}") for run in runs]
    if not graphs:
        return None
    first = graphs[0][0]
    for measured, what in graphs:
        require_same(measured, first, what)
    if graph is not None:
        require_same(first, graph, "the profile")
    return first


def _held_out(runs: Sequence[MeasuredRun], part: float, rng: np.random.Generator) -> list[bool]:
    """Return the runs that no fit sees: a part of those on several streams, if there are enough."""
    several = np.flatnonzero([run.is_concurrent for run in runs])
    few = not part or len(several) < _FEWEST_TO_HOLD_OUT
    if few:
        count = 0
    else:
        count = min(max(1, round(part * len(several))), len(several) - 1)
    chosen = several[rng.permutation(len(several))[:count]].tolist()
    return [i in chosen for i in range(len(runs))]


def _provenance(profiles: Sequence[Profile], n_runs: int) -> dict[str, str]:
    facts: dict[str, str] = {}
    for one in profiles:
        if one.device:
            device = one.device.name
        else:
            device = None
        candidates = {"backend": one.provenance.source, "date": one.provenance.date, "device": device}
        if one.runs:
            candidates |= one.runs[0].environment
        facts |= {key: text for key, text in candidates.items() if text is not None and key not in facts}
    return facts | {"runs": str(n_runs)}


# Times of operators, and parameters of devices, from runs of a graph as it is used -------------------

_ALONE = 0.04
_SHARED = 0.3
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
        Runs of one graph.
    cluster
        Cluster that simulates them.
    before
        Times to begin with, us, shape (n_ops,); None takes measured ones.

    Notes
    -----
    Times are multiplied by measured over simulated until the factors settle: by a weighted mean over the runs of its
    logarithm, with values far from the weighted median pulled in. A run in which an operator ran beside others weighs
    less. O(runs x simulations), at most eight of them each.
    """
    gap = cluster.devices[0].gap
    measured = np.array([run.durations(gap) for run in runs])  # (n_runs, n_ops)
    spread = np.array([np.hypot(_ALONE, _SHARED * run.overlap) for run in runs])
    weights = spread**-2.0
    ops = range(measured.shape[1])
    times = before
    if times is None:
        times = np.array([_weighted_median(measured[:, i], weights[:, i]) for i in ops])
    for _ in range(_MOST_UPDATES):
        simulated = np.array([run.by_operator(run.simulate_on(cluster, times)) for run in runs])
        usable = (measured > 0) & (simulated > 0)
        ratio = np.log(np.divide(measured, simulated, out=np.ones_like(measured), where=usable))
        change = np.array([_middle(ratio[:, i], weights[:, i] * usable[:, i], spread[:, i]) for i in ops])
        times = times * np.exp(_DAMPING * change)
        if np.abs(change).max() < _SETTLED:
            break
    return times


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Return the value at which half of the weight lies below; between two that meet there their mean.

    >>> _weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    at = int(np.searchsorted(share, 0.5 - 1e-12))
    if at + 1 < len(order) and abs(share[at] - 0.5) < 1e-9:
        return float((values[order[at]] + values[order[at + 1]]) / 2)
    return float(values[order[at]])


def _middle(values: Floats, weights: Floats, spread: Floats) -> float:
    """Return a weighted mean, values more than two standard deviations from the weighted median pulled in to there."""
    if not weights.any():
        return 0.0
    centre = _weighted_median(values, weights)
    near = centre + np.clip(values - centre, -2 * spread, 2 * spread)
    return float(np.average(near, weights=weights))


def refit(
    runs: Sequence[MeasuredRun], cluster: Cluster, beliefs: fitting.Beliefs, identified: Container[str]
) -> tuple[fitting.Fit, Floats]:
    """Fit times of operators and parameters of devices to runs of a graph, by turns.

    Parameters
    ----------
    runs
        Runs to fit to.
    cluster
        Their cluster, with the values of parameters that have no belief.
    beliefs
        Beliefs from microbenchmarks, or prior ones.
    identified
        Parameters that microbenchmarks identified.

    Returns
    -------
    Fit
        Fit of the parameters.
    numpy.ndarray
        Times of the operators in us, shape (n_ops,).
    """
    wanted = [name for name in beliefs if name in fitting.SHARING or (name not in identified and _matters(name, runs))]
    before = {}
    for name in wanted:  # microbenchmarks' results are less certain in place
        parameter = fitting.PARAMETERS[name]
        (mean, spread) = beliefs[name]
        before[name] = fitting.Belief(mean, min(hypot(spread, parameter.in_place), parameter.spread))
    telling = [run for run in runs if run.is_concurrent]
    if not telling or any(name not in fitting.SHARING for name in wanted):
        telling = list(runs)
    groups = np.repeat(np.arange(len(telling)), 1 + len(runs[0].graph))
    times = operator_times(runs, cluster)
    fit = None
    for _ in range(_ROUNDS):
        fitted_times = times

        def residuals(values: Values, known: Floats = fitted_times) -> Floats:
            tried = fitting.with_values(cluster, values)
            rows: list[Floats] = []
            for run in telling:
                spans = run.simulate_on(tried, known)
                measured = run.durations(tried.devices[0].gap)
                simulated = run.by_operator(spans)
                both = (measured > 0) & (simulated > 0)
                whole = np.log(spans.makespan / run.measured) / np.hypot(_MAKESPAN, run.noise)
                durations = np.log(np.divide(simulated, measured, out=np.ones_like(measured), where=both)) / _DURATION
                rows.append(np.append(whole, durations))
            return np.concatenate(rows)

        fit = fitting.fit(residuals, groups, before, identified, near=None if fit is None else fit.beliefs)
        times = operator_times(runs, fitting.with_values(cluster, fit.values), times)
    assert fit is not None
    return fit, times


def _matters(name: str, runs: Sequence[MeasuredRun]) -> bool:
    """Return whether a parameter can matter to runs: one of captured graphs only if some run is captured, and so on."""
    if name.startswith("graph_"):
        return any(run.program.execution == "graph" for run in runs)
    if name.startswith(("link.", "copy")):
        return any(len(run.copies.op) for run in runs)
    if name in ("barrier", "barrier_many"):
        return any(run.program.execution == "stages" for run in runs)
    return True
