"""How a run of the compiled engine lies in memory: flat tables, and the numbers that stand for things."""

from typing import Any, Final

import numpy as np

from simsched.simulator.contention import MAX_COHORTS

# Phases of an instant, lowest first, as in `environment`: each has a queue of those to go on.
COMPLETE, RELEASE, HOST, SHARE, DISPATCH = range(5)
PHASES: Final = 5
COHORTS: Final = MAX_COHORTS + 1
"""Room for the cohorts of a kernel."""
RUNNING, OVER, STUCK, FULL, UNROUTED = range(5)
"""How a run stands: it goes on; nothing is left to happen, all is done or not; points are full; a copy has no way."""

Dtype = np.dtype[Any]


def _record(f8: str = "", i8: str = "", i4: str = "", i1: str = "") -> Dtype:
    """Return the dtype of a row, larger fields first."""
    kinds = ((f8, np.float64), (i8, np.int64), (i4, np.int32), (i1, np.int8))
    return np.dtype([(name, dtype) for names, dtype in kinds for name in names.split()], align=True)


# One number a row.
BYTE, INT, LONG, FLOAT = _record(i1="v"), _record(i4="v"), _record(i8="v"), _record("v")

LAUNCH: Final = _record(
    "solo unit sm_share dram_share alpha beta traffic",
    "blocks residency registers shared_memory",
    "warps priority",
    "kind follows",
)
ROUTE: Final = _record("latency rate", i4="first end known")
LATER: Final = _record("time", "key", "who")
QUEUE: Final = _record(i4="head tail")
LANE: Final = _record(  # what is read most is side by side
    "time free issued start ready gap hop began",
    "head tail first",
    "state device connection asleep stream cause free_cause span_cause",
)
FLOW: Final = _record("anchor moved rate")
KERNEL: Final = _record(
    "unit dram_share solo arrival progress anchor rate start",
    "unissued resident skipped",
    "row place n_cohorts",
)
COHORT: Final = _record("due", "count")
HOST_THREAD: Final = _record("time start", "at", "state cause")
CONNECTION: Final = _record(i8="first head tail", i4="waiters")
EVENT: Final = _record("issued reached", i4="lane issue_waiters reach_waiters")
ITEM: Final = _record("issued", i4="argument code")
DEVICE: Final = _record(
    "interleave bandwidth copy_rate copy_load new_load drained last_time sm dram warps active",
    "sms resident_kernels outstanding point",
    "contention n_queue n_running n_resident dispatching freed skipping last_kernel last_row loaded waiters",
)
SPAN: Final = _record("start end ready solo", i4="item op device stream cause", i1="kind")
POINT: Final = _record("time sm dram warps active", i4="device")

SHARED: Final = {
    "thread_ptr": LONG,
    "action": BYTE,  # of each instruction, as the next three
    "argument": INT,
    "place": INT,  # device
    "lane_of": INT,  # -1: of none
    "cost": FLOAT,  # us of each action on each device
    "launches": LAUNCH,
    "launch_op": INT,
    "factors": FLOAT,  # of the time of each operator, for each sample
    "copy_op": INT,
    "copy_device": INT,
    "copy_nbytes": FLOAT,
    "copy_exact": FLOAT,
    "copy_route": INT,
    "routes": ROUTE,
    "channels": INT,  # of each route
    "interference": FLOAT,  # 4 per device
    "room": LONG,  # warps, blocks, registers and shared memory, 4 per device
}
"""What the runs of a plan read."""

OWN: Final = {
    "later": LATER,  # heap by time, then number
    "queues": QUEUE,  # a list for each phase
    "next": INT,  # of each one that waits or is to go on: who comes behind it
    "timers": FLOAT,  # tree of minima over the timers of devices and links
    "events": EVENT,  # when each was issued and reached (inf: not yet), and the last of those who wait for it
    "items": ITEM,  # what is issued to each lane, room for all of it; the code is 4 x the instruction + its action
    "passing": INT,  # instructions in the order of each hardware queue
    "flows": INT,  # lanes whose copies move bytes, in the order in which they began
    "capacity": FLOAT,  # of links, of the copy engines of each device, and of the engine of each flow
    "channel_left": FLOAT,  # work columns over the rows of `capacity`
    "channel_users": INT,
    "channel_live": INT,
    "flow_ptr": INT,  # of each flow: the channels it crosses, in `flow_channel`
    "flow_channel": INT,
    "flow_rate": FLOAT,
    "loaded": INT,  # devices that copies load
    "free": LONG,  # what is left of `room`
    "queued": INT,  # lanes whose kernels have blocks to issue, by order of dispatch, `width` per device
    "running": INT,  # lanes whose kernels are on the device, by launch, `width` per device
    "lanes": LANE,
    "kernels": KERNEL,  # of each lane: the one it has on the device
    "moving": FLOW,  # of each lane: the copy that moves bytes
    "cohorts": COHORT,  # `COHORTS` per lane
    "hosts": HOST_THREAD,
    "connections": CONNECTION,
    "devices": DEVICE,
}
"""What a run writes."""

RESULT: Final = {"makespans": FLOAT}
"""What comes out: a makespan for each sample."""

RECORDED: Final = {
    "issue_span": INT,  # of each instruction: the host span that issued it
    "event_issue": INT,  # of each event: the host span that issued its record
    "event_cause": INT,  # of each event: the span that had to end before it was reached
    "spans": SPAN,
    "points": POINT,  # of the load curves of all devices, by time; made larger when it is full
}
"""What a run writes if spans are wanted."""

TABLES: Final = SHARED | OWN | RESULT | RECORDED

RUN: Final = _record(
    "now limit makespan",
    "count n_later n_spans n_points point_room n_flows n_loaded n_lanes n_hosts n_devices n_events n_ops"
    " n_capacity n_most_flows n_engines n_connections n_timers width captured ahead recording jittered sharing status"
    f" begun sample n_samples n_steps budget {' '.join(TABLES)}",
)
"""A run: the present, counts, and the address of each table."""

# The table of `lanes`: numbers, then addresses of columns.
(
    PHASE, AHEAD, N_INSTRUCTIONS, N_DEVICES, N_THREADS, N_LANES,
    LANE_THREAD_PTR, LANE_ACTION, LANE_PLACE, LANE_STREAM,  # of the program
    TOP, NUMBER, LANE_THREAD_ON,  # work columns
    LANE_OF, LANE_DEVICE, LANE_STREAM_OF, LANE_PTR, LANE_LAUNCHES, LANE_COPIES, LANE_PASSES,
) = range(20)  # fmt: skip
LANE_TABLE: Final = 20
