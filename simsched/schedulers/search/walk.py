"""What the compiled walk is given: the candidate, and the graph and the cluster as columns."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device, occupancy
from simsched.costmodel import CostModel, default_cost, operator_times
from simsched.errors import ClusterError
from simsched.graph import Kernel, OpGraph
from simsched.machine_code import load
from simsched.schedulers.search import layout
from simsched.schedulers.search.candidate import Candidate

Floats = npt.NDArray[np.float64]
_HERE: Final = Path(__file__).parent
_SOURCES: Final = (
    *(_HERE / name for name in ("core.py", "model.py", "layout.py")),
    _HERE.parent.parent / "machine_columns.py",
)

_GUIDED: Final = 0.3  # how often the operator to change is one of the critical path
_LEAST: Final = 0.05  # of the choice of a move, whatever it has been worth
_STEPS: Final = 10.0  # of a walk at first
_MOST_STEPS: Final = 32
_MOST_WORK: Final = 20_000  # steps times operators
_ENOUGH: Final = 0.4  # of the walks accepted
_FURTHER: Final = 1.3


class Walk:
    """Changes a candidate many times over, judged by a model that knows devices as shared and hosts as quick.

    Parameters
    ----------
    candidate
        What it changes, in place.
    graph, cluster, cost
        What the model knows of.
    captured
        Whether the candidate runs as a captured graph: no host launches its operators one by one.

    Notes
    -----
    `layout.MOVES`: ``relocate`` an operator to any stream, device and place; ``reorder`` its launch;
    ``exchange`` two operators that are launched about the same time; ``follow`` an operator that it reads
    from or that reads from it; put a ``chain`` of readers on any stream; ``cross`` two streams: they exchange what
    they launch from then on; ``gather`` a stretch of the critical path on one stream; ``clear`` the
    stream around an operator. Operators stay behind all that they read from.
    The model is `model`'s: O(V (streams in use) + E) for each step.
    """

    def __init__(
        self, candidate: Candidate, graph: OpGraph, cluster: Cluster, cost: CostModel, *, captured: bool
    ) -> None:
        self._run = load("simsched.schedulers.search.core:walk", _SOURCES, "search")
        n, n_devices = len(graph), len(cluster)
        lanes = n_devices * candidate.streams
        self._table = table = np.zeros(layout.SIZE, np.int64)
        self._columns: list[npt.NDArray[Any]] = [candidate.rows]  # what the table points at lives as long
        table[[layout.N_OPS, layout.N_DEVICES, layout.N_STREAMS]] = n, n_devices, candidate.streams
        for key, column in enumerate(candidate.rows[:4], layout.ORDER):
            table[key] = _address(column)
        out_ptr, out_edge = graph.outgoing
        in_ptr, in_edge = graph.incoming
        row = cluster.kind if cost is default_cost else np.arange(n_devices)
        kinds = cluster.kinds if cost is default_cost else cluster.devices
        launches = np.maximum(1, np.diff(graph.kernel_ptr))
        gap, hop = (
            np.array([getattr(d, "graph_node" if captured else name) for d in cluster.devices])
            for name in ("gap", "hop")
        )
        times = np.stack([operator_times(graph, kind, cost) for kind in kinds])
        loads = np.stack([_loads(graph, kind) for kind in kinds])
        times[np.isnan(loads)] = np.inf  # a kernel of which no block fits
        issue = [launches * kind.launch + kind.record if not captured else np.zeros(n) for kind in kinds]
        between = [(launches - 1) * (kind.graph_node if captured else kind.gap) for kind in kinds]
        ends = np.indices((n_devices, n_devices)).reshape(2, -1)
        routes = cluster.routes(*ends)
        rate = np.array([d.copy_rate for d in cluster.devices])[ends[0]]
        self._tries, self._wins = (np.zeros(len(layout.MOVES), np.int64) for _ in range(2))
        self._choice = np.linspace(0.0, 1.0, len(layout.MOVES) + 1)[1:].copy()
        self._numbers = np.zeros(layout.N_NUMBERS)
        self._numbers[layout.GUIDED] = _GUIDED
        self._most = float(min(_MOST_STEPS, max(1, _MOST_WORK // n)))
        self._steps = min(_STEPS, self._most)
        for key, whole in (
            (layout.KEPT, np.zeros(4 * n)), (layout.TRIES, self._tries), (layout.WINS, self._wins), (layout.ROW, row),
            (layout.OUT_PTR, out_ptr), (layout.OUT_TO, graph.dst[out_edge]), (layout.IN_PTR, in_ptr),
            (layout.IN_FROM, graph.src[in_edge]), (layout.MISSING, np.zeros(n)), (layout.BEHIND, np.zeros(n)),
            (layout.LAST, np.zeros(lanes)), (layout.WAITING, np.zeros(n)), (layout.RUNNING, np.zeros(n)),
        ):  # fmt: skip
            self._give(key, whole, np.int64)
        for key, real in (
            (layout.NUMBERS, self._numbers), (layout.CHOICE, self._choice), (layout.TIME, times + np.stack(between)),
            (layout.LOAD, np.nan_to_num(loads)),
            (layout.ISSUE, np.stack(issue)), (layout.NBYTES, graph.edge_nbytes[out_edge]),
            (layout.EXACT, np.nan_to_num(graph.edge_transfer[out_edge], nan=-1.0)),
            (layout.LATENCY, np.where(routes.known, routes.latency, np.inf)),
            (layout.RATE, np.where(routes.known, np.minimum(routes.bandwidth, rate), 1.0)),
            (layout.GAP, gap), (layout.HOP, hop),
            (layout.READY, np.zeros(n)), (layout.LEFT, np.zeros(n)), (layout.LOADED, np.zeros(n_devices)),
            (layout.ISSUED, np.zeros(n_devices)),
        ):  # fmt: skip
            self._give(key, real, np.float64)

    def change(self, path: npt.NDArray[np.int64], temperature: float, rng: np.random.Generator) -> float:
        """Change the candidate step by step; return the makespan in us by the model.

        Parameters
        ----------
        path
            The operators of the critical path of the candidate, or of one like it.
        temperature
            In us: what the model calls worse by d is taken with probability exp(-d / temperature).
        """
        steps = int(self._steps)
        draws = rng.random((steps, layout.N_DRAWS))
        draws[:, -1] = rng.standard_exponential(steps)
        table = self._table
        table[layout.STEPS], table[layout.N_PATH] = steps, len(path)
        table[layout.PATH], table[layout.DRAWS] = _address(path), _address(draws)
        self._numbers[layout.TEMPERATURE] = temperature
        self._run(_address(table))
        return float(self._numbers[layout.MAKESPAN])

    def heed(self, accepted: float) -> None:
        """Go further where the simulator accepts most of what the model proposes, else less far.

        Moves that make the candidate better by the model become more likely.
        """
        self._steps = (
            min(self._most, self._steps * _FURTHER) if accepted > _ENOUGH else max(1.0, self._steps / _FURTHER)
        )
        rate = (self._wins + 2) / (self._tries + 10)
        chance = np.maximum(rate / rate.sum(), _LEAST)
        self._choice[:] = np.cumsum(chance / chance.sum())
        self._choice[-1] = 1.0
        for counts in (self._tries, self._wins):
            counts //= 2

    def _give(self, key: int, values: npt.ArrayLike, dtype: Any) -> None:
        column = np.ascontiguousarray(values, dtype)
        self._columns.append(column)
        self._table[key] = _address(column)


def _loads(graph: OpGraph, device: Device) -> Floats:
    """Return the part of a device that each operator fills, NaN if it does not fit, shape (n_ops,).

    Its utilization; or that of its kernels weighted by their time, in blocks of those that the device holds at once.
    """
    loads = np.nan_to_num(graph.utilization)
    if not device.contention:
        loads[:] = 0.0

    @cache
    def held(threads: int, registers: int, shared_memory: int) -> float:
        try:
            blocks = occupancy(device, Kernel(1, threads, registers, shared_memory)).blocks
        except ClusterError:
            return np.nan
        return float(blocks * device.sms) or np.nan

    if len(graph.kernel_blocks):
        shapes = zip(graph.kernel_threads.tolist(), graph.kernel_registers.tolist(),
                     graph.kernel_shared_memory.tolist(), strict=True)  # fmt: skip
        room = np.array([held(*shape) for shape in shapes])
        filled = graph.kernel_share * np.minimum(1.0, graph.kernel_blocks / room) * device.contention
        filled[np.isnan(room)] = np.nan
        op = np.repeat(np.arange(len(graph)), np.diff(graph.kernel_ptr))
        loads[op] = 0.0
        np.add.at(loads, op, filled)
    return loads


def _address(column: npt.NDArray[Any]) -> int:
    address: int = column.__array_interface__["data"][0]
    return address
