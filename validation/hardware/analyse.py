"""Results of measurements: ``python -m validation.hardware.analyse FOLDER [--recalibrate] [--json FILE]``.

Calibrates the simulator from the training schedules of a folder, predicts its held-out schedules and compares. No GPU
is needed and none is asked for. Ends with 1 if an error is a quarter above that in the folder's ``summary.json``, which
``--json`` wrote there before.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Final

from hwbackend.contact.store import Store
from simsched.base.codec import write
from simsched.base.errors import FileError, SimschedError
from simsched.base.io import dump_json, read_json, write_file
from simsched.calibration import Calibration, calibrate, recalibrate
from simsched.experiments.accuracy import digest
from simsched.experiments.rounds import FIGURES as OF_ROUNDS
from simsched.experiments.rounds import NOT_DEFINED, RANDOM, Outcome, Round, percent
from simsched.model.profile import Profile, Replay
from simsched.simulator import simulate
from validation.evidence import table
from validation.hardware.truth import TRUTH, facts

Json = dict[str, Any]
Fitted = Mapping[str, Mapping[str, Calibration]]

SUMMARY: Final = "summary.json"
FIGURES: Final = (*OF_ROUNDS[:4], "recalibrated_error", *OF_ROUNDS[4:])
_COLUMNS: Final = (
    "backend",
    "graph",
    "held out",
    "mean",
    "p90",
    "no contention",
    "uncalibrated",
    "recalibrated",
    "tau",
    "regret",
)
_PAIRED: Final = ("sequential_us", "parallel_us")
_BOUNDED: Final = ("mean_error", "p90_error", "regret")
_LEAST_BOUND: Final = 0.005
_MARGIN: Final = 1.25  # bound relative to the result, so that a fit may change a little


def calibrations(store: Store, wanted: Mapping[str, Sequence[str]] | None = None) -> Fitted:
    """Return the lessons of a folder's training schedules, by backend and graph.

    Parameters
    ----------
    store
        The measurements.
    wanted
        Which graphs of which backends; None stands for all.

    Raises
    ------
    FileError
        If there are no measurements.
    CalibrationError
        If they do not suffice.
    """
    if not len(store):
        raise FileError(f"{store.folder} holds no measurements: campaign.json and measurements.jsonl.gz are wanted")
    found: dict[str, dict[str, Calibration]] = {}
    for backend in _backends(store) if wanted is None else wanted:
        device = None
        key = f"microbenchmarks/{backend}"
        if key in store:
            micro = _profile(store, key)
            device = calibrate(micro.cluster, micro, held_out=0.0)
        for subject, known in _profiles(store, f"profiles/{backend}/"):
            if wanted is None or subject in wanted[backend]:
                found.setdefault(backend, {})[subject] = (
                    recalibrate(device, known.runs)
                    if device
                    else calibrate(known.cluster, known, known.graph, held_out=0.0)
                )
    return found


def summarise(store: Store, fitted: Fitted, *, again: bool = False) -> Json:
    """Return accuracy by backend and graph, and the results of the other measurements, as JSON values.

    Parameters
    ----------
    store
        The measurements.
    fitted
        Predicts its held-out schedules, by backend and graph.
    again
        Whether also to fit again with the held-out schedules at random, and predict those of schedulers with that.
    """
    backends = _backends(store)
    return {
        "plan": store.header.get("plan"),
        "environment": store.header.get("environment", {}),
        "accuracy": {name: _accuracy(store, name, known, again) for name, known in fitted.items()},
        "checks": {name: _checks(store, name) for name in backends},
        "hios_fig1": {name: _pairs(store, f"hios-fig1/{name}/") for name in backends},
        "opara_fig3": {name: _pairs(store, f"opara-fig3/{name}/") for name in backends},
        "unmeasured": store.header.get("unmeasured", {}),
    }


def _backends(store: Store) -> list[str]:
    return list(dict.fromkeys(key.split("/")[1] for key in store))


def _profile(store: Store, key: str) -> Profile:
    return Profile.from_dict(store[key]["profile"], key)


def _profiles(store: Store, prefix: str) -> Iterator[tuple[str, Profile]]:
    """Yield the profiles that are measured under a prefix, by the rest of their keys."""
    for key in store:
        if key.startswith(prefix):
            yield key.removeprefix(prefix), _profile(store, key)


def _accuracy(store: Store, backend: str, fitted: Mapping[str, Calibration], again: bool) -> Json:
    graphs: dict[str, Json] = {}
    rounds: list[Round] = []
    later: list[Round] = []
    for subject, calibration in fitted.items():
        profile = _profile(store, f"profiles/{backend}/{subject}")
        found = [run for _, held in _profiles(store, f"held-out/{backend}/{subject}/") for run in held.runs]
        seen = [digest(run.program) for run in profile.runs]
        rounds.append(_round(calibration, found, seen))
        graphs[subject] = write(rounds[-1]) | {"operators": len(profile.operators)}
        learned = [run for run in found if run.name.startswith(RANDOM)]
        if again and learned:
            seen += [digest(run.program) for run in learned]
            made = [run for run in found if not run.name.startswith(RANDOM)]
            later.append(_round(recalibrate(calibration, learned), made, seen))
            graphs[subject]["recalibrated_error"] = later[-1].mean_error
    pooled, relearned = (Round(tuple(row for one in many for row in one.schedules)) for many in (rounds, later))
    figures = {name: getattr(pooled, name) for name in FIGURES[:4]} | {"recalibrated_error": relearned.mean_error}
    for name in FIGURES[5:]:
        known = [value for one in rounds if (value := getattr(one, name)) is not None]
        figures[name] = mean(known) if known else None
    return figures | {"held_out": len(pooled.held_out), "graphs": graphs}


def _round(calibration: Calibration, runs: Sequence[Replay], seen: Sequence[str]) -> Round:
    rows = []
    for run in runs:
        held_out = digest(run.program) not in seen
        try:
            trace = simulate(run.program, calibration)
            rows.append(Outcome.of(run.name, run.program, trace, run, calibration, run.cluster, held_out=held_out))
        except SimschedError as error:
            rows.append(Outcome(run.name, reason=str(error)))
    return Round.of(rows)


def _checks(store: Store, backend: str) -> Json:
    prefix = f"kernels/{backend}/"
    checks = [store[key]["check"] for key in store if key.startswith(prefix)]
    unmeasured = store.header.get("unmeasured", {}).items()
    failed = {key.removeprefix(prefix): reason for key, reason in unmeasured if key.startswith(prefix)}
    worst = {
        key: max((check[key] for check in checks if check.get(key) is not None), default=None)
        for key in ("max_relative_error", "reference_error")
    }
    return {"passed": len(checks), **worst, "failed": failed}


def _pairs(store: Store, prefix: str) -> list[Json]:
    """Return for each pair of operators how long both take, one after the other and side by side, in us."""
    rows = []
    for name, profile in _profiles(store, prefix):
        runs = {run.name: run.median for run in profile.runs}
        for execution in dict.fromkeys(key.partition("/")[0] for key in runs):
            one, two = (runs[f"{execution}/{what}"] for what in ("sequential", "parallel"))
            row = {"pair": name, "execution": execution, "sequential_us": one, "parallel_us": two, "ratio": two / one}
            rows.append(row)
    return rows


def exceeded(found: Json, kept: Json) -> list[str]:
    """Return a line for each error that is more than a quarter above the error of the same graph in an earlier summary.

    An error within half a per cent is not worse than before: a smaller one is luck.
    """
    lines = []
    for name, backend in found["accuracy"].items():
        before = kept["accuracy"].get(name, {}).get("graphs", {})
        for (subject, row), key in product(backend["graphs"].items(), _BOUNDED):
            if (old := before.get(subject, {}).get(key)) is not None:
                bound = max(_LEAST_BOUND, _MARGIN * old)
                if row[key] is None or row[key] > bound:
                    lines.append(f"{name}, {subject}: {key} is {percent(row[key])}, bound {percent(bound)}")
    return lines


def tables(summary: Json) -> Iterator[str]:
    """Yield the lines of the tables, in Markdown."""
    for name, environment in summary["environment"].items():
        yield f"{name}: {environment.get('device')}, {environment.get('date')}, commit {environment.get('commit')}"
    yield ""
    rows: list[tuple[object, ...]] = []
    for name, found in summary["accuracy"].items():
        for subject, row in [*found["graphs"].items(), ("all", found)]:
            n = found["held_out"] if subject == "all" else sum(each["held_out"] for each in row["schedules"])
            tau = f"{row['kendall_tau']:.2f}" if row.get("kendall_tau") is not None else NOT_DEFINED
            rows.append(
                (name, subject, n, *(percent(row.get(key)) for key in FIGURES[:5]), tau, percent(row["regret"]))
            )
    yield from table(_COLUMNS, rows)
    for name, row in summary["checks"].items():
        yield ""
        yield (
            f"{name}: {row['passed']} checks of values passed; largest relative error against sequential execution "
            f"{_number(row['max_relative_error'])}, against numpy {_number(row['reference_error'])}"
        )
        yield from (f"{name}: {kernel} not checked: {reason}" for kernel, reason in row["failed"].items())
    for title in ("hios_fig1", "opara_fig3"):
        yield ""
        rows = [
            (row["pair"], name, row["execution"], *(f"{row[key]:.1f}" for key in _PAIRED), f"{row['ratio']:.3f}")
            for name, found in summary[title].items()
            for row in found
        ]
        times = ("sequential us", "parallel us", "parallel / sequential")
        yield from table((title, "backend", "execution", *times), rows)
    if summary["unmeasured"]:
        yield ""
        yield f"{len(summary['unmeasured'])} items are not measured; why is in campaign.json"


def _number(value: float | None) -> str:
    return NOT_DEFINED if value is None else f"{value:.2g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--recalibrate", action="store_true", help="fit again with the held-out schedules at random, too"
    )
    parser.add_argument("--json", type=Path, help=f"where the summary is written; FOLDER/{SUMMARY} keeps it")
    options = parser.parse_args(arguments)
    try:
        if not options.folder.is_dir():
            raise FileError(f"there is no folder {options.folder}")
        store = Store(options.folder)
        kept = options.folder / SUMMARY
        summary = summarise(store, calibrations(store), again=options.recalibrate)
        if (options.folder / TRUTH).exists():
            summary["measured"] = facts(options.folder)
        worse = exceeded(summary, read_json(kept)) if kept.exists() else []
        if options.json:
            write_file(options.json, dump_json(summary))
    except SimschedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    print(*tables(summary), *(f"exceeded: {line}" for line in worse), sep="\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
