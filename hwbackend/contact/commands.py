"""The commands of a contact, which both command lines call."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hwbackend.contact.analyse import Analysis, analyse
from hwbackend.contact.findings import DoctorFinding, findings
from hwbackend.contact.fitted import prior_of
from hwbackend.contact.lines import ContactRecord
from hwbackend.contact.run import run_contact
from simsched.base.errors import BackendError, CalibrationError
from simsched.base.io import dump_json, write_file


def measure(
    folder: str,
    backend: str,
    options: Mapping[str, Any],
    *,
    seconds: float,
    size: str,
    patience: float,
    tell: Callable[[str], None],
) -> Iterator[str]:
    """Measure a device, and yield lines about what was found odd.

    Parameters
    ----------
    tell
        Called with a line for each section as it ends; all others as for `run_contact`.
    """
    if not seconds > 0 or not patience > 0:
        raise BackendError(f"seconds and patience must be above 0, not {seconds:g} and {patience:g}")
    record = run_contact(folder, backend, options, seconds=seconds, size=size, patience=patience, tell=tell)
    yield f"{len(record.items)} items in {folder}; simsched contact analyse {folder}"
    yield from doctor_lines(record)


def doctor_lines(record: ContactRecord) -> Iterator[str]:
    """Yield a line for each of the doctor's findings that is not ok."""
    try:
        cluster = prior_of(record)
    except CalibrationError as error:
        yield f"doctor: {error}"
        return
    for finding in findings(record, cluster):
        if finding.verdict in ("odd", "fail"):
            yield f"doctor: {_sentence(finding)}"


def _sentence(finding: DoctorFinding) -> str:
    meaning = f": {finding.meaning}" if finding.meaning else ""
    return f"{finding.verdict}, {finding.matter}: {finding.seen}{meaning}"


def judge(
    folder: str, *, beside: str | None = None, operators: int | None = None, output: str | None = None
) -> tuple[Analysis, int]:
    """Analyse a folder; return the page, and 1 if a figure is worse than the kept one, else 0.

    Parameters
    ----------
    output
        File for the figures; ``contact.json`` in the folder keeps them. All others as for `analyse`.
    """
    analysis = analyse(Path(folder), beside=beside, operators=operators)
    if output is not None:
        write_file(output, dump_json(analysis.to_dict()))
    return analysis, int(bool(analysis.worse()))
