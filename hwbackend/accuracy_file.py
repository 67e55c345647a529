"""What a validation came to as a file beside its measurements, so that it can be looked at again without measuring."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from hwbackend.accuracy_rows import FIGURES, Accuracy, Outcome, Round
from simsched.base.errors import FileError, FormatError
from simsched.base.io import Record, document, dump_json, naming, read_json, write_file
from simsched.model.profile import Replay
from simsched.simulator import simulate

FORMAT, VERSION = "simsched.accuracy", 1
NAME: Final = "accuracy.json"
_KINDS: Final = {"scheduler": str, "held_out": bool, "reason": str, "rank_predicted": int, "rank_measured": int}


def save_accuracy(accuracy: Accuracy, folder: str | os.PathLike[str], files: Mapping[str, str]) -> None:
    """Write what a validation came to into the folder of its measurements.

    Parameters
    ----------
    files
        Name of the file of the measured runs by scheduler, of the last round.
    """
    data = {
        "format": FORMAT,
        "version": VERSION,
        **accuracy.to_dict(),
        "runs": dict(files),
        "calibration": accuracy.calibration.to_dict(),
    }
    write_file(Path(folder, NAME), dump_json(data, indent=None))


def load_accuracy(folder: str | os.PathLike[str]) -> Accuracy:
    """Read what a validation came to; its last round is simulated again, and nothing is measured.

    Parameters
    ----------
    folder
        That `validate` was given.

    Raises
    ------
    FileError
        If it holds no such file, or not the measurements that it names.
    FormatError
        If a file is damaged.
    """
    from simsched.calibration import Calibration

    path = Path(folder, NAME)
    if not path.exists():
        raise FileError(f"{folder}: not the folder of a finished validation, since it has no {NAME}; run it to its end")
    top = document(read_json(path), FORMAT, VERSION, str(path))
    rounds = tuple(_round(row) for row in top.records("rounds"))
    if not rounds or not all(each.schedules for each in rounds):
        raise FormatError(f"{path}: a validation has at least one round, and a round at least one schedule")
    calibration = Calibration.from_dict(top.take("calibration", dict), f"{path}: calibration")
    traces = {}
    for scheduler, name in _texts(top, "runs").items():
        if Path(name).name != name:
            raise FormatError(f"{path}: runs of {scheduler!r} must be a file beside it, not {name!r}")
        replay = Replay.load(Path(folder, name))
        with naming(f"{path}: runs of {scheduler!r}"):
            traces[scheduler] = simulate(replay.program, calibration), replay
    return top.build(
        Accuracy,
        graph=top.take("graph", str),
        backend=top.take("backend", str),
        device=top.take("device", str),
        environment=_texts(top, "environment"),
        seed=top.take("seed", int, None),
        rounds=rounds,
        calibration=calibration,
        traces=traces,
    )


def _round(record: Record) -> Round:
    rows = tuple(_outcome(row) for row in record.records("schedules"))
    for name in FIGURES:  # they follow from the rows
        record.take(name, float, None)
    return record.build(Round, schedules=rows)


def _outcome(record: Record) -> Outcome:
    record.take("error", float, None)
    known: dict[str, Any] = {
        field.name: record.take(
            field.name, _KINDS.get(field.name, float), *(() if field.name == "scheduler" else (None,))
        )
        for field in fields(Outcome)
    }
    return record.build(Outcome, **known | {"held_out": bool(known["held_out"])})


def _texts(record: Record, key: str) -> dict[str, str]:
    found: dict[str, str] = record.take(key, dict)
    if not all(isinstance(text, str) for text in found.values()):
        raise FormatError(f"{record.where}: field {key!r} must hold texts")
    return found
