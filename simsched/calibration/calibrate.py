"""`calibrate` and `recalibrate`: from measurements to a `Calibration`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from simsched.base.errors import CalibrationError
from simsched.base.numeric import is_number
from simsched.calibration.calibration import Calibration, scales_of
from simsched.calibration.evidence import FITTED, HELD_OUT, MICROBENCHMARKS, MeasuredRun, Residual, with_shares
from simsched.calibration.file import RunColumns
from simsched.calibration.in_place import refit
from simsched.calibration.matching import require_same
from simsched.calibration.microbenchmarks import microbenchmarked
from simsched.calibration.parameters import beliefs_of, identified, with_rows
from simsched.model import Cluster, OpGraph
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
        What is fitted, with what is known of it before; None takes that of the backend.
    profile
        Microbenchmarks, runs of a graph in place, or both; one profile or several.
    graph
        The graph that is meant, to be told if a profile is of another.
    rng
        Generator or seed: which runs are held out.
    held_out
        Part of the runs of the graph on several streams that no fit sees. The error is theirs; what is returned was
        fitted without them.

    Raises
    ------
    CalibrationError
        If there is nothing to fit, or a profile is of another graph or device.

    Notes
    -----
    In stages, each simulating what was measured until it agrees: overheads, kernels alone, pairs of kernels,
    transfers, and at last the graph in place, where times of operators and parameters are fitted by turns, what
    microbenchmarks said being what is believed beforehand.
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
    rows, residuals = microbenchmarked(micro, cluster)
    start = Calibration(
        cluster, cluster, measured, _profiled_times(profiles, measured), {}, rows, residuals, microbenchmarked=rows,
        provenance=_provenance(profiles, len(runs)),
    )  # fmt: skip
    return _in_place(start, in_place, unseen)


def recalibrate(
    calibration: Calibration, replays: Sequence[Replay], *, rng: np.random.Generator | int = 0
) -> Calibration:
    """Fit times of operators and parameters again, with further runs of the graph.

    Parameters
    ----------
    calibration
        What was found so far; its runs count as much as further ones. Those it held out stay held out.
    replays
        Runs of the same graph. All are fitted to; where none was held out so far, all but a quarter of those on several
        streams.
    rng
        Generator or seed: which of the replays are held out.

    Raises
    ------
    CalibrationError
        If there is no replay, or one is of another graph or device.

    Notes
    -----
    What is fitted is taken unless the error over all runs held out grows by more than they are noisy; then times and
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
    runs = (*calibration.measured, *more)
    if not calibration.times:
        return _in_place(start, runs, [False] * len(runs))
    part = 0.0 if any(calibration.held_out) else _HELD_OUT
    unseen = (*calibration.held_out, *_held_out(more, part, rng))
    found = _in_place(start, runs, unseen)
    before = _with_runs(start, runs, unseen)
    return before if _is_worse(found, before) else found


def _in_place(start: Calibration, runs: Sequence[MeasuredRun], unseen: Sequence[bool]) -> Calibration:
    """Return a calibration after its last stage, the runs of the graph in place, if there are any."""
    rows, graph = start.microbenchmarked, start.graph
    cluster = with_rows(start.prior, rows)
    if not runs:
        scales = {} if graph is None else scales_of(graph, start.times, cluster.devices[0])
        return replace(start, cluster=cluster, scales=scales)
    seen = [run for run, hidden in zip(runs, unseen, strict=True) if not hidden]
    graph = with_shares(runs[0].graph if graph is None else graph, seen)
    seen = [run.over(graph) for run in seen]
    found, fitted_times = refit(seen, cluster, beliefs_of(start.prior, rows), identified(rows))
    rows = found.updated(rows)
    cluster = with_rows(start.prior, rows)
    times = dict(zip(graph.names, fitted_times.tolist(), strict=True))
    scales = scales_of(graph, times, cluster.devices[0])
    fitted = replace(start, cluster=cluster, graph=graph, times=times, scales=scales, parameters=rows)
    return _with_runs(fitted, runs, unseen)


