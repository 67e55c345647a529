"""Helpers of campaigns: options of their command lines, processes, tables, and logs of the results of a run."""

import argparse
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

from simsched.base.io import dump_json, write_file

FOLDER: Final = Path(__file__).resolve().parent


def options(text: str | None, arguments: Sequence[str] | None = None, **usual: object) -> argparse.Namespace:
    """Return the options of a command line, given the usual values; None means a text, such as the name of a file.

    >>> options("A campaign.", ["--seed", "3"], count=10, seed=0, log=None)
    Namespace(count=10, seed=3, log=None)
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in usual.items():
        parser.add_argument(f"--{name}", type=str if value is None else type(value), default=value)
    return parser.parse_args(arguments)


def keep(log: str | Path, found: dict[str, Any]) -> None:
    """Write the results of a run, with its time and machine."""
    ran = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "hypothesis", "llvmlite", "onnx")},
    }
    write_file(log, dump_json(ran | found))


_T = TypeVar("_T")
_R = TypeVar("_R")


def processes(workers: int) -> ProcessPoolExecutor:
    """Return a pool of processes that begin anew: one copied from a process with threads may wait for them for ever."""
    return ProcessPoolExecutor(workers, get_context("spawn"))


def each(function: Callable[[_T], _R], items: Sequence[_T], workers: int) -> list[_R]:
    """Return the values of a function in the order of the items; with one worker, in this process."""
    if workers == 1:
        return [function(item) for item in items]
    with processes(workers) as pool:
        return list(pool.map(function, items))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    r"""Yield the lines of a Markdown table.

    >>> list(table(["of", "us"], [("a|b", 1.5)]))
    ['| of | us |', '|---|---|', '| a\\|b | 1.5 |']
    """
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
