"""The loop of the compiled engine, and its entry from Python."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numba

from simsched.simulator.compiled_events import open_instant, pop_instant, push, take
from simsched.simulator.compiled_gpu import dispatch, end_cohorts
from simsched.simulator.compiled_hosts import run_host
from simsched.simulator.compiled_layout import (
    CODES,
    OVER,
    PROCESSED,
    RELEASE,
    RUNNING,
    START,
    TO_DISPATCH,
    TO_HOST,
    TO_ISSUED,
    TO_LANE,
    TO_OVER,
    TO_REACHED,
    TO_SHARE,
    TO_TIMER,
    TO_WAITERS,
)
from simsched.simulator.compiled_links import end_flows, share_links
from simsched.simulator.compiled_streams import run_lane
from simsched.simulator.compiled_tables import compiled, device_at, mark_at, next_at, point_at


@compiled
def _add_point(s: Any, d: int, device: Any) -> None:
    """Continue the load curve of a device if it has a new load."""
    if device.fresh:
        device.fresh = 0
        if device.point < 0 or point_at(s, device.point).time != s.now:
            device.point = s.n_points
            s.n_points += 1
        point = point_at(s, device.point)
        point.device, point.time = d, s.now
        point.sm, point.dram, point.warps, point.active = device.sm, device.dram, device.warps, device.active


def _entry(sources: str) -> Any:
    """Return the compiled loop: it runs to the end, or until there is no more room for points of the load curves.

    It is kept on disk for as long as the sources stay as they are: Numba looks at the file of the
    entry alone, but a constant of its closure is part of its key, too.
    """

    def simulate_all(table: Any) -> None:
        _ = sources
        s = table[0]
        if s.count == 0:
            for t in range(s.n_hosts):
                push(s, 0.0, START, TO_HOST, t)
            for number in range(s.n_lanes):
                push(s, 0.0, START, TO_LANE, number)
        while s.status == RUNNING and s.n_points < s.point_room:
            if s.n_instant == 0 and not open_instant(s):
                s.status = OVER
                break
            key, payload = pop_instant(s)
            code, what = payload % CODES, payload // CODES
            who, alone = -1, True
            if code == TO_LANE:
                who = what
            elif code == TO_HOST:
                who = s.n_lanes + what
            elif code == TO_WAITERS:
                who, alone = what, False
            elif code == TO_ISSUED:
                mark_at(s, what).issued = PROCESSED
                who, alone = take(s, what), False
            elif code == TO_REACHED:
                mark_at(s, what).reached = PROCESSED
                who, alone = take(s, s.n_events + what), False
            elif code == TO_OVER:
                push(s, s.now, RELEASE, TO_LANE, what)
            elif code == TO_DISPATCH:
                dispatch(s, what)
                _add_point(s, what, device_at(s, what))
            elif code == TO_SHARE:
                share_links(s)
            elif code == TO_TIMER and device_at(s, what).timer_key == key:
                if what == s.n_devices:
                    end_flows(s)
                else:
                    end_cohorts(s, what)
            while who >= 0:
                following = -1 if alone else next_at(s, who).v
                if who < s.n_lanes:
                    run_lane(s, who)
                else:
                    run_host(s, who - s.n_lanes)
                who = following

    return numba.njit(simulate_all, error_model="numpy", nogil=True, cache=True)


def _digest() -> str:
    """Return a digest of all that is compiled into the loop."""
    text = sha256()
    here = Path(__file__).parent
    for path in (*sorted(here.glob("co*.py")), here / "gpu.py"):
        text.update(path.read_bytes())
    return text.hexdigest()


run_program = _entry(_digest())
