"""What microbenchmarks say of the parameters of a device, stage by stage."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.calibration import parameters
from simsched.calibration.evidence import ALONE, MeasuredRun, Residual, Times, Values
from simsched.calibration.fitting import Residuals, fit
from simsched.calibration.solo import Signature, SoloRuns, signature
from simsched.model import Cluster, Floats, Ints

_CLOCK: Final = 0.3  # us: what a measured time is never better known than
_OVERHEAD: Final = 0.01  # relative standard deviation of what is measured and simulated, beside that
_PAIR, _END = 0.03, 0.1  # the same of kernels side by side, and of when each of them ends
_TRANSFER: Final = 0.03

Rows = tuple[parameters.ParameterRow, ...]


class Target(NamedTuple):
    """What a run says: numbers that are read from its times, measured ones and simulated ones alike.

    `times` are those of the operators alone in us; `spread` is the standard deviation of simulated less measured.
    """

    run: MeasuredRun
    times: Floats
    read: Callable[[Times], Floats]
    measured: Floats
    spread: Floats

    def residuals(self, cluster: Cluster) -> Floats:
        """Return simulated less measured, over the standard deviation."""
        simulated = self.read(self.run.simulated(cluster, self.times))
        found: Floats = (simulated - self.measured) / self.spread
        return found


def microbenchmarked(runs: Sequence[MeasuredRun], cluster: Cluster) -> tuple[Rows, tuple[Residual, ...]]:
    """Return what becomes of the parameters of a cluster by microbenchmarks, and the residuals of those.

    Notes
    -----
    Each stage begins with what the ones before it found, and says more of the same parameters or of others. A kernel
    takes the time that was measured in that very run, in ``pair/`` runs where it ran alone.
    """
    rows = parameters.prior_rows(cluster)

    def stage(rows: Rows, residuals: Residuals, groups: Ints, names: Sequence[str]) -> Rows:
        if not len(groups):
            return rows
        beliefs = parameters.beliefs_of(cluster, rows)
        before = {name: beliefs[name] for name in names if name in beliefs}
        return fit(residuals, groups, before, parameters.identified(rows)).updated(rows)

    def simulated(rows: Rows, targets: Sequence[Target], names: Sequence[str]) -> Rows:
        base = parameters.with_rows(cluster, rows)
        groups = np.repeat(np.arange(len(targets)), [len(target.measured) for target in targets])

        def residuals(values: Values) -> Floats:
            changed = parameters.with_values(base, values)
            return np.concatenate([target.residuals(changed) for target in targets])

        return stage(rows, residuals, groups, names)

    def named(kind: str) -> list[MeasuredRun]:
        return [run for run in runs if run.name.startswith(kind)]

    alone = SoloRuns(named("solo/"))
    pairs = [run for run in named("pair/") if _side_by_side(run).any()]
    overheads = [name for name in parameters.OVERHEADS if name != "copy"]
    rows = simulated(rows, [_overhead(run) for run in named("overhead/")], overheads)
    base = parameters.with_rows(cluster, rows)
    rows = stage(rows, lambda v: alone.residuals(parameters.with_values(base, v)), alone.groups, parameters.SOLO)
    rows = simulated(rows, [_pair(run) for run in pairs], parameters.SHARING)
    rows = simulated(rows, [_transfer(run) for run in named("transfer/")], ("copy", *parameters.LINKS, "copy_rate"))
    fitted = parameters.with_rows(cluster, rows)
    return rows, tuple(Residual(run.name, _end(run), run.makespan(fitted, _alone(run))) for run in runs)


def _target(run: MeasuredRun, times: Floats, read: Callable[[Times], Floats], relative: Floats | float) -> Target:
    measured = read(Times(_end(run), run.launches, run.copies))
    return Target(run, times, read, measured, np.hypot(_CLOCK, np.hypot(relative, run.noise) * measured))


def _end(run: MeasuredRun) -> float:
    """Return when the last kernel or copy of a run ended, in us."""
    return float(max(run.launches[:, 1].max(initial=0.0), run.copies[:, 1].max(initial=0.0)))


def _overhead(run: MeasuredRun) -> Target:
    def read(times: Times) -> Floats:
        return np.array([times.makespan, times.launches[:, 0].min()])

    return _target(run, run.durations(), read, _OVERHEAD)


def _transfer(run: MeasuredRun) -> Target:
    def read(times: Times) -> Floats:
        several = len(times.copies) > 1  # some may wait for an engine: the simulator lets all move, and end, together
        return np.concatenate([[times.makespan], [] if several else np.diff(times.copies)[:, 0]])

    return _target(run, run.durations(), read, _TRANSFER)


def _pair(run: MeasuredRun) -> Target:
    rows = np.flatnonzero(_side_by_side(run)[run.program.launch_op])

    def read(times: Times) -> Floats:
        ends = times.launches[rows, 1] - times.launches[rows, 0].min()
        return np.concatenate([[ends.max()], ends])

    return _target(run, _alone(run), read, np.array([_PAIR, *[_END] * len(rows)]))


def _side_by_side(run: MeasuredRun) -> npt.NDArray[np.bool_]:
    """Return which operators of a run are not there to be timed alone; none if those say nothing of one of them."""
    names, operators = run.graph.names, run.graph.operators
    known = {signature(op) for op in operators if op.name.startswith(ALONE)}
    found = np.array([not name.startswith(ALONE) for name in names])
    return found if all(signature(op) in known for op in operators) else np.zeros(len(names), np.bool_)


def _alone(run: MeasuredRun) -> Floats:
    """Return the time alone of each operator of a run in us, as measured in it."""
    durations = run.durations()
    if not _side_by_side(run).any():
        return durations
    samples: dict[Signature, list[float]] = {}
    for op, duration in zip(run.graph.operators, durations.tolist(), strict=True):
        if op.name.startswith(ALONE):
            samples.setdefault(signature(op), []).append(duration)
    return np.array([float(np.median(samples[signature(op)])) for op in run.graph.operators])
