"""The kernels that operators launch on a device: measured or given ones, or those that its libraries choose.

A graph has computations; launch shapes belong to an operator on a device. `kernels_on` combines both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.base.numeric import frozen, sum_in_order
from simsched.model.cluster import Cluster, Device
from simsched.model.cluster.device import OVERHEADS
from simsched.model.graph import Kernel, Operator, OpGraph, Work
from simsched.model.graph.columns import Columnar, Floats, Indices, Ints
from simsched.model.libraries import Launch, choose, exchanging, given_terms, unshaped_terms

WEIGHTS_CACHED: Final = 0.6
"""Part of the L2 cache up to which the parameters of a model stay in it from one run to the next."""

_SHAPE: Final = ("blocks", "threads", "registers", "shared_memory")
_SHARED: Final = ("share", "efficiency", "chain")
_WORK: Final = ("flops", "nbytes")


@dataclass(frozen=True, eq=False)
class Launches(Columnar):
    """Kernels of operators by columns, one row for each launch.

    Parameters
    ----------
    ptr
        Launches of operator i are rows ``ptr[i]`` to ``ptr[i + 1]``, at least one; shape (n_ops + 1,).
    blocks, threads, registers, shared_memory
        As in `Kernel`; `blocks` is 0 where an operator has no known kernel, and its only launch has no shape.
    share
        Part of the operator's time that the launch takes; an operator's shares add up to 1.
    efficiency, chain
        As in `Kernel`.
    flops, nbytes
        FLOP, and bytes moved from and to DRAM.
    """

    ptr: Ints
    blocks: Ints
    threads: Ints
    registers: Ints
    shared_memory: Ints
    share: Floats
    efficiency: Floats
    chain: Floats
    flops: Floats
    nbytes: Floats

    CACHED = ("op", "kernel", "has_shape")

    def __post_init__(self) -> None:
        self._freeze()

    def __len__(self) -> int:
        return len(self.blocks)

    @cached_property
    def op(self) -> npt.NDArray[np.int32]:
        """The operator of each launch."""
        return frozen(np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int32), np.diff(self.ptr)))

    @cached_property
    def kernel(self) -> npt.NDArray[np.int32]:
        """Index of each launch among its operator's launches."""
        first = self.ptr[:-1].astype(np.int32)
        return frozen(np.arange(len(self), dtype=np.int32) - first[self.op])

    @cached_property
    def has_shape(self) -> npt.NDArray[np.bool_]:
        """Whether the kernel of each launch is known."""
        return frozen(self.blocks > 0)

    def kernels(self, i: int) -> tuple[Kernel, ...]:
        """Return the kernels of operator number `i`; none if they are not known."""
        rows = range(self.ptr[i], self.ptr[i + 1])
        return tuple(
            Kernel(**{key: getattr(self, key)[row].item() for key in (*_SHAPE, *_SHARED)})
            for row in rows
            if self.blocks[row]
        )


class Terms(NamedTuple):
    """The terms of the time of each launch alone, in us (see `simsched.model.libraries.Launch`).

    Parameters
    ----------
    tensor
        Whether tensor cores compute it.
    """

    start: Floats
    chained: Floats
    compute: Floats
    memory: Floats
    tail: Floats
    tensor: npt.NDArray[np.bool_]


def kernels_on(graph: OpGraph, device: Device) -> Launches:
    """Return the kernels that the operators of a graph launch on a device.

    Kernels of the graph are used: they were measured or given. For an operator that has works instead, the libraries of
    the device choose. An operator with neither is one launch without a shape.

    Raises
    ------
    GraphError
        If a work needs a grid that is larger than a grid can be.

    Notes
    -----
    Found once for a graph and a device, O(V) and once for each distinct work.
    """
    return _on(graph, device).launches


def launches_of(op: Operator, device: Device) -> tuple[Launch, ...]:
    """Return the launches of one operator alone on a device, as `kernels_on` does for all of a graph."""
    if op.kernels:
        return tuple(given_terms(k, k.share * op.flops, k.share * op.nbytes, op.dtype, device) for k in op.kernels)
    if op.collective is not None:
        return (exchanging(op.collective, device),)
    if not op.works:
        return (unshaped_terms(op.flops, op.nbytes, op.dtype, device),)
    return _library_launches(op.name, op.works, op.dtype, device)


