"""What the stages of IOS cost, asked once for stages that look the same."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from simsched.model.cluster import Device
from simsched.model.costmodel import CostModel, operator_times
from simsched.model.graph import OpGraph
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios.part import Stage, StoppedError
from simsched.schedulers.stage_costs import Groups, StageCost, StageFormula, StageLatencyOption

_COLUMNS: Final = ("flops", "nbytes", "weight_nbytes", "utilization", "intensity")
_KERNEL_COLUMNS: Final = ("blocks", "threads", "registers", "shared_memory", "share", "efficiency")
_BATCH: Final = 256  # stages that a thread asks for between two looks at the clock

Look = tuple[tuple[int, ...], ...]


class Stages:
    """Latencies of the stages of a graph.

    Parameters
    ----------
    graph, device, cost
        As the scheduler has them.
    option
        Where latencies come from. Those that are named and the formula do not know operators by name:
        operators of equal times, kernels, loads and traffic are of one class, and stages of equal
        classes, group by group, are asked for once.
    ask
        Makes what answers for a stage; each thread has one of its own.
    threads
        How many ask at a time, if the simulator is asked; nobody else is asked by more than one.

    Attributes
    ----------
    times
        Of each operator alone in us.
    classes
        Number of the class of each operator; without equal ones by topological position.
    """

    def __init__(
        self,
        graph: OpGraph,
        device: Device,
        cost: CostModel,
        option: StageLatencyOption,
        ask: Callable[[], StageCost],
        threads: int,
    ) -> None:
        self._graph = graph
        self._known: dict[Look, float] = {}
        self._asks = [ask() for _ in range(threads if isinstance(option, str) and option == "simulated" else 1)]
        self.times: list[float] = operator_times(graph, device, cost).tolist()
        if isinstance(option, str | StageFormula):
            self.classes = _classes(graph, self.times)
        else:
            self.classes = [0] * len(graph)
            for k, i in enumerate(graph.order_index.tolist()):
                self.classes[i] = k

    @property
    def n_asked(self) -> int:
        """How many stages that look different were asked for, merged ones not among them."""
        return len(self._known)

    def latencies(self, ops: Sequence[int], stages: Sequence[Stage], deadline: Deadline) -> list[float]:
        """Return the latency in us of stages of a piece; its operators are named by their places in `ops`."""
        looks = [tuple(tuple(self.classes[ops[k]] for k in group) for group in stage) for stage in stages]
        unknown = {
            look: self.named(ops, stage) for look, stage in zip(looks, stages, strict=True) if look not in self._known
        }
        waiting = iter(unknown.items())
        asks = self._asks if len(unknown) > _BATCH else self._asks[:1]
        size = _BATCH if len(asks) > 1 else 1  # a user's function may take its time
        with ThreadPoolExecutor(len(asks)) as pool:
            answers = pool.map if len(asks) > 1 else map  # and is asked by the thread that calls
            while batches := [batch for _ in asks if (batch := list(islice(waiting, size)))]:
                if deadline.over():
                    raise StoppedError
                for found in answers(_answers, asks, batches):
                    self._known.update(found)
        return [self._known[look] for look in looks]

    def latency(self, groups: Groups, merged: bool) -> float:
        """Return the latency in us of a stage by names."""
        return self._asks[0](groups, merged)

    def merged(self, ops: Sequence[int], places: Sequence[int]) -> float:
        """Return the latency in us of operators merged into one."""
        return self.latency(self.named(ops, (tuple(places),)), merged=True)

    def named(self, ops: Sequence[int], stage: Stage) -> Groups:
        """Return a stage of a piece as names."""
        names = self._graph.names
        return tuple(tuple(names[ops[k]] for k in group) for group in stage)


def _answers(ask: StageCost, batch: Sequence[tuple[Look, Groups]]) -> list[tuple[Look, float]]:
    return [(look, ask(groups)) for look, groups in batch]


def _classes(graph: OpGraph, times: Sequence[float]) -> list[int]:
    """Return equal numbers for operators that differ in nothing but names that a latency may depend on."""
    columns = [getattr(graph, key).tolist() for key in _COLUMNS]
    kernels = list(zip(*(getattr(graph, f"kernel_{key}").tolist() for key in _KERNEL_COLUMNS), strict=True))
    ptr = graph.kernel_ptr.tolist()
    number: dict[tuple[object, ...], int] = {}
    found = []
    for i, time in enumerate(times):
        loads = repr([column[i] for column in columns])  # as text: what is unknown is NaN, which differs from itself
        row = (time, graph.label("dtype", i), loads, *kernels[ptr[i] : ptr[i + 1]])
        found.append(number.setdefault(row, len(number)))
    return found
