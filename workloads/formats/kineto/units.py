"""Operators of a torch.profiler trace: by level, by annotation, or in the order of a graph."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from simsched.base.errors import FormatError
from simsched.model.graph.columns import Ints
from workloads.formats.kineto.events import Activities, Codes, HostEvents
from workloads.formats.kineto.join import Iterations, Nesting, Origin

_logger = logging.getLogger(__name__)

# Kind of an operator -> pattern of its names in PyTorch; any other kind has its own name there.
_CALLED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "conv": r"(cudnn|mkldnn|slow)?conv(_transpose|_depthwise)?[123]?d?|convolution(_overrideable)?",
        "linear": "linear|addmm|matmul|mm",
        "matmul": "matmul|bmm|mm|baddbmm",
        "pool": r"\w*pool[123]?d?(_with_indices)?|mean",
        "concat": "cat|concat|concatenate",
        "batch_norm": r"\w*batch_norm\w*",
        "layer_norm": r"\w*layer_norm",
        "relu": "relu6?|clamp(_min)?",
        "softmax": r"(log_|safe_)?softmax",
        "view": r"view|reshape|(un)?flatten|(un)?squeeze|(un)?expand|permute|transpose|t|chunk|split|slice|select",
        "copy": "copy|clone|contiguous|to|reshape|permute|transpose",
        "dropout": r"\w*dropout",
    }
)
# Operators that PyTorch may have no operator for, or none that does anything.
_SILENT: Final = ("input", "output", "placeholder", "constant", "identity", "dropout", "view", "flatten", "size")


@dataclass(frozen=True, slots=True)
class Joined:
    """A trace whose activities are joined with the host events that they came from."""

    source: str
    operators: Nesting
    annotations: HostEvents
    activities: Activities
    origin: Origin
    iterations: Iterations


@dataclass(slots=True)
class OperatorRun:
    """An operator in an iteration: rows of its activities in launch order, and its time on the host in ns."""

    name: str
    activities: list[int]
    host: int = 0


def by_level(joined: Joined, level: str, captured: Sequence[str] | None) -> list[list[OperatorRun]]:
    """Return the runs of each iteration: one per operator of the host, or per graph node."""
    units = _operators(joined, level, silent=not len(joined.activities))
    origin = joined.origin
    # a kernel that no operator launched is an operator itself
    alone = np.flatnonzero((origin.operator < 0) & ~origin.of_graph)
    units.owner[alone] = len(units.names) + np.arange(len(alone))
    names = units.names + [joined.activities.kinds[code].name for code in joined.activities.what[alone].tolist()]
    host = np.concatenate([units.host, np.zeros(len(alone), np.int64)])
    runs = _runs(joined, names, np.concatenate([units.start, origin.time[alone]]), host, units.owner)
    for i, (part, nodes) in enumerate(zip(runs, _graph_nodes(joined), strict=True)):
        n_before: Counter[str] = Counter()
        for run in part:
            n_before[run.name] += 1
            run.name = f"{run.name}#{n_before[run.name] - 1}"
        part += nodes if captured is None else _runs_of_nodes(joined, nodes, captured, i)
    return runs


def by_annotation(joined: Joined, names: Sequence[str], marks: Nesting) -> list[list[OperatorRun]]:
    """Return the runs of each iteration inside the annotations that are named as the operators of a graph."""
    events = marks.events
    origin = joined.origin
    ops = joined.operators
    labels = [events.names[code] for code in events.name.tolist()]
    host = np.zeros(len(labels), np.int64)
    if not len(joined.activities):
        top = np.flatnonzero(ops.outermost == np.arange(len(ops.events)))
        inside = marks.around(ops.events.thread[top], ops.events.start[top])
        time = ops.events.end[top] - ops.events.start[top]
        np.add.at(host, inside[inside >= 0], time[inside >= 0])
    runs = _runs(joined, labels, events.start, host, marks.around(origin.thread, origin.time))
    n_outside = len(joined.activities) - sum(len(run.activities) for part in runs for run in part)
    if n_outside:
        _logger.warning("%s: %d kernels and copies belong to no operator of the graph", joined.source, n_outside)
    for i, part in enumerate(runs):
        count = Counter(run.name for run in part)
        twice = next((name for name, n in count.items() if n > 1), None)
        if twice is not None:
            raise FormatError(
                f"{joined.source}: operator {twice!r} is annotated twice in iteration {i}; "
                f"call the profiler's step() after each iteration"
            )
        missing = next((name for name in names if name not in count), None)
        if part and missing is not None:
            raise FormatError(f"{joined.source}: operator {missing!r} of the graph is not annotated in iteration {i}")
    return runs


def by_order(joined: Joined, names: Sequence[str], kinds: Sequence[str] | None) -> list[list[OperatorRun]]:
    """Return the runs of each iteration; the outermost operators match the operators of the graph in turn.

    An outermost operator that launches no kernel and does not fit is passed over. Without kinds the number of
    operators that launch kernels (on the CPU: of all) must equal the number of names.

    Raises
    ------
    FormatError
        If they do not match; the message names the first that does not.
    """
    runs = _runs(joined, *_operators(joined, "top", silent=True))
    for i, part in enumerate(runs):
        if part:
            if kinds is None:
                runs[i] = _match_by_count(joined, part, names, i)
            else:
                runs[i] = _match_by_kind(joined, part, names, kinds, i)
    return runs


class _Units(NamedTuple):
    """Operators by name, start and time on the host in ns, and the operator that owns each activity, or -1."""

    names: list[str]
    start: Ints
    host: Ints
    owner: Ints


def _operators(joined: Joined, level: str, *, silent: bool) -> _Units:
    """Return the operators of a level that launch something, or all if those that are silent are wanted too."""
    nesting = joined.operators
    origin = joined.origin
    ops = nesting.events
    has_op = (origin.operator >= 0) & ~origin.of_graph
    if level == "top":
        of_op = nesting.outermost[origin.operator[has_op]]
    else:
        of_op = origin.operator[has_op]
    if silent:
        chosen = np.flatnonzero(nesting.outermost == np.arange(len(ops)) if level == "top" else nesting.innermost)
    else:
        chosen = np.unique(of_op)
    owner = np.full(len(joined.activities), -1)
    owner[has_op] = np.searchsorted(chosen, of_op)
    host = (ops.end - ops.start)[chosen] * (not len(joined.activities))
    return _Units([ops.names[code] for code in ops.name[chosen].tolist()], ops.start[chosen], host, owner)


def _runs(joined: Joined, names: Sequence[str], start: Ints, host: Ints, owner: Ints) -> list[list[OperatorRun]]:
    """Return units by iteration and start, each with the activities that it owns."""
    activities = joined.activities
    rows = np.flatnonzero(owner >= 0)
    rows = rows[np.lexsort((activities.start[rows], activities.correlation[rows], owner[rows]))]
    ptr = np.searchsorted(owner[rows], np.arange(len(names) + 1)).tolist()
    listed = rows.tolist()
    runs: list[list[OperatorRun]] = [[] for _ in range(len(joined.iterations))]
    iteration = joined.iterations.of(start).tolist()
    hosts = host.tolist()
    for u in np.argsort(start, kind="stable").tolist():
        if iteration[u] >= 0:
            runs[iteration[u]].append(OperatorRun(names[u], listed[ptr[u] : ptr[u + 1]], hosts[u]))
    return runs


def _graph_nodes(joined: Joined) -> list[list[OperatorRun]]:
    """Return the nodes of the CUDA graphs launched in each iteration, in order of launch and node.

    Nodes are numbered by their id, or where the trace has none by stream and then start: of two streams
    the order in time may change from launch to launch, that within a stream does not.
    """
    activities = joined.activities
    origin = joined.origin
    rows = np.flatnonzero(origin.of_graph)
    stream = np.where(activities.node[rows] > 0, 0, activities.stream[rows])
    keys = (activities.start[rows], stream, activities.node[rows], activities.correlation[rows], origin.time[rows])
    rows = rows[np.lexsort(keys)]
    iteration = joined.iterations.of(origin.time[rows])
    runs: list[list[OperatorRun]] = [[] for _ in range(len(joined.iterations))]
    launches = [Codes() for _ in runs]
    n_nodes = Counter[tuple[int, int]]()
    for row, i, call in zip(rows.tolist(), iteration.tolist(), activities.correlation[rows].tolist(), strict=True):
        if i >= 0:
            launch = i, launches[i][call]
            runs[i].append(OperatorRun(f"cudaGraphLaunch#{launch[1]}.{n_nodes[launch]}", [row]))
            n_nodes[launch] += 1
    return runs


def _runs_of_nodes(joined: Joined, nodes: list[OperatorRun], captured: Sequence[str], i: int) -> list[OperatorRun]:
    """Return the operators from which the nodes were captured."""
    if nodes and len(nodes) != len(captured):
        raise FormatError(
            f"{joined.source}: iteration {i} launches {len(nodes)} graph nodes, but captured= names the operators "
            f"of {len(captured)}"
        )
    activities = joined.activities
    if any(activities.node[row] <= 0 for node in nodes for row in node.activities):
        raise FormatError(
            f"{joined.source}: the nodes of the captured graph have no ids, so it is not known which operator each is; "
            f"record it with a newer profiler, or without CUDA graphs"
        )
    runs: dict[str, OperatorRun] = {}
    for node, name in zip(nodes, captured if nodes else (), strict=True):
        runs.setdefault(name, OperatorRun(name, [])).activities += node.activities
    return list(runs.values())


def _match_by_count(joined: Joined, part: list[OperatorRun], names: Sequence[str], i: int) -> list[OperatorRun]:
    if not len(joined.activities):
        launching = part
    else:
        launching = [run for run in part if _launches(joined, run)]
    if len(launching) != len(names):
        raise FormatError(
            f"{joined.source}: {len(launching)} operators ran in iteration {i} where the graph has {len(names)}; "
            f"annotate the operators with their names (record_function), or give an OpGraph to match kinds"
        )
    return [replace(run, name=name) for name, run in zip(names, launching, strict=True)]


def _match_by_kind(
    joined: Joined, part: list[OperatorRun], names: Sequence[str], kinds: Sequence[str], i: int
) -> list[OperatorRun]:
    runs: list[OperatorRun] = []
    for run in part:
        k = len(runs)
        while k < len(names) and kinds[k] in _SILENT and not _fits(kinds[k], run.name):
            k += 1
        if k < len(names) and _fits(kinds[k], run.name):
            runs += [OperatorRun(name, []) for name in names[len(runs) : k]]  # nothing of these is in the trace
            runs.append(replace(run, name=names[k]))
        elif _launches(joined, run):
            k = len(runs)
            if k < len(names):
                expected = f"{names[k]!r} of kind {kinds[k]!r}"
            else:
                expected = "no further operator"
            raise FormatError(
                f"{joined.source}: in iteration {i} operator {k} of the graph is {expected}, but {run.name!r} ran; "
                f"annotate the operators with their names (record_function) to join by name"
            )
    while len(runs) < len(names) and kinds[len(runs)] in _SILENT:
        runs.append(OperatorRun(names[len(runs)], []))
    if len(runs) < len(names):
        raise FormatError(
            f"{joined.source}: in iteration {i} nothing ran for operator {names[len(runs)]!r} of kind "
            f"{kinds[len(runs)]!r}; annotate the operators with their names (record_function) to join by name"
        )
    return runs


def _launches(joined: Joined, run: OperatorRun) -> bool:
    what = joined.activities.what
    kinds = joined.activities.kinds
    return any(kinds[what[row]].what == "kernel" for row in run.activities)


@lru_cache(maxsize=4096)
def _fits(kind: str, name: str) -> bool:
    """Return whether an operator of PyTorch may be of a kind.

    >>> _fits("conv", "aten::conv2d"), _fits("relu", "aten::relu_"), _fits("add", "aten::mul")
    (True, True, False)
    """
    called = name.rpartition("::")[2].strip("_")
    if called.replace("_", "") == kind.replace("_", ""):
        return True
    pattern = _CALLED.get(kind)
    return pattern is not None and re.fullmatch(pattern, called) is not None
