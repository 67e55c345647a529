"""Which streams a program uses: the table with which `lanes` is called, and what it finds."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simsched.machine_code import load
from simsched.simulator.compiled import layout
from simsched.simulator.compiled.platform import Table, address
from simsched.simulator.compiled.sources import SOURCES


class Use(NamedTuple):
    """The streams in use, by device and stream, and what is in them."""

    lane_of: Table
    device: Table
    stream: Table
    ptr: Table  # where the instructions of each begin
    launches: Table
    copies: Table
    passes: Table  # instructions that pass a hardware queue
    ahead: bool  # only one thread acts on each device


def streams_in_use(columns: Mapping[str, Table], n_devices: int) -> Use:
    """Return the use of streams in the columns of a program; barriers and syncs have stream -1."""
    find = load("simsched.simulator.compiled.lanes:find_lanes", SOURCES, "search for streams")
    n, streams = len(columns["action"]), None
    t = np.zeros(layout.LANE_TABLE, np.int64)
    t[[layout.N_INSTRUCTIONS, layout.N_DEVICES, layout.N_THREADS]] = n, n_devices, len(columns["thread_ptr"]) - 1
    for key, name in ((layout.LANE_THREAD_PTR, "thread_ptr"), (layout.LANE_ACTION, "action"),
                      (layout.LANE_PLACE, "place")):  # fmt: skip
        t[key] = address(columns[name])
    stream = columns["stream"]
    while True:
        top, thread_on = np.zeros(n_devices + 1, np.int64), np.full(n_devices, -1, np.int32)
        t[[layout.LANE_STREAM, layout.TOP, layout.LANE_THREAD_ON]] = [address(c) for c in (stream, top, thread_on)]
        t[layout.PHASE] = 0
        find(address(t))
        if top[-1] <= 4 * n + 4096 or streams is not None:
            break
        streams, ranks = np.unique(stream, return_inverse=True)  # numbers too far apart for a table
        stream = (ranks.reshape(-1) - (streams[0] < 0)).astype(np.int32)
        streams = streams[streams >= 0]
    number = np.zeros(int(top[-1]), np.int32)
    t[layout.NUMBER], t[layout.PHASE] = address(number), 1
    find(address(t))
    n_lanes = int(t[layout.N_LANES])
    lane_of = np.empty(n, np.int32)
    rows, ptr = np.zeros((5, n_lanes), np.int32), np.zeros(n_lanes + 1, np.int64)
    for key, column in ((layout.LANE_OF, lane_of), (layout.LANE_PTR, ptr),
                        (layout.LANE_DEVICE, rows[0]), (layout.LANE_STREAM_OF, rows[1]),
                        (layout.LANE_LAUNCHES, rows[2]), (layout.LANE_COPIES, rows[3]),
                        (layout.LANE_PASSES, rows[4])):  # fmt: skip
        t[key] = address(column)
    t[layout.PHASE] = 2
    find(address(t))
    stream_of = rows[1] if streams is None else streams[rows[1]]
    return Use(lane_of, rows[0], stream_of, ptr, rows[2], rows[3], rows[4], ahead=bool(t[layout.AHEAD]))
