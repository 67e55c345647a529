"""Runs of a plan: their memory, their loop and the trace they leave."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.graph.columns import Floats
from simsched.machine_code import load
from simsched.simulator.compiled import layout
from simsched.simulator.compiled.plan import SOURCES, Plan, Table
from simsched.simulator.deadlock import deadlock
from simsched.trace import Load

_BUDGET: Final = 2**22  # events between two looks for an interruption by the user: some tenths of a second
_BYTES: Final = 64  # tables begin at multiples of it
_FIELDS: Final[Mapping[str, Any]] = layout.RUN.fields or {}
_WORD: Final = {name: _FIELDS[name][1] // 8 for name in _FIELDS}


class Run:
    """The memory of one run after the other of a plan; not for two threads at once.

    Parameters
    ----------
    plan
        What is run.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._record = np.zeros(1, layout.RUN)
        self._words: npt.NDArray[np.int64] = self._record.view(np.int64)
        self._tables = _carve(plan.sizes, layout.OWN)
        for name in ("lanes", "connections", "devices"):
            self._tables[name][:] = plan.tables[name]
        self._tables["capacity"]["v"][: len(plan.capacity)] = plan.capacity
        for name, value in plan.counts.items():
            self._words[_WORD[name]] = value
        for tables in (plan.tables, self._tables):
            self._point_at({name: table for name, table in tables.items() if name in layout.TABLES})
        self._point_at(self._tables)

    def makespans(self, launches: Table, factors: Floats | None = None) -> Floats:
        """Return the makespan in us of each sample.

        Parameters
        ----------
        launches
            From `launch_table`.
        factors
            Of the time of each operator, shape (n_samples, n_ops); None: one sample of the times as they are.
        """
        n = 1 if factors is None else len(factors)
        if len(self._tables["makespans"]) < n:
            self._tables["makespans"] = np.empty(n, layout.FLOAT)
        self._begin(launches, factors, n)
        self._point_at({"makespans": self._tables["makespans"]})
        self._go_on()
        return self._tables["makespans"]["v"][:n].copy()

    def trace_columns(
        self, launches: Table, factors: Floats | None = None
    ) -> tuple[dict[str, npt.NDArray[Any]], list[Load]]:
        """Return the spans by columns and the load curves of a run; `factors` as in `makespans`, of one sample."""
        plan = self.plan
        n, n_launches, n_copies = len(plan.program), len(launches), len(plan.program.copies.op)
        sizes = {
            "issue_span": n,
            "event_issue": plan.program.n_events,
            "event_cause": plan.program.n_events,
            "spans": n_launches + n_copies + 3 * n + 1,
        }
        recorded = _carve(sizes | {"points": 64 + 2 * n_launches}, layout.RECORDED)
        self._begin(launches, factors, 1)
        self._point_at(recorded)
        self._record["recording"], self._record["point_room"] = 1, len(recorded["points"])
        while self._go_on() == layout.FULL:
            points = recorded["points"]
            recorded["points"] = np.empty(4 * len(points), layout.POINT)
            recorded["points"][: len(points)] = points
            self._point_at({"points": recorded["points"]})
            self._record["point_room"] = len(recorded["points"])
        spans = recorded["spans"][: int(self._record["n_spans"][0])]
        points = recorded["points"][: int(self._record["n_points"][0])]
        columns = {name: np.ascontiguousarray(spans[name]) for name in layout.SPAN.names or ()}
        return columns, [_load(points[points["device"] == d]) for d in range(len(plan.cluster.devices))]

    @property
    def steps(self) -> int:
        """Events in all runs so far."""
        return int(self._record["n_steps"][0])

    def _begin(self, launches: Table, factors: Floats | None, n_samples: int) -> None:
        self._point_at({"launches": launches})
        if factors is not None:
            self._point_at({"factors": factors})
        words = self._words
        words[_WORD["jittered"]] = factors is not None
        words[_WORD["n_samples"]] = n_samples
        words[_WORD["sample"]] = words[_WORD["begun"]] = words[_WORD["recording"]] = 0
        words[_WORD["budget"]] = _BUDGET

    def _point_at(self, tables: Mapping[str, Table]) -> None:
        """Write down where tables are; the caller keeps them."""
        for name, table in tables.items():
            if not table.flags.c_contiguous or table.itemsize != layout.TABLES[name].itemsize:
                raise TypeError(f"table {name} is not laid out as {layout.TABLES[name]}")
            self._words[_WORD[name]] = table.ctypes.data

    def _go_on(self) -> int:
        """Run to the end, or until the points are full; return the status.

        Raises
        ------
        DeadlockError, ClusterError
            If something is left that nothing will ever release, or a copy has no way to its destination.
        """
        words, address = self._words, self._record.ctypes.data
        run_samples = load("simsched.simulator.compiled.loop:run_samples", SOURCES, "simulator")
        status = layout.RUNNING
        words[_WORD["status"]] = status
        while status == layout.RUNNING:
            run_samples(address)
            status = int(words[_WORD["status"]])
            if status == layout.OVER or status == layout.FULL:
                return status
        plan = self.plan
        program = plan.program
        if status != layout.STUCK:  # a copy without a way to its destination: say so as the cluster does
            src, dst = plan.routes[status - layout.UNROUTED]
            plan.cluster.route(program.devices[src], program.devices[dst])
        lanes, items = self._tables["lanes"], self._tables["items"]["code"]
        stuck = lanes[lanes["head"] < lanes["tail"]]
        waiting = items[stuck["head"]] >> 2
        held = list(zip(stuck["device"].tolist(), stuck["stream"].tolist(), waiting.tolist(), strict=True))
        issued = self._tables["events"]["issued"] < np.inf
        raise deadlock(program, self._tables["hosts"]["at"].tolist(), held, issued.tolist())


def _carve(sizes: Mapping[str, int], dtypes: Mapping[str, layout.Dtype]) -> dict[str, Table]:
    """Return tables of so many rows, side by side in one piece of memory."""
    places, end = {}, 0
    for name, rows in sizes.items():
        places[name] = end
        end += -(-rows * dtypes[name].itemsize // _BYTES) * _BYTES
    memory = np.empty(end + _BYTES, np.uint8)
    start = -memory.ctypes.data % _BYTES
    return {
        name: memory[start + at : start + at + sizes[name] * dtypes[name].itemsize].view(dtypes[name])
        for name, at in places.items()
    }


def _load(points: Table) -> Load:
    """Return the load curve of a device; it begins with an idle device at time 0."""
    if not len(points) or points[0]["time"] != 0.0:
        points = np.concatenate([np.zeros(1, points.dtype), points])
    return Load(*(np.ascontiguousarray(points[name]) for name in ("time", "sm", "dram", "warps", "active")))
