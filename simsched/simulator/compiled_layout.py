"""How the compiled engine lays out a run in memory: flat arrays of records, and the numbers that stand for things."""

from typing import Final

import numpy as np

from simsched.simulator.contention import MAX_COHORTS

# Phases of an instant, lowest first; see `environment` (START is SimPy's own first step of a process).
COMPLETE, START, RELEASE, HOST, SHARE, DISPATCH = range(6)
# What an event does, and to which: a lane, a host thread, an event, a list of waiters, or a device.
TO_LANE, TO_HOST, TO_ISSUED, TO_REACHED, TO_WAITERS, TO_OVER, TO_DISPATCH, TO_SHARE, TO_TIMER = range(9)
CODES: Final = 16
"""A payload is what an event is for, times this, plus its code."""
PHASE: Final = 2**56
"""A key is its phase times this, plus the number of the event: keys order an instant."""
COHORTS: Final = MAX_COHORTS + 1
"""Room for the cohorts of a launch."""
RUNNING, OVER, UNROUTED = range(3)
"""How a run stands: it goes on, nothing is left to happen, or a copy has no way to its destination."""
TRIGGERED, PROCESSED = 1, 2
"""How the record of an event, and the event, stand: said to happen in this instant, and seen to by all."""

Dtype = np.dtype[np.void]


def _record(ints: str, floats: str = "") -> Dtype:
    return np.dtype([(name, np.int64) for name in ints.split()] + [(name, np.float64) for name in floats.split()])


LATER: Final = _record("key payload", "time")
INSTANT: Final = _record("key payload")
WAITERS: Final = _record("head tail")
ITEM: Final = _record("instruction span", "issued")
INSTRUCTION: Final = _record("action device lane argument subject", "cost")
LAUNCHES: Final = _record(
    "op priority follows blocks residency kind lane unissued resident skipped n_cohorts over",
    "sm_share dram_share alpha beta unit solo arrival progress anchor rate start",
)
COHORT: Final = _record("count", "due")
COPIES: Final = _record("op device route", "nbytes exact solo")
ROUTES: Final = _record("first end known", "latency bandwidth")
LANES: Final = _record(
    "device stream connection head tail state asleep cause free_cause span_cause",
    "time free start ready began gap hop anchor moved rate",
)
HOSTS: Final = _record("at end state cause", "began start")
MARKS: Final = _record("issued reached issue cause lane", "time")
CONNECTIONS: Final = _record("head tail")
DEVICES: Final = _record(
    "sms resident_kernels contention n_queue n_running n_resident dispatching freed skipping outstanding last_kernel"
    " timer_key timer_set fresh point",
    "interleave bandwidth copy_rate copy_load timer now sm dram warps active",
)
SPANS: Final = _record("kind item op device stream cause", "start end ready solo")
POINTS: Final = _record("device", "time sm dram warps active")


INT: Final = _record("v")
FLOAT: Final = _record("", "v")

TABLES: Final = {
    "later": LATER,  # heap by time
    "instant": INSTANT,  # heap by key
    "waiters": WAITERS,  # per event that its record is issued, per event that it is reached, per device, per queue
    "next_waiter": INT,  # per lane and host: who waits behind it
    "instructions": INSTRUCTION,
    "items": ITEM,  # what was issued to each lane, room for all of it
    "passing": INT,  # instructions in the order of each hardware queue
    "launches": LAUNCHES,
    "need": INT,  # what a block takes, 4 per launch
    "cohorts": COHORT,  # `COHORTS` per launch
    "copies": COPIES,
    "routes": ROUTES,
    "channels": INT,  # of each route
    "capacity": FLOAT,  # of links and of the copy engines of each device
    "flows": INT,  # lanes whose copies move bytes, in the order in which they began
    "lanes": LANES,
    "hosts": HOSTS,
    "marks": MARKS,
    "connections": CONNECTIONS,
    "devices": DEVICES,  # and a last row for the timer of the links
    "free": INT,  # room left, 4 per device
    "interference": FLOAT,  # 4 per device
    "queue": INT,  # launches with blocks to issue, by order of dispatch, `width` per device
    "running": INT,  # launches on the device, by row, `width` per device
    "spans": SPANS,
    "points": POINTS,  # of the load curves of all devices, by time; made larger when it is full
}
"""The tables of a run and what a row of each is."""

RUN: Final = _record(
    "count n_later n_instant n_spans n_flows n_lanes n_events n_devices n_hosts n_instructions n_capacity n_engines"
    f" n_points point_room width captured sharing status {' '.join(TABLES)}",
    "now limit",
)
"""A run: counts, the present, and the address of each table."""
