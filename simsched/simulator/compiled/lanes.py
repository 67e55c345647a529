"""Which streams a program uses, in machine code: one pass over a million instructions takes some milliseconds."""

from simsched.machine_columns import bytes_at, ints, longs
from simsched.program import COPY, LAUNCH, WAIT
from simsched.simulator.compiled.layout import (
    AHEAD,
    LANE_ACTION,
    LANE_COPIES,
    LANE_DEVICE,
    LANE_LAUNCHES,
    LANE_OF,
    LANE_PASSES,
    LANE_PLACE,
    LANE_PTR,
    LANE_STREAM,
    LANE_STREAM_OF,
    LANE_THREAD_ON,
    LANE_THREAD_PTR,
    N_DEVICES,
    N_INSTRUCTIONS,
    N_LANES,
    N_THREADS,
    NUMBER,
    PHASE,
    TOP,
)


def find_lanes(table: int) -> None:
    """Give the streams in use numbers by device and stream, see `layout`."""
    t = longs(table)
    n, n_devices = t[N_INSTRUCTIONS], t[N_DEVICES]
    place, stream, top, number = ints(t[LANE_PLACE]), ints(t[LANE_STREAM]), longs(t[TOP]), ints(t[NUMBER])
    if t[PHASE] == 0:  # how many streams there could be, and whether one thread alone acts on each device
        thread_on, ptr = ints(t[LANE_THREAD_ON]), longs(t[LANE_THREAD_PTR])
        t[AHEAD] = 1
        for thread in range(t[N_THREADS]):
            for i in range(ptr[thread], ptr[thread + 1]):
                d = place[i]
                if stream[i] >= top[d + 1]:
                    top[d + 1] = stream[i] + 1
                if thread_on[d] != thread:
                    if thread_on[d] >= 0:
                        t[AHEAD] = 0
                    thread_on[d] = thread
        for d in range(n_devices):
            top[d + 1] += top[d]
    elif t[PHASE] == 1:  # how many there are
        for i in range(n):
            if stream[i] >= 0:
                number[top[place[i]] + stream[i]] = 1
        t[N_LANES] = 0
        for k in range(top[n_devices]):
            if number[k]:
                number[k] = t[N_LANES]
                t[N_LANES] += 1
    else:  # what they are
        action = bytes_at(t[LANE_ACTION])
        lane_of, ends = ints(t[LANE_OF]), longs(t[LANE_PTR])
        device, stream_of = ints(t[LANE_DEVICE]), ints(t[LANE_STREAM_OF])
        launches, copies, passes = ints(t[LANE_LAUNCHES]), ints(t[LANE_COPIES]), ints(t[LANE_PASSES])
        for i in range(n):
            if stream[i] < 0:
                lane_of[i] = -1
                continue
            lane = number[top[place[i]] + stream[i]]
            lane_of[i] = lane
            device[lane], stream_of[lane] = place[i], stream[i]
            ends[lane + 1] += 1
            if action[i] == LAUNCH:
                launches[lane] += 1
                passes[lane] += 1
            elif action[i] == WAIT:
                passes[lane] += 1
            elif action[i] == COPY:
                copies[lane] += 1
        for lane in range(t[N_LANES]):
            ends[lane + 1] += ends[lane]