def terms_on(graph: OpGraph, device: Device) -> Terms:
    """Return the terms of the time alone of each launch of `kernels_on`, shape (n_launches,) each."""
    return _on(graph, device).terms


def launches_on(graph: OpGraph, cluster: Cluster, home: Indices) -> Launches:
    """Return the kernels that operators launch where they are placed.

    Parameters
    ----------
    home
        Position in the cluster of the device of each operator, shape (n_ops,).
    """
    kinds = cluster.kind[home]
    used = np.unique(kinds).tolist()
    tables = [kernels_on(graph, cluster.kinds[kind]) for kind in used]
    if len(tables) == 1:
        return tables[0]
    which = np.searchsorted(used, kinds)
    ops = np.arange(len(graph))
    sizes = np.stack([np.diff(table.ptr) for table in tables])[which, ops]
    base = np.cumsum([0, *(len(table) for table in tables)])
    starts = np.stack([table.ptr[:-1] + first for table, first in zip(tables, base, strict=False)])[which, ops]
    return _gather(tables, starts, sizes)


def given_launches(graph: OpGraph, counts: Ints | None = None) -> Launches:
    """Return the launches of a graph on no device in particular: kernels that were given, and launches without a shape.

    Parameters
    ----------
    counts
        Launches of each operator that has no kernels, shape (n_ops,); None for one each.
    """
    n_given = np.diff(graph.kernel_ptr)
    size = np.where(n_given > 0, n_given, 1 if counts is None else np.maximum(1, counts))
    ptr = np.concatenate([[0], np.cumsum(size)])
    op = np.repeat(np.arange(len(graph)), size)
    is_given = n_given[op] > 0
    share = 1.0 / size[op]
    columns: dict[str, npt.NDArray[Any]] = {key: np.zeros(len(op), np.int64) for key in _SHAPE}
    columns |= {"share": share, "efficiency": np.ones(len(op)), "chain": np.zeros(len(op))}
    for key, values in columns.items():
        values[is_given] = getattr(graph, f"kernel_{key}")
    columns |= {key: share * getattr(graph, key)[op] for key in _WORK}
    return Launches(ptr=ptr, **columns)


def relaunch(launches: Launches, graph: OpGraph) -> Launches | None:
    """Return the launches of a graph that differs from another one in its operators' costs.

    Parameters
    ----------
    launches
        Launches of the other graph: they are used where the graph has works, but no kernels.

    Returns
    -------
    Launches or None
        None if an operator launches another number of kernels.
    """
    is_chosen = choices_of(graph)
    sizes = np.diff(launches.ptr)
    own = given_launches(graph, np.where(is_chosen, sizes, 1))
    if not np.array_equal(own.ptr, launches.ptr):
        return None
    if not is_chosen.any():
        return own
    which = np.where(is_chosen, launches.ptr[:-1], len(launches) + own.ptr[:-1])
    return _gather([launches, own], which, sizes)


def launches_beside(launches: Launches, copies: int, further: int) -> Launches:
    """Return the launches of so many copies of a graph, and of further operators, one without a shape for each.

    Parameters
    ----------
    launches
        Launches of the graph; see `simsched.model.graph.beside.side_by_side`.
    """
    alone = given_launches(OpGraph([Operator("further")]))
    sizes = np.append(np.tile(np.diff(launches.ptr), copies), np.ones(further, np.int64))
    starts = np.append(np.tile(launches.ptr[:-1], copies), np.full(further, len(launches)))
    return _gather([launches, alone], starts, sizes)


def choices_of(graph: OpGraph) -> npt.NDArray[np.bool_]:
    """Return for which operators of a graph libraries choose kernels, shape (n_ops,)."""
    codes, works = graph.labels("works")
    if not any(works) and not graph.meetings:
        return np.zeros(len(graph), np.bool_)
    exchanging, collectives = graph.labels("collective")
    has_works, exchanges = (np.array([bool(value) for value in values]) for values in (works, collectives))
    chosen: npt.NDArray[np.bool_] = (has_works[codes] | exchanges[exchanging]) & (np.diff(graph.kernel_ptr) == 0)
    return chosen


