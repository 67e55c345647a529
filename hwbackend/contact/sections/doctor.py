"""Section: what the doctor looks at, in ten seconds; `hwbackend.contact.findings` judges it."""

from functools import partial
from typing import Final

from hwbackend.contact.measure import WARM, anchors, in_turns
from hwbackend.contact.sections.dispatch import competing, taken_slots
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from hwbackend.measuring.microbenchmarks import synthetic_kernel, synthetic_schedule
from simsched.base.errors import ClusterError
from simsched.model import Operator, Schedule, occupancy

_IDLE: Final = 0.5  # s, after which the clock has fallen
_RAMP: Final = 2.5  # s for which it may rise
_RAMP_RUNS: Final = 50  # repeats of the anchor between two looks at the time
_SPIN: Final = 200.0  # us
_LAUNCHES: Final = 40
_COPIED: Final = 16e6  # bytes
_REPEATS: Final = 9
_OTHER: Final = 48  # blocks an SM of the kernel before
_STREAMED: Final = (64, 128, 256)  # blocks an SM of kernels bound by DRAM
STREAMED: Final = "streamed"
"""Name of the operator whose time counts."""
PRODUCTS: Final = ("fp32", "fp16")


def doctor_items() -> list[ContactItem]:
    """Return the items; the profiler comes last, since a session may slow every later launch of its process."""
    return [
        ContactItem("doctor/versions", 0.1, _versions),
        ContactItem("doctor/state", 0.1, _state),
        ContactItem("doctor/occupancy", 0.1, _occupancy),
        ContactItem("doctor/tick", 0.1, lambda bench: {"tick": bench.device.tick()}),
        ContactItem("doctor/clock", _IDLE + _RAMP, _clock),
        ContactItem("doctor/overlap", 0.6, lambda bench: in_turns(bench.device, _spins(bench), 0.4)),
        ContactItem("doctor/leftover", 0.2, _leftover),
        ContactItem("doctor/copies", 0.3, _copies),
        ContactItem("doctor/bandwidth", 1.0, lambda bench: in_turns(bench.device, _streaming(bench), 0.6)),
        *(ContactItem(f"doctor/{dtype}", 0.4, partial(_product, dtype=dtype)) for dtype in PRODUCTS),
        ContactItem("doctor/profiler", 1.0, _profiler),
    ]


def _versions(bench: Bench) -> Json:
    return {"facts": bench.device.facts(), "cluster": bench.device.cluster.to_dict()}


def _state(bench: Bench) -> Json:
    state = bench.device.state()
    return {"state": None if state is None else state.to_dict()}


def _occupancy(bench: Bench) -> Json:
    """Return for each shape what the driver says, and what the occupancy calculation of the model does."""
    rows = []
    for kernel, counted in bench.device.occupancies():
        try:
            ours = occupancy(bench.device.cluster.devices[0], kernel).blocks
        except ClusterError:
            ours = 0
        rows.append([kernel.threads, kernel.registers, kernel.shared_memory, counted, ours])
    return {"kernels": rows}


def _clock(bench: Bench) -> Json:
    """Return the anchor's us over s of work after a pause, and the condition at the end."""
    chain, _ = anchors(bench.device)
    bench.device.idle(_IDLE)
    begun = bench.device.seconds()
    rows = []
    while bench.device.seconds() - begun < _RAMP:
        start = bench.device.seconds() - begun
        latency = bench.device.run(chain, _RAMP_RUNS).replay.latency
        end = bench.device.seconds() - begun
        between = (end - start - sum(latency) * 1e-6) / len(latency)  # s of each repeat beside its latency
        for us in latency:
            rows.append([round(start + us * 5e-7, 6), us])  # in its middle
            start += us * 1e-6 + between
    return {"anchor": rows} | _state(bench)


def _spins(bench: Bench) -> list[Schedule]:
    """Return one kernel of one block, two in a row, and two on streams; as captured graphs, whose nodes may overlap."""
    gpu = bench.device.cluster.devices[0]

    def spins(name: str, count: int, streams: int) -> Schedule:
        operators = [synthetic_kernel(f"k{i}", gpu, 1, _SPIN) for i in range(count)]
        return synthetic_schedule(f"overlap/{name}", gpu, operators, streams=[i % streams for i in range(count)])

    return [spins("one", 1, 1), spins("in-a-row", 2, 1), spins("two", 2, 2)]


def _leftover(bench: Bench) -> Json:
    sms = bench.device.cluster.devices[0].sms
    freed, taken = taken_slots(bench.device.blocks(competing(bench, 16 * sms, 2, "leftover")))
    return {"freed": freed, "taken": taken}


def _copies(bench: Bench) -> Json:
    rows = [[bench.device.copy(_COPIED, ways) for ways in (("in",), ("out",), ("in", "out"))] for _ in range(_REPEATS)]
    into, out, both = (sorted(column)[_REPEATS // 2] for column in zip(*rows, strict=True))
    return {"in": into, "out": out, "both": both, "nbytes": _COPIED}


def _streaming(bench: Bench) -> list[Schedule]:
    """Return kernels that stream through DRAM, each after another one whose data are in the cache instead of its own.

    The slope of their time over their bytes is the bandwidth.
    """
    gpu = bench.device.cluster.devices[0]

    def streaming(name: str, per_sm: int) -> Operator:
        return synthetic_kernel(name, gpu, per_sm * gpu.sms, 20.0, "memory")

    other = streaming("other", _OTHER)
    return [
        synthetic_schedule(f"streaming/{per_sm}", gpu, [other, streaming(STREAMED, per_sm)]) for per_sm in _STREAMED
    ]


def _product(bench: Bench, dtype: str) -> Json:
    rates = sorted(bench.device.matmul(dtype) for _ in range(_REPEATS))
    return {"rate": rates[_REPEATS // 2]}


def _profiler(bench: Bench) -> Json:
    """Return the host's us of launches before and after a profiler session of a captured graph, and what it saw."""
    gpu = bench.device.cluster.devices[0]
    operators = [synthetic_kernel(f"k{i}", gpu, 1, 1.0) for i in range(_LAUNCHES)]
    launches = synthetic_schedule("profiler/launches", gpu, operators)
    before = _launch_time(bench, launches)
    graph = launches.like(execution="graph", scheduler="profiler/graph")
    session = bench.device.profile_once(graph)
    return {
        "launched": _LAUNCHES,
        "kernels": session.kernels,
        "nodes": session.nodes,
        "before": before,
        "after": _launch_time(bench, launches),
    }


def _launch_time(bench: Bench, launches: Schedule) -> float:
    """Return the median us of issuing launches; of running them where that is not known: they are very short."""
    timing = bench.device.run(launches, _REPEATS, warm=WARM)
    if timing.issue is None:
        return timing.replay.median
    return sorted(timing.issue)[_REPEATS // 2]
