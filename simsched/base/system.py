"""Failures of the system: memory, threads, files."""

import mmap
import os
import re
import resource
import threading
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
_MOST_THREADS: Final = 64  # of OpenBLAS
_NO_THREAD: Final = "can't start new thread"
_NO_MEMORY: Final = re.compile("failed to map|cannot (allocate|apply|map)|out of memory", re.IGNORECASE)
"""What the dynamic loader says where there is too little memory."""


def require_memory(nbytes: int) -> None:
    """Raise MemoryError if the process cannot get so many bytes more; none are kept.

    It is for libraries in C, which end the process if they do not get their memory.
    """
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, ValueError):
        raise MemoryError(f"{nbytes // MIB} MiB more are needed") from None


def _address_space() -> int | None:
    """Return how many MiB the process may address, None for any number."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    return limit // MIB


def has_threads(count: int = 1) -> bool:
    """Return whether the system lets us start so many threads at a time."""
    end = threading.Event()
    try:
        for _ in range(count):
            threading.Thread(target=end.wait, daemon=True).start()
    except RuntimeError:
        return False
    finally:
        end.set()
    return True


def spare_openblas() -> None:
    """Let OpenBLAS work in one thread where more may not be had, or the memory for them; call it before numpy is there.

    When it is loaded and a thread or memory is missing, it interrupts the process, prints, ends it or tries for ever.
    """
    wanted = min(os.cpu_count() or 1, _MOST_THREADS) - 1
    if _address_space() is not None or not has_threads(wanted):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _has_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def lack(error: BaseException) -> str | None:
    """Return a line that names the resource that the system refused, None for any other error."""
    limit = _address_space()
    if isinstance(error, MemoryError) or (
        isinstance(error, SystemError) and limit is not None
    ):  # as of numpy's modules
        return "out of memory; try a smaller graph" + (
            "" if limit is None else f", or allow more than {limit} MiB (ulimit -v)"
        )
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return "the system starts no thread: too many are running (ulimit -u), or memory is short (ulimit -v)"
    if isinstance(error, ImportError) and _NO_MEMORY.search(str(error)):
        cause = str(error).rpartition("Original error was: ")[2]  # below a page of numpy's advice
        return f"out of memory (ulimit -v) while a library is loaded: {' '.join(cause.split())}"
    if isinstance(error, OSError):
        paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
        text = error.strerror or str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError) and not paths and not _has_folder():
            return "the current folder does not exist any more; change to one that does"
        if paths:
            return f"{text}: {' -> '.join(paths)}"
        return text
    return None