def has_choices(graph: OpGraph) -> bool:
    """Return whether libraries choose kernels for an operator of a graph."""
    return bool(choices_of(graph).any())


def _gather(tables: Sequence[Launches], starts: Ints, sizes: Ints) -> Launches:
    """Return the launches of operators, each so many rows from a place on in tables one after the other."""
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.repeat(starts - ptr[:-1], sizes) + np.arange(ptr[-1])
    columns = {
        field.name: np.concatenate([getattr(table, field.name) for table in tables])[rows]
        for field in fields(Launches)
        if field.name != "ptr"
    }
    return Launches(ptr=ptr, **columns)


def with_kernels(graph: OpGraph, device: Device) -> OpGraph:
    """Return a graph in which the kernels that are chosen for a device are given ones; the graph itself if none are."""
    if not has_choices(graph):
        return graph
    launches = kernels_on(graph, device)
    operators = [
        replace(op, kernels=launches.kernels(i), works=()) if is_chosen else op
        for i, (op, is_chosen) in enumerate(zip(graph.operators, choices_of(graph).tolist(), strict=True))
    ]
    return OpGraph(operators, graph.edges, graph.name)


_IRRELEVANT: Final = (*OVERHEADS, "copy_rate", "interleave", "least_sm_share", "kernel_latency", "memory")
_MEMO: Final = "_launches"
_REMEMBERED: Final = 64
"""Devices for which the kernels of a graph are kept."""


@lru_cache(maxsize=1024)
def basis_of(device: Device) -> Device:
    """Return a device that differs in nothing that a choice of kernels or a time alone depends on."""
    same: dict[str, Any] = dict.fromkeys(_IRRELEVANT, 1.0) | {"interleave": 0.0, "copy_rate": np.inf}
    same |= {
        "name": "device",
        "model": "device",
        "topology": None,
        "resident_kernels": 128,
        "connections": 32,
        "copy_engines": 1,
    }
    return replace(device, interference=((0.0, 0.0), (0.0, 0.0)), block_spread=0.0, contention=True, **same)


def same_kernels(graph: OpGraph, one: Cluster, other: Cluster) -> bool:
    """Return whether the operators of a graph launch the same kernels on the devices of two clusters, one by one."""
    if not has_choices(graph) or one is other:
        return True
    pairs = zip(one.devices, other.devices, strict=False)
    return len(one) == len(other) and all(basis_of(a) == basis_of(b) for a, b in pairs)


def _on(graph: OpGraph, device: Device) -> "_LaunchChoice":
    memo: dict[Device, _LaunchChoice] = graph.__dict__.setdefault(_MEMO, {})
    basis = basis_of(device)
    choice = memo.get(basis)
    if choice is None:
        for oldest in tuple(memo)[: len(memo) + 1 - _REMEMBERED]:
            memo.pop(oldest, None)
        choice = memo[basis] = _LaunchChoice(graph, basis)
    return choice


