"""Placements by columns, over the graph that they execute."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final, Self, cast

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Checked
from simsched.base.errors import ScheduleError
from simsched.base.io import json_copy
from simsched.base.numeric import freeze, is_number, twice, whole_numbers
from simsched.model.graph import OpGraph, Rows
from simsched.model.graph.columns import Indices, distinct
from simsched.model.program import EXECUTIONS

EVENT_PLANS: Final = ("minimal", "literal")
_NO_SEARCH: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placement(Checked):
    """An operator on a stream of a device.

    Parameters
    ----------
    op, device
        Names of the operator and the device.
    stream
        Stream of the device, 0 or more.
    stage, group
        For execution in stages: the device's stages run one after the other, the groups of a
        stage side by side, each group on a stream of its own.
    priority
        Stream priority as in CUDA: the lower number is served first.
    """

    SUBJECT, ERROR = "placement of {0.op!r}", ScheduleError
    op: str
    device: str = "gpu0"
    stream: int = 0
    stage: int = 0
    group: int = 0
    priority: int = 0


class Plan:
    """Placements by columns, checked when made: what `Schedule` builds on."""

    graph: OpGraph
    execution: str
    estimate: float | None
    scheduler: str
    events: str
    search: Mapping[str, Any]
    devices: tuple[str, ...]
    op: Indices
    device: Indices
    stream: Indices
    stage: Indices
    group: Indices
    priority: Indices

    def __init__(
        self,
        graph: OpGraph,
        placements: Iterable[Placement],
        execution: str = "events",
        estimate: float | None = None,
        scheduler: str = "custom",
        events: str = "minimal",
        search: Mapping[str, Any] = _NO_SEARCH,
    ) -> None:
        rows = tuple(placements)
        unknown = next((row for row in rows if row.op not in graph.index), None)
        if unknown is not None:
            raise ScheduleError(f"placement of {unknown.op!r} names no operator of graph {graph.name!r}")
        devices = tuple(dict.fromkeys(row.device for row in rows))
        number = {name: i for i, name in enumerate(devices)}
        columns: dict[str, npt.ArrayLike] = {key: [getattr(row, key) for row in rows] for key in _NUMBERS}
        columns |= {"op": [graph.index[row.op] for row in rows], "device": [number[row.device] for row in rows]}
        made = Plan.from_columns(
            graph, devices=devices, **columns, execution=execution, estimate=estimate, scheduler=scheduler,
            events=events, search=search,
        )  # fmt: skip
        self.__dict__.update(made.__dict__)

    @classmethod
    def from_columns(
        cls,
        graph: OpGraph,
        op: npt.ArrayLike,
        devices: Sequence[str],
        *,
        device: npt.ArrayLike = 0,
        stream: npt.ArrayLike = 0,
        stage: npt.ArrayLike = 0,
        group: npt.ArrayLike = 0,
        priority: npt.ArrayLike = 0,
        execution: str = "events",
        estimate: float | None = None,
        scheduler: str = "custom",
        events: str = "minimal",
        search: Mapping[str, Any] = _NO_SEARCH,
    ) -> Self:
        """Make a schedule from columns in launch order (see Notes of the class); scalars are spread."""
        columns = {"op": op, "device": device, "stream": stream, "stage": stage, "group": group, "priority": priority}
        for what, value, known in (("execution", execution, EXECUTIONS), ("events", events, EVENT_PLANS)):
            if value not in known:
                raise ScheduleError(f"unknown {what} {value!r}; known are: {', '.join(known)}")
        if estimate is not None and not (is_number(estimate) and 0 <= estimate < inf):
            raise ScheduleError(f"estimate must be finite and not negative, not {estimate!r}")
        if len(set(devices)) != len(devices):
            raise ScheduleError(f"device {twice(devices)!r} stands twice")
        values = {key: _whole(column, key, np.shape(columns["op"])) for key, column in columns.items()}
        names = graph.names
        for key, end, what in (("op", len(graph), "operators"), ("device", len(devices), "devices")):
            if values[key].size and not 0 <= values[key].min() <= values[key].max() < end:
                raise ScheduleError(f"column {key!r} must hold indices of the {end} {what}")
        seen = np.zeros(len(graph), np.bool_)
        seen[values["op"]] = True
        if len(values["op"]) != len(graph) or not seen.all():
            placed = np.bincount(values["op"], minlength=len(graph))
            i = int(np.argmax(placed != 1))
            raise ScheduleError(f"operator {names[i]!r} is placed {'twice' if placed[i] > 1 else 'nowhere'}")
        for key in ("stream", "stage", "group"):
            if values[key].min() < 0:
                at = int(np.argmax(values[key] < 0))
                raise ScheduleError(
                    f"operator {names[values['op'][at]]!r}: {key} must not be negative, not {values[key][at]}"
                )
        schedule = cls.__new__(cls)
        schedule.__dict__.update(
            values, graph=graph, devices=tuple(devices), execution=execution, scheduler=scheduler, events=events,
            estimate=None if estimate is None else float(estimate), search=_search(search),
        )  # fmt: skip
        freeze(schedule.__dict__)
        return schedule

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in _CACHED}
        return state | {"search": dict(self.search)}  # a mapping proxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, search=MappingProxyType(state["search"]))
        freeze(self.__dict__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Schedule cannot be changed (tried to set {name!r}); make a new one")

    def __len__(self) -> int:
        return len(self.op)

    def __repr__(self) -> str:
        return (
            f"Schedule({self.scheduler!r} of {self.graph.name!r}, {len(self)} operators, {self.n_streams} streams, "
            f"{len(self.devices_used)} devices, execution={self.execution!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        mine, theirs = ((s.execution, s.events, s.estimate, s.scheduler) for s in (self, other))
        return mine == theirs and self.graph == other.graph and self.placements == other.placements

    __hash__ = None  # type: ignore[assignment]

    @property
    def placements(self) -> Rows[Placement]:
        """The placements, in launch order."""
        return Rows(len(self.op), self._placement)

    def _placement(self, i: int) -> Placement:
        name, device = self.graph.names[self.op[i]], self.devices[self.device[i]]
        return Placement(name, device, *(int(self.__dict__[key][i]) for key in _NUMBERS))

    @property
    def devices_used(self) -> tuple[str, ...]:
        """Names of the devices that run at least one operator."""
        return tuple(self.devices[i] for i in np.flatnonzero(np.bincount(self.device)))

    @property
    def n_streams(self) -> int:
        """Streams in use, over all devices."""
        return len(distinct(self.device * np.int64(2**31) + self.stream))

    def like(self, rows: Indices | None = None, **others: Any) -> Self:
        """Return the schedule with its rows in another order and with other columns and fields, as of `from_columns`.

        It has no estimate but one of those.
        """
        chosen = ... if rows is None else rows
        columns = {key: getattr(self, key)[chosen] for key in ("op", "device", *_NUMBERS)}
        return self.from_columns(**columns | {key: getattr(self, key) for key in _SAID} | others)

    def over(self, graph: OpGraph) -> Self:
        """Return the schedule over another graph of the same operators, such as one with measured times.

        The last one made is kept.

        Raises
        ------
        ScheduleError
            If the graph has operators of other names, or in another order.
        """
        if graph is self.graph:
            return self
        kept = self.__dict__.get("_over")
        if kept is not None and kept.graph is graph:
            return cast(Self, kept)
        if graph.names != self.graph.names:
            raise ScheduleError(f"the schedule of graph {self.graph.name!r} is not one of graph {graph.name!r}")
        made = type(self).__new__(type(self))
        made.__dict__.update({key: value for key, value in self.__dict__.items() if key not in _CACHED}, graph=graph)
        self.__dict__["_over"] = made
        return made


_CACHED = ("_lowered", "_over")
_SAID = ("graph", "devices", "execution", "scheduler", "events", "search")
_NUMBERS = ("stream", "stage", "group", "priority")
_LARGEST = 2**31 - 1


def _whole(values: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> Indices:
    """Return a column of whole numbers as a copy in 32 bits, which the largest of them fits into."""
    given = whole_numbers(values)
    if given is None or len(shape) != 1 or (given.size and not -_LARGEST <= given.min() <= given.max() <= _LARGEST):
        raise ScheduleError(f"column {name!r} must hold whole numbers below 2^31")
    try:
        return np.broadcast_to(given.astype(np.int32), shape)
    except ValueError:
        raise ScheduleError(f"column {name!r} must have {shape[0] if shape else 1} rows, one per operator") from None


def _search(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is said of a search as a copy that cannot be changed."""
    try:
        return MappingProxyType(json_copy(dict(given)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ScheduleError(f"search must hold JSON values by name: {error}") from None
