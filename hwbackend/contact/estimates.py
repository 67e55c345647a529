"""Estimates from the lines of a contact: slopes of measured times, without a simulator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from hwbackend.contact.lines import ContactRecord
from hwbackend.contact.sections.doctor import STREAMED
from hwbackend.contact.sections.saturation import CHAINS
from simsched.model import LAUNCH, RECORD, WAIT, Floats
from simsched.model.profile import Profile, Replay
from simsched.model.trace import measured_trace, spans_of

_FULL: Final = 1.05  # times what one warp takes, above which warps keep an SM busy
_TOGETHER: Final = 1.5  # times one copy: two that take longer share an engine
_PER: Final = 100.0  # s over which the drift is stated
_LEAST_ANCHORS: Final = 8
_PAUSE: Final = 3.0  # us; launches take longer
_LATER: Final = 1e9  # us, up to which times after the last kernel are known
_MISSING: Final = 0.03  # part of the clock: what is missing beyond it shows how it rises


@dataclass(frozen=True)
class Drift:
    """How the clock of a device wandered during a contact.

    Parameters
    ----------
    at, us
        s since the contact began, and the us of the anchor then.
    """

    at: Floats
    us: Floats

    @classmethod
    def of(cls, record: ContactRecord) -> "Drift":
        """Return the drift that the anchors of a contact show."""
        rows = sorted((float(line["at"]), float(line["anchor"])) for line in record.anchors)
        return cls(np.array([at for at, _ in rows]), np.array([us for _, us in rows]))

    @cached_property
    def _line(self) -> tuple[float, float]:
        """The clock at the beginning, as 1 / us of the anchor, and its slope in 1 / (us s), by least squares."""
        clock = 1.0 / self.us
        if len(clock) < _LEAST_ANCHORS:
            return (float(np.median(clock)) if len(clock) else 1.0), 0.0
        slope, level = np.polyfit(self.at, clock, 1)
        return float(level), float(slope)

    @property
    def fall(self) -> float:
        """Part by which the clock falls in 100 s; 0 where there are too few anchors."""
        level, slope = self._line
        return -slope / level * _PER

    def factor(self, at: float) -> float:
        """Return how much longer the device takes at a time than at the beginning of the contact."""
        if not len(self.at):
            return 1.0
        return float(np.interp(at, self.at, self.us)) * self._line[0]


def without_drift(run: Replay, factor: float) -> Replay:
    """Return a run as it would have been without a drift that makes kernels take so many times as long.

    Times are scaled in which kernels run, or pause for less than a launch takes: these pauses are the device's own,
    such as `gap` and `graph_node`. The time before the first kernel and longer pauses are the host's, which has another
    clock, and so has DRAM: kernels that it bounds count as pauses.
    """
    spans = spans_of(run.trace)
    graph = run.program.graph
    clocked = np.array([op.intensity != "memory" for op in graph.operators])[run.program.launches.op]
    if not clocked.any():
        return run
    at, true = true_times(busy_spans(spans.launches[clocked]), factor)
    launches, copies = (np.interp(times, at, true) for times in (spans.launches, spans.copies))
    end = float(spans.launches.max())
    scale = float(np.interp(end, at, true)) / end if end > 0.0 else 1.0
    trace = measured_trace(run.program, run.cluster, launches, copies)
    return replace(run, latency=tuple(us * scale for us in run.latency), trace=trace)


def true_times(busy: Floats, factor: float) -> tuple[Floats, Floats]:
    """Return times of a run, and the same times if a device that is so many times as slow were not.

    Parameters
    ----------
    busy
        When the device works, from the first to the last, shape (n, 2). Time passes as ever between these spans.

    >>> at, true = true_times(np.array([(4.0, 8.0), (10.0, 12.0)]), 2.0)
    >>> np.interp([4.0, 6.0, 8.0, 9.0, 12.0], at, true).tolist()
    [4.0, 5.0, 6.0, 7.0, 9.0]
    """
    at = np.concatenate([[0.0], busy.ravel(), [busy.max() + _LATER]])
    rate = np.ones(len(at) - 1)
    rate[1:-1:2] = 1.0 / factor
    return at, np.concatenate([[0.0], np.cumsum(np.diff(at) * rate)])


def busy_spans(spans: Floats, *, pause: float = _PAUSE) -> Floats:
    """Return when spans, shape (n, 2), are under way, with pauses between them up to so many us; in ascending order.

    >>> busy_spans(np.array([(0.0, 2.0), (1.0, 3.0), (4.0, 6.0), (16.0, 17.0)])).tolist()
    [[0.0, 6.0], [16.0, 17.0]]
    """
    start, end = spans[np.argsort(spans[:, 0], kind="stable")].T
    until = np.maximum.accumulate(end)  # the latest end of a span and of those that began earlier
    apart = np.flatnonzero(start[1:] - until[:-1] > pause)
    return np.column_stack([start[np.concatenate([[0], apart + 1])], until[np.concatenate([apart, [len(end) - 1]])]])


def runs_of(record: ContactRecord, drift: Drift, *prefixes: str) -> Iterator[tuple[str, Replay]]:
    """Yield the runs of the items whose keys begin in some way, without drift, with the key of the item."""
    for key, line in record.items.items():
        if key.startswith(prefixes) and "profile" in line:
            factor = drift.factor(line["at"] + line["took"] / 2)
            for run in Profile.from_dict(line["profile"], key).runs:
                yield key, without_drift(run, factor)


def direct_estimates(record: ContactRecord) -> dict[str, float]:
    """Return the parameters that times say directly, by name; those that were not measured are left out.

    Names are fields of `Device`, and these: ``tick`` (us), ``ramp_start`` (part of the clock after a pause),
    ``ramp_time`` (s), ``drift`` (part by which the clock falls in 100 s), ``chain_warps_N`` (warps of N independent
    chains that keep an SM busy), ``fp32`` and ``fp16`` (FLOP per us of matrix products), ``copy_latency`` (us) and
    ``copy_rate`` (bytes per us) between host and device, ``programmatic`` (us by which a kernel in a chain starts
    earlier if it is launched programmatically), ``green_share`` (part of the SMs of a green context that asked for
    half).
    """
    drift = Drift.of(record)
    found = _host_costs(record)
    items = record.items
    if len(drift.at) > _LEAST_ANCHORS:
        found["drift"] = drift.fall
    if "doctor/tick" in items:
        found["tick"] = float(items["doctor/tick"]["tick"])
    if "doctor/clock" in items:
        found |= ramp_of(items["doctor/clock"]["anchor"])
    found |= _interleave(record)
    for chains in CHAINS:
        if (line := items.get(f"saturation/chains-{chains}")) is not None:
            found[f"chain_warps_{chains}"] = warps_that_saturate(line["warps"], line["us"])
    if (bandwidth := _bandwidth(record, drift)) is not None:
        found["bandwidth"] = bandwidth
    for dtype in ("fp32", "fp16"):
        if (line := items.get(f"doctor/{dtype}")) is not None:
            found[dtype] = float(line["rate"]) * drift.factor(line["at"])
    return found | _copies(items) | _launches(items, drift)


def _host_costs(record: ContactRecord) -> dict[str, float]:
    """Return `launch`, `record` and `wait`: least squares of the us in which the host issued programs."""
    rows = []
    times = []
    for key in ("host/launch", "host/order"):
        if key not in record.items or "issue" not in record.items[key]:
            continue
        line = record.items[key]
        for run in Profile.from_dict(line["profile"], key).runs:
            if run.name in line["issue"] and run.program.execution == "events":
                action = run.program.action
                rows.append([np.count_nonzero(action == code) for code in (LAUNCH, RECORD, WAIT)])
                times.append(float(line["issue"][run.name]))
    counts = np.array(rows, np.float64).reshape(-1, 3)
    issued = np.array(times)
    if len(counts) < 3 or np.linalg.matrix_rank(counts) < 3:
        return {}
    weight = 1.0 / issued[:, None]  # errors are parts of a time
    launch, record_cost, wait = np.linalg.lstsq(counts * weight, np.ones(len(issued)), rcond=None)[0].tolist()
    return {"launch": launch, "record": record_cost, "wait": wait}


def ramp_of(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the part of the clock with which a device begins after a pause, and the s in which it rises.

    Parameters
    ----------
    rows
        s of work since the pause, and the us of the anchor then.

    Notes
    -----
    The part of the clock that is missing falls as ``(1 - ramp_start) exp(-t / ramp_time)``: the clock at the end is the
    median of the last quarter, and a line is fitted to the logarithm of what is missing, weighted by its square.
    """
    at, us = np.array(rows, np.float64).T
    last = float(np.median(us[-max(1, len(us) // 4) :]))
    missing = 1.0 - last / us
    chosen = missing > _MISSING
    first = int(np.argmin(chosen)) if not chosen.all() else len(chosen)  # a later outlier is no part of the ramp
    if first < 3:
        return {"ramp_start": 1.0, "ramp_time": 0.0}
    slope, level = np.polyfit(at[:first], np.log(missing[:first]), 1, w=missing[:first])
    return {"ramp_start": float(1.0 - np.exp(level)), "ramp_time": float(-1.0 / min(slope, -1e-9))}


def warps_that_saturate(warps: Sequence[float], us: Sequence[float]) -> float:
    """Return the warps that keep an SM busy: beyond them a block takes longer in proportion to its warps.

    >>> warps_that_saturate([1, 8, 16, 32], [10.0, 10.0, 16.0, 32.0])
    10.0
    """
    counts = np.array(warps, np.float64)
    times = np.array(us, np.float64)
    alone = float(times[0])
    idle = times <= _FULL * alone
    alone = float(np.median(times[idle]))
    full = times > _FULL * alone
    if not full.any():
        return float(counts[-1])
    return float(np.median(counts[full] * alone / times[full]))


def _interleave(record: ContactRecord) -> dict[str, float]:
    """Return the part of the slots freed by a kernel that the next one took while it had blocks left."""
    rows = [line for key, line in record.items.items() if key.startswith("dispatch/full-") or key == "doctor/leftover"]
    freed = sum(int(line["freed"]) for line in rows)
    return {"interleave": sum(int(line["taken"]) for line in rows) / freed} if freed else {}


def _bandwidth(record: ContactRecord, drift: Drift) -> float | None:
    """Return bytes per us: the slope of the time of kernels over the bytes that they stream."""
    rows = []
    for _, run in runs_of(record, drift, "doctor/bandwidth"):
        op = run.program.graph.index[STREAMED]
        span = spans_of(run.trace).launches[run.program.launches.ptr[op]]
        rows.append((run.program.graph.operator(op).nbytes, float(span[1] - span[0])))
    if len(rows) < 2:
        return None
    nbytes, us = np.array(sorted(rows)).T
    return float(1.0 / np.polyfit(nbytes, us, 1)[0])


def _launches(items: Mapping[str, Mapping[str, Any]], drift: Drift) -> dict[str, float]:
    """Return the us that programmatic launches save, and the part of the SMs that a green context has."""
    found: dict[str, float] = {}
    line = items.get("launches/dependent")
    if line is not None:
        factor = drift.factor(line["at"] + line["took"] / 2)
        found["programmatic"] = (float(line["ordered"]) - float(line["dependent"])) / factor
    line = items.get("launches/green")
    if line is not None:
        first, second = line["sms"]
        found["green_share"] = first / (first + second)
    return found


def _copies(items: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """Return latency and rate of copies to and from the host, and how many of them run at once (1 or 2)."""
    found: dict[str, float] = {}
    lines = [items[key] for key in ("copies/in", "copies/out") if key in items]
    if lines:
        nbytes, us = (np.concatenate([np.array(line[name], np.float64) for line in lines]) for name in ("nbytes", "us"))
        slope, level = np.polyfit(nbytes, us, 1, w=1.0 / us)
        found |= {"copy_latency": float(level), "copy_rate": float(1.0 / slope)}
    line = items.get("doctor/copies")
    if line is not None:
        into, out, both = (float(line[name]) for name in ("in", "out", "both"))  # type: ignore[arg-type]
        found["copy_engines"] = 1.0 if both > _TOGETHER * max(into, out) else 2.0
    return found
