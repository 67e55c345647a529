"""A graph on a cluster as HIOS sees it, by columns for machine code, and what its compiled parts make of them."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.costmodel import CostModel, times_by_device
from simsched.graph import OpGraph
from simsched.graph.columns import Floats, Ints
from simsched.graph.ordering import grouped
from simsched.graph.structure import longest_from
from simsched.machine_code import Native, load
from simsched.schedulers.hios import layout
from simsched.schedulers.listing import linked_devices

Small = npt.NDArray[np.int32]

_HERE: Final = Path(__file__).parent
_SOURCES: Final = (
    *(_HERE / f"{name}.py" for name in ("core", "layout", "paths", "placement", "recorder", "released", "windows")),
    _HERE.parent.parent / "machine_columns.py",
)


def machine_code() -> Native:
    """Return the compiled parts."""
    return load("simsched.schedulers.hios.core:run", _SOURCES, "HIOS schedulers")


class Instance:
    """Operators by falling priority, their times on each device, and what it takes to move their tensors.

    Parameters
    ----------
    graph, cluster, cost
        As a scheduler has them.

    Notes
    -----
    Devices to or from which no links lead are left out, in the cluster's order, unless every edge has an
    exact `transfer`. The priority of an operator is the longest path from it to an output, with the
    mean time over devices and the mean transfer over pairs of them; equal ones keep the topological order.
    """

    def __init__(self, graph: OpGraph, cluster: Cluster, cost: CostModel) -> None:
        self.graph, self.cluster = graph, cluster
        exact = graph.edge_transfer
        self.devices = _linked_devices(cluster, bool(np.isnan(exact).any()))  # positions in the cluster
        by_device = times_by_device(graph, cluster, cost)
        times = np.stack([by_device[d] for d in self.devices])  # (n_devices, n_ops)
        self._latency, self._bandwidth = _links(cluster, self.devices)
        self._transfer, mean_transfer = self._transfers(exact, graph.edge_nbytes)
        with np.errstate(over="ignore"):  # the makespan is refused then
            mean_time = times.mean(axis=0) if len(times) > 1 and (times != times[0]).any() else times[0]
            rank = longest_from(graph, mean_time, mean_transfer)
        topological = graph.order_index
        self.order = topological[np.argsort(-rank[topological], kind="stable")]  # operators by falling priority
        number = np.empty(len(graph), np.int32)
        number[self.order] = np.arange(len(graph), dtype=np.int32)
        self._src, self._dst = number[graph.src], number[graph.dst]
        self.times = np.ascontiguousarray(times[:, self.order])  # (n_devices, n_ops), by priority
        self._mean_time = mean_time[self.order]
        self._mean_transfer = mean_transfer

    def _transfers(self, exact: Floats, nbytes: Floats) -> tuple[Floats, Floats]:
        """Return the us of each edge, -1 where they depend on the devices, and the mean over pairs of devices."""
        n = len(self.devices)
        if n == 1:
            return (np.zeros(len(exact)),) * 2
        apart = ~np.eye(n, dtype=np.bool_)
        known = ~np.isnan(exact)
        if known.all():
            return (np.array(exact),) * 2
        latency, bandwidth = self._latency[apart], self._bandwidth[apart]
        if (latency == latency[0]).all() and (bandwidth == bandwidth[0]).all():
            return (np.where(known, exact, latency[0] + nbytes / bandwidth[0]),) * 2
        mean = latency.mean() + nbytes * (1.0 / bandwidth).mean()
        return np.where(known, exact, -1.0), np.where(known, exact, mean)

    def mapping(self, phase: int, *, insertion: bool = False, device: Small | None = None) -> "Mapping":
        """Run a phase of the compiled code: Algorithm 1 or 3, or a listing with insertion on given devices."""
        run, n, n_devices = machine_code(), len(self.graph), len(self.devices)
        in_ptr, incoming = grouped(self._dst, n)
        out_ptr, outgoing = grouped(self._src, n)
        count = np.arange(n, dtype=np.int32)
        listing = phase == layout.INSERT
        columns: dict[int, npt.NDArray[Any]] = {
            layout.IN_PTR: in_ptr.astype(np.int32),
            layout.IN_FROM: self._src[incoming],
            layout.OUT_PTR: out_ptr.astype(np.int32),
            layout.OUT_TO: self._dst[outgoing],
            layout.IN_US: self._transfer[incoming],
            layout.IN_NBYTES: self.graph.edge_nbytes[incoming],
            layout.IN_MEAN: self._mean_transfer[incoming],
            layout.OUT_MEAN: self._mean_transfer[outgoing],
            layout.TIME: self.times,
            layout.MEAN_TIME: self._mean_time,
            layout.LATENCY: self._latency,
            layout.BANDWIDTH: self._bandwidth,
            layout.DEVICE: np.full(n, layout.NONE, np.int32) if device is None else device,
            layout.START: np.zeros(n),
            layout.FINISH: np.zeros(n),
            layout.LISTED: count,
        }
        if phase in (layout.PATHS, layout.RELEASED_PATHS):
            whole = (layout.FOLLOWING, layout.GOES_ON, layout.PATH, layout.GIVEN)
            columns |= {key: np.empty(n, np.int32) for key in whole}
            columns |= {key: np.zeros(n_devices) for key in (layout.FREE, layout.BASE)}
            columns |= {layout.ONWARD: np.empty(n), layout.TAIL: np.zeros(n), layout.OPEN: count.copy()}
        if phase == layout.RELEASED_PATHS:
            columns[layout.GIVEN][self.order] = count
            columns |= {
                layout.TAKEN_OUT: np.zeros(len(outgoing), np.int32),
                layout.LEFT_IN: np.diff(in_ptr).astype(np.int32),
            }
        if phase in (layout.RECORD, layout.RELEASED_RECORD):
            columns |= {layout.RECORDED: np.empty(n * n_devices), layout.FREE_IN: np.zeros(2 * n_devices**2)}
            columns |= {layout.MAPPED: np.empty(2 * n * n_devices, np.int32)}
            columns |= {layout.PARENT: np.empty(n_devices, np.int32)}
        if insertion:
            columns |= {key: np.empty(n * n_devices) for key in (layout.BEGINS, layout.ENDS)}
            columns |= {layout.COUNT: np.empty(n_devices, np.int32)}
        table = np.zeros(layout.MAPPING_SIZE, np.int64)
        table[layout.PHASE], table[layout.N_OPS], table[layout.N_DEVICES] = phase, n, n_devices
        table[layout.N_LISTED], table[layout.INSERTS] = listing * n, insertion
        table[layout.N_OPEN] = len(outgoing) if phase == layout.RELEASED_PATHS else n
        fill(run, table, columns)
        return Mapping(
            columns[layout.DEVICE], columns[layout.START], columns[layout.FINISH], int(table[layout.N_PATHS])
        )

    def inserted(self, found: "Mapping") -> "Mapping":
        """Return a mapping with its operators listed in the gaps of their devices."""
        listed = self.mapping(layout.INSERT, insertion=True, device=found.device)
        return Mapping(listed.device, listed.start, listed.finish, found.n_paths)

    def placed_edges(self, number: Small, device: Small) -> tuple[Small, Small, Floats]:
        """Return the ends of the edges under other numbers, and their us between the devices of those operators."""
        src, dst = number[self._src], number[self._dst]
        a, b = device[src], device[dst]
        us = self._transfer.copy()
        unknown = np.flatnonzero(us < 0)
        on = (a[unknown], b[unknown])
        with np.errstate(invalid="ignore"):
            us[unknown] = self._latency[on] + self.graph.edge_nbytes[unknown] / self._bandwidth[on]
        us[a == b] = 0.0
        return src, dst, us


class Mapping:
    """Where operators run, by priority.

    Parameters
    ----------
    device
        Position among the devices of the instance, shape (n_ops,).
    start, finish
        In us, of a listing with insertion.
    n_paths
        How many paths were mapped.
    """

    def __init__(self, device: Small, start: Floats, finish: Floats, n_paths: int) -> None:
        self.device, self.start, self.finish, self.n_paths = device, start, finish, n_paths

    def sequence(self) -> Ints:
        """Return the operators as a listing with insertion has them in time; a topological order."""
        return np.lexsort((np.arange(len(self.device)), self.finish, self.start))


def fill(run: Native, table: npt.NDArray[np.int64], columns: dict[int, npt.NDArray[Any]]) -> None:
    """Write the addresses of the columns down and run until nothing goes on."""
    for key, column in columns.items():
        table[key] = address(column)
    where = address(table)
    table[layout.STATUS] = layout.GOING_ON
    while table[layout.STATUS] == layout.GOING_ON:
        run(where)


def address(column: npt.NDArray[Any]) -> int:
    """Return the address of an array's first number."""
    first: int = column.__array_interface__["data"][0]
    return first


def _linked_devices(cluster: Cluster, needs_links: bool) -> list[int]:
    """Return the devices to use: where transfers need links, some between any two of which links lead."""
    n = len(cluster)
    if not needs_links or n == 1:
        return list(range(n))
    pairs = np.arange(n)
    known = cluster.routes(np.repeat(pairs, n), np.tile(pairs, n)).known.reshape(n, n)
    return list(range(n)) if known.all() else linked_devices(known)


def _links(cluster: Cluster, devices: list[int]) -> tuple[Floats, Floats]:
    """Return latency in us and bandwidth in bytes per us from each device to each other, shape (n, n) each."""
    n = len(devices)
    if n == 1:
        return np.zeros((1, 1)), np.ones((1, 1))
    found = cluster.routes(np.repeat(devices, n), np.tile(devices, n))
    rate = np.repeat([cluster.devices[d].copy_rate for d in devices], n)
    return found.latency.reshape(n, n), np.minimum(found.bandwidth, rate).reshape(n, n)
