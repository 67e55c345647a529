"""Parameters of a device that a contact fits, and how well they predict measurements that no fit has seen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, Final

import numpy as np

from hwbackend.contact.estimates import Drift, direct_estimates, runs_of
from hwbackend.contact.lines import ContactRecord
from hwbackend.contact.measure import join_runs, profile_of
from hwbackend.contact.sections.graphs import HELD_OUT, TRAINING
from hwbackend.contact.sections.host import CROWD, LASTING, STAY, SWITCH
from simsched.base.errors import CalibrationError, SimschedError
from simsched.calibration import Calibration, ParameterRow, calibrate, recalibrate
from simsched.calibration.evidence import MeasuredRun, Residual
from simsched.calibration.fitting import OVERHEADS, PARAMETERS, values_of, with_values
from simsched.calibration.microbenchmarks import times_alone
from simsched.experiments.accuracy import digest
from simsched.experiments.rounds import Outcome, Round
from simsched.model import Cluster
from simsched.model.profile import Profile, Replay
from simsched.model.trace import spans_of
from simsched.simulator import simulate

_EVERY: Final = 4  # of the pairs of kernels one is held out
_DIRECT: Final = ("launch", "record", "wait", "bandwidth")
"""Parameters that are measured directly and not fitted."""
_TURNS: Final = 2
_SURE: Final = 0.03  # part of a direct estimate within which it lies with 95 %


@dataclass(frozen=True)
class Fitted:
    """Parameters of a device.

    Parameters
    ----------
    direct
        Estimates without a simulator; see `direct_estimates`.
    calibration
        The cluster, fitted to the sections on costs, saturation and sharing.
    pairs
        Pairs of kernels that no fit has seen: measured, and predicted.
    """

    direct: Mapping[str, float]
    calibration: Calibration
    pairs: tuple[Residual, ...]

    def values(self) -> dict[str, float]:
        """Return the value of every parameter that was measured or identified, by name."""
        return {row.name: row.value for row in self.calibration.parameters if row.identified} | dict(self.direct)


def prior_of(record: ContactRecord) -> Cluster:
    """Return the cluster on which a contact was measured, as its backend described it.

    Raises
    ------
    CalibrationError
        If no schedule was measured.
    """
    for key, line in record.items.items():
        if "cluster" in line:
            return Cluster.from_dict(line["cluster"], key)
        if "profile" in line:
            cluster = Profile.from_dict(line["profile"], key).cluster
            assert cluster is not None, "every item of schedules has its cluster"
            return cluster
    raise CalibrationError("the contact has no schedule that ran: run it again with more --seconds")


def fit_contact(record: ContactRecord) -> Fitted:
    """Fit a device to the lines of a contact.

    Parameters
    ----------
    record
        Of the contact; sections that are missing teach nothing.

    Raises
    ------
    CalibrationError
        If there is no schedule to fit to.

    Notes
    -----
    Costs of the host and the bandwidth are slopes of measured times. With these given, all other costs of issuing and
    ordering are fitted by `calibrate` to the section on them, twice: the second time the first fit is what is believed
    beforehand, so that the preset pulls no more. Then saturation and sharing are fitted to all runs, but for every
    fourth pair of kernels, which is held out. `hop` is what a change of the stream costs beyond the fitted `gap`, by
    two chains that were measured in turns; see `crowd_of` for `crowd_latency`.
    """
    direct = direct_estimates(record)
    drift = Drift.of(record)
    cluster = prior_of(record)
    given: dict[str, float] = {name: direct[name] for name in _DIRECT if name in direct}
    pairs = [run for _, run in runs_of(record, drift, "sharing/")]
    unseen = pairs[_EVERY - 1 :: _EVERY]
    seen = [run for i, run in enumerate(pairs) if i % _EVERY != _EVERY - 1]
    host = [run for _, run in runs_of(record, drift, "host/")]
    issuing = [run for run in host if run.name.startswith("overhead/")]
    crowd = crowd_of(host)
    if crowd is not None:
        direct["crowd_latency"] = given["crowd_latency"] = crowd
    runs = issuing + [run for _, run in runs_of(record, drift, "saturation/", "copies/")] + seen
    if not runs:
        raise CalibrationError("no microbenchmark was measured: run the contact again with more --seconds")
    costs = fitted_costs(with_values(cluster, given), issuing) if issuing else {}
    values = {name: row.value for name, row in costs.items()} | given
    fitted = calibrate(with_values(cluster, values), profile_of(runs), held_out=0.0)
    hop = hop_of(issuing, values)
    if hop is not None:
        direct["hop"] = given["hop"] = hop
    fitted = with_rows(fitted, costs | {name: _direct_row(name, value) for name, value in given.items()}, cluster)
    residuals = []
    for replay in unseen:
        run = MeasuredRun.of(replay)
        residuals.append(
            Residual(run.name, run.spans.makespan, run.makespan(fitted.cluster, times_alone(run)), "held-out")
        )
    return Fitted(direct, fitted, tuple(residuals))


def fitted_costs(prior: Cluster, runs: Sequence[Replay]) -> dict[str, ParameterRow]:
    """Return the costs of issuing and ordering that runs identify, by name, whatever the prior says."""
    names = (*OVERHEADS, "crowd_latency")
    rows: dict[str, ParameterRow] = {}
    for _ in range(_TURNS):
        start = with_values(prior, {name: row.value for name, row in rows.items()})
        fitted = calibrate(start, profile_of(runs), held_out=0.0)
        rows = {row.name: row for row in fitted.parameters if row.identified and row.name in names}
    return rows


def hop_of(runs: Sequence[Replay], values: Mapping[str, float]) -> float | None:
    """Return the us of a change of the stream: `gap`, and how much longer the pauses of a chain are that changes it."""
    pauses = {}
    for run in runs:
        if run.name in (STAY, SWITCH):
            start, end = spans_of(run.trace).launches.T
            pauses[run.name] = float(np.mean(start[1:] - end[:-1]))
    if len(pauses) < 2:
        return None
    return max(0.0, values.get("gap", 0.0) + pauses[SWITCH] - pauses[STAY])


def crowd_of(runs: Sequence[Replay]) -> float | None:
    """Return the us by which a kernel starts later beside another one, None if chains for it were not measured.

    Kernels of two sizes take T and T' us alone, and ``D = (T + c) k`` and ``D' = (T' + c) k`` beside a kernel whose
    interference is k: ``c = (D T' - D' T) / (D' - D)``. T and D are means over parts of one chain, so that neither the
    steps of the timer nor changes of the clock between runs matter.
    """
    times = [_times_of_chain(run) for run in runs if run.name.startswith(CROWD)]
    known = sorted(pair for pair in times if pair is not None)
    if len(known) < 2:
        return None
    alone, beside = known[0]
    longer_alone, longer_beside = known[-1]
    growth = longer_beside - beside
    if growth <= 0.0:
        return None
    return max(0.0, (beside * longer_alone - longer_beside * alone) / growth)


def _times_of_chain(run: Replay) -> tuple[float, float] | None:
    """Return the mean us of the kernels of a chain that began after the lasting kernel, and of those beside it.

    None if there are none of one kind.
    """
    launches = spans_of(run.trace).launches
    lasting = run.program.launches.op == run.program.graph.index[LASTING]
    start, end = launches[~lasting].T
    first, last = launches[lasting][0].tolist()
    beside = (start >= first) & (end <= last)
    after = start >= last
    if not beside.any() or not after.any():
        return None
    took = end - start
    return float(np.mean(took[after])), float(np.mean(took[beside]))


def _direct_row(name: str, value: float) -> ParameterRow:
    value = max(value, PARAMETERS[name].low)
    return ParameterRow(name, value, value, value * (1.0 - _SURE), value * (1.0 + _SURE), True, "measured directly")


def with_rows(calibration: Calibration, rows: Mapping[str, ParameterRow], prior: Cluster) -> Calibration:
    """Return a calibration with other rows of some parameters, beside the values that a prior has."""
    before = values_of(prior)
    changed = tuple(
        rows.get(row.name, row)._replace(prior=before.get(row.name, row.prior)) for row in calibration.parameters
    )
    cluster = with_values(calibration.cluster, {name: row.value for name, row in rows.items()})
    return replace(calibration, cluster=cluster, prior=prior, parameters=changed, microbenchmarked=changed)


def subjects_of(record: ContactRecord, section: str) -> list[str]:
    """Return the graphs of a section of which something was measured, in their order."""
    keys = (key for key in record.items if key.startswith(f"{section}/"))
    return list(dict.fromkeys(key.removeprefix(f"{section}/").rpartition("/")[0] for key in keys))


def rounds(record: ContactRecord, fitted: Fitted, *, operators: int | None = None) -> Iterator[tuple[str, Round]]:
    """Yield the held-out schedules of each graph, measured and predicted, with the name of the graph.

    Parameters
    ----------
    record, fitted
        Of the contact.
    operators
        Graphs of more operators are left out, which take minutes to calibrate; None takes all.
    """
    drift = Drift.of(record)
    for section in ("networks", "dags"):
        for subject in subjects_of(record, section):
            prefix = f"{section}/{subject}/"
            training, held_out = (
                join_runs([run for _, run in runs_of(record, drift, f"{prefix}{part}-")])
                for part in (TRAINING, HELD_OUT)
            )
            if training and (operators is None or len(training[0].program.graph) <= operators):
                yield prefix.rstrip("/"), predicted_round(fitted.calibration, training, held_out)


def predicted_round(start: Calibration, training: Sequence[Replay], held_out: Sequence[Replay]) -> Round:
    """Return held-out schedules of a graph as measured, and as predicted after a fit to its training schedules."""
    calibration = recalibrate(start, training)
    seen = {digest(run.program) for run in training}
    rows = []
    for run in held_out:
        try:
            trace = simulate(run.program, calibration)
            unseen = digest(run.program) not in seen
            rows.append(Outcome.of(run.name, run.program, trace, run, calibration, run.cluster, held_out=unseen))
        except SimschedError as error:
            rows.append(Outcome(run.name, reason=str(error)))
    return Round.of(rows)


def figures(rows: Sequence[Round]) -> dict[str, Any]:
    """Return the figures of several rounds: errors over all their schedules, tau and regret as means of the rounds."""
    pooled = Round(tuple(row for one in rows for row in one.schedules))
    found: dict[str, Any] = {
        "held_out": len(pooled.held_out),
        "mean_error": pooled.mean_error,
        "p90_error": pooled.p90_error,
        "uncalibrated_error": pooled.uncalibrated_error,
    }
    for name in ("kendall_tau", "regret"):
        known = [value for one in rows if (value := getattr(one, name)) is not None]
        found[name] = mean(known) if known else None
    return found
