"""The doctor's findings: what is odd about a device, and what that means for the results of a contact."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from hwbackend.contact.estimates import Drift, direct_estimates, ramp_of
from hwbackend.contact.lines import ContactRecord, missing
from hwbackend.contact.sections.doctor import PRODUCTS
from simsched.model import Cluster, Device
from simsched.model.profile import Profile

Json = dict[str, Any]

OK = "ok"
ODD = "odd"
FAIL = "fail"
UNKNOWN = "-"

_COARSE: Final = 0.5  # us of a tick from which on short kernels cannot be timed
_SLOW_RISE: Final = 1.0  # s in which a clock may rise to all but a tenth
_THROTTLED: Final = 0.97  # part of the fastest clock of the load that must be left at its end
_HIDDEN: Final = 0.5  # part of two equal kernels that must be hidden
_INTERLEAVED: Final = 0.1  # part of freed slots that a second kernel may take
# Parts of the rate in the data sheet.
_WEAK = 0.7
_BROKEN = 0.4
_ABOVE: Final = 1.1
_SLOWED: Final = 1.2  # times the launch cost before a profiler session
_LIMITS: Final = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_memory_per_sm", "capability")
_LISTED: Final = 3


class DoctorFinding(NamedTuple):
    """The doctor's verdict on one matter.

    Parameters
    ----------
    matter
        The matter.
    verdict
        ``"ok"``, ``"odd"``, ``"fail"``, or ``"-"`` where it was not measured.
    seen
        What was measured.
    meaning
        What it means for the results; empty if it is ok.
    """

    matter: str
    verdict: str
    seen: str
    meaning: str = ""


def findings(record: ContactRecord, cluster: Cluster) -> list[DoctorFinding]:
    """Return the doctor's verdicts on a contact, in the order of his items.

    Parameters
    ----------
    record
        The lines of the contact.
    cluster
        The device as it is known before anything is measured.
    """
    found = []
    for key, matter, judge in _JUDGES:
        line = record.items.get(key)
        if line is None:
            reason = missing(record, [key])[key]
            if record.failures.get(key) and not record.is_unsupported(key):
                verdict = FAIL
            else:
                verdict = UNKNOWN
            if verdict == FAIL:
                meaning = "what depends on it is missing, too"
            else:
                meaning = ""
            found.append(DoctorFinding(matter, verdict, reason, meaning))
        else:
            found.append(judge(line, record, cluster.devices[0]))
    return [*found, _throttling(record), _failures(record)]


def _versions(line: Json, _record: ContactRecord, device: Device) -> DoctorFinding:
    facts: Mapping[str, Any] = line["facts"]
    differing = [
        f"{name} {facts[name]}, not {getattr(device, name)}"
        for name in _LIMITS
        if name in facts and facts[name] != getattr(device, name)
    ]
    seen = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in _LIMITS) or "nothing is reported"
    if differing:
        meaning = "give the device by a file: it is another one than its preset, and predictions are of the preset"
        return DoctorFinding("versions and limits", ODD, "; ".join(differing), meaning)
    return DoctorFinding("versions and limits", OK, seen)


def _processes(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    state = line["state"]
    if state is None or state["processes"] is None:
        return DoctorFinding("other processes", UNKNOWN, "no driver reports them")
    count = state["processes"]
    if count:
        meaning = "their kernels are in every time: end them and measure again"
        return DoctorFinding("other processes", FAIL, f"{count} on the device", meaning)
    return DoctorFinding("other processes", OK, "none")


def _occupancy(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    wrong = [row for row in line["kernels"] if row[3] != row[4]]
    if wrong:
        texts = [f"{row[0]} threads, {row[1]} registers: {row[3]}, not {row[4]}" for row in wrong[:_LISTED]]
        meaning = "blocks of the model take another part of an SM than those of the device: report it"
        return DoctorFinding("occupancy", FAIL, "; ".join(texts), meaning)
    return DoctorFinding("occupancy", OK, f"{len(line['kernels'])} shapes as the model counts")


def _tick(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    tick = float(line["tick"])
    seen = f"{tick:.3g} us"
    if tick > _COARSE:
        meaning = "times of short kernels are means of many repeats, and the order of blocks within a tick is unknown"
        return DoctorFinding("timer tick", ODD, seen, meaning)
    return DoctorFinding("timer tick", OK, seen)


def _clock(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    rows = line["anchor"]
    ramp = ramp_of(rows)
    lasting = ramp["ramp_time"] * float(np.log(10.0 * max(1e-3, 1.0 - ramp["ramp_start"])))
    seen = f"begins at {ramp['ramp_start']:.0%} of the clock after a pause, {max(0.0, lasting):.2f} s to nine tenths"
    if lasting > _SLOW_RISE:
        meaning = "what was measured in the first seconds of a section is too slow; the anchor corrects a part of it"
        return DoctorFinding("clock after a pause", ODD, seen, meaning)
    return DoctorFinding("clock after a pause", OK, seen)


def _overlap(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    runs = {run.name: run.median for run in Profile.from_dict(line["profile"], "overlap").runs}
    failed = line.get("failed")
    if failed:
        return DoctorFinding(
            "two streams overlap", FAIL, next(iter(failed.values())), "kernels on streams cannot be measured"
        )
    one, row, two = (runs[f"overlap/{name}"] for name in ("one", "in-a-row", "two"))
    hidden = (row - two) / max(1e-9, min(one, row - one))
    seen = f"two kernels of one block: {row:.0f} us in a row, {two:.0f} us on two streams"
    if hidden < _HIDDEN:
        meaning = "streams gain nothing here, whatever is scheduled: look for CUDA_LAUNCH_BLOCKING, a debugger, MPS"
        return DoctorFinding("two streams overlap", FAIL, seen, meaning)
    return DoctorFinding("two streams overlap", OK, seen)


def _leftover(line: Json, record: ContactRecord, _device: Device) -> DoctorFinding:
    share = direct_estimates_of_dispatch(record, line)
    seen = f"{share:.1%} of the slots that a kernel frees go to the next one"
    if share > _INTERLEAVED:
        meaning = "kernels are not dispatched one after the other: `interleave` is fitted, and is not 0"
        return DoctorFinding("leftover dispatch", ODD, seen, meaning)
    return DoctorFinding("leftover dispatch", OK, seen)


def direct_estimates_of_dispatch(record: ContactRecord, line: Json) -> float:
    """Return the part of freed slots that a second kernel takes, by the section on dispatch or the doctor alone."""
    return direct_estimates(record).get("interleave", int(line["taken"]) / max(1, int(line["freed"])))


def _copies(line: Json, _record: ContactRecord, device: Device) -> DoctorFinding:
    alone = max(line["in"], line["out"])
    both = line["both"]
    seen = f"in {line['in']:.0f} us, out {line['out']:.0f} us, both ways {both:.0f} us"
    if both > 1.5 * alone and device.copy_engines > 1:
        meaning = f"copies take turns, but the preset has {device.copy_engines} engines: set copy_engines=1"
        return DoctorFinding("copy engines", ODD, seen, meaning)
    return DoctorFinding("copy engines", OK, seen)


def _bandwidth(_line: Json, record: ContactRecord, device: Device) -> DoctorFinding:
    rate = direct_estimates(record).get("bandwidth", 0.0)
    return _judge_rate("DRAM bandwidth", rate, device.bandwidth, 1e-3, "GB/s", "kernels bound by DRAM are slower")


def _product(dtype: str) -> Callable[[Json, ContactRecord, Device], DoctorFinding]:
    def judge(line: Json, _record: ContactRecord, device: Device) -> DoctorFinding:
        matter = f"{dtype} products"
        return _judge_rate(matter, line["rate"], device.peak_rate(dtype), 1e-6, "TFLOP/s", "products are slower")

    return judge


def _judge_rate(matter: str, rate: float, sheet: float, unit: float, name: str, consequence: str) -> DoctorFinding:
    """Return the meaning of a rate beside the rate in the data sheet; both are of bytes or FLOP per us."""
    part = rate / sheet
    seen = f"{rate * unit:.0f} {name}, {part:.0%} of the data sheet"
    if part > _ABOVE:
        return DoctorFinding(matter, ODD, seen, "faster than the data sheet: it is another device than its preset")
    if part < _WEAK:
        meaning = f"{consequence} than the preset says: predictions need the measured rate"
        return DoctorFinding(matter, FAIL if part < _BROKEN else ODD, seen, meaning)
    return DoctorFinding(matter, OK, seen)


def _profiler(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    launched = line["launched"]
    kernels = line["kernels"]
    nodes = line["nodes"]
    seen = f"{kernels} of {launched} kernels of a captured graph, {nodes} with the id of their node"
    if kernels < launched:
        meaning = "times of kernels within networks are missing: only latencies count"
        return DoctorFinding("profiler", FAIL, seen, meaning)
    if nodes < launched:
        meaning = "spans of captured graphs are those of a run that was not captured"
        return DoctorFinding("profiler", ODD, seen, meaning)
    return DoctorFinding("profiler", OK, seen)


def _after_profiler(line: Json, _record: ContactRecord, _device: Device) -> DoctorFinding:
    before, after = (line[when] / line["launched"] for when in ("before", "after"))
    seen = f"{before:.2f} us a launch before a session, {after:.2f} after it"
    if after > _SLOWED * before:
        meaning = (
            "latencies are taken before any profiler, each section in a process of its own: later ones are too long"
        )
        return DoctorFinding("launches after the profiler", ODD, seen, meaning)
    return DoctorFinding("launches after the profiler", OK, seen)


_Judge = Callable[[Json, ContactRecord, Device], DoctorFinding]
_JUDGES: Final[Sequence[tuple[str, str, _Judge]]] = (
    ("doctor/versions", "versions and limits", _versions),
    ("doctor/state", "other processes", _processes),
    ("doctor/occupancy", "occupancy", _occupancy),
    ("doctor/tick", "timer tick", _tick),
    ("doctor/clock", "clock after a pause", _clock),
    ("doctor/overlap", "two streams overlap", _overlap),
    ("doctor/leftover", "leftover dispatch", _leftover),
    ("doctor/copies", "copy engines", _copies),
    ("doctor/bandwidth", "DRAM bandwidth", _bandwidth),
    *((f"doctor/{dtype}", f"{dtype} products", _product(dtype)) for dtype in PRODUCTS),
    ("doctor/profiler", "profiler", _profiler),
    ("doctor/profiler", "launches after the profiler", _after_profiler),
)
"""The doctor's items, their matters, and what judges them."""


