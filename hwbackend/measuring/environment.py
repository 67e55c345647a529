"""Environment of a measurement: host, versions and date."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def environment(backend: str, device: str, **more: str) -> dict[str, str]:
    """Return place and time of a measurement, as every measurement has them, and the additions of a backend."""
    return {
        "backend": backend,
        "device": device,
        "host": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "simsched": own_version(),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **more,
    }


def own_version() -> str:
    """Return the version of this library, or "unknown" where it runs from its source without being installed."""
    try:
        return version("simsched")
    except PackageNotFoundError:
        return "unknown"


@cache
def _commit() -> str:
    """Return the commit of the source tree this runs from, with ``+`` if files differ from it, or "unknown"."""
    here = Path(__file__).resolve().parents[1]
    try:
        found = [
            subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True)
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno", "--", "."])
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found[0].stdout.strip() + ("+" if found[1].stdout.strip() else "")
