"""What campaigns share: options of their command lines, and logs, which keep as JSON what the last run found."""

import argparse
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from simsched.base.io import dump_json, write_file

FOLDER: Final = Path(__file__).resolve().parent
TESTS: Final = FOLDER.parent / "tests"


def options(text: str | None, arguments: Sequence[str] | None = None, **usual: object) -> argparse.Namespace:
    """Return the options of a command line, given what is usual; None stands for a text, such as the name of a file.

    >>> options("A campaign.", ["--seed", "3"], count=10, seed=0, log=None)
    Namespace(count=10, seed=3, log=None)
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in usual.items():
        parser.add_argument(f"--{name}", type=str if value is None else type(value), default=value)
    return parser.parse_args(arguments)


def keep(log: str | Path, found: dict[str, Any]) -> None:
    """Write what a run has found, with when it ran and on what."""
    ran = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "hypothesis", "llvmlite", "onnx")},
    }
    write_file(log, dump_json(ran | found))
