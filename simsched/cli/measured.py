"""What `backends`, `calibrate` and `replay` print."""

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from simsched.base.units import format_time
from simsched.cli.describe import Fact

if TYPE_CHECKING:
    from simsched.calibration import Calibration
    from simsched.model.profile import Replay


def backend_table() -> Table:
    """Return the backends, and whether they can be used here."""
    from hwbackend import available

    table = Table(title="backends", title_justify="left")
    for heading in ("name", "usable", "runs on", "found"):
        table.add_column(heading)
    for entry in available():
        cells = (entry.name, "yes" if entry.usable else "no", entry.description, entry.reason)
        table.add_row(*map(escape, cells), style=None if entry.usable else "dim")
    return table


def parameter_table(calibration: "Calibration") -> Table:
    """Return the parameters of a calibration with their intervals."""
    headings, *rows = calibration.table()
    table = Table(title=escape(f"{calibration.cluster.name}: parameters in us and bytes per us"), title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if 0 < i < len(headings) - 1 else "left")
    for row, parameter in zip(rows, calibration.parameters, strict=True):
        table.add_row(*map(escape, row), style=None if parameter.identified else "dim")
    return table


def calibration_facts(calibration: "Calibration") -> list[tuple[str, str]]:
    """Return what else is said of a calibration, by name."""
    error = calibration.error
    told = "not known: no run was held out"
    if error is not None:
        runs = "run" if error.runs == 1 else "runs"
        told = (
            f"mean {100 * error.mean:.1f} %, p90 {100 * error.p90:.1f} % of makespans of {error.runs} held-out {runs}"
        )
    graph = "-" if calibration.graph is None else calibration.graph.name
    return [
        ("graph", graph),
        ("operators", f"{len(calibration.times)} measured"),
        ("runs", f"{len(calibration.residuals)}"),
        ("error", told),
        *(("warning", line) for line in calibration.warnings()),
    ]


def replay_facts(run: "Replay", predicted: float | None) -> list[Fact]:
    """Return facts about measured runs as (name, JSON value, text); `predicted` is a makespan in us."""
    found, program = run.summary, run.program
    error = run.max_relative_error
    facts: list[Fact] = [
        ("graph", program.graph.name, f"{program.graph.name}: {len(program.graph)} operators"),
        ("backend", run.environment.get("backend"), run.environment.get("backend", "-")),
        ("device", run.environment.get("device"), run.environment.get("device", "-")),
        ("execution", program.execution, program.execution),
        ("repeats", found.n, str(found.n)),
        ("measured_us", found.median, f"{format_time(found.median)}, median"),
        ("measured_p10_us", found.p10, format_time(found.p10)),
        ("measured_p90_us", found.p90, format_time(found.p90)),
        ("max_relative_error", error, "outputs were not compared" if error is None else f"{error:.2g} of outputs"),
    ]
    if predicted is not None:
        off = (predicted - found.median) / found.median if found.median else None
        told = "" if off is None else f", {100 * off:+.1f} % of measured"
        facts += [
            ("predicted_us", predicted, format_time(predicted) + told),
            ("error", None if off is None else abs(off), "-" if off is None else f"{100 * abs(off):.1f} %"),
        ]
    return facts
