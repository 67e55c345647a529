"""Runs of a plan: their memory, their loop and what they leave."""

from collections.abc import Mapping
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.errors import SimulationError
from simsched.graph.columns import Floats
from simsched.machine_code import load
from simsched.simulator.compiled import layout
from simsched.simulator.compiled.plan import Layout, Plan
from simsched.simulator.compiled.platform import Table, address
from simsched.simulator.compiled.sources import SOURCES
from simsched.simulator.deadlock import deadlock
from simsched.trace import Load

_BUDGET: Final = 2**16  # events between two looks for an interruption by the user
_LINE: Final = 64  # bytes; tables begin at multiples of it
_FIELDS: Final[Mapping[str, Any]] = layout.RUN.fields or {}
WORD: Final = {name: _FIELDS[name][1] // 8 for name in _FIELDS}
"""Where the numbers of a run stand in `Run.numbers`."""
_SAMPLE, _BEGUN, _STATUS = (WORD[name] for name in ("sample", "begun", "status"))
_OWN: Final = slice(WORD[next(iter(layout.OWN))], WORD[next(iter(layout.OWN))] + len(layout.OWN))
_BYTES: Final = np.array([dtype.itemsize for dtype in layout.OWN.values()])


class Run:
    """The memory of one run after the other of a plan; not for two threads at once.

    Parameters
    ----------
    plan
        What is run.

    Attributes
    ----------
    stopped
        Set by another thread, it ends a run at the next look, with a `SimulationError`.
    numbers
        The record of the run, by `WORD`.
    """

    def __init__(self, plan: Layout) -> None:
        self.plan = plan
        self.stopped = False
        self._record = np.zeros(1, layout.RUN)
        self._words: npt.NDArray[np.int64] = self._record.view(np.int64)
        self._address = address(self._record)
        self.numbers: memoryview[Any] = memoryview(self._words.data)  # quicker to write to than an array
        self._run = load("simsched.simulator.compiled.loop:run_samples", SOURCES, "simulator")
        ends = np.cumsum((np.array([plan.sizes[name] for name in layout.OWN]) * _BYTES + _LINE - 1) // _LINE * _LINE)
        self._memory = np.empty(int(ends[-1]) + _LINE, np.uint8)
        self._start = address(self._memory)
        words = self._words
        words[_OWN.start] = self._start + -self._start % _LINE
        words[_OWN.start + 1 : _OWN.stop] = words[_OWN.start] + ends[:-1]
        platform = plan.platform
        for name, rows in (("lanes", plan.lanes), ("connections", plan.connections), ("devices", platform.devices)):
            self._bytes(name)[:] = rows.view(np.uint8)
        if plan.routes:
            self.table("capacity")["v"][: len(platform.capacity)] = platform.capacity
        for name, value in plan.counts.items():
            words[WORD[name]] = value
        for tables in (platform.tables, plan.tables):
            self._point_at(tables)
        self._makespans: Floats = np.empty(1)

    def makespans(self, launches: Table, factors: Floats | None = None) -> Floats:
        """Return the makespan in us of each sample.

        Parameters
        ----------
        launches
            From `launch_rows`.
        factors
            Of the time of each operator, shape (n_samples, n_ops); None: one sample of the times as they are.
        """
        self._makespans = found = np.empty(1 if factors is None else len(factors))
        self._begin(launches, factors)
        self._go_on()
        return found

    def makespan(self, launches: Table) -> float:
        """Return the makespan in us, or inf if the program waits for ever."""
        self._makespans = np.empty(1)
        self._begin(launches, None)
        return self.again()

    def again(self) -> float:
        """Return what `makespan` would, of the same launches: the quickest way to run once more."""
        view = self.numbers
        view[_SAMPLE] = view[_BEGUN] = 0
        view[_STATUS] = status = layout.RUNNING
        while status == layout.RUNNING:
            self._run(self._address)
            status = view[_STATUS]
            self._heed()
        return float(self._makespans[0]) if status == layout.OVER else self._stuck(status)

    def _heed(self) -> None:
        if self.stopped:
            raise SimulationError("the simulation was stopped")

    def _stuck(self, status: int) -> float:
        if status != layout.STUCK:
            self._refuse(status)
        return inf

    def trace_columns(
        self, launches: Table, factors: Floats | None = None
    ) -> tuple[dict[str, npt.NDArray[Any]], list[Load]]:
        """Return the spans by columns and the load curves of a run; `factors` as in `makespans`, of one sample."""
        plan = self._program_plan()
        n, n_launches, n_copies = len(plan.program), len(launches), len(plan.program.copies.op)
        n_events = plan.program.n_events
        sizes = {"issue_span": n, "event_issue": n_events, "event_cause": n_events}
        sizes |= {"spans": n_launches + n_copies + 3 * n + 1, "points": 64 + 2 * n_launches}
        recorded = {name: np.empty(size, layout.RECORDED[name]) for name, size in sizes.items()}
        self._makespans = np.empty(1)
        self._begin(launches, factors)
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

    def _begin(self, launches: Table, factors: Floats | None) -> None:
        words = self._words
        words[WORD["launches"]], words[WORD["makespans"]] = address(launches), address(self._makespans)
        words[WORD["jittered"]], words[WORD["n_samples"]] = factors is not None, len(self._makespans)
        if factors is not None:
            words[WORD["factors"]] = address(factors)
        words[WORD["sample"]] = words[WORD["begun"]] = words[WORD["recording"]] = 0
        words[WORD["budget"]] = _BUDGET

    def _point_at(self, tables: Mapping[str, Table]) -> None:
        """Write down where tables are; the caller keeps them."""
        for name, table in tables.items():
            self._words[WORD[name]] = address(table)

    def _bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the memory of one of the run's own tables."""
        start = int(self._words[WORD[name]]) - self._start
        return self._memory[start : start + self.plan.sizes[name] * layout.OWN[name].itemsize]

    def table(self, name: str) -> Table:
        """Return one of the run's own tables."""
        return self._bytes(name).view(layout.OWN[name])

    def _go_on(self) -> int:
        """Run to the end, or until the points are full; return the status.

        Raises
        ------
        DeadlockError, ClusterError
            If something is left that nothing will ever release, or a copy has no way to its destination.
        """
        status, at = layout.RUNNING, WORD["status"]
        self._words[at] = status
        while status == layout.RUNNING:  # its budget of events is over
            self._run(self._address)
            status = int(self._words[at])
            self._heed()
        if status not in (layout.OVER, layout.FULL):
            self._refuse(status)
        return status

    def _program_plan(self) -> Plan:
        if not isinstance(self.plan, Plan):
            raise TypeError("this run is of no program")
        return self.plan

    def _refuse(self, status: int) -> None:
        plan = self._program_plan()
        program = plan.program
        if status != layout.STUCK:  # a copy without a way to its destination: say so as the cluster does
            src, dst = plan.routes[status - layout.UNROUTED]
            plan.cluster.route(program.devices[src], program.devices[dst])
        lanes = self.table("lanes")
        stuck = lanes[lanes["head"] < lanes["tail"]]
        waiting = self.table("items")["code"][stuck["head"]] >> 2
        held = list(zip(stuck["device"].tolist(), stuck["stream"].tolist(), waiting.tolist(), strict=True))
        issued = self.table("events")["issued"] < np.inf
        raise deadlock(program, self.table("hosts")["at"].tolist(), held, issued.tolist())


def _load(points: Table) -> Load:
    """Return the load curve of a device; it begins with an idle device at time 0."""
    if not len(points) or points[0]["time"] != 0.0:
        points = np.concatenate([np.zeros(1, points.dtype), points])
    return Load(*(np.ascontiguousarray(points[name]) for name in ("time", "sm", "dram", "warps", "active")))
