"""Logs of the campaigns: each keeps what its last run found beside it, as JSON."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from simsched.base.io import dump_json, write_file

FOLDER: Final = Path(__file__).resolve().parent
TESTS: Final = FOLDER.parent / "tests"


def keep(log: str | Path, found: dict[str, Any]) -> None:
    """Write what a run has found, with when it ran and on what."""
    ran = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "hypothesis", "llvmlite", "onnx")},
    }
    write_file(log, dump_json(ran | found))
