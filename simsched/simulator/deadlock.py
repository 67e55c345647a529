"""What to say when a simulation stops before its program is over."""

from collections.abc import Sequence

import numpy as np

from simsched.base.errors import DeadlockError
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, Program

_SHOWN = 6


def deadlock(
    program: Program, host_at: Sequence[int], lanes: Sequence[tuple[int, int]], issued: Sequence[bool]
) -> DeadlockError:
    """Return the error that names what waits for what.

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
    waiting = [(f"host thread {t}", i) for t, i in enumerate(host_at) if i != program.thread_ptr[t + 1]]
    for who, i in waiting + [(f"stream {stream}", i) for stream, i in lanes]:
        device = program.devices[program.device[i]]
        if program.action[i] == BARRIER:
            texts.append(f"{who} at a barrier of {device}")
        elif program.action[i] in (LAUNCH, COPY):
            texts.append(f"{_next_launch(program, i, who)} on {device} behind others of its hardware queue")
        else:
            event = _event(program, int(program.argument[i]), issued)
            texts.append(f"{_next_launch(program, i, who)} on {device} for {event}")
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return DeadlockError(f"deadlock in {program.graph.name!r}: waiting are {'; '.join(texts[:_SHOWN])}{more}")


def _next_launch(program: Program, i: int, who: str) -> str:
    """Return who waits: the operator that is launched next by the same thread, else `who`."""
    end = program.thread_ptr[np.searchsorted(program.thread_ptr, i, side="right")]
    launches = i + np.flatnonzero(program.action[i:end] == LAUNCH)
    return repr(program.graph.names[program.launches.op[program.argument[launches[0]]]]) if len(launches) else who


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
