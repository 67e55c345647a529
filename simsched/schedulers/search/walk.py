"""What the compiled walk is given: the candidate, and the graph and the cluster as columns."""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError
from simsched.model.cluster import Cluster, Device, occupancy
from simsched.model.costmodel import CostModel, default_cost, operator_times
from simsched.model.graph import Kernel, OpGraph
from simsched.schedulers.search.candidate import Candidate
from simsched.schedulers.search.core import MOVES, walk
from simsched.schedulers.search.model import Draw, Walked

Floats = npt.NDArray[np.float64]
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
    `core.MOVES`: ``relocate`` an operator to any stream, device and place; ``reorder`` its launch;
    ``exchange`` two operators that are launched about the same time; ``follow`` an operator that it reads
    from or that reads from it; put a ``chain`` of readers on any stream; ``cross`` two streams: they exchange what
    they launch from then on; ``gather`` a stretch of the critical path on one stream; ``clear`` the
    stream around an operator. Operators stay behind all that they read from.
    The model is `model`'s: O(V (streams in use) + E) for each step.
    """

    def __init__(
        self, candidate: Candidate, graph: OpGraph, cluster: Cluster, cost: CostModel, *, captured: bool
    ) -> None:
        n, n_devices, given = len(graph), len(cluster), cost is default_cost
        kinds = cluster.kinds if given else cluster.devices
        self._table = table = Walked(
            n_ops=n, n_devices=n_devices, n_streams=candidate.streams, n_kinds=len(kinds), n_edges=len(graph.src),
            guided=_GUIDED, candidate=candidate.rows[:4], order=candidate.order, place=candidate.place,
            device=candidate.device, stream=candidate.stream,
        )  # fmt: skip
        self._moves, ops, readers = table["moves"], table["ops"], table["readers"]
        self._moves["below"] = np.linspace(0.0, 1.0, len(MOVES) + 1)[1:]
        ops["first_input"], edge = graph.incoming
        table["inputs"][:] = graph.src[edge]
        ops["first_reader"], edge = graph.outgoing
        readers["op"], readers["nbytes"] = graph.dst[edge], graph.edge_nbytes[edge]
        readers["exact"] = np.nan_to_num(graph.edge_transfer[edge], nan=-1.0)
        launches = np.maximum(1, np.diff(graph.kernel_ptr))
        for costs, kind in zip(table["costs"].reshape(-1, n), kinds, strict=True):
            loads = _loads(graph, kind)
            alone = np.where(np.isnan(loads), np.inf, operator_times(graph, kind, cost))  # no block of a kernel fits
            costs["time"] = alone + (launches - 1) * (kind.graph_node if captured else kind.gap)
            costs["load"] = np.nan_to_num(loads)
            costs["issue"] = 0.0 if captured else launches * kind.launch + kind.record
        devices, routes = table["devices"], table["routes"]
        devices["kind"] = cluster.kind if given else np.arange(n_devices)
        for name in ("gap", "hop"):
            devices[name] = [getattr(device, "graph_node" if captured else name) for device in cluster.devices]
        source, target = np.indices((n_devices, n_devices)).reshape(2, -1)
        found = cluster.routes(source, target)
        rate = np.array([device.copy_rate for device in cluster.devices])[source]
        routes["latency"] = np.where(found.known, found.latency, np.inf)
        routes["rate"] = np.where(found.known, np.minimum(found.bandwidth, rate), 1.0)
        self._most = float(min(_MOST_STEPS, max(1, _MOST_WORK // n)))
        self._steps = min(_STEPS, self._most)

    def change(self, path: npt.NDArray[np.int64], temperature: float, rng: np.random.Generator) -> float:
        """Change the candidate step by step; return the makespan in us by the model.

        Parameters
        ----------
        path
            The operators of the critical path of the candidate, or of one like it.
        temperature
            In us: what the model calls worse by d is taken with probability exp(-d / temperature).
        """
        table, steps = self._table, int(self._steps)
        draws = rng.random((steps, Draw.dtype.itemsize // 8))
        draws[:, -1] = rng.standard_exponential(steps)
        table["path"], table["draws"] = path, draws.view(Draw.dtype)
        table.n_path, table.n_steps, table.temperature = len(path), steps, temperature
        walk(table)
        return table.makespan

    def heed(self, accepted: float) -> None:
        """Go further where the simulator accepts most of what the model proposes, else less far.

        Moves that make the candidate better by the model become more likely.
        """
        self._steps = (
            min(self._most, self._steps * _FURTHER) if accepted > _ENOUGH else max(1.0, self._steps / _FURTHER)
        )
        moves = self._moves
        rate = (moves["wins"] + 2) / (moves["tries"] + 10)
        chance = np.maximum(rate / rate.sum(), _LEAST)
        moves["below"] = np.cumsum(chance / chance.sum())
        moves["below"][-1] = 1.0
        moves["tries"] //= 2
        moves["wins"] //= 2


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
