"""`Draft`: operators placed one by one on the streams of devices, by machine code."""

from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.costmodel import CostModel, operator_times, times_by_device
from simsched.graph import OpGraph
from simsched.graph.columns import Floats
from simsched.machine_code import load
from simsched.schedulers.list_scheduling import layout
from simsched.schedulers.listing import linked_devices, require_finite, require_streams
from simsched.schedules import Schedule

Column = npt.NDArray[Any]

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parent.parent
_SOURCES: Final = (
    *(_HERE / name for name in ("core.py", "heap.py", "layout.py", "streams.py")),
    _ROOT / "lowering" / "columns.py",
    _ROOT / "machine_columns.py",
)
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
    first_device
        Whether to use the first device of the cluster only.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1, or, by what places operators, if they end at no finite time.

    Notes
    -----
    The columns of the graph are prepared once; each of the methods runs in machine code. Memory is
    about 150 bytes per operator and 40 per edge, and `place_earliest` takes 16 more per operator and device.
    """

    def __init__(
        self,
        scheduler: str,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        streams: int | None,
        *,
        first_device: bool = False,
    ) -> None:
        if streams is None:
            streams = _ALONE if len(cluster) == 1 else _BESIDE_OTHERS
        require_streams(scheduler, streams)
        self._scheduler, self._graph, self._cluster = scheduler, graph, cluster
        self._devices = cluster.devices[:1] if first_device else cluster.devices
        n, n_edges, n_devices = len(graph), len(graph.src), len(self._devices)
        self._streams = min(int(streams), n)  # of more streams than operators the rest would stay empty
        self._run = load("simsched.schedulers.list_scheduling.core:list_columns", _SOURCES, "list schedulers")
        self._table = table = np.zeros(layout.SIZE, np.int64)
        self._kept: dict[int, Column] = {}
        table[[layout.N_OPS, layout.N_EDGES, layout.N_DEVICES]] = n, n_edges, n_devices
        table[layout.N_STREAMS], table[layout.LIMIT] = self._streams, _STEPS
        known = (
            [operator_times(graph, self._devices[0], cost)] if first_device else times_by_device(graph, cluster, cost)
        )
        rows: dict[int, int] = {}
        row = [rows.setdefault(id(column), len(rows)) for column in known]
        different = [known[row.index(k)] for k in range(len(rows))]
        with np.errstate(over="ignore"):
            self._mean: Floats = different[0] if len(rows) == 1 else np.mean(known, axis=0)
        self._put(layout.TIME, different[0] if len(rows) == 1 else np.concatenate(different))
        self._put(layout.ROW, np.array(row, np.int32))
        self._put(layout.ALLOWED, np.ones(n_devices, np.int32))
        for key, values in ((layout.SRC, graph.src), (layout.DST, graph.dst), (layout.ORDER, graph.order_index)):
            self._put(key, np.ascontiguousarray(values, np.int32))
        for key, length in (
            (layout.OUT_PTR, n + 1), (layout.OUT_EDGE, n_edges), (layout.IN_PTR, n + 1), (layout.IN_EDGE, n_edges),
        ):  # fmt: skip
            self._put(key, np.empty(length, np.int32))
        self._links: tuple[Floats, Floats] | None = None
        if n_devices > 1:
            self._find_links()

    @property
    def mean_times(self) -> Floats:
        """Time of each operator in us, the mean over devices, shape (n_ops,)."""
        return self._mean

    def _put(self, key: int, column: Column) -> Column:
        """Give the machine code a column, which lives as long as the draft."""
        self._kept[key] = column
        self._table[key] = column.__array_interface__["data"][0]
        return column

    def _find_links(self) -> None:
        """Find the ways between devices, if any edge has no exact time."""
        graph, n = self._graph, len(self._devices)
        exact = self._put(layout.EXACT, np.ascontiguousarray(graph.edge_transfer))
        self._put(layout.NBYTES, np.ascontiguousarray(graph.edge_nbytes))
        if not np.isnan(exact).any():
            return
        a, b = np.divmod(np.arange(n * n), n)
        routes = self._cluster.routes(a, b)
        copy_rate = np.array([device.copy_rate for device in self._devices])
        rate = np.where(routes.known, np.minimum(routes.bandwidth, copy_rate[a]), np.inf)
        self._links = self._put(layout.LATENCY, routes.latency), self._put(layout.RATE, rate)

    def mean_transfers(self) -> Floats:
        """Return the time of each edge between two devices in us, the mean over the pairs that links join, (n_edges,).

        An exact time is that between any two devices; on one device nothing is moved.
        """
        graph, n = self._graph, len(self._devices)
        if n == 1:
            return np.zeros(len(graph.src))
        exact = self._kept[layout.EXACT]
        if self._links is None:
            return exact
        latency, rate = self._links
        pairs = np.flatnonzero(np.isfinite(latency) & (np.arange(n * n) % (n + 1) > 0))
        if not len(pairs):
            return np.nan_to_num(exact, nan=0.0)
        with np.errstate(over="ignore"):
            moved = latency[pairs].mean() + self._kept[layout.NBYTES] * (1.0 / rate[pairs]).mean()
        return np.where(np.isnan(exact), moved, exact)

    def upward_rank(self, *, transfers: bool = True) -> Floats:
        """Return the longest path from each operator to an output in us, shape (n_ops,).

        Of mean times over devices and, unless told otherwise, of mean transfers.
        """
        rank = self._put(layout.KEY, np.empty(len(self._graph)))
        self._put(layout.WEIGHT, self._mean)
        self._put(layout.BESIDE, self.mean_transfers() if transfers else np.zeros(len(self._graph.src)))
        self._call(layout.RANK)
        return rank

    def optimistic_costs(self) -> tuple[Floats, Floats]:
        """Return the least time in us in which all behind an operator could end, and its mean over devices.

        By the operator's device, shape (n_ops, n_devices), and shape (n_ops,).
        """
        ahead = self._put(layout.COST_AHEAD, np.empty((len(self._graph), len(self._devices))))
        self._put(layout.BESIDE, self.mean_transfers())
        self._call(layout.AHEAD)
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
        table[layout.INSERTION], table[layout.IN_TURN], table[layout.CHARGED] = insertion, in_turn, overheads
        for flag, key, values in (
            (layout.LOOK_AHEAD, layout.COST_AHEAD, ahead),
            (layout.RANDOM_OP, layout.DRAW_OP, draw_op),
            (layout.RANDOM_STREAM, layout.DRAW_STREAM, draw_stream),
        ):
            table[flag] = values is not None
            if values is not None:
                self._put(key, values)
        if overheads:
            self._charge()
        self._turn(None if in_turn else self._graph.order_index)
        self._put(layout.KEY, -priority)
        slots = len(self._devices) * self._streams
        room = 4 * n + 8 * slots if insertion else 0  # of intervals: all the places that lists of doubled room leave
        self._put(layout.GAP_START, np.empty(room))
        self._put(layout.GAP_END, np.empty(room))
        self._place(layout.PLACE, heaps=1)

    def place_earliest(self, priority: Floats) -> None:
        """Place the operator that can start first on the device where it does, until all are placed.

        Equal starts: the operator of highest priority, then the first in topological order, then the first device.
        """
        n, n_devices, order = len(self._graph), len(self._devices), self._graph.order_index
        self._turn(order[np.argsort(-priority[order], kind="stable")])
        self._put(layout.KEY, np.zeros(n))
        self._put(layout.ARRIVAL, np.empty(n_devices * n))
        self._put(layout.ARRIVED, np.empty(n_devices * n, np.int32))
        self._place(layout.PLACE_EARLIEST, heaps=n_devices)

    def _turn(self, order: Column | None) -> None:
        """Say which of two operators of equal priority comes first; None leaves it to the machine code."""
        turn = self._put(layout.TURN, np.empty(len(self._graph), np.int32))
        if order is not None:
            turn[order] = np.arange(len(turn), dtype=np.int32)

    def _charge(self) -> None:
        """Say what the host and the device take for launches and events."""
        n, device = len(self._graph), self._devices[0]
        costs = np.array([device.launch, device.record, device.wait, device.gap, device.hop, 0.0, 0.0])
        self._put(layout.COSTS, costs)
        self._put(layout.KERNELS, np.maximum(1, np.diff(self._graph.kernel_ptr)).astype(np.int32))
        self._put(layout.WAITED_FOR, np.zeros(n, np.int32))
        self._put(layout.SEEN, np.zeros(n, np.int64))

    def _place(self, phase: int, heaps: int) -> None:
        """Place all operators; where they get stuck, once more on devices that are all linked with each other."""
        n, n_devices = len(self._graph), len(self._devices)
        slots = n_devices * self._streams
        for key in (layout.MISSING, layout.PLACED):
            self._put(key, np.empty(n, np.int32))
        self._put(layout.HEAP, np.empty(heaps * n, np.int32))
        self._put(layout.RELEASED, np.empty(n, np.int64))
        for key in (layout.START, layout.FINISH):
            self._put(key, np.empty(n))
        for _ in range(2):
            table = self._table
            table[[layout.N_READY, layout.N_PLACED, layout.NEXT_TURN, layout.GAPS_END]] = 0
            self._put(layout.LANE, np.full(n, -1, np.int32))
            self._put(layout.FREE, np.full(slots, -np.inf if table[layout.CHARGED] else 0.0))
            self._put(layout.IDLE, np.zeros(n_devices))
            for key in (layout.N_WAITING, layout.N_ARRIVED):
                self._put(key, np.zeros(n_devices, np.int32))
            for key in (layout.GAP_AT, layout.GAP_COUNT, layout.GAP_ROOM):
                self._put(key, np.zeros(slots, np.int32))
            if self._call(phase) == layout.DONE and np.isfinite(self._kept[layout.FINISH]).all():
                return
            self._use_linked_devices()
        require_finite(self._scheduler, inf)  # nothing else keeps operators from devices that are all linked

    def _use_linked_devices(self) -> None:
        """Place operators on devices only between any two of which links lead."""
        if self._links is not None:
            n = len(self._devices)
            allowed = self._kept[layout.ALLOWED]
            allowed[:] = 0
            allowed[linked_devices(np.isfinite(self._links[0].reshape(n, n)))] = 1

    def _call(self, phase: int) -> int:
        """Run a phase of the machine code to its end; return its status."""
        table = self._table
        table[layout.PHASE], table[layout.STATUS] = phase, layout.DONE
        address = table.__array_interface__["data"][0]
        self._run(address)
        while table[layout.STATUS] == layout.MORE:
            self._run(address)
        return int(table[layout.STATUS])

    def schedule(self, *, as_placed: bool = False) -> Schedule:
        """Return the schedule, launched by start times, or in the order in which operators were placed.

        Equal starts: the operator that ends first, then the first in topological order. An operator starts no
        earlier than what it reads from ends, so that is a topological order; and on a stream each is behind all
        that end before it starts.
        """
        finish = self._kept[layout.FINISH]
        if as_placed:
            op = self._kept[layout.PLACED]
        else:
            order = self._graph.order_index
            op = order[np.lexsort((finish[order], self._kept[layout.START][order]))]
        device, stream = np.divmod(self._kept[layout.LANE][op], np.int32(self._streams))
        return Schedule.from_columns(
            self._graph, op, [d.name for d in self._devices], device=device, stream=stream,
            estimate=float(finish.max()), scheduler=self._scheduler,
        )  # fmt: skip
