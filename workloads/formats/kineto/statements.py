"""Kernels of collectives, joined with the events of the host that asked for them."""

from collections import Counter, defaultdict

import numpy as np

from simsched.model import Ints
from workloads.formats.kineto.events import Activities, Events, HostEvents
from workloads.formats.kineto.exchange_data import NOTHING, Arguments, ExchangeData, complete, exchange_of
from workloads.formats.kineto.join import Nesting


def exchanges_of(events: Events, activities: Activities, call: Ints) -> list[ExchangeData]:
    """Return the exchanges of some kernels.

    Parameters
    ----------
    events
        All events of the process.
    activities, call
        The kernels, and the row of the call of each (-1 without one).

    Notes
    -----
    Arguments stand on the kernel, on the host's event that asked for the collective (``record_param_comms``), or on
    both; where they name the same collective, the event completes the kernel. The event has the External id of the call
    or of the kernel; if no event has, it is the innermost one on the thread of the call that is open when the call
    begins. Kernels with the same External id, arguments and sequence number are parts of one collective: then no part
    is known.
    """
    asked_by = _asked_by(events, activities, call)
    arguments: list[Arguments] = []
    for own, other in zip(activities.statement.tolist(), asked_by, strict=True):
        on_kernel = events.statements[own]
        on_host = events.statements[other]
        if on_kernel == NOTHING or on_kernel[0] == on_host[0]:
            arguments.append(complete(on_kernel, on_host))
        else:
            arguments.append(on_kernel)
    ids = activities.external.tolist()
    parts = list(zip(ids, arguments, activities.sequence.tolist(), strict=True))
    n_parts = Counter(parts)
    data_of = {one: exchange_of(one) for one in dict.fromkeys(arguments)}
    return [
        ExchangeData(None, "one collective has several kernels")
        if external > 0 and sequence >= 0 and one != NOTHING and n_parts[external, one, sequence] > 1
        else data_of[one]
        for external, one, sequence in parts
    ]


def _asked_by(events: Events, activities: Activities, call: Ints) -> list[int]:
    """Return the number of the statement of the host's event that asked for each kernel; 0 without one."""
    calls = events.calls
    statements = [0] * len(activities)
    for host in (events.operators, events.annotations):
        rows = host.take(np.flatnonzero(host.statement > 0))
        if not len(rows):
            continue
        by_id = _by_external(rows)
        around = _around(Nesting(rows), calls, call)
        for k, (its_call, external) in enumerate(zip(call.tolist(), activities.external.tolist(), strict=True)):
            if statements[k]:
                continue
            if its_call >= 0:
                of_call = by_id.get(int(calls.external[its_call]), 0)
            else:
                of_call = 0
            statements[k] = of_call or by_id.get(external, 0) or around[k]
    return statements


def _by_external(rows: HostEvents) -> dict[int, int]:
    """Return the statement of the events with each External id, where they make one and the same."""
    statements: dict[int, set[int]] = defaultdict(set)
    for external, statement in zip(rows.external.tolist(), rows.statement.tolist(), strict=True):
        statements[external].add(statement)
    return {external: min(its) for external, its in statements.items() if external > 0 and len(its) == 1}


def _around(nesting: Nesting, calls: HostEvents, call: Ints) -> list[int]:
    """Return the statement of the innermost event that is open when each call begins; 0 without one."""
    statements = np.zeros(len(call), np.int64)
    rows = np.flatnonzero(call >= 0)
    if len(rows):
        rows = rows[~calls.of_graph[call[rows]]]
        event = nesting.around(calls.thread[call[rows]], calls.start[call[rows]])
        statements[rows] = np.where(event >= 0, nesting.events.statement[event], 0)
    return statements.tolist()