def _with_runs(fitted: Calibration, runs: Sequence[MeasuredRun], unseen: Sequence[bool]) -> Calibration:
    """Return a calibration with these runs in place, and what it says of them."""
    graph = fitted.graph
    assert graph is not None
    runs, times = [run.over(graph) for run in runs], np.array([fitted.times[name] for name in graph.names])
    residuals = [row for row in fitted.residuals if row.name.startswith(MICROBENCHMARKS)]
    for run, hidden in zip(runs, unseen, strict=True):
        predicted = run.makespan(fitted.cluster, times)
        residuals.append(Residual(run.name, run.measured, predicted, HELD_OUT if hidden else FITTED))
    kept = tuple(map(RunColumns.of, runs))
    return replace(fitted, residuals=tuple(residuals), runs=kept, held_out=tuple(unseen))


def _is_worse(found: Calibration, before: Calibration) -> bool:
    """Return whether the error over runs that both have not seen has grown by more than noise."""
    grown = [
        abs(now.error) - abs(then.error)
        for now, then in zip(found.residuals, before.residuals, strict=True)
        if now.role == HELD_OUT
    ]
    noise = [run.noise for run, hidden in zip(found.measured, found.held_out, strict=True) if hidden]
    return sum(grown) > _NOISE * float(np.hypot.reduce(noise)) if grown else False


def _cluster_of(cluster: Cluster | None, profiles: Sequence[Profile]) -> Cluster:
    """Return what is fitted; profiles must be of its devices."""
    found = cluster or next((one.cluster for one in profiles if one.cluster is not None), None)
    if found is None:
        raise CalibrationError("the profile does not say what it was measured on; give a cluster")
    for one in profiles:
        where = f"the profile from {one.provenance.source}" if one.provenance.source else "the profile"
        if one.cluster is not None:
            _require_devices(one.cluster, found, where)
        elif one.device is not None and one.device.sms is not None and one.device.sms != found.devices[0].sms:
            raise CalibrationError(
                f"{where} is of {one.device.name!r} with {one.device.sms} SMs, not of {found.devices[0].model!r} with "
                f"{found.devices[0].sms}; give the cluster that it was measured on"
            )
    return found


def _require_devices(measured: Cluster, cluster: Cluster, what: str) -> None:
    """Refuse what was measured on other devices."""
    theirs, mine = ([(d.name, d.model, d.sms) for d in one.devices] for one in (measured, cluster))
    if theirs != mine:
        raise CalibrationError(
            f"{what} was measured on {_text(theirs)}, not on {_text(mine)}; give the cluster that it was measured on"
        )


def _text(devices: Sequence[tuple[str, str, int]]) -> str:
    return ", ".join(f"{name} ({model}, {sms} SMs)" for name, model, sms in devices)


def _graph_of(profiles: Sequence[Profile], graph: OpGraph | None) -> OpGraph | None:
    """Return the graph that was measured; all profiles and their runs in place must be of it."""
    found = next((one.graph for one in profiles if one.graph is not None), None)
    runs = [run for one in profiles for run in one.runs if not run.name.startswith(MICROBENCHMARKS)]
    if found is None and runs:
        found = runs[0].program.graph
    if found is None:
        return None
    for one in profiles:
        if one.graph is not None:
            require_same(one.graph, found, f"the profile of {one.graph.name!r}")
    for run in runs:
        require_same(run.program.graph, found, f"run {run.name!r}")
    if graph is not None:
        require_same(found, graph, "the profile")
    return found


def _held_out(runs: Sequence[MeasuredRun], part: float, rng: np.random.Generator) -> list[bool]:
    """Return which runs no fit is to see: a part of those on several streams, if there are enough."""
    several = [i for i, run in enumerate(runs) if run.is_concurrent]
    few = not part or len(several) < _FEWEST_TO_HOLD_OUT
    count = 0 if few else min(max(1, round(part * len(several))), len(several) - 1)
    chosen = rng.permutation(len(several))[:count]
    unseen = [False] * len(runs)
    for i in chosen.tolist():
        unseen[several[i]] = True
    return unseen


def _profiled_times(profiles: Sequence[Profile], graph: OpGraph | None) -> dict[str, float]:
    """Return median times of those operators of the graph that were measured alone."""
    names = () if graph is None else graph.names
    return {op.name: op.median for one in profiles for op in one.operators if op.name in names and op.median > 0}


def _provenance(profiles: Sequence[Profile], n_runs: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in profiles:
        given = {"backend": one.provenance.source, "date": one.provenance.date}
        given["device"] = one.device.name if one.device else None
        given |= one.runs[0].environment if one.runs else {}
        for key, text in given.items():
            if text is not None:
                found.setdefault(key, text)
    return found | {"runs": str(n_runs)}
