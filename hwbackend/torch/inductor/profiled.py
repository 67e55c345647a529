"""Times and launches of Inductor's kernels alone, from a profile of them in its own order: exact, or none.

A wrapper annotates its kernels by `Marks`, and `read_kernels` reads the trace of a few calls of it.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hwbackend.torch.traces import ITERATION
from simsched.base.errors import FormatError
from simsched.model.profile import Profile
from workloads.formats.kineto import read_kineto
from workloads.formats.kineto.events import Events, read_events
from workloads.formats.kineto.text import read_trace

UNNAMED: Final = "triton_"
"""Name of all functions of Triton where ``torch._inductor.config.triton.unique_kernel_names`` is off."""
_launches: Final = re.compile(r"(cu|cuda|hip|hipExt)(Module)?Launch(Cooperative)?Kernel").match


class Marks:
    """Annotations of the profiler, of which one at a time is open."""

    def __init__(self) -> None:
        self._open: Any = None

    def on(self, name: str) -> None:
        """Annotate the launches from here on."""
        from torch.profiler import record_function

        self.close()
        self._open = record_function(name)
        self._open.__enter__()

    def close(self) -> None:
        """End the annotation that is open."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = None


def read_kernels(path: str | os.PathLike[str], functions: Mapping[str, Sequence[str]], count: int) -> Profile:
    """Return the times and launches of kernels alone, from a trace of some calls that annotate them.

    Parameters
    ----------
    path
        A trace of `hwbackend.torch.traces.recorded`.
    functions
        By the name of each kernel that launches: names of the functions of Triton that it calls, in order. A kernel of
        a library calls none.
    count
        How many calls there are.

    Returns
    -------
    Profile
        An operator for each kernel. One that calls a library may launch several functions, or none and take 0 us.

    Raises
    ------
    FileError, FormatError
        If the trace is not exactly of these kernels: each annotated once a call, all launches reported once,
        on one stream, within the annotation of the kernel that calls it, and the same in each call.
    """
    source = str(path)
    _require_whole(read_events(read_trace(path), source), source)
    profile = read_kineto(path, graph=list(functions), iteration=ITERATION, skip=0)
    if profile.provenance.iterations != count:
        raise FormatError(f"{source}: {profile.provenance.iterations} calls are annotated where there were {count}")
    every = {name for names in functions.values() for name in names} | {UNNAMED}
    for name, wanted in functions.items():
        measured = profile[name]
        if len(measured.samples) != count:
            raise FormatError(f"{source}: kernel {name!r} launched other functions in one call than in another")
        launched = [kernel.name for kernel in measured.kernels if kernel.name in every]
        if launched not in (list(wanted), [UNNAMED] * len(wanted)):
            raise FormatError(
                f"{source}: kernel {name!r} calls {', '.join(wanted) or 'a library'}, but "
                f"{', '.join(launched) or 'nothing of Triton'} was launched"
            )
    return profile


def _require_whole(events: Events, source: str) -> None:
    """Refuse a trace in which a launch or its kernel is missing or occurs twice, or kernels may overlap."""
    activities = events.activities
    calls = events.calls
    if not len(activities):
        raise FormatError(f"{source}: the profiler recorded no kernels; it may not be permitted to use CUPTI")
    places = Counter(zip(activities.device.tolist(), activities.stream.tolist(), strict=True))
    if len(places) > 1:
        raise FormatError(f"{source}: kernels ran on {len(places)} streams, so they were not alone")
    if calls.of_graph.any():
        raise FormatError(f"{source}: a captured graph was launched, whose kernels no call launches")
    ids, counts = np.unique(activities.correlation, return_counts=True)
    if counts.max() > 1:
        raise FormatError(f"{source}: {counts.max()} kernels have the correlation id {ids[counts.argmax()]}")
    without = np.setdiff1d(ids, calls.correlation)
    if len(without):
        raise FormatError(f"{source}: {len(without)} kernels come from no launch that was recorded")
    lost = np.setdiff1d(calls.correlation[calls.are(_launches)], ids)
    if len(lost):
        raise FormatError(f"{source}: of {len(lost)} launches no kernel was recorded")
