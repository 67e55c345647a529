"""What the operating system and BLAS let threads do here: cores, real-time priority, one thread for each product."""

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

SUPPORTED: Final = hasattr(os, "sched_setaffinity") and hasattr(os, "SCHED_FIFO")
"""Whether threads can be pinned to cores, as on Linux."""

WORKER_PRIORITY: Final = 10
ISSUER_PRIORITY: Final = 11
"""Real-time priorities: a host that issues goes before blocks, as on a GPU it has a core of its own."""

_PREFIXES: Final = ("scipy_openblas", "openblas")
_SUFFIXES: Final = ("64_", "_64", "", "_")


def cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0))) if SUPPORTED else ()


def settle(core: int | None, priority: int | None) -> bool:
    """Pin the calling thread to a core and give it a real-time priority; return whether it has one.

    Without a priority, or where none is permitted, a thread with a core gets the policy for batches: waking up,
    it does not push aside the host that issues.
    """
    if core is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, {core})
    if priority is not None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        except OSError:
            pass
        else:
            return True
    if core is not None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    return False


def in_thread(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of its own, whose pinning and priority end with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def realtime_permitted() -> bool:
    """Return whether threads of this process may have real-time priority."""
    return SUPPORTED and bool(in_thread(lambda: settle(None, WORKER_PRIORITY)))


class BlasLibrary(NamedTuple):
    """An OpenBLAS of this process, and its functions that read and set how many threads it uses."""

    name: str
    get: Any
    put: Any


@contextmanager
def one_blas_thread() -> Iterator[str]:
    """Keep every product of matrices on the thread that asks for it; yield what was found.

    numpy and scipy bring an OpenBLAS each, so all of them are limited. Others are left as they are.
    """
    libraries = blas_libraries()
    before = [library.get() for library in libraries]
    for library in libraries:
        library.put(1)
    try:
        names = ", ".join(dict.fromkeys(library.name for library in libraries))
        yield f"{names}, 1 thread" if libraries else "unknown, its threads are not limited"
    finally:
        for library, threads in zip(libraries, before, strict=True):
            library.put(threads)


def blas_libraries() -> list[BlasLibrary]:
    """Return the OpenBLAS libraries that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in maps.splitlines() if "blas" in line.rpartition("/")[2])
    found: dict[int | None, BlasLibrary] = {}  # by where their code is: others lead to the same
    for path in sorted(paths, key=lambda path: "openblas" not in path.rpartition("/")[2]):
        library = _blas_library(path)
        if library is not None:
            found.setdefault(ctypes.cast(library.put, ctypes.c_void_p).value, library)
    return list(found.values())


def _blas_library(path: str) -> BlasLibrary | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            names = [f"{prefix}_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                get, put = (getattr(library, name) for name in names)
                get.restype, put.restype, put.argtypes = ctypes.c_int, None, [ctypes.c_int]
                return BlasLibrary(Path(path).name.partition("-")[0].partition(".")[0], get, put)
    return None