def _throttling(record: ContactRecord) -> DoctorFinding:
    """Judge the reasons for low clocks in all sections, and the clock under a load of seconds."""
    reasons: dict[str, None] = {}
    conditions = [line.get(when) for line in record.sections for when in ("before", "after")]
    conditions += [line.get("state") for line in record.items.values()]
    for state in conditions:
        reasons |= dict.fromkeys(state["throttled"] if state else ())
    rows = record.items.get("doctor/clock", {}).get("anchor", [])
    us = np.array([row[1] for row in rows])
    if len(us):
        part = float(np.quantile(us, 0.05) / np.median(us[-max(1, len(us) // 10) :]))
    else:
        part = 1.0
    fall = Drift.of(record).fall
    seen = f"the load ends at {part:.0%} of its fastest clock, which falls by {fall:.1%} in 100 s"
    meaning = "times of kernels are those of a low clock: cool the device or lift its limit, and measure again"
    if part < _THROTTLED or reasons:
        if reasons:
            named = f"{', '.join(reasons)}; "
        else:
            named = ""
        return DoctorFinding("throttling", ODD if part >= _THROTTLED else FAIL, named + seen, meaning)
    if not conditions and not len(us):
        return DoctorFinding("throttling", UNKNOWN, "nothing was measured")
    return DoctorFinding("throttling", OK, seen)


def _failures(record: ContactRecord) -> DoctorFinding:
    """Judge the items that failed or hung, in all sections; what a device cannot do at all does not count."""
    reasons = {key: str(lines[-1]["reason"]) for key, lines in record.failures.items() if key not in record.items}
    failed = {key: reason for key, reason in reasons.items() if not record.is_unsupported(key)}
    parts = [f"{key}/{name}" for key, line in record.items.items() for name in line.get("failed", {})]
    if failed:
        texts = [f"{key}: {reason}" for key, reason in list(failed.items())[:_LISTED]]
        if len(failed) > _LISTED:
            more = f" and {len(failed) - _LISTED} more"
        else:
            more = ""
        return DoctorFinding("items", FAIL, "; ".join(texts) + more, "they are missing; all others are whole")
    if parts:
        return DoctorFinding("items", ODD, f"{len(parts)} schedules failed, such as {parts[0]}", "they are missing")
    return DoctorFinding("items", OK, f"{len(record.items)} measured, none failed")
