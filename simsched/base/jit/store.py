"""Machine code on disk: each file holds a digest of what follows, so that a damaged one counts as none."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from simsched.base.io import write_file

FOLDER: Final = "SIMSCHED_CACHE_DIR"
"""Environment variable: where machine code is kept."""
SHIPPED: Final = Path(__file__).parent / "objects"
"""Where a release has optimised code."""


def folders() -> list[Path]:
    """Return where code may be kept, the first choice first."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return [Path(chosen)]
    found = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        found.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simsched")
    return found


def read(path: Path) -> bytes:
    """Return the code in a file; raise ValueError if it is damaged."""
    content = path.read_bytes()
    if sha256(content[32:]).digest() != content[:32]:
        raise ValueError(f"{path} is not what was written")
    return content[32:]


def pack(data: bytes) -> bytes:
    """Return what a file holds: a digest, and the code."""
    return sha256(data).digest() + data


def write(path: Path, data: bytes) -> None:
    """Write code whole or not at all; whoever is first, the content is the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, pack(data))
