"""Schedules that are measured in turns, each for a time; the anchor; and how a contact keeps them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Any, Final

import numpy as np

from hwbackend.contact.device import ContactDevice, Timing
from hwbackend.measuring.microbenchmarks import synthetic_kernel
from simsched.model import Edge, OpGraph, Placement, Schedule
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import measured_trace, spans_of

Json = dict[str, Any]

WARM: Final = 0.02
"""s for which a schedule runs before it is measured."""
ANCHOR_EVERY: Final = 2.0
"""s between two measurements of the anchor."""
_ROUNDS: Final = 3
_TRIAL: Final = 3  # repeats that say how long one takes
# Repeats of a schedule in all its rounds.
_FEWEST = 5
_MOST = 1200
_ANCHOR_KERNELS: Final = 8
_ANCHOR_REPEATS: Final = 100
_SETTLED_AFTER: Final = 4.0  # s at most
_BETWEEN: Final = 0.1  # s of work between two looks
_STEADY: Final = 0.0005  # part by which the anchor may still fall between them
_STEADY_LOOKS: Final = 2
_US: Final = 60.0  # of a block of the anchor


def in_turns(device: ContactDevice, plans: Sequence[Schedule], seconds: float) -> Json:
    """Measure schedules in turns, so that a slow change of the device changes all of them.

    Parameters
    ----------
    device
        Runs them.
    plans
        Schedules with different names (`scheduler`).
    seconds
        For which all of them run in all, about.

    Returns
    -------
    dict
        ``profile`` is a document of a `Profile` whose runs are the schedules; ``issue`` has by name the median us in
        which the host issued a run; ``failed`` has by name the reason why a schedule is missing.

    Raises
    ------
    Exception
        The reason of the first schedule if all of them fail.
    """
    timings: dict[str, list[Timing]] = {}
    failed: dict[str, Exception] = {}
    counts: dict[str, int] = {}
    for turn in range(_ROUNDS):
        for plan in plans:
            name = plan.scheduler
            if name in failed:
                continue
            try:
                if turn == 0:
                    counts[name] = _repeats(device, plan, seconds / len(plans) / _ROUNDS)
                timings.setdefault(name, []).append(device.run(plan, counts[name], warm=WARM))
            except Exception as error:  # one schedule must not cost the others
                failed[name] = error
                timings.pop(name, None)
    if not timings:
        raise next(iter(failed.values()))
    replays = tuple(join_turns(name, turns) for name, turns in timings.items())
    profile = profile_of(replays)
    issue = {name: issued for name, turns in timings.items() if (issued := _median_issue(turns)) is not None}
    found: Json = {"profile": profile.to_dict()}
    if issue:
        found["issue"] = issue
    if failed:
        found["failed"] = {name: f"{type(error).__name__}: {error}" for name, error in failed.items()}
    return found


def _repeats(device: ContactDevice, plan: Schedule, seconds: float) -> int:
    """Return how often a schedule runs in a round of some seconds, after what a replay of it takes beside its runs."""
    device.run(plan, 1)  # what is done once for a graph is done now
    begun = device.seconds()
    replay = device.run(plan, 1).replay
    one = device.seconds() - begun
    device.run(plan, _TRIAL)
    several = device.seconds() - begun - one
    each = max((several - one) / (_TRIAL - 1), replay.median * 1e-6, 1e-6)
    count = (seconds - max(0.0, one - each)) / each
    return ceil(min(max(count, _FEWEST / _ROUNDS), _MOST / _ROUNDS))


def _median_issue(turns: Sequence[Timing]) -> float | None:
    times = [us for turn in turns if turn.issue is not None for us in turn.issue]
    return float(np.median(times)) if times else None


def join_turns(name: str, turns: Sequence[Timing]) -> Replay:
    """Return one replay of several of the same schedule: all latencies, and the mean of the times of kernels."""
    first = turns[0].replay
    latency = tuple(us for turn in turns for us in turn.replay.latency)
    spans = [spans_of(turn.replay.trace) for turn in turns]
    launches, copies = (np.mean([getattr(one, kind) for one in spans], axis=0) for kind in ("launches", "copies"))
    trace = measured_trace(first.program, first.cluster, launches, copies)
    errors = [turn.replay.max_relative_error for turn in turns]
    worst = max((error for error in errors if error is not None), default=None)
    return replace(first, latency=latency, trace=trace, max_relative_error=worst, name=name)


def join_runs(runs: Sequence[Replay]) -> list[Replay]:
    """Return one replay for each name: of schedules that were measured in several turns."""
    turns: dict[str, list[Timing]] = {}
    for run in runs:
        turns.setdefault(run.name, []).append(Timing(run, None))
    return [join_turns(name, same) for name, same in turns.items()]


def profile_of(replays: Sequence[Replay]) -> Profile:
    """Return a profile of runs; its only operator is one of them."""
    first = replays[0]
    name = first.program.graph.names[0]
    return Profile((MeasuredOperator(name, (first.median,)),), runs=tuple(replays), cluster=first.cluster)


def settle(device: ContactDevice) -> float:
    """Run the chain of the anchor until its time no longer falls; return the s that this took.

    A device that was idle has a low clock, which rises while it works: it is warmed up by time and not by runs.
    """
    chain, _ = anchors(device)
    begun = device.seconds()
    least = float("inf")
    steady = 0
    while steady < _STEADY_LOOKS and device.seconds() - begun < _SETTLED_AFTER:
        latest = device.run(chain, _ANCHOR_REPEATS, warm=_BETWEEN).replay.median
        steady = steady + 1 if latest > least * (1.0 - _STEADY) else 0
        least = min(least, latest)
    return device.seconds() - begun


def anchor(device: ContactDevice) -> Json:
    """Return the us of a captured chain of kernels from its first start to its last end, and of issuing launches.

    Every two seconds the same chain is measured: its time, by which other times are divided, has the slow changes of
    the device's clock.
    """
    rows = [device.run(plan, _ANCHOR_REPEATS, warm=WARM) for plan in anchors(device)]
    chain, launches = rows
    spans = spans_of(chain.replay.trace).launches
    found: Json = {"anchor": float(spans[:, 1].max() - spans[:, 0].min())}
    if (issued := _median_issue([launches])) is not None:
        found["host"] = issued
    return found


def anchors(device: ContactDevice) -> tuple[Schedule, Schedule]:
    """Return the chain of kernels and the launches of an anchor."""
    gpu = device.cluster.devices[0]
    long = [synthetic_kernel(f"k{i}", gpu, gpu.sms, _US) for i in range(_ANCHOR_KERNELS)]
    short = [synthetic_kernel(f"k{i}", gpu, 1, 1.0) for i in range(4 * _ANCHOR_KERNELS)]
    chain = OpGraph(long, [Edge(a.name, b.name, 0.0) for a, b in pairwise(long)], "anchor/chain")
    places = [Placement(op.name, gpu.name) for op in long]
    launches = OpGraph(short, [], "anchor/launches")
    return (
        Schedule(chain, places, "graph", scheduler="anchor/chain"),
        Schedule(launches, [Placement(op.name, gpu.name) for op in short], scheduler="anchor/launches"),
    )
