"""The error of a simulation that stops before its program is complete."""

from collections.abc import Sequence, Set

import numpy as np

from simsched.base.errors import DeadlockError
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, Program

_SHOWN = 6


def deadlock(
    program: Program, host_at: Sequence[int], lanes: Sequence[tuple[int, int]], issued: Sequence[bool]
) -> DeadlockError:
    """Return the error that names waiting operators and the events for which they wait.

    Parameters
    ----------
    host_at
        Instruction at which each host thread stands; its end if it is through.
    lanes
        (stream, instruction) of each stream that is held up.
    issued
        For each event, whether its record has been issued.
    """
    texts = []
    heads = {i for _, i in lanes}
    waiting = [(f"host thread {t}", i) for t, i in enumerate(host_at) if i != program.thread_ptr[t + 1]]
    for who, i in waiting + [(f"stream {stream}", i) for stream, i in lanes]:
        device = program.devices[program.device[i]]
        if program.action[i] == BARRIER:
            texts.append(f"{who} at a barrier of {device}")
        elif program.action[i] in (LAUNCH, COPY):
            absent = _absent_ranks(program, i, heads)
            if absent:
                reason = f"for {absent}"
            else:
                reason = "behind others of its hardware queue"
            if not absent and program.graph.meetings:
                reason += " or of the device"
            texts.append(f"{_next_launch(program, i, who)} on {device} {reason}")
        else:
            event = _event(program, int(program.argument[i]), issued)
            texts.append(f"{_next_launch(program, i, who)} on {device} for {event}")
    if len(texts) > _SHOWN:
        more = f"; and {len(texts) - _SHOWN} more"
    else:
        more = ""
    return DeadlockError(f"deadlock in {program.graph.name!r}: waiting are {'; '.join(texts[:_SHOWN])}{more}")


def _absent_ranks(program: Program, i: int, heads: Set[int]) -> str:
    """Return in words for which ranks of its collective a launch waits, empty if it is no rank or all are there.

    Parameters
    ----------
    heads
        Instructions at which streams are held up.
    """
    if program.action[i] != LAUNCH:
        return ""
    op = int(program.launches.op[program.argument[i]])
    meeting = next((each for each in program.graph.meetings if op in each.members), None)
    if meeting is None or meeting.is_symmetric:
        return ""
    there = {int(program.launches.op[program.argument[k]]) for k in heads if program.action[k] == LAUNCH}
    absent = [repr(program.graph.names[member]) for member in meeting.members if member not in there]
    if len(absent) > _SHOWN:
        more = f" and {len(absent) - _SHOWN} more"
    else:
        more = ""
    if absent:
        return f"{', '.join(absent[:_SHOWN])}{more} of group {meeting.collective.group!r}"
    return ""


def _next_launch(program: Program, i: int, who: str) -> str:
    """Return who waits: the operator that is launched next by the same thread, else `who`."""
    end = program.thread_ptr[np.searchsorted(program.thread_ptr, i, side="right")]
    launches = i + np.flatnonzero(program.action[i:end] == LAUNCH)
    if len(launches):
        return repr(program.graph.names[program.launches.op[program.argument[launches[0]]]])
    return who


def _event(program: Program, event: int, issued: Sequence[bool]) -> str:
    """Return the event in words: the work it is recorded behind."""
    records = np.flatnonzero((program.action == RECORD) & (program.argument == event))
    if not len(records):
        return f"event {event}, which nobody records"
    at = int(records[0])
    same_stream = (program.device == program.device[at]) & (program.stream == program.stream[at])
    before = np.flatnonzero(same_stream[:at] & np.isin(program.action[:at], (LAUNCH, COPY)))
    behind = ""
    if len(before):
        is_copy = program.action[before[-1]] == COPY
        op = (program.copies.op if is_copy else program.launches.op)[program.argument[before[-1]]]
        behind = f" behind {'the copy of ' if is_copy else ''}{program.graph.names[op]!r}"
    return f"event {event}{behind}{'' if issued[event] else ', whose record has not been issued'}"
