"""How well the simulator predicts a backend: calibrate, schedule, predict, replay, compare, recalibrate."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from simsched.base.errors import BackendError, FileError, FormatError, SimschedError
from simsched.calibration import Calibration, calibrate, recalibrate
from simsched.calibration.training import training_schedule
from simsched.experiments.accuracy.accuracy import RANDOM, Accuracy, Outcome, Round
from simsched.experiments.accuracy.measurements import Measurements, digest
from simsched.experiments.comparison import compare, scheduler_set
from simsched.model import OpGraph, Schedule
from simsched.model.backend import Backend, prepared, require_counts
from simsched.model.graph.derived import with_times
from simsched.model.profile import Replay
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, resolve
from simsched.simulator import simulate

Progress = Callable[[str, str], None]


def validate(
    graph: OpGraph, backend: Backend, schedulers: str | Sequence[str | Scheduler] = "fast", *, rounds: int = 3,
    training: int = 8, random_held_out: int = 8, repeats: int = 12, warmup: int = 3,
    rng: np.random.Generator | int = 0, folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Accuracy:  # fmt: skip
    """Calibrate a backend on training schedules, then predict and measure others, in rounds.

    Parameters
    ----------
    graph, backend
        What is run, and where.
    schedulers
        As in `compare`; they schedule for the calibrated cluster.
    rounds
        The first is predicted after `calibrate` from microbenchmarks and a profile of the graph, each later one after
        `recalibrate` with the round before.
    training
        Schedules at random that the profile runs.
    random_held_out
        Schedules at random, others in each round, that are predicted and measured besides those of the schedulers.
        They are what `recalibrate` learns from when their round is over.
    repeats, warmup
        As in `Backend.replay`.
    rng
        Generator or seed of what is random, whatever the backend adds.
    folder
        Where every measurement is kept as it is made. A run that is called again with the same arguments reads what
        is there and measures only the rest. What came of it is written there too, see `Accuracy.load`.
    progress
        Called with what is measured and "" before it begins, and while schedulers run with what they are doing.

    Returns
    -------
    Accuracy
        Errors are over held-out schedules, those that no fit has seen. Nothing is ever fitted to the schedules of
        schedulers, so they count in every round, unless one of them happens to be a training schedule: it stays in the
        table and in the regret. One that cannot be made or run has a row with the reason.

    Raises
    ------
    BackendError
        If a number is out of range, or nothing could be run.
    UnknownNameError
        If a scheduler is not known.
    CalibrationError
        If the measurements do not suffice to fit the cluster.
    FileError, FormatError
        If `folder` cannot be written to, or a file there is damaged.

    Notes
    -----
    A round replays each program once, also where two schedulers agree on it. Uncalibrated predictions are of the
    cluster that the backend describes, with the times that the graph came with, else a roofline; those without
    contention are of the calibrated cluster with every kernel at the speed it has alone.
    """
    require_counts(1, rounds=rounds, repeats=repeats)
    require_counts(0, training=training, random_held_out=random_held_out)
    asked = scheduler_set(schedulers, graph)
    for scheduler in asked:
        resolve(scheduler)  # a slip is found before anything is measured
    tell: Progress = progress or (lambda _what, _doing: None)
    seed = int(rng) if isinstance(rng, int | np.integer) else None
    seeds = np.random.default_rng(rng).integers(2**62, size=rounds + 1).tolist()
    measurements = Measurements(backend, folder)
    graph = backend.realise(graph)
    tell("microbenchmarks", "")
    micro = measurements.profile("microbenchmarks", backend.microbenchmarks)
    tell("profile", "")
    measure = partial(backend.profile, graph, in_situ=training, rng=seeds[0])
    profile = measurements.profile("profile", measure, graph.to_dict(), training, seeds[0])
    tell("profile", "calibrating")
    calibration = calibrate(backend.cluster, (micro, profile), graph)
    fitted = [digest(run.program) for run in profile.runs]
    found: list[Round] = []
    for number in range(1, rounds + 1):
        this = _Turn(number, backend, calibration, measurements, (repeats, warmup), tell)
        rows = this.run(graph, asked, _random_schedules(graph, backend, random_held_out, seeds[number]), fitted)
        found.append(rows)
        learned = [
            replace(replay, name=f"round-{number}/{name}")
            for name, (_, replay) in this.traces.items()
            if name.startswith(RANDOM)
        ]
        if number < rounds and learned:
            tell(f"round {number}", "recalibrating")
            calibration = recalibrate(calibration, learned)
            fitted += [digest(replay.program) for replay in learned]
    environment = next(iter(this.traces.values()))[1].environment
    device = environment.get("device", backend.cluster.devices[0].model)
    accuracy = Accuracy(
        graph.name, backend.name, device, environment, seed, tuple(found), this.files, this.calibration, this.traces
    )
    if folder is not None:
        accuracy.save(folder)
    return accuracy


def _random_schedules(graph: OpGraph, backend: Backend, count: int, seed: int) -> dict[str, Schedule]:
    rng = np.random.default_rng(seed)
    return {f"{RANDOM}{i + 1}": training_schedule(graph, backend.cluster, i, rng=rng) for i in range(count)}


def _as_given(scheduled: OpGraph, graph: OpGraph) -> OpGraph:
    """Return the graph of a schedule with the times that operators came with, not those of a calibration."""
    if scheduled.names == graph.names:
        return graph
    times = dict(zip(graph.names, graph.time.tolist(), strict=True))  # of what a scheduler added nothing is known
    return with_times(scheduled, np.array([times.get(name, np.nan) for name in scheduled.names]))


@dataclass
class _Turn:
    """One round: schedules made, predicted and measured."""

    number: int
    backend: Backend
    calibration: Calibration
    measurements: Measurements
    counts: tuple[int, int]  # repeats, warmup
    tell: Progress
    traces: dict[str, tuple[Trace, Replay]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    replays: dict[str, Replay] = field(default_factory=dict)  # by digest of the program

    def run(
        self, graph: OpGraph, schedulers: Sequence[str | Scheduler], at_random: Mapping[str, Schedule],
        fitted: Sequence[str],
    ) -> Round:  # fmt: skip
        """Return the round; `fitted` are digests of programs that a fit has seen."""

        def scheduling(name: str, doing: str) -> None:
            self.tell(f"round {self.number}, scheduler {name}", doing or "scheduling")

        made = compare(graph, self.calibration, schedulers, progress=scheduling)
        reasons = {row.scheduler: row.reason for row in made.rows}
        plans: dict[str, Schedule | None] = {name: made.plans.get(name) for name in reasons}
        rows, refused = [], None
        for name, plan in [*plans.items(), *at_random.items()]:
            self.tell(f"round {self.number}, {name}", "")
            if plan is None:
                rows.append(Outcome(name, reason=reasons[name]))
                continue
            try:
                rows.append(self._outcome(name, plan, graph, fitted))
            except (FileError, FormatError):  # of the folder: nothing that a scheduler did
                raise
            except SimschedError as error:
                refused = error
                rows.append(Outcome(name, reason=str(error)))
        if not self.traces:
            raise refused or BackendError(f"no scheduler found a schedule of {graph.name!r}: nothing can be measured")
        return Round.of(rows)

    def _outcome(self, name: str, plan: Schedule, graph: OpGraph, fitted: Sequence[str]) -> Outcome:
        program = prepared(self.backend, plan.over(_as_given(plan.graph, graph)))
        trace = simulate(program, self.calibration)
        key = digest(program)
        if key not in self.replays:
            self.replays[key] = self.measurements.replay(program, *self.counts, self.number)
        replay = self.replays[key]
        self.traces[name] = trace, replay
        self.files[name] = self.measurements.name_of(program, *self.counts, self.number)
        uncalibrated, held_out = self.backend.cluster, key not in fitted
        return Outcome.of(name, program, trace, replay, self.calibration, uncalibrated, held_out=held_out)
