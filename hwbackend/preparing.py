"""From what `Backend.replay` is given to the program that it runs, and to what it says of where it ran."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hwbackend.protocol import Backend
from simsched.base.errors import BackendError
from simsched.base.numeric import is_count
from simsched.model.program import Program
from simsched.model.schedule import Schedule


def prepared(backend: Backend, schedule: Schedule | Program, repeats: int = 1, warmup: int = 0) -> Program:
    """Return the program of a schedule over the graph as the backend runs it.

    Raises
    ------
    BackendError
        If it was made for devices that the backend has not, or `repeats` or `warmup` is no such number.
    """
    for name, count, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if not is_count(count, least):
            raise BackendError(f"{name} must be a whole number of at least {least}, not {count!r}")
    names = [device.name for device in backend.cluster.devices]
    used = schedule.devices if isinstance(schedule, Program) else schedule.devices_used
    foreign = [name for name in used if name not in names]
    if foreign:
        raise BackendError(
            f"the schedule runs on {foreign[0]!r}, but the backend {backend.name!r} has {len(names)} "
            f"device{'s' if len(names) > 1 else ''}: {', '.join(names)}"
        )
    if isinstance(schedule, Program):
        if list(schedule.devices) != names:
            raise BackendError(
                f"the program was made for devices {', '.join(schedule.devices)}, not for all of "
                f"{', '.join(names)} of backend {backend.name!r}; give the schedule instead"
            )
        return schedule.over(backend.realise(schedule.graph)).check()
    return schedule.over(backend.realise(schedule.graph)).lower(backend.cluster)


def environment(backend: str, device: str, **more: str) -> dict[str, str]:
    """Return what every measurement says of where and when it was made, and what a backend adds."""
    return {
        "backend": backend,
        "device": device,
        "host": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "simsched": _version(),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **more,
    }


def _version() -> str:
    """Return the version of this library, or "unknown" where it runs from its source without being installed."""
    try:
        return version("simsched")
    except PackageNotFoundError:
        return "unknown"


@cache
def _commit() -> str:
    """Return the commit of the source tree this runs from, with ``+`` if files differ from it, or "unknown"."""
    here = Path(__file__).resolve().parent
    try:
        found = [
            subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True)
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno", "--", "."])
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found[0].stdout.strip() + ("+" if found[1].stdout.strip() else "")
