"""An evaluator of similar schedules of one graph, for searches."""

from contextlib import suppress
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError, ScheduleError, UnknownNameError
from simsched.model import CostModel, Program, Schedule, Target, bind, default_cost, operator_times
from simsched.model.costmodel import group_times
from simsched.model.graph.groups import together_on
from simsched.model.launches import kernels_on
from simsched.model.lowering import Lowering
from simsched.model.trace import Trace
from simsched.simulator.demand import demand_on
from simsched.simulator.layout import Layout, begin, finish
from simsched.simulator.simulate import simulate
from simsched.simulator.state import OVER

Columns = npt.NDArray[np.int64]
_COLUMNS = ("op", "device", "stream", "stage")
_OP, _DEVICE, _STREAM, _STAGE = range(4)


class Evaluator:
    """A schedule that changes step by step; every step returns the new simulated makespan.

    Parameters
    ----------
    schedule
        The initial schedule; its execution, priorities and partitions stay.
    cluster, cost
        As in `simulate`.

    Attributes
    ----------
    makespan
        Simulated makespan in us of the schedule as it is now; inf if it could not run.

    Raises
    ------
    ScheduleError
        If the schedule cannot be lowered for the cluster.

    Notes
    -----
    Columns that depend on the graph and the cluster are computed once. A step lowers and simulates in machine code,
    without texts of errors and Python objects: some tenths of a millisecond for 200 operators. The makespan equals
    the one that `simulate` returns for `schedule`. Two threads must not use an evaluator at once.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=10.0, utilization=0.5), ss.Operator("b", time=10.0, utilization=0.5)])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> search = Evaluator(ss.schedule(graph, cluster, "sequential"), cluster)
    >>> search.makespan, search.move("b", stream=1), search.undo()
    (20.0, 10.0, 20.0)
    """

    def __init__(self, schedule: Schedule, cluster: Target, cost: CostModel | None = None) -> None:
        schedule, cluster = bind(schedule, cluster)
        schedule.check(cluster)
        self.graph = schedule.graph
        self.cluster = cluster
        self.execution = schedule.execution
        self._rewriting = schedule.rewriting
        self._events = schedule.events
        self._partitions = schedule.partitions
        self._lowering = Lowering(self.graph, cluster, self.execution, events=self._events)
        self._priority = schedule.priority[np.argsort(schedule.op)]
        if cost is default_cost:
            self._cost = None
        else:
            self._cost = cost
        # Devices that cost the same: those of a kind, to the default cost model.
        if self._cost is None:
            self._alike = cluster.kind
        else:
            self._alike = np.arange(len(cluster))
        self._rows: dict[int, npt.NDArray[Any]] = {}
        number = np.array([cluster.index[name] for name in schedule.devices], np.int64)
        self._columns: Columns = np.array([getattr(schedule, name) for name in _COLUMNS], np.int64)  # (4, n_ops)
        self._columns[_DEVICE] = number[self._columns[_DEVICE]]
        self._before: tuple[Columns, float] | None = None
        self.makespan = self._simulate(self._columns)

    def move(
        self,
        op: str,
        *,
        device: str | None = None,
        stream: int | None = None,
        stage: int | None = None,
        place: int | None = None,
    ) -> float:
        """Put an operator elsewhere; return the new makespan in us, inf if that cannot run.

        Parameters
        ----------
        op
            Its name.
        device, stream, stage
            Where it goes; None leaves it.
        place
            Its new place in the launch order, from 0; the others close up.
        """
        if op not in self.graph.index:
            raise UnknownNameError("operator", op, list(self.graph.names[:20]))
        columns = self._columns.copy()
        at = int(np.flatnonzero(columns[_OP] == self.graph.index[op])[0])
        if device is not None:
            if device not in self.cluster.index:
                raise UnknownNameError("device", device, list(self.cluster.index))
            columns[_DEVICE, at] = self.cluster.index[device]
        for row, value in ((_STREAM, stream), (_STAGE, stage)):
            if value is not None:
                if not 0 <= value < 2**31:
                    raise ScheduleError(f"operator {op!r}: {_COLUMNS[row]} must be from 0 to 2^31 - 1, not {value}")
                columns[row, at] = value
        if place is not None:
            if not 0 <= place < len(self.graph):
                raise ScheduleError(f"operator {op!r}: place must be from 0 to {len(self.graph) - 1}, not {place}")
            order = np.insert(np.delete(np.arange(len(self.graph)), at), place, at)
            columns = columns[:, order]
        return self._step(columns)

    def replace(
        self, op: npt.ArrayLike, device: npt.ArrayLike, stream: npt.ArrayLike, stage: npt.ArrayLike = 0
    ) -> float:
        """Take other columns, in launch order as in `Schedule`; return the new makespan in us, inf if they cannot run.

        Parameters
        ----------
        op, device, stream, stage
            Operator indices, positions of devices in the cluster, streams and stages; scalars are spread.

        Raises
        ------
        ScheduleError
            If they do not place each operator once on a device and stream that can be.
        """
        columns = np.empty_like(self._columns)
        for column, value in zip(columns, (op, device, stream, stage), strict=True):
            column[:] = value
        return self._step(columns)

    def undo(self) -> float:
        """Take the last step back; return the makespan in us as it was before.

        Raises
        ------
        ScheduleError
            If there is no step to take back, or it is taken back already.
        """
        if self._before is None:
            raise ScheduleError("there is no step to take back")
        (self._columns, self.makespan) = self._before
        self._before = None
        return self.makespan

    def schedule(self, scheduler: str = "custom", estimate: float | None = None) -> Schedule:
        """Return the schedule as it is now; in execution by stages each stream of a stage is a group."""
        op, device, stream, stage = self._columns
        return Schedule.from_columns(
            self.graph,
            op,
            [device.name for device in self.cluster.devices],
            device=device,
            stream=stream,
            stage=stage,
            group=stream if self.execution == "stages" else 0,
            priority=self._priority[op],
            execution=self.execution,
            events=self._events,
            estimate=estimate,
            scheduler=scheduler,
            rewriting=self._rewriting,
            partitions=self._partitions,
        )

    def trace(self) -> Trace:
        """Return the trace of the schedule as it is now.

        Raises
        ------
        ScheduleError
            If it could not run.
        """
        if self.makespan == inf:
            raise ScheduleError("the schedule as it is cannot run: there is no trace of it")
        return simulate(self._program(self._columns), self.cluster, self._cost)

    def _step(self, columns: Columns) -> float:
        makespan = self._simulate(columns)
        self._before = self._columns, self.makespan
        self._columns = columns
        self.makespan = makespan
        return makespan

    def _simulate(self, columns: Columns) -> float:
        program = self._program(columns)
        if self._runs(columns):
            launches = self._launches(program, columns)
        else:
            launches = None
        if launches is not None:
            with suppress(ClusterError):  # a copy without a way to its destination
                run = Layout(program, self.cluster).take()
                begin(run, launches)
                if finish(run) == OVER:
                    return run.makespan
                return inf
        return inf

    def _program(self, columns: Columns) -> Program:
        """Return the program of columns; columns that are not placements are refused."""
        op, device, stream, stage = columns
        program = self._lowering.program(op, device, stream, stage, self._priority[op])
        if self._partitions:
            return program.bound_to(self._partitions)
        return program

    def _runs(self, columns: Columns) -> bool:
        """Return whether columns pass `Schedule.check`, except for cycles between devices, which become deadlocks."""
        src = self.graph.src
        dst = self.graph.dst
        by_op = np.empty_like(columns)
        by_op[:, columns[_OP]] = np.arange(len(self.graph)), *columns[1:]
        place, device, stream, stage = by_op
        late = place[src] > place[dst]
        together = device[src] == device[dst]
        if (late if self.execution == "graph" else late & together).any():
            return False
        if any(together_on(meeting, device) is not None for meeting in self.graph.meetings):
            return False
        if self.execution != "stages":
            return True
        on, at = columns[:, np.argsort(columns[_DEVICE], kind="stable")][[_DEVICE, _STAGE]]
        if ((on[1:] == on[:-1]) & (at[1:] < at[:-1])).any():
            return False
        beside = (stage[src] == stage[dst]) & (stream[src] != stream[dst])  # in two groups of a stage
        return not (together & beside).any()

    def _launches(self, program: Program, columns: Columns) -> npt.NDArray[Any] | None:
        """Return the demand of the launches on their devices, or None if one does not fit."""
        alike = self._alike[columns[_DEVICE]]
        numbers = np.unique(alike).tolist()
        for number in numbers:
            if number not in self._rows:  # the demand of all launches on the devices of this number
                d = int(np.argmax(self._alike == number))
                options = {"priority": self._priority, "refuse_unfit": False}
                times = operator_times(self.graph, self.cluster.devices[d], self._cost)
                self._rows[number] = demand_on(self.graph, self.cluster, d, times, **options)
        rows = self._rows[numbers[0]]
        if len(numbers) > 1:
            home = np.empty(len(self.graph), np.int64)
            home[columns[_OP]] = alike
            op = program.launches.op
            kernel = program.launches.kernel
            which = np.searchsorted(numbers, home[op])
            tables = [self._rows[number] for number in numbers]
            base = np.cumsum([0, *map(len, tables)])
            first = [
                kernels_on(self.graph, self.cluster.devices[int(np.argmax(self._alike == n))]).ptr for n in numbers
            ]
            rows = np.concatenate(tables)[base[which] + np.stack(first)[which, op] + kernel]
        if self._cost is None and self.graph.meetings:
            home = np.empty(len(self.graph), np.int64)
            home[columns[_OP]] = columns[_DEVICE]
            times = group_times(self.graph, self.cluster, home)[program.launches.op]
            rows = rows.copy()
            rows["solo"] = np.where(np.isnan(times), rows["solo"], times)
        if np.isfinite(rows["unit"]).all():
            return rows
        return None
