"""The project's own campaign on the H100: schedules that no fit has seen, predicted by a calibrated simulator."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hwbackend.contact.store import Store
from simsched.calibration import Calibration
from validation.evidence import each
from validation.h100.figures import Figure, Section
from validation.hardware.analyse import calibrations, summarise
from validation.hardware.truth import MEASURED, Json

BACKEND: Final = "cupy"


def analyse(folder: Path = MEASURED, backend: str = BACKEND, workers: int = 1) -> Json:
    """Return the accuracy that `validation.hardware.analyse` finds, its graphs shared out to processes."""
    store = Store(folder)
    profiles = {
        key.removeprefix(f"profiles/{backend}/"): key for key in store if key.startswith(f"profiles/{backend}/")
    }
    held = [subject for subject in profiles if any(key.startswith(f"held-out/{backend}/{subject}/") for key in store)]
    longest_first = sorted(held, key=lambda subject: -len(store[profiles[subject]]["profile"]["operators"]))
    parts = each(partial(_calibrated, folder, backend), longest_first, workers)
    fitted = dict(zip(longest_first, parts, strict=True))
    accuracy: Json = summarise(store, {backend: {subject: fitted[subject] for subject in held}})["accuracy"][backend]
    return accuracy


def _calibrated(folder: Path, backend: str, subject: str) -> Calibration:
    return calibrations(Store(folder), {backend: [subject]})[backend][subject]


def campaign_section(workers: int = 1) -> Section:
    """Return the accuracy of calibrated predictions of the held-out schedules."""
    accuracy = analyse(workers=workers)
    figures = [
        Figure("campaign, held-out schedules: mean error, %", 100 * accuracy["mean_error"], most=4.0),
        Figure("campaign: 90th percentile, %", 100 * accuracy["p90_error"], most=9.0),
        Figure("campaign: Kendall's tau", accuracy["kendall_tau"], least=0.82),
        Figure("campaign: regret, %", 100 * accuracy["regret"], most=1.0),
    ]
    columns = ("graph", "held out", "mean", "p90", "no contention", "uncalibrated", "tau", "regret")
    return Section("Campaign", figures, columns, [_row(name, row) for name, row in accuracy["graphs"].items()])


def _row(name: str, row: Json) -> Sequence[object]:
    n = sum(schedule["held_out"] for schedule in row["schedules"])
    errors = (f"{row[key]:.1%}" for key in ("mean_error", "p90_error", "no_contention_error", "uncalibrated_error"))
    return (name, n, *errors, f"{row['kendall_tau']:.2f}", f"{row['regret']:.1%}")