class _LaunchChoice:
    """Kernels of a graph on a device, and the terms of their times once they are asked for."""

    def __init__(self, graph: OpGraph, device: Device) -> None:
        self._device = device
        self._formats, self._dtypes = graph.labels("dtype")
        codes, _ = graph.labels("works")
        exchanging, _ = graph.labels("collective")
        n_given = np.diff(graph.kernel_ptr)
        # first row and rows by works, number format and collective
        groups: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._library_launches: list[Launch] = []
        shares: list[float] = []
        size = np.maximum(1, n_given)
        start = np.zeros(len(graph), np.int64)
        choices = np.flatnonzero(choices_of(graph)).tolist()
        pairs = [(int(codes[i]), int(self._formats[i]), int(exchanging[i])) for i in choices]
        for i, pair in zip(choices, pairs, strict=True):
            if pair not in groups:
                launches = launches_of(graph.operator(i), device)
                groups[pair] = len(self._library_launches), len(launches)
                self._library_launches += launches
                total = sum_in_order(launch.time for launch in launches)
                shares += [launch.time / total if total else 1.0 for launch in launches]
        n_chosen = len(self._library_launches)
        start[:] = n_chosen
        start[n_given > 0] = n_chosen + 1 + graph.kernel_ptr[:-1][n_given > 0]
        if choices:
            start[choices], size[choices] = np.array([groups[pair] for pair in pairs], np.int64).T
        ptr = np.concatenate([[0], np.cumsum(size)])
        self._rows = rows = np.repeat(start - ptr[:-1], size) + np.arange(ptr[-1])
        op = np.repeat(np.arange(len(graph)), size)

        def column(key: str, own: Sequence[Any], unknown: float) -> npt.NDArray[Any]:
            column_: npt.NDArray[Any] = getattr(graph, f"kernel_{key}")
            if not own and not len(column_):
                return np.broadcast_to(np.array(unknown, column_.dtype), len(rows))
            values: npt.NDArray[Any] = np.array([*own, unknown], column_.dtype)
            gathered: npt.NDArray[Any] = np.concatenate([values, column_])[rows]
            return gathered

        columns = {key: column(key, [getattr(row, key) for row in self._library_launches], 0) for key in _SHAPE}
        columns["share"] = column("share", shares, 1.0)
        columns["efficiency"] = column("efficiency", [row.efficiency for row in self._library_launches], 1.0)
        columns["chain"] = column("chain", [row.chain for row in self._library_launches], 0.0)
        for key, term in (("flops", "flops"), ("nbytes", "traffic")):
            columns[key] = columns["share"] * getattr(graph, key)[op]
            if choices:
                is_chosen = rows < n_chosen
                columns[key][is_chosen] = np.array([getattr(row, term) for row in self._library_launches])[
                    rows[is_chosen]
                ]
        self.launches = Launches(ptr=ptr, **columns)

    @cached_property
    def terms(self) -> Terms:
        """Terms of chosen kernels as they were chosen, and of others by their shape, FLOP and bytes."""
        launches = self.launches
        n_chosen = len(self._library_launches)
        terms_of = np.zeros((len(launches), len(Terms._fields)))
        formats = self._formats[launches.op]
        is_chosen = self._rows < n_chosen
        if n_chosen:
            own = np.array([[getattr(row, key) for key in Terms._fields] for row in self._library_launches], np.float64)
            terms_of[is_chosen] = own[self._rows[is_chosen]]
        for code, dtype in enumerate(self._dtypes):
            rows = np.flatnonzero((formats == code) & ~launches.has_shape)
            if len(rows):
                flops: Any = launches.flops[rows]
                nbytes: Any = launches.nbytes[rows]
                launch = unshaped_terms(flops, nbytes, dtype, self._device)
                for k, key in enumerate(Terms._fields):
                    terms_of[rows, k] = getattr(launch, key)
        own_shape = np.flatnonzero(launches.has_shape & ~is_chosen)
        columns = [getattr(launches, key)[own_shape].tolist() for key in (*_SHAPE, *_SHARED, *_WORK)]
        cache: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        kernels = zip(formats[own_shape].tolist(), *columns, strict=True)
        for row, kernel in zip(own_shape.tolist(), kernels, strict=True):
            if kernel not in cache:
                code, *shape, flops, nbytes = kernel
                launch = given_terms(Kernel(*shape), flops, nbytes, self._dtypes[code], self._device)
                cache[kernel] = tuple(getattr(launch, key) for key in Terms._fields)
            terms_of[row] = cache[kernel]
        start, chained, compute, memory, tail, tensor = terms_of.T
        return Terms(start, chained, compute, memory, tail, tensor > 0)


def _library_launches(name: str, works: Sequence[Work], dtype: str, device: Device) -> tuple[Launch, ...]:
    """Return the launches that the libraries of a device choose for the works of the operator `name`."""
    weights = sum_in_order(work.weights for work in works)
    weights_cached = max(weights, *(work.parameters for work in works)) <= WEIGHTS_CACHED * device.l2
    try:
        return tuple(launch for work in works for launch in choose(work, dtype, device, weights_cached=weights_cached))
    except GraphError as error:
        raise GraphError(f"operator {name!r}: {error}") from None
