"""Pairs of kernels that a real GPU ran: the start of the second one, and the time that each of them cost the other.

Where a table does not say what a kernel moves, nothing is assumed: it loads the issue slots by its warps and DRAM not
at all. What a kernel takes alone is not in the tables of pairs either: the measured durations of both stand for it.

A table of pairs (``.csv``, times in us from the start of the first kernel) has the columns ``trace`` (a name with that
of a preset in it, as ``mine_a100``), ``kernel``, ``grid``, ``block``, ``reg``, ``smem`` and ``dur``, each followed by
``1`` and by ``2`` (name, blocks, threads, registers of a thread, bytes of shared memory of a block, duration),
``ready2`` (when the second one could have started) and ``start2``. For two equal kernels on a GTX 950 it has ``set``,
``grid``, ``block_threads``, ``registers``, ``static_smem``, ``k1_dur_us``, ``k2_input_ready_us``, ``k2_start_us`` and
``k2_dur_us``. A table of kernels alone and beside another one (``.json``, a list of objects) has ``trace``, ``kernel``,
``grid``, ``block``, ``registers``, ``shared_memory``, ``solo_us``, ``solo_n`` (runs), ``solo_cv`` (deviation over
mean), ``corun_us``, ``corun_n``, ``corunner_type`` (``comm``, ``mem`` or another), ``corunner_grid`` (null for a copy),
``corunner_block``, ``corunner_registers`` and ``corunner_shared``.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isfinite, prod
from typing import Any, Final

import numpy as np

from simsched.base.codec import Record
from simsched.base.errors import FormatError
from simsched.base.io import naming, parse_json
from simsched.base.units import GB_PER_S, GIB, KIB, MIB
from simsched.model import Cluster, Device, Floats, Kernel, Operator, OpGraph
from simsched.model.cluster import DEVICES
from simsched.model.cluster.presets import make_device
from simsched.model.program import LAUNCH, Copies, Program
from simsched.model.trace import Span
from simsched.simulator import simulate

GTX_950: Final = Device(
    "gtx950",
    "GTX 950",
    sms=6,
    threads_per_sm=2048,
    blocks_per_sm=32,
    registers_per_sm=65536,
    shared_memory_per_sm=96 * KIB,
    shared_memory_per_block=48 * KIB,
    shared_memory_reserved=0,
    shared_memory_granularity=256,
    clock=1188.0,
    peak={"fp32": 6 * 128 * 2 * 1188.0},
    bandwidth=105.6 * GB_PER_S,
    memory=2 * GIB,
    l2=1 * MIB,
    copy_engines=2,
)
"""Limits of compute capability 5.2; rates of the datasheet."""
_SAME_CHIP: Final = {"h800": "h100", "a800": "a100"}
_CLASSES: Final = {
    "collectives": "nccl|rccl",
    "memory-bound": "elementwise|memcpy|memset|copy|catarray|reduce|scan|bn_|batch_?norm|layer_?norm|softmax|nchw|nhwc|"
    "permute|embedding|index|gemv",
    "compute-bound": "gemm(?!v)|cutlass|xmma|wgrad|dgrad|fprop|conv",
}
"""Parts of the names of kernels of a class, in any case; the first class that fits is theirs."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Parameters
    ----------
    asked, of
        The question, and its subject.
    cases
        Of how many steps, pairs, groups or operators.
    unit
        Of all figures; for ``"%"`` they are errors.
    ours, beside
        Figures of the simulator and its presets, and of something simpler (for a time or rate: what was measured).
    targets
        Most that figures of `ours` should be.
    """

    asked: str
    of: str
    cases: int
    unit: str
    ours: Mapping[str, float]
    beside: Mapping[str, float]
    targets: Mapping[str, float] = field(default_factory=dict)


def class_of(kernel: str) -> str:
    """Return the resource that bounds a kernel, as far as its name shows it.

    >>> class_of("ampere_sgemm_32x128_tn"), class_of("vectorized_elementwise_kernel"), class_of("mine")
    ('compute-bound', 'memory-bound', 'unknown')
    """
    return next((name for name, pattern in _CLASSES.items() if re.search(pattern, kernel, re.IGNORECASE)), "unknown")


def device_named(text: str) -> Device:
    """Return the preset whose name stands in a text, the longest if there are several.

    >>> device_named("dlrm_a100").sms
    108
    """
    known = {name: name for name in DEVICES} | _SAME_CHIP
    fits = [name for name in known if name in text.lower()]
    if not fits:
        raise FormatError(f"{text!r} names no device that is known: {', '.join(known)}")
    return make_device(known[max(fits, key=len)], "gpu0")


def side_by_side(device: Device, ops: Sequence[Operator], ready: Sequence[float]) -> list[Span]:
    """Simulate operators on a stream each, issued at given times in us, where launching costs nothing.

    >>> ops = [Operator("a", time=10.0), Operator("b", time=5.0)]
    >>> [(span.start, span.end) for span in side_by_side(GTX_950, ops, (0.0, 8.0))]
    [(0.0, 10.0), (8.0, 13.0)]
    """
    cluster = Cluster((device,)).without_overheads()
    n, none, nothing = len(ops), np.zeros(0, np.int32), np.zeros(0)
    order = np.argsort(ready, kind="stable")
    lead = np.diff(np.asarray(ready, np.float64)[order], prepend=0.0)
    program = Program(
        OpGraph(ops, []),
        [device.name],
        "events",
        [0, n],
        [LAUNCH] * n,
        [0] * n,
        order,
        order,
        Copies(none, none, nothing, nothing),
        0,
        0,
        lead,
        np.zeros(n),
    ).check()
    found = {span.op: span for span in simulate(program, cluster).spans if span.kind == "kernel"}
    return [found[op.name] for op in ops]


_TWINS: Final = (
    "set",
    "grid",
    "block_threads",
    "registers",
    "static_smem",
    "k1_dur_us",
    "k2_input_ready_us",
    "k2_start_us",
    "k2_dur_us",
)
_SHAPE: Final = ("grid", "block", "reg", "smem")
_UNLIKE: Final = ("trace", *(f"{name}{k}" for k in (1, 2) for name in ("kernel", *_SHAPE, "dur")), "ready2", "start2")
# Of small kernels the second one starts so early that no measured duration is a solo time.
_SETS: Final = {"mm_mm": "matrix products", "mem_mem": "memory-bound", "cmp_cmp": "small compute (no test of sharing)"}
INTENSITIES: Final = dict.fromkeys(("memory-bound", "collectives", "copies"), "memory")
"""Of kinds of kernels that issue little; others are taken to issue as their warps can."""
_TESTED: Final = ("mm_mm", "mem_mem")
_START, _DURATION = 3.5, 10.0  # per cent
_SPAN: Final = 8.0  # per cent
_FEWEST_SMALL, _AS_LARGE = 20, 1.25
_LATENCIES, _SPREADS = (0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0), (0.0, 0.04, 0.08, 0.12, 0.16)
_LASTING: Final = 100.0  # solo times for which the other kernel goes on
_RUNS, _SPREAD = 3, 0.06


@dataclass(frozen=True)
class Pair:
    """Two kernels on two streams; times in us from the start of the first."""

    device: Device
    kind: str
    kernels: tuple[Kernel, Kernel]
    durations: tuple[float, float]
    ready: float
    start: float
    targets: Mapping[str, float]

    def __post_init__(self) -> None:
        if min(*self.durations, self.start) <= 0:
            raise FormatError("durations, and the start of the second kernel, must be positive")


@dataclass(frozen=True)
class Group:
    """Kernels of one name and shape, alone and beside another one (None: it has no grid); times are medians in us."""

    device: Device
    kind: str
    kernel: Kernel
    other_kind: str
    other: Kernel | None
    solo: float
    beside: float
    is_firm: bool


def read_pairs(text: str, source: str) -> list[Pair]:
    """Read a table of pairs, of two kernels of one shape on a GTX 950 (`_TWINS`) or of any two (`_UNLIKE`)."""
    rows = csv.DictReader(io.StringIO(text))
    given = rows.fieldnames or ()
    wanted = _TWINS if "set" in given else _UNLIKE
    missing = [name for name in wanted if name not in given]
    if missing:
        raise FormatError(f"{source}: no column {missing[0]!r}: a table of pairs has {', '.join(wanted)}")
    found = []
    for number, row in enumerate(rows, 2):
        with naming(f"{source}: line {number}"):
            found.append(_twins(row) if wanted is _TWINS else _unlike(row))
    if not found:
        raise FormatError(f"{source}: no pairs")
    return found


def _number(row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value):
        raise FormatError(f"{name} must be a number, not {row[name]!r}")
    return value


def _kernel(row: Mapping[str, str], names: Sequence[str]) -> Kernel:
    blocks, threads, registers, shared_memory = (int(_number(row, name)) for name in names)
    return Kernel(blocks, threads, registers, shared_memory)


def _twins(row: Mapping[str, str]) -> Pair:
    kernel, kind = _kernel(row, _TWINS[1:5]), row["set"]
    first, ready, start, second = (_number(row, name) for name in _TWINS[5:])
    targets = {"start": _START, "first": _DURATION, "second": _DURATION} if kind in _TESTED else {}
    return Pair(GTX_950, _SETS.get(kind, kind), (kernel, kernel), (first, second), ready, start, targets)


def _unlike(row: Mapping[str, str]) -> Pair:
    first, second = (_kernel(row, [f"{name}{k}" for name in _SHAPE]) for k in (1, 2))
    dur1, dur2, ready, start = (_number(row, name) for name in ("dur1", "dur2", "ready2", "start2"))
    device, kind = device_named(row["trace"]), class_of(row["kernel1"])
    return Pair(device, kind, (first, second), (dur1, dur2), ready, start, {"start": _START})


def dispatch_rows(pairs: Sequence[Pair]) -> Iterator[Row]:
    """Yield a row for each device and class of first kernels; where names tell the classes, one for all as well."""
    for device in dict.fromkeys(pair.device for pair in pairs):
        mine = [pair for pair in pairs if pair.device == device]
        parts = {} if device is GTX_950 else {"all": mine}
        for pair in sorted(mine, key=lambda pair: not pair.targets):
            parts.setdefault(pair.kind, []).append(pair)
        for kind, some in parts.items():
            yield _dispatch_row(f"{device.model}, {kind}", some)


def _dispatch_row(of: str, pairs: Sequence[Pair]) -> Row:
    start, first, second = dispatch_errors(pairs)
    return Row(
        "start and durations of two kernels",
        of,
        len(pairs),
        "%",
        {"start": start, "first": first, "second": second},
        {
            "no contention": dispatch_errors(pairs, contention=False)[0],
            "interleave 0.5": dispatch_errors(pairs, interleave=0.5)[0],
        },
        pairs[0].targets,
    )


def dispatch_errors(pairs: Sequence[Pair], **changes: Any) -> tuple[float, float, float]:
    """Return mean errors in per cent: of the second start, over its mean, and of the durations of both."""
    off, durations = [], []
    for pair in pairs:
        rows = zip(("first", "second"), pair.durations, pair.kernels, strict=True)
        ops = [_operator(name, us, kernel, pair.kind) for name, us, kernel in rows]
        spans = side_by_side(replace(pair.device, **changes), ops, (0.0, max(0.0, pair.ready)))
        off.append(abs(spans[1].start - pair.start))
        durations.append([abs((s.end - s.start) / time - 1) for s, time in zip(spans, pair.durations, strict=True)])
    one, two = (100 * np.mean(durations, 0)).tolist()
    return float(100 * np.mean(off) / np.mean([pair.start for pair in pairs])), one, two


def _operator(name: str, us: float, kernel: Kernel | None, kind: str) -> Operator:
    return Operator(name, time=us, kernels=() if kernel is None else (kernel,), intensity=INTENSITIES.get(kind))


def fair_rows(pairs: Sequence[Pair]) -> Iterator[Row]:
    """Yield a row for the small kernels of the table of twins, whose own durations are no solo times.

    Notes
    -----
    They overlap, so the first kernel's duration in each run is too long by chance. A fair time alone is the least time
    of the first kernels of as many blocks, up to a quarter more. The second kernel arrives at its measured start.
    Latency of a kernel and spread of its blocks are fitted to every second pair by size; the span of both is predicted
    for the other pairs.
    """
    small = sorted((pair for pair in pairs if pair.kind == _SETS["cmp_cmp"]), key=lambda pair: pair.kernels[0].blocks)
    if len(small) < _FEWEST_SMALL:
        return
    fair = [
        min(p.durations[0] for p in small if 1 <= p.kernels[0].blocks / pair.kernels[0].blocks <= _AS_LARGE)
        for pair in small
    ]
    fitted, asked = ([(small[i], fair[i]) for i in range(k, len(small), 2)] for k in (0, 1))
    latency, spread = min(product(_LATENCIES, _SPREADS), key=lambda tried: _span_error(fitted, *tried))
    yield Row(
        "span of two small kernels, fair time alone",
        "GTX 950, every second one held out",
        len(asked),
        "%",
        {"span": _span_error(asked, latency, spread)},
        {"no latency": _span_error(asked, 0.0, spread), "no latency, no spread": _span_error(asked, 0.0, 0.0)},
        {"span": _SPAN},
    )


def _span_error(pairs: Sequence[tuple[Pair, float]], latency: float, spread: float) -> float:
    """Return the mean error in per cent of when the later of two kernels ends."""
    off = []
    for pair, alone in pairs:
        device = replace(pair.device, kernel_latency=latency, block_spread=spread)
        ops = [_operator(f"k{i}", alone, kernel, "unknown") for i, kernel in enumerate(pair.kernels)]
        end = max(span.end for span in side_by_side(device, ops, (0.0, pair.start)))
        off.append(abs(end / max(pair.durations[0], pair.start + pair.durations[1]) - 1))
    return float(100 * np.mean(off))


def read_groups(text: str, source: str) -> list[Group]:
    """Read a table of kernels alone and beside another one."""
    data = parse_json(text, source)
    found = []
    for k, row in enumerate(data):
        record = Record(row, f"row {k}")
        with naming(source):
            found.append(_group(record))
    if not found:
        raise FormatError(f"{source}: no groups")
    return found


def _group(row: Record) -> Group:
    device = device_named(row.take("trace", str))
    kernel = _shape(row, "grid", "block", "registers", "shared_memory")
    if kernel is None:
        raise FormatError("a kernel has no grid")
    names = ("corunner_grid", "corunner_block", "corunner_registers", "corunner_shared")
    runs = min(row.take("solo_n", int, 0), row.take("corun_n", int, 0))
    other = {"comm": "collectives", "mem": "copies"}.get(row.take("corunner_type", str), "kernels")
    solo, beside = row.take("solo_us", float), row.take("corun_us", float)
    if solo <= 0 or beside <= 0:
        raise FormatError(f"solo_us and corun_us must be positive, not {solo!r} and {beside!r}")
    return Group(
        device,
        class_of(row.take("kernel", str)),
        kernel,
        other,
        _shape(row, *names),
        solo,
        beside,
        runs >= _RUNS and row.take("solo_cv", float, 1.0) <= _SPREAD,
    )


def _shape(row: Record, grid: str, block: str, registers: str, shared_memory: str) -> Kernel | None:
    sizes = row.take(grid, list, None)
    if sizes is None:
        return None
    threads = row.take(block, list)
    if not all(isinstance(size, int) for size in (*sizes, *threads)):
        raise FormatError(f"{grid} and {block} must be whole numbers, not {sizes} and {threads}")
    return Kernel(prod(sizes), prod(threads), max(1, row.take(registers, int, 1)), row.take(shared_memory, int, 0))


def slowdown_rows(groups: Sequence[Group]) -> Iterator[Row]:
    """Yield a row for each class of kernels and the kernel beside it, and one for the groups that repeat well.

    Which of the two was issued first the tables do not say: ours is the geometric mean of both orders.
    """
    parts: dict[str, list[Group]] = {"all": list(groups)}
    firm = [group for group in groups if group.is_firm]
    if firm and len(firm) < len(groups):
        parts[f"{_RUNS} runs or more, alone within {_SPREAD:.0%}"] = firm
    for group in groups:
        parts.setdefault(f"{group.kind} beside {group.other_kind}", []).append(group)
    for of, some in parts.items():
        measured = np.array([group.beside / group.solo for group in some])
        orders = np.array([[slowdown(group, is_first=is_first) for is_first in (False, True)] for group in some])
        predicted = np.sqrt(orders.prod(1))
        best = min(_error(value / measured) for value in measured)  # a mean of absolute values is least at one of them
        yield Row(
            "slowdown of a kernel beside another",
            of,
            len(some),
            "%",
            {"error": _error(predicted / measured), "median": float(100 * np.median(np.abs(predicted / measured - 1)))},
            {
                "other first": _error(orders[:, 0] / measured),
                "no slowdown": _error(1.0 / measured),
                "best constant": best,
            },
        )


def slowdown(group: Group, *, is_first: bool) -> float:
    """Return the predicted growth of the time of a kernel that is issued before or after one that runs throughout."""
    ops = [
        _operator("other", _LASTING * group.solo, group.other, group.other_kind),
        _operator("mine", group.solo, group.kernel, group.kind),
    ]
    span = side_by_side(group.device, ops[::-1] if is_first else ops, (0.0, 0.0))[not is_first]
    return (span.end - span.start) / group.solo


def _error(ratios: Floats) -> float:
    return float(100 * np.mean(np.abs(ratios - 1)))
