"""`ChangedCost`: a cost model in a world where devices have other rates and operators other speeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simsched.experiments.whatif.changes import Change, speed_of
from simsched.model import Cluster, Device, Floats, Indices, Operator, OpGraph
from simsched.model.costmodel import CostModel, default_cost, operator_times, roofline, rooflines


@dataclass(frozen=True, eq=False)
class Speeds:
    """How many times as quick operators are as they were.

    Parameters
    ----------
    graph
        What `values` are of.
    values
        Shape (n_ops,).
    changes
        Those that led there; by them operators of a kind are told that a scheduler makes.
    """

    graph: OpGraph
    values: Floats
    changes: tuple[Change, ...] = ()
    _last: list[tuple[OpGraph, Floats]] = field(default_factory=list, init=False, repr=False)

    def changed(self, change: Change, rows: Indices) -> "Speeds":
        """Return the speeds after a change of those of some operators."""
        values = self.values.copy()
        values[rows] = change.value if change.is_absolute else values[rows] * change.value
        return Speeds(self.graph, values, (*self.changes, change))

    @property
    def all_as_before(self) -> bool:
        """Whether no speed differs from 1."""
        return bool((self.values == 1.0).all()) and all(change.value == 1.0 for change in self.changes)

    def of(self, op: Operator) -> float:
        """Return the speed of an operator, by its name, else by its kind."""
        if op.name in self.graph.index:
            return float(self.values[self.graph.index[op.name]])
        speed = 1.0
        for change in self.changes:
            if speed_of(change.parameter) in ((None, None), (op.kind, None)):
                speed = change.of(speed)
        return speed

    def over(self, graph: OpGraph) -> Floats:
        """Return the speeds of the operators of any graph, shape (n_ops,)."""
        if graph is self.graph or graph.names == self.graph.names:
            return self.values
        if not self._last or self._last[0][0] is not graph:  # schedulers ask of one graph many times
            self._last[:] = [(graph, np.array([self.of(op) for op in graph.operators]))]
        return self._last[0][1]


def rates(device: Device) -> tuple[Any, ...]:
    """Return what the roofline time of an operator depends on."""
    return device.sms, device.bandwidth, device.saturating_warps, dict(device.peak)


@dataclass(frozen=True, eq=False)
class ChangedCost:
    """A cost model that follows changes of devices and operators.

    Parameters
    ----------
    given
        The model as it was.
    before
        By the name of a device what stood in its place before.
    speeds
        Of operators; their times are divided by them.
    made
        Names of operators that changes made, of which the given model knows nothing: they have their `time`.

    Notes
    -----
    With t(op, device) the model as it was, r the roofline and s the speed, an operator takes on a device d that
    stands in the place of d0::

        t(op, d) / s                          where t(op, d) differs from t(op, d0): the model follows by itself
        t(op, d0) * r(op, d) / r(op, d0) / s  where it does not

    A pure latency, without FLOP and bytes, has the same roofline time everywhere and stays as it is.
    """

    given: CostModel
    before: Mapping[str, Device]
    speeds: Speeds
    made: tuple[str, ...] = ()

    def __call__(self, op: Operator, device: Device) -> float:
        """Return the time of an operator alone on a device in us."""
        model = default_cost if op.name in self.made else self.given
        time, before = model(op, device), self.before.get(device.name, device)
        if rates(before) != rates(device) and time == model(op, before):
            time = time * (roofline(op, device) / roofline(op, before))
        return time / self.speeds.of(op)

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of operators of a graph, given by index, on a device, shape of `ops`."""
        before = self.before.get(device.name, device)
        times = self._given(graph, device, ops)
        if rates(before) != rates(device):
            as_before = np.flatnonzero(times == self._given(graph, before, ops))
            rows = ops[as_before]
            times[as_before] *= rooflines(graph, rows, device) / rooflines(graph, rows, before)
        return times / self.speeds.over(graph)[ops]

    def _given(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        made = np.array([graph.index[name] for name in self.made if name in graph.index], np.int64)
        if self.given is default_cost or not len(made):
            return operator_times(graph, device, self.given, ops)
        own, times = np.isin(ops, made), np.empty(len(ops))
        times[own] = operator_times(graph, device, None, ops[own])
        times[~own] = operator_times(graph, device, self.given, ops[~own])
        return times


def changed_cost(
    given: CostModel | None, old: Cluster, new: Cluster, speeds: Speeds, made: tuple[str, ...]
) -> CostModel | None:
    """Return the cost model after changes of devices and operators: the given one where they make no difference."""
    before = {device.name: old.devices[i if i < len(old) else 0] for i, device in enumerate(new.devices)}
    same = all(rates(before[device.name]) == rates(device) for device in new.devices)
    if same and speeds.all_as_before and (given is None or not made):
        return given
    return ChangedCost(default_cost if given is None else given, before, speeds, made)
