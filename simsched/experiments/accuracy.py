"""Validation of the simulator's predictions: calibrate, schedule, predict, replay, compare, recalibrate.

Measurements are kept in a folder: a run that was killed continues where it stopped.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Final, TypeVar

import numpy as np

from simsched.base.codec import Checked, Document, Filled, aside, write
from simsched.base.errors import BackendError, FileError, FormatError, SimschedError
from simsched.base.io import dump_json, file_errors, make_folder
from simsched.base.text import join_lines
from simsched.calibration import Calibration, calibrate, recalibrate
from simsched.calibration.training import training_schedule
from simsched.experiments.comparison import compare, scheduler_set
from simsched.experiments.result import LazyValues, Result, plain_text, table_of, time_text, unit_of
from simsched.experiments.rounds import NOT_DEFINED, RANDOM, Outcome, Round, percent, relative_error
from simsched.model import OpGraph, Program, Schedule
from simsched.model.backend import Backend, prepare, require_counts
from simsched.model.graph.rearranged import with_times
from simsched.model.profile import Profile, Replay
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, resolve
from simsched.simulator import simulate

NAME: Final = "accuracy.json"
TRUSTED: Final = 0.1
"""Error of latencies, 9 of 10 within it, up to which they are trusted."""
CHEAP: Final = 0.03
"""Regret up to which the simulator may choose a scheduler."""
Progress = Callable[[str, str], None]
Measured = TypeVar("Measured", Profile, Replay)


@dataclass(frozen=True, repr=False, eq=False)
class Accuracy(Result, Checked, Document):
    """Agreement of predictions with measurements; prints as a table.

    Parameters
    ----------
    graph
        Name of the graph.
    backend, device, environment
        The backend's name, the device's, and the versions in use; see `Replay`.
    seed
        The one given; None if it was a generator.
    rounds
        Rounds; each is predicted with a calibration from the measurements before it.
    runs
        Names of the files of measured runs by scheduler, of the last round, beside the file of this.
    calibration
        Calibration that the last round was predicted with.
    traces
        Simulated trace and measured run of each scheduler in the last round.
    """

    VIEW = "accuracy"
    SUBJECT = "validation"
    ERROR = BackendError
    FORMAT = "simsched.accuracy"
    INDENT = None
    graph: str
    backend: str
    device: str
    environment: Mapping[str, str]
    seed: int | None
    rounds: Annotated[tuple[Round, ...], Filled()]
    runs: Mapping[str, str]
    calibration: Calibration
    traces: Mapping[str, tuple[Trace, Replay]] = aside()

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not all(one.schedules for one in self.rounds):
            raise self.refusal("rounds must have a schedule each")
        for scheduler, name in self.runs.items():
            if Path(name).name != name:
                raise self.refusal(f"runs of {scheduler!r} must be a file beside it, not {name!r}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Accuracy":
        """Read a validation from its folder; nothing is measured, and traces are simulated on demand.

        Parameters
        ----------
        path
            The folder that `validate` was given, or `save`; or the file in it.

        Raises
        ------
        FileError
            If it holds no such file.
        FormatError
            If the file is damaged.
        """
        if Path(path).is_dir():
            path = Path(path, NAME)
        else:
            path = Path(path)
        accuracy = super().load(path)
        folder = path.parent

        def trace(scheduler: str) -> tuple[Trace, Replay]:
            replay = Replay.load(folder / accuracy.runs[scheduler])
            return simulate(replay.program, accuracy.calibration), replay

        return replace(accuracy, traces=LazyValues(accuracy.runs, trace))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the validation into an existing folder, with those measured runs that are not in it yet."""
        for name, (_, replay) in self.traces.items():
            run = Path(path, self.runs[name])
            if not run.exists():
                replay.save(run)
        super().save(Path(path, NAME))

    def records(self) -> list[dict[str, Any]]:
        """Return all rows as plain values by column, with their round."""
        return [{"round": i, **write(row)} for i, one in enumerate(self.rounds, 1) for row in one.schedules]

    def table(self) -> Any:
        """Return the schedules of the last round as a table of texts."""
        rows = self.rounds[-1].schedules
        chosen = self.rounds[-1].chosen
        unit, name = unit_of(row.measured_us for row in rows)
        headings = (
            "scheduler",
            f"predicted {name}",
            f"measured {name}",
            "p10 - p90",
            "error",
            "no con-\ntention",
            "uncali-\nbrated",
            "rank\npredicted",
            "rank\nmeasured",
            "held\nout",
        )
        return table_of(
            f"{self.graph} on {self.backend} ({self.device}), round {len(self.rounds)} of {len(self.rounds)}",
            headings,
            [_cells(row, unit) for row in rows],
            best=-1 if chosen is None else rows.index(chosen),
            note=[f"{row.scheduler}: not measured: {row.reason}" for row in rows if row.reason],
        )

    def summary(self) -> Any:
        """Return the rounds as a table of texts, one line each."""
        headings = (
            "round",
            "held out",
            "mean error",
            "p90 error",
            "no contention",
            "uncalibrated",
            "Kendall tau",
            "regret",
        )
        rows = []
        for i, one in enumerate(self.rounds, 1):
            errors = (one.mean_error, one.p90_error, one.no_contention_error, one.uncalibrated_error)
            if one.kendall_tau is None:
                tau = NOT_DEFINED
            else:
                tau = f"{one.kendall_tau:.2f}"
            rows.append((str(i), str(len(one.held_out)), *map(percent, errors), tau, percent(one.regret)))
        note = "errors: of held-out schedules, seen by no fit; regret: of the scheduler ranked first"
        return table_of("rounds", headings, rows, note=note)

    def verdict(self) -> tuple[str, ...]:
        """Return sentences on the use of the last round's predictions, and on the next measurement to make.

        Latencies are trusted where 9 of 10 held-out ones are within 10 %, a choice where it costs at most 3 %.
        """
        last = self.rounds[-1]
        p90 = last.p90_error
        regret = last.regret
        chosen = last.chosen
        if p90 is None or chosen is None or regret is None:
            return ("No verdict: nothing was held out, or no scheduler's schedule was measured; measure some.",)
        if p90 <= TRUSTED:
            trusts = "Trust"
        else:
            trusts = "Do not trust"
        sentences = [f"{trusts} its latencies: 9 of 10 schedules that no fit has seen are within {percent(p90)}."]
        costs = f"its choice, {chosen.scheduler}, takes {percent(regret)} more than the fastest that was measured"
        sentences.append(f"{'Trust' if regret <= CHEAP else 'Do not trust'} it to choose a scheduler: {costs}.")
        most = (1 + p90) * (chosen.predicted_us or 0.0)
        near = [row.scheduler for row in last.rivals if row is not chosen and (row.predicted_us or 0.0) <= most]
        worst = max(last.held_out, key=lambda row: row.error or 0.0)
        noise = ((worst.measured_p90_us or 0.0) - (worst.measured_p10_us or 0.0)) / (worst.measured_us or 1.0)
        if noise > (worst.error or 0.0):
            again = ", whose runs vary by more: repeat them more often"
        else:
            again = ""
        sentences.append(
            (f"It does not tell {chosen.scheduler} from {', '.join(near)}: measure those. " if near else "")
            + f"It is furthest off on {worst.scheduler}, {percent(worst.error)}{again}."
        )
        return tuple(sentences)

    def __repr__(self) -> str:
        return "\n".join((plain_text(self.table()), plain_text(self.summary()), join_lines(self.verdict())))


