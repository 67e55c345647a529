"""`Draft`: operators placed one by one on the streams of devices, by machine code."""

from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.model import Cluster, CostModel, Floats, OpGraph, Schedule, times_by_device
from simsched.schedulers.list_scheduling.placing import Gap, Lists, find_ranks, look_ahead, place, place_earliest
from simsched.schedulers.listing import linked_devices, place_of, require_finite, ways

_STEPS: Final = 200_000
"""Steps after which the machine code returns for a moment, at most some tenths of a second: so that Ctrl-C is heard."""

# Simulated on one, two and four A40, HEFT, PEFT and ETF gain nothing from more than 4 to 8 streams of one device. On
# several devices two streams of each are up to a quarter better than one on CNNs and on HIOS's layered graph; from
# four on, what they take to be free of contention is put onto fewer and fewer devices.
_ALONE: Final = 8
_BESIDE_OTHERS: Final = 2


class Draft:
    """Operators placed one by one on the streams of devices.

    Parameters
    ----------
    scheduler
        Whose draft it is.
    graph, cluster
        What to run, and on what.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of each device; None for 8 on a single device, and 2 on each of several.

    Attributes
    ----------
    mean_times
        Time of each operator in us, the mean over devices, shape (n_ops,).

    Raises
    ------
    SchedulerError
        By what places operators, if they end at no finite time.

    Notes
    -----
    The columns of the graph are prepared once; each of the methods runs in machine code. Memory is
    about 150 bytes per operator and 40 per edge, and `place_earliest` takes 16 more per operator and device.
    """

    def __init__(self, scheduler: str, graph: OpGraph, cluster: Cluster, cost: CostModel, streams: int | None) -> None:
        if streams is None:
            streams = _ALONE if len(cluster) == 1 else _BESIDE_OTHERS
        self._scheduler, self._graph, self._devices = scheduler, graph, cluster.devices
        n = len(graph)
        self._streams = min(streams, n)  # of more streams than operators the rest would stay empty
        known = times_by_device(graph, cluster, cost)
        rows: dict[int, int] = {}
        row = [rows.setdefault(id(column), len(rows)) for column in known]
        different = [known[row.index(k)] for k in range(len(rows))]
        with np.errstate(over="ignore"):
            self.mean_times: Floats = different[0] if len(rows) == 1 else np.mean(known, axis=0)
        (out_ptr, out_edge), (in_ptr, in_edge) = graph.outgoing, graph.incoming
        self._table = table = Lists(
            n_ops=n, n_devices=len(row), n_streams=self._streams, limit=_STEPS,
            src=_small(graph.src), dst=_small(graph.dst), order=_small(graph.order_index),
            out_ptr=out_ptr, out_edge=_small(out_edge), in_ptr=in_ptr, in_edge=_small(in_edge),
            time=different[0] if len(rows) == 1 else np.concatenate(different),
        )  # fmt: skip
        table["devices"]["row"], table["devices"]["allowed"] = row, 1
        self._links: tuple[Floats, Floats] | None = None
        if len(row) > 1:
            table["exact"], table["nbytes"] = map(np.ascontiguousarray, (graph.edge_transfer, graph.edge_nbytes))
            if np.isnan(graph.edge_transfer).any():
                table["latency"], table["rate"] = self._links = ways(cluster)

    def mean_transfers(self) -> Floats:
        """Return the time of each edge between two devices in us, the mean over the pairs that links join, (n_edges,).

        An exact time is that between any two devices; on one device nothing is moved.
        """
        n = len(self._devices)
        if n == 1:
            return np.zeros(len(self._graph.src))
        exact = self._table["exact"]
        if self._links is None:
            return exact
        latency, rate = self._links
        pairs = np.isfinite(latency) & ~np.eye(n, dtype=np.bool_)
        if not pairs.any():
            return np.nan_to_num(exact, nan=0.0)
        with np.errstate(over="ignore"):
            moved = latency[pairs].mean() + self._table["nbytes"] * (1.0 / rate[pairs]).mean()
        return np.where(np.isnan(exact), moved, exact)

    def upward_rank(self, *, transfers: bool = True) -> Floats:
        """Return the longest path from each operator to an output in us, shape (n_ops,).

        Of mean times over devices and, unless told otherwise, of mean transfers.
        """
        table = self._table
        table["rank"] = rank = np.empty(len(self._graph))
        table["weight"] = self.mean_times
        table["beside"] = self.mean_transfers() if transfers else np.zeros(len(self._graph.src))
        find_ranks(table)
        return rank

    def optimistic_costs(self) -> tuple[Floats, Floats]:
        """Return the least time in us in which all behind an operator could end, and its mean over devices.

        By the operator's device, shape (n_ops, n_devices), and shape (n_ops,).
        """
        table = self._table
        table["ahead"] = ahead = np.empty((len(self._graph), len(self._devices)))
        table["beside"] = self.mean_transfers()
        look_ahead(table)
        with np.errstate(over="ignore"):
            return ahead, ahead.mean(axis=1)

    def place(
        self,
        priority: Floats,
        *,
        insertion: bool = False,
        ahead: Floats | None = None,
        in_turn: bool = False,
        overheads: bool = False,
        draw_op: Floats | None = None,
        draw_stream: Floats | None = None,
    ) -> None:
        """Place the ready operator of highest priority where it ends first, until all are placed.

        Parameters
        ----------
        priority
            Shape (n_ops,). Equal ones: the first in topological order.
        insertion
            Whether an operator may start in an idle interval between two others, the first that it fits into.
        ahead
            What is added to the finish times that are compared, by device, shape (n_ops, n_devices).
        in_turn
            Equal priorities: the operator that became ready first, of several in graph order.
        overheads
            Whether launches and events cost time (see `lios`); for one device.
        draw_op, draw_stream
            Numbers in [0, 1), shape (n_ops,): instead of the first of the ready operators, or of the streams, any.
        """
        table, n = self._table, len(self._graph)
        table.insertion, table.in_turn, table.charged = insertion, in_turn, overheads
        table["ahead"], table["draw_op"], table["draw_stream"] = ahead, draw_op, draw_stream
        if overheads:
            self._charge()
        if not in_turn:
            table["turn"] = _small(place_of(self._graph.order_index))
        table["key"], table["heap"] = -priority, np.empty(n, np.int32)
        if insertion:  # of which the system only gives the pages that are written to
            table["gaps"] = np.empty((n + 1) * len(self._devices) * self._streams, Gap.dtype)
        self._place(place)

    def place_earliest(self, priority: Floats) -> None:
        """Place the operator that can start first on the device where it does, until all are placed.

        Equal starts: the operator of highest priority, then the first in topological order, then the first device.
        """
        table, order = self._table, self._graph.order_index
        n, every = len(order), len(order) * len(self._devices)
        table["turn"] = _small(place_of(order[np.argsort(-priority[order], kind="stable")]))
        table["key"], table["arrival"] = np.zeros(n), np.empty(every)
        table["heap"], table["arrived"] = np.empty(every, np.int32), np.empty(every, np.int32)
        self._place(place_earliest)

    def _charge(self) -> None:
        """Say what the host and the device take for launches and events."""
        table, device = self._table, self._devices[0]
        for cost in ("launch", "record", "wait", "gap", "hop"):
            setattr(table, cost, getattr(device, cost))
        table["kernels"] = np.maximum(1, np.diff(self._graph.kernel_ptr)).astype(np.int32)

    def _place(self, piece: Callable[[Lists], None]) -> None:
        """Place all operators; where they get stuck, once more on devices that are all linked with each other."""
        table, n = self._table, len(self._graph)
        for _ in range(2):
            table.n_placed = table.stuck = 0
            while table.n_placed < n and not table.stuck:
                piece(table)
            if not table.stuck and np.isfinite(table["ops"]["finish"]).all():
                return
            if self._links is not None:
                table["devices"]["allowed"] = 0
                table["devices"]["allowed"][linked_devices(np.isfinite(self._links[0]))] = 1
        require_finite(self._scheduler, inf)  # nothing else keeps operators from devices that are all linked

    def schedule(self, *, as_placed: bool = False) -> Schedule:
        """Return the schedule, launched by start times, or in the order in which operators were placed.

        Equal starts: the operator that ends first, then the first in topological order. An operator starts no
        earlier than what it reads from ends, so that is a topological order; and on a stream each is behind all
        that end before it starts.
        """
        ops = self._table["ops"]
        if as_placed:
            op = self._table["placed"]
        else:
            order = self._graph.order_index
            op = order[np.lexsort((ops["finish"][order], ops["start"][order]))]
        device, stream = np.divmod(ops["slot"][op], np.int32(self._streams))
        return Schedule.from_columns(
            self._graph, op, [d.name for d in self._devices], device=device, stream=stream,
            estimate=float(ops["finish"].max()), scheduler=self._scheduler,
        )  # fmt: skip


def _small(column: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(column, np.int32)
