"""Traces of torch.profiler (Kineto) as the `Program` that ran: instructions of the hosts, and measured times."""

import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from simsched.base.errors import FormatError, UnknownNameError
from simsched.model.graph import OpGraph
from workloads.formats.kineto.assembly import assemble
from workloads.formats.kineto.events import Events, read_events
from workloads.formats.kineto.issuing import issue
from workloads.formats.kineto.join import split_iterations
from workloads.formats.kineto.ranks import by_process, together
from workloads.formats.kineto.records import repair
from workloads.formats.kineto.step import TracedStep, Window
from workloads.formats.kineto.text import read_traces
from workloads.formats.kineto.traced import TracedProgram

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ORDERS: Final = ("streams", "waits")


def read_kineto_graph(path: Paths, *, step: int | str | None = None, order: str = "streams") -> OpGraph:
    """Read the graph of `read_kineto_program`, for schedules other than the one that ran.

    Parameters
    ----------
    path, step
        The trace and its step, as in `read_kineto_program`.
    order
        ``"streams"``: an operator depends on the one before it on its stream, an upper bound on the true dependencies.
        ``"waits"``: that order is dropped, and only waits between streams and for the host are left, a lower bound
        where one stream ran operators that depend on each other.
    """
    return _read(path, step, order).graph


def read_kineto_program(path: Paths, *, step: int | str | None = None, order: str = "streams") -> TracedProgram:
    """Read the program that ran from a trace that torch.profiler exported (``export_chrome_trace``), plain or gzipped.

    Parameters
    ----------
    path
        The file; or the files of several ranks, which are put together. An archive, and a trace of several processes,
        has several ranks too.
    step
        Number n of the annotation ``ProfilerStep#n``; None takes the last one in which all ranks launched something,
        ``"all"`` the whole trace. A trace without such annotations is one step.
    order
        Dependencies in the graph, see `read_kineto_graph`; the instructions are the same.

    Returns
    -------
    TracedProgram
        Each kernel, copy and memset is an operator of the graph, with its measured time and launch shape, and each is
        launched where a host thread called for it.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a trace, has no such step, or nothing ran on a GPU in it.

    Notes
    -----
    *Hosts.* Each thread issues its calls in their order. The time between two calls is the `lead` of the second one;
    the time of a call is its `own` time, until the device knows of the launch: the end of the call, or, where the
    kernel started earlier, as much before its start as launches usually take on their way. A thread that was silent
    for 0.5 ms before its call, where the one that called last is silent for 0.5 ms from then on, was handed the work
    (as by the backward pass of PyTorch): it begins after that call.

    *Blocking.* Synchronisations of a device, stream or event, copies that are not asynchronous, copies from or to
    pageable memory that ended within their call, and calls that free memory and return when an operator ends, block
    their thread until those operators end. A stream or event that the trace does not name is the one on which the
    thread launched last, or, if the call took 10 us or more, the one on which an operator ended last before the call.

    *Waits.* With event ids in the trace (``cuda_sync`` events) a wait is for the last operator that was launched on the
    recorded stream before the record. Without them the stream of the thread's next launch waits, and it waits for the
    operator that ended last before the launched one started, among those that were launched on other streams
    before the call. Those waits are counted as guessed.

    *Captured graphs.* The nodes of a graph that is launched run in the order of their start on each stream. The first
    on a further stream waits for the operators before the graph. Waits between nodes are guessed where a node started
    later than its stream allowed, and where no other node ran when it started (see `nodes_of`). The device's `hop` is
    the median time from the ends of those nodes to its start. The next launch on the stream of the first node waits for
    all nodes.

    *Earlier work.* Work that was launched before the step and ran into it is one operator for each stream, which is
    there from the beginning.

    *Dependencies.* An edge goes to each operator from the one before it on its stream, from those that its stream waits
    for, and from the operators that its thread had waited for. That is more than necessary: two operators on one stream
    may well be independent.

    O(n log n) for n events.
    """
    return _read(path, step, order)


def _read(path: Paths, step: int | str | None, order: str) -> TracedProgram:
    if order not in ORDERS:
        raise UnknownNameError("order", str(order), list(ORDERS))
    if isinstance(path, str | os.PathLike):
        paths = [path]
    else:
        paths = list(path)
    if not paths:
        raise FormatError("no trace is given; name the file of each rank")
    texts = [one for trace in paths for one in read_traces(trace)]
    for k, (source, text) in enumerate(texts):
        for other, its_text in texts[:k]:
            if text == its_text:
                raise FormatError(f"{source}: is the same trace as {other}; give the trace of another rank")
    records = [
        (source, repair(part)) for source, text in texts for part in by_process(read_events(text, source, strict=False))
    ]
    if step is None:
        step = _last_step([rank.events for _, rank in records])
    programs = []
    for source, rank in records:
        traced = TracedStep(rank, source, _window(rank.events, step, source))
        programs.append(assemble(traced, issue(traced), by_streams=order == "streams"))
    return together(programs)


def _last_step(ranks: Sequence[Events]) -> int | None:
    """Return the number of the last step in which all ranks called for work; None if there is none."""
    common: set[int] | None = None
    for events in ranks:
        marks, _, _ = split_iterations(events, "ProfilerStep")
        calls = events.calls
        launching = calls.start[np.isin(calls.correlation, events.activities.correlation) & (calls.correlation > 0)]
        used = np.unique(marks.of(launching)).tolist()
        numbers = {marks.numbers[k] for k in used if marks.marked and k >= 0}
        its = {number for number in numbers if number is not None}
        common = its if common is None else common & its
    return max(common or (), default=None)


def _window(events: Events, step: int | str | None, source: str) -> Window:
    """Return a step."""
    marks, _, _ = split_iterations(events, "ProfilerStep")
    if step == "all" or (step is None and not marks.marked):
        starts = [int(times.min()) for times in (events.calls.start, events.activities.start) if len(times)]
        return Window(min(starts, default=0), 2**62)
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise FormatError(f"{source}: step must be a number or 'all', not {step!r}")
    numbers = marks.numbers
    if step is not None and step not in numbers:
        listed = ", ".join(map(str, numbers)) or "none"
        raise FormatError(f"{source}: there is no step {step}; there are: {listed}")
    if step is None:
        k = len(numbers) - 1
    else:
        k = numbers.index(step)
    return Window(int(marks.start[k]), int(marks.end[k]), numbers[k])
