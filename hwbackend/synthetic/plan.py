"""Plans of the surrogate: costs of launches, streams and copies of a program."""

from typing import Final

import numpy as np
import numpy.typing as npt

from hwbackend.synthetic.truth import BlockCost, TrueParameters, block_costs
from simsched.base.errors import BackendError, ClusterError
from simsched.model import COPY, LAUNCH, RECORD, WAIT, Ints, Program, footprint, occupancy

MOST_BLOCKS: Final = 10**7
"""Of an operator: some seconds of ours."""


class Plan:
    """A program and its costs on the surrogate.

    Parameters
    ----------
    program
        Every operator of its graph has kernels.
    true
        Where it runs.

    Raises
    ------
    BackendError
        If a block fits on no SM, no links lead to where something is copied, or there are too many blocks to
        simulate each of them; the message names the operator.
    """

    def __init__(self, program: Program, true: TrueParameters) -> None:
        self.program = program
        self.true = true
        self.devices = true.cluster.devices
        graph = program.graph
        n = len(program.launches)
        self.action = program.action.tolist()
        self.device = program.device.tolist()
        self.stream = program.stream.tolist()
        self.argument = program.argument.tolist()
        place = {code: np.empty(count, np.int64) for code, count in ((LAUNCH, n), (COPY, len(program.copies.op)))}
        for code, rows in place.items():
            at = np.flatnonzero(program.action == code)
            rows[program.argument[at]] = at
        self.launch_at: list[int] = place[LAUNCH].tolist()
        self.copy_at: list[int] = place[COPY].tolist()
        device = program.device[place[LAUNCH]]
        self.device_of: list[int] = device.tolist()
        self.source_of: list[int] = program.device[place[COPY]].tolist()
        self.costs: list[BlockCost] = []
        self.blocks: Ints = np.zeros(n, np.int64)
        needs = np.zeros((3, n), np.int64)
        row = 0
        for op in graph.operators:
            on = self.devices[device[row]]
            if sum(kernel.blocks for kernel in op.kernels) > MOST_BLOCKS:
                raise BackendError(
                    f"{op.name!r} has more blocks than the surrogate, which runs each, can: {MOST_BLOCKS}"
                )
            try:
                for kernel, cost in zip(op.kernels, block_costs(true, on, op), strict=True):
                    occupancy(on, kernel)
                    need = footprint(on, kernel)
                    needs[:, row] = need.warps, need.registers, need.shared_memory
                    self.blocks[row] = kernel.blocks
                    self.costs.append(cost)
                    row += 1
            except ClusterError as error:
                raise BackendError(f"{op.name!r}: {error}") from error
        self.columns: dict[str, npt.ArrayLike] = {
            "device": device,
            "priority": program.priority[program.launches.op],
            "warps": needs[0],
            "registers": needs[1],
            "shared": needs[2],
            "issue": [cost.issue for cost in self.costs],
            "dram": [cost.dram for cost in self.costs],
        }
        # launches of operators that do the same find each other's data in the cache
        alike: list[object] = [(op.kind, op.flops, op.nbytes, op.kernels) for op in graph.operators]
        self.alike = [alike[op] for op in program.launches.op.tolist()]
        self.is_first: list[bool] = (program.launches.kernel == 0).tolist()
        self._find_routes()
        self._find_queues()
        if program.execution == "graph":
            self._capture()

    def _find_routes(self) -> None:
        """Find for each copy its link directions, the latency and the bytes."""
        program = self.program
        cluster = self.true.cluster
        copies = program.copies
        self.target_of: list[int] = copies.device.tolist()
        self.nbytes: list[float] = copies.nbytes.tolist()
        self.exact: list[float] = copies.transfer.tolist()
        self.route: list[tuple[int, ...]] = []
        self.latency: list[float] = []
        names = program.devices
        for i, (source, target) in enumerate(zip(self.source_of, self.target_of, strict=True)):
            if self.exact[i] >= 0:
                self.route.append(())
                self.latency.append(0.0)
                continue
            try:
                route = cluster.route(names[source], names[target])
            except ClusterError as error:
                raise BackendError(f"{program.graph.names[copies.op[i]]!r}: {error}") from error
            self.route.append(route.channels)
            self.latency.append(route.latency)
        self.bandwidth = [bandwidth for _, _, bandwidth in cluster.channels]

    def _find_queues(self) -> None:
        """Give each instruction its stream (a lane), and each lane a hardware queue; copies have their own."""
        places = list(zip(self.device, self.stream, strict=True))
        copying = {places[i]: None for i, action in enumerate(self.action) if action == COPY}
        lanes = {place: lane for lane, place in enumerate(dict.fromkeys(places))}
        queues: dict[tuple[int, int, bool], int] = {}
        self.lane = [lanes[place] for place in places]
        self.is_copy_lane = [place in copying for place in lanes]
        self.queue: list[int] = []  # of each lane
        for (device, stream), is_copy in zip(lanes, self.is_copy_lane, strict=True):
            name = (device, stream if is_copy else stream % self.devices[device].connections, is_copy)
            self.queue.append(queues.setdefault(name, len(queues)))
        self.n_queues = len(queues)

    def _capture(self) -> None:
        """Find the nodes of a captured graph, and which of them wait for which.

        Raises
        ------
        BackendError
            If an event is waited for that has not been recorded before: CUDA has no such graph.
        """
        graph = self.program.graph
        self.nodes: list[int] = []
        self.successors: dict[int, list[int]] = {}
        self.missing: dict[int, int] = {}
        behind: dict[tuple[int, int], dict[int, None]] = {}  # of each stream: nodes for which its next node waits
        recorded: dict[int, dict[int, None]] = {}
        for i, action in enumerate(self.action):
            stream = behind.setdefault((self.device[i], self.stream[i]), {})
            if action == RECORD:
                recorded[self.argument[i]] = dict(stream)
            elif action == WAIT:
                if self.argument[i] not in recorded:
                    raise BackendError(
                        f"{graph.name}: the captured graph waits for event {self.argument[i]} before it is recorded"
                    )
                stream.update(recorded[self.argument[i]])
            else:
                self.nodes.append(i)
                self.missing[i] = len(stream)
                self.successors[i] = []
                for node in stream:
                    self.successors[node].append(i)
                behind[self.device[i], self.stream[i]] = {i: None}
