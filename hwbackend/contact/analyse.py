"""`analyse`: one page on what a contact or a kept campaign says, beside what the last kept one said."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np

from hwbackend.contact.campaign import campaign_device, campaign_rounds, is_campaign
from hwbackend.contact.estimates import Drift, runs_of
from hwbackend.contact.findings import DoctorFinding, findings
from hwbackend.contact.fitted import Fitted, figures, fit_contact, prior_of, rounds, subjects_of
from hwbackend.contact.lines import ContactRecord, is_contact, missing, read_record
from hwbackend.contact.sections import SECTIONS, SIZES, all_items
from hwbackend.contact.sections.solo import solo_operator
from hwbackend.contact.store import Store
from simsched.base.errors import CalibrationError, FileError, FormatError, UnknownNameError
from simsched.base.io import read_json
from simsched.experiments.rounds import Round
from simsched.model import Cluster, roofline

Json = dict[str, Any]

SUMMARY: Final = "contact.json"
"""The figures of a kept contact in its folder."""
_CAMPAIGN_SUMMARY: Final = "summary.json"
_FIGURES: Final = ("mean_error", "p90_error", "kendall_tau", "regret")
_BOUNDED: Final = ("mean_error", "p90_error", "regret")
_MARGIN: Final = 1.25  # times a kept figure: a fit may change a little
_LEAST: Final = 0.005  # below which a figure is luck
_NONE: Final = "-"


@dataclass(frozen=True)
class Analysis:
    """Results of a contact.

    Parameters
    ----------
    title
        Device, date and commit.
    doctor
        The doctor's findings.
    parameters
        Rows of the table of parameters, the first its headings.
    rows
        Figures by section or graph: ``items``, ``held_out``, ``mean_error``, ``p90_error``, ``kendall_tau`` and
        ``regret``; errors and regret are fractions.
    beside
        The same of a kept measurement.
    notes
        Lines below the tables.
    """

    title: str
    doctor: tuple[DoctorFinding, ...] = ()
    parameters: tuple[tuple[str, ...], ...] = ()
    rows: Mapping[str, Json] = field(default_factory=dict)
    beside: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> Json:
        """Return it as JSON values."""
        return {
            "title": self.title,
            "doctor": [finding._asdict() for finding in self.doctor],
            "parameters": [list(row) for row in self.parameters],
            "rows": dict(self.rows),
            "notes": list(self.notes),
        }

    def worse(self) -> list[str]:
        """Return a line for each figure that is more than a quarter above the kept one."""
        lines = []
        for name, row in self.rows.items():
            for figure in _BOUNDED:
                kept = self.beside.get(name, {}).get(figure)
                value = row.get(figure)
                if kept is None:
                    continue
                bound = max(_LEAST, _MARGIN * kept)
                if value is None or value > bound:
                    lines.append(f"{name}: {figure} is {_percent(value)}, bound {_percent(bound)}")
        return lines

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page, in Markdown."""
        yield f"# {self.title}"
        if self.doctor:
            yield ""
            rows = [(one.matter, one.verdict, one.seen, one.meaning) for one in self.doctor]
            yield from _table(("doctor", "", "measured", "what it means"), rows)
        if self.parameters:
            yield ""
            yield from _table(self.parameters[0], self.parameters[1:])
        yield ""
        headings = ("section", "items", "held out", "error", "p90", "tau", "regret", "kept: error", "p90", "regret")
        yield from _table(headings, [self._cells(name, row) for name, row in self.rows.items()])
        if self.notes:
            yield ""
            yield from self.notes
        yield from (f"worse than kept: {line}" for line in self.worse())

    def _cells(self, name: str, row: Json) -> tuple[str, ...]:
        kept = self.beside.get(name, {})
        tau = row.get("kendall_tau")
        return (
            name,
            str(row.get("items", _NONE)),
            str(row.get("held_out", _NONE)),
            _percent(row.get("mean_error")),
            _percent(row.get("p90_error")),
            _NONE if tau is None else f"{tau:.2f}",
            _percent(row.get("regret")),
            *(_percent(kept.get(figure)) for figure in _BOUNDED),
        )


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f} %"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table whose columns are aligned."""
    cells = [tuple(headings), *(tuple(cell.replace("|", "/") for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    for number, row in enumerate(cells):
        yield f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"


def analyse(folder: str | Path, *, beside: str | Path | None = None, operators: int | None = None) -> Analysis:
    """Return the results of a folder of measurements.

    Parameters
    ----------
    folder
        A contact, or a campaign that was kept.
    beside
        A folder that was kept, whose figures stand beside these; None takes those that the folder itself has.
    operators
        Graphs of more operators are not predicted, since they take minutes to calibrate.

    Raises
    ------
    FileError, FormatError
        If it holds neither, or is damaged.
    CalibrationError
        If nothing was measured that can be fitted.
    """
    kept = kept_rows(folder if beside is None else beside)
    if is_contact(folder):
        return _analyse_contact(read_record(folder), kept, operators)
    if is_campaign(folder):
        return _analyse_campaign(Store(folder), kept, operators)
    raise FileError(f"{folder} holds no measurements: neither contact.jsonl nor campaign.json is there")


def kept_rows(folder: str | Path) -> Mapping[str, Json]:
    """Return the figures that were kept in a folder, by section or graph; none if there are none."""
    path = Path(folder) / SUMMARY
    if path.exists():
        rows: Mapping[str, Json] = read_json(path)["rows"]
        return rows
    path = Path(folder) / _CAMPAIGN_SUMMARY
    if not path.exists():
        return {}
    accuracy = read_json(path)["accuracy"]
    kept = {f"{name}/{graph}": row for name, one in accuracy.items() for graph, row in one["graphs"].items()}
    return kept | {f"{name}, all": one for name, one in accuracy.items()}


def _analyse_campaign(store: Store, kept: Mapping[str, Json], operators: int | None) -> Analysis:
    done = dict(campaign_rounds(store, operators=operators))
    rows = {name: figures([one]) for name, one in done.items()}
    graphs = {key.removeprefix("profiles/") for key in store if key.startswith("profiles/")}
    left_out = sorted(graphs - set(done))
    if not left_out:  # then they are the same graphs as those kept
        for name in dict.fromkeys(key.split("/")[0] for key in done):
            rows[f"{name}, all"] = figures([one for key, one in done.items() if key.startswith(f"{name}/")])
    notes = [f"not predicted, too large or without held-out schedules: {', '.join(left_out)}"] if left_out else []
    return Analysis(campaign_device(store), rows=rows, beside=kept, notes=tuple(notes))


def _analyse_contact(record: ContactRecord, kept: Mapping[str, Json], operators: int | None) -> Analysis:
    if not record.headers:
        raise FormatError("the contact has no header line: it was not written by `simsched contact run`")
    header = record.headers[0]
    settings = header["contact"]
    if settings["size"] not in SIZES:
        raise UnknownNameError("size", settings["size"], list(SIZES))
    title = f"{settings['backend']}, {header['date']}, commit {header['environment'].get('commit')}"
    notes: list[str] = []
    try:
        cluster = prior_of(record)
    except CalibrationError as error:
        return Analysis(title, beside=kept, notes=(str(error), *_reasons(record)))
    rows = _counts(record, cluster, settings["size"])
    fitted: Fitted | None = None
    try:
        fitted = fit_contact(record)
    except CalibrationError as error:
        notes.append(str(error))
    parameters: tuple[tuple[str, ...], ...] = ()
    if fitted is not None:
        parameters = (*fitted.calibration.table(), *_direct_rows(fitted))
        _fill(rows, record, fitted, operators)
        notes += fitted.calibration.warnings()
    rows = {name: row for name, row in rows.items() if row["items"] or row.get("wanted")}
    title += f": {cluster.devices[0].model}"
    doctor = tuple(findings(record, cluster))
    return Analysis(title, doctor, parameters, rows, kept, (*notes, *_compiled_lines(record), *_reasons(record)))


def _counts(record: ContactRecord, cluster: Cluster, size: str) -> dict[str, Json]:
    """Return how many items of each section were measured, and how many are wanted."""
    items = all_items(cluster, SIZES[size])
    return {
        section: {"items": sum(item.key in record.items for item in items[section]), "wanted": len(items[section])}
        for section in SECTIONS
    }


def _direct_rows(fitted: Fitted) -> list[tuple[str, ...]]:
    """Return the direct estimates that are no parameters of the simulator, as rows of the table of parameters."""
    names = {row.name for row in fitted.calibration.parameters}
    others = {name: value for name, value in fitted.direct.items() if name not in names}
    return [(name, f"{value:.4g}", _NONE, _NONE, "measured directly") for name, value in others.items()]


def _fill(rows: dict[str, Json], record: ContactRecord, fitted: Fitted, operators: int | None) -> None:
    """Add what was predicted to the rows of sections, and a row for each graph."""
    for section, beginnings in (("host", ("overhead/",)), ("saturation", ("solo/",)), ("copies", ("transfer/",))):
        errors = [abs(one.error) for one in fitted.calibration.residuals if one.name.startswith(beginnings)]
        rows[section] |= _errors(errors) | {"held_out": 0}
    rows["sharing"] |= _errors([abs(one.error) for one in fitted.pairs]) | {"held_out": len(fitted.pairs)}
    errors = solo_errors(record, fitted.calibration.cluster)
    rows["solo"] |= _errors(errors) | {"held_out": len(errors)}
    predicted: dict[str, list[Round]] = {}
    for name, one in rounds(record, fitted, operators=operators):
        predicted.setdefault(name.split("/")[0], []).append(one)
        rows[name] = {"items": _NONE} | figures([one])
    for section, several in predicted.items():
        rows[section] |= figures(several)
    order = [*SECTIONS]
    graphs = [f"{section}/{subject}" for section in order for subject in subjects_of(record, section)]
    for name in graphs:
        if name in rows:
            rows[name] = rows.pop(name)


def _errors(errors: Sequence[float]) -> Json:
    if not errors:
        return {}
    return {"mean_error": mean(errors), "p90_error": float(np.quantile(errors, 0.9))}


def solo_errors(record: ContactRecord, cluster: Cluster) -> list[float]:
    """Return the error of the roofline for each operator that was measured warm, as fractions.

    A warm operator takes what ten in a captured graph take longer than one, over nine.
    """
    drift = Drift.of(record)
    device = cluster.devices[0]
    times: dict[str, dict[str, float]] = {}
    for key, run in runs_of(record, drift, "solo/"):
        times.setdefault(key, {})[run.name] = run.median
    errors = []
    for key, row in times.items():
        if {"warm/1", "warm/10"} <= set(row):
            line = record.items[key]
            warm = (row["warm/10"] - row["warm/1"]) / 9
            predicted = roofline(solo_operator(line["kind"], line["shape"]).operator(0), device) + device.graph_node
            errors.append(abs(predicted - warm) / warm)
    return errors


def _compiled_lines(record: ContactRecord) -> list[str]:
    """Return a line for each network of the section on compilation."""
    lines = []
    for key, line in record.items.items():
        if key.startswith("compile/"):
            times = ", ".join(f"{name} {us:.1f}" for name, us in line["us"].items())
            lines.append(f"{key.removeprefix('compile/')}, us: {times}")
    return lines


def _reasons(record: ContactRecord) -> list[str]:
    """Return why items are missing, in a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for key, reason in missing(record, list(record.failures)).items():
        by_reason.setdefault(reason, []).append(key)
    return [
        f"missing, {reason}: {keys[0]}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")
        for reason, keys in by_reason.items()
    ]