def _cells(row: Outcome, unit: float) -> Sequence[str]:
    if row.measured_us is None:
        return (row.scheduler,)
    predictions = (row.predicted_us, row.no_contention_us, row.uncalibrated_us)
    return (
        row.scheduler,
        *(time_text(us, unit) for us in (row.predicted_us, row.measured_us)),
        f"{time_text(row.measured_p10_us, unit)} - {time_text(row.measured_p90_us, unit)}",
        *(percent(relative_error(us, row.measured_us)) for us in predictions),
        *map(str, (row.rank_predicted, row.rank_measured)),
        "yes" if row.held_out else "no",
    )


def validate(
    graph: OpGraph,
    backend: Backend,
    schedulers: str | Sequence[str | Scheduler] = "fast",
    *,
    rounds: int = 3,
    training: int = 8,
    random_held_out: int = 8,
    repeats: int = 12,
    warmup: int = 3,
    rng: np.random.Generator | int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Accuracy:
    """Calibrate a backend on training schedules, then predict and measure others, in rounds.

    Parameters
    ----------
    graph, backend
        The graph to run, and the backend that runs it.
    schedulers
        As in `compare`; they make schedules for the calibrated cluster.
    rounds
        The first is predicted after `calibrate` from microbenchmarks and a profile of the graph, each later one after
        `recalibrate` with the round before.
    training
        Schedules at random that the profile runs.
    random_held_out
        Random schedules, new ones in each round, that are predicted and measured like the schedulers' own.
        `recalibrate` learns from them after their round.
    repeats, warmup
        As in `Backend.replay`.
    rng
        Generator or seed of every draw, whatever the backend adds.
    folder
        Folder of the measurements, each written when it is made. A second run with the same arguments reads them and
        measures only the rest. The results are written there, too, see `Accuracy.load`.
    progress
        Called with the name of each measurement and "" before it begins, and with a scheduler's progress while it runs.

    Returns
    -------
    Accuracy
        Errors are over held-out schedules, those that no fit has seen. Nothing is ever fitted to the schedulers'
        schedules, so they count in every round. An exception is a schedule that equals a training schedule: it stays in
        the table and in the regret. A schedule that cannot be made or run has a row with the reason.

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
    A round replays each program once, also where two schedulers agree on it. Uncalibrated predictions are made on the
    backend's own description of the cluster, with the graph's operator times, else a roofline. Predictions without
    contention are made on the calibrated cluster, where every kernel keeps the speed that it has alone.
    """
    require_counts(1, rounds=rounds, repeats=repeats)
    require_counts(0, training=training, random_held_out=random_held_out, warmup=warmup)
    names = scheduler_set(schedulers, graph)
    for scheduler in names:
        resolve(scheduler)  # a wrong name is refused before anything is measured
    tell: Progress = progress or (lambda _what, _doing: None)
    if isinstance(rng, int | np.integer):
        seed = int(rng)
    else:
        seed = None
    seeds = np.random.default_rng(rng).integers(2**62, size=rounds + 1).tolist()
    measurements = _Measurements(backend, folder, repeats, warmup)
    graph = backend.realise(graph)
    tell("microbenchmarks", "")
    _, micro = measurements.take(Profile, "microbenchmarks", backend.microbenchmarks)
    tell("profile", "")
    measure = partial(backend.profile, graph, in_situ=training, rng=seeds[0])
    _, profile = measurements.take(Profile, "profile", measure, graph.to_dict(), training, seeds[0])
    tell("profile", "calibrating")
    calibration = calibrate(backend.cluster, (micro, profile), graph)
    fitted = [digest(run.program) for run in profile.runs]
    done_rounds: list[Round] = []
    for number in range(1, rounds + 1):
        drawn = np.random.default_rng(seeds[number])
        at_random = {
            f"{RANDOM}{i + 1}": training_schedule(graph, backend.cluster, i, rng=drawn) for i in range(random_held_out)
        }
        this, traces, files = _round(number, graph, calibration, names, at_random, fitted, measurements, tell)
        done_rounds.append(this)
        learned = [replace(traces[name][1], name=f"round-{number}/{name}") for name in at_random if name in traces]
        if number < rounds and learned:
            tell(f"round {number}", "recalibrating")
            calibration = recalibrate(calibration, learned)
            fitted += [digest(replay.program) for replay in learned]
    environment = next(iter(traces.values()))[1].environment
    device = environment.get("device", backend.cluster.devices[0].model)
    accuracy = Accuracy(
        graph.name, backend.name, device, environment, seed, tuple(done_rounds), files, calibration, traces
    )
    if folder is not None:
        accuracy.save(folder)
    return accuracy


class _Measurements:
    """Measurements by a backend; with a folder, existing ones are read, and new ones are written.

    The name of a file has backend, cluster, program, repeats and round. A measurement that is kept is used as it reads
    back, so an interrupted run ends like one that was not.
    """

    def __init__(self, backend: Backend, folder: str | os.PathLike[str] | None, repeats: int, warmup: int) -> None:
        self.backend = backend
        self._counts = (repeats, warmup)
        if folder is None:
            self._folder = None
        else:
            self._folder = make_folder(folder, parents=False)

    def take(
        self, cls: type[Measured], kind: str, measure: Callable[[], Measured], *given: Any
    ) -> tuple[str, Measured]:
        """Return the measurement with these JSON values (`given`), and the name of its file."""
        name = f"{kind}-{_digest(self.backend.name, self.backend.cluster.to_dict(), *given)}.json"
        if self._folder is None:
            return name, measure()
        path = self._folder / name
        if not path.exists():
            with file_errors("write", path):
                TemporaryFile(dir=self._folder).close()  # no measurement is made in vain
            measure().save(path)
        return name, cls.load(path)

    def replay(self, program: Program, number: int) -> tuple[str, Replay]:
        """Return measured runs of a program in a round, and the name of their file."""
        repeats, warmup = self._counts
        measure = partial(self.backend.replay, program, repeats=repeats, warmup=warmup)
        return self.take(Replay, f"round-{number}", measure, program.to_dict(), repeats, warmup)


def digest(program: Program) -> str:
    """Return a text that programs share which launch the same work in the same order on the same streams."""
    return _digest(program.to_dict())


def _digest(*values: Any) -> str:
    return sha256(dump_json({"of": values}, indent=None).encode()).hexdigest()[:16]


def _round(
    number: int,
    graph: OpGraph,
    calibration: Calibration,
    schedulers: Sequence[str | Scheduler],
    at_random: Mapping[str, Schedule],
    fitted: Sequence[str],
    measurements: _Measurements,
    tell: Progress,
) -> tuple[Round, dict[str, tuple[Trace, Replay]], dict[str, str]]:
    """Return a round (schedules made, predicted and measured), and by scheduler its measured run and that run's file.

    `fitted` are digests of programs that a fit has seen.
    """

    def scheduling(name: str, doing: str) -> None:
        tell(f"round {number}, scheduler {name}", doing or "scheduling")

    comparison = compare(graph, calibration, schedulers, progress=scheduling)
    plans = [(row.scheduler, comparison.plans.get(row.scheduler), row.reason) for row in comparison.rows]
    backend = measurements.backend
    rows = []
    refused = None
    traces: dict[str, tuple[Trace, Replay]] = {}
    files: dict[str, str] = {}
    measured: dict[str, tuple[str, Replay]] = {}  # by digest of the program
    for name, plan, reason in [*plans, *((name, plan, None) for name, plan in at_random.items())]:
        tell(f"round {number}, {name}", "")
        if plan is None:
            rows.append(Outcome(name, reason=reason))
            continue
        try:
            program = prepare(backend, plan.over(_as_given(plan.graph, graph)))
            trace = simulate(program, calibration)
            key = digest(program)
            if key not in measured:
                measured[key] = measurements.replay(program, number)
            files[name], replay = measured[key]
            traces[name] = trace, replay
            held_out = key not in fitted
            rows.append(Outcome.of(name, program, trace, replay, calibration, backend.cluster, held_out=held_out))
        except (FileError, FormatError):  # of the folder: the scheduler is not at fault
            raise
        except SimschedError as error:
            refused = error
            rows.append(Outcome(name, reason=str(error)))
    if not traces:
        raise refused or BackendError(f"no scheduler found a schedule of {graph.name!r}: nothing can be measured")
    return Round.of(rows), traces, files


def _as_given(scheduled: OpGraph, graph: OpGraph) -> OpGraph:
    """Return a schedule's graph with the given graph's operator times, not a calibration's."""
    if scheduled.names == graph.names:
        return graph
    times = dict(zip(graph.names, graph.time.tolist(), strict=True))  # operators that a scheduler added have no time
    return with_times(scheduled, np.array([times.get(name, np.nan) for name in scheduled.names]))
