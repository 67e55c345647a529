"""`Donor`: a network that PyTorch captured once, whose nodes then run under any schedule. Not run on a device yet.

Each operator is captured on a stream of its own, so that no two operators share memory for intermediate values or the
workspace of a library. Which nodes an operator has is known by counting: those that the captured graph has more of
behind its call. A schedule with ``execution="graph"`` is the same nodes with other edges; one with events or stages
launches them by packed calls. Both take milliseconds, where a capture takes as long as PyTorch's calls.

An operator with a node that cannot be moved alone is a graph of its own nodes as they were captured: a node of the
schedule's graph, or one launch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from hwbackend.executor.driver import addresses, value_of
from hwbackend.executor.lanes import devices_of
from hwbackend.executor.nodes import NodeGraph, NodeUnit, ReorderedGraph, captured_graph, handles_of
from hwbackend.executor.ordering import OperatorNodes, edges_of, node_priorities, part_of
from hwbackend.executor.packed import PackedCalls
from hwbackend.executor.packing import packed_calls
from hwbackend.torch.hosts import CudaHost, TorchCuda, capture_errors
from simsched.base.errors import BackendError
from simsched.model import Cluster, Kernel, OpGraph, Program, Schedule

_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING


class DonorCuda(TorchCuda):
    """`TorchCuda` with streams of its own, of which PyTorch has 32 for all, and with graphs that are given out.

    Parameters
    ----------
    torch
        PyTorch.
    driver
        ``cuda.bindings.driver``.
    """

    def __init__(self, torch: Any, driver: Any) -> None:
        super().__init__(torch)
        self.driver = driver
        self._streams: list[Any] = []

    def stream(self, device: int, priority: int) -> Any:
        """Return a stream of a device that nothing else uses."""
        with self._torch.cuda.device(device):
            handle = value_of(self.driver.cuStreamCreateWithPriority(_NON_BLOCKING, priority))
        self._streams.append(handle)
        return self._torch.cuda.ExternalStream(int(handle), device=device)

    def graph(self) -> Any:
        """Return a graph with nothing in it, which `raw_graph` gives out after it was captured.

        Raises
        ------
        BackendError
            If PyTorch is older than 2.8.
        """
        try:
            return self._torch.cuda.CUDAGraph(keep_graph=True)
        except TypeError as error:
            raise BackendError("PyTorch older than 2.8 gives no graph out that it captured") from error

    def raw_graph(self, graph: Any) -> int:
        """Return the handle of a captured graph, which stays PyTorch's."""
        return int(graph.raw_cuda_graph())

    def handle(self, stream_or_event: Any) -> int:
        """Return the handle of a stream, or of an event that was recorded."""
        name = "cuda_event" if hasattr(stream_or_event, "cuda_event") else "cuda_stream"
        return int(getattr(stream_or_event, name))

    def addresses(self) -> Mapping[str, int]:
        """Return the addresses of the driver's functions by name."""
        return addresses()

    def launch_reordered(self, graph: ReorderedGraph, stream: Any) -> None:
        """Launch a graph on a stream."""
        graph.launch(self.handle(stream))

    def close(self) -> None:
        """Free the streams."""
        for handle in self._streams:
            self.driver.cuStreamDestroy(handle)
        self._streams.clear()


class Donor:
    """The nodes of a network, ready to run in any order that its edges allow.

    Parameters
    ----------
    api
        A `DonorCuda`.
    program
        Runs each operator of the network on the stream of the operator's number; see `alone`.
    compute
        Issues an operator to the current stream, by number. What it writes must stay where it is from the last call on.

    Attributes
    ----------
    parts
        The nodes of each operator.
    units
        Operators that run as graphs of their own nodes, by number.
    whole
        Why they do, by name.
    obstacles
        Why operators cannot be moved at all, by name: schedules are then captured by PyTorch.

    Raises
    ------
    BackendError
        If PyTorch does not give its graph out, or the driver refuses a call.
    """

    def __init__(self, api: DonorCuda, program: Program, compute: Callable[[int], None]) -> None:
        graph = program.graph
        self._api = api
        self._graph = graph
        self._compute = compute
        self._handles: list[list[Any]] | None = None
        self._seen: dict[int, None] = {}
        self._host = CudaHost(api, program, self._count, _refuse)
        with capture_errors(self._host, graph.name):
            self._host.issue()  # PyTorch makes its handles and workspaces on every stream
            self._host.finish()
            self._handles = [[] for _ in graph.names]
            self._host.capture()
        self.nodes = NodeGraph(api.driver, api.raw_graph(self._host.graph))
        numbers = [[self.nodes.number(handle) for handle in handles] for handles in self._handles]
        lost = set(range(len(self.nodes.nodes))).difference(*numbers)
        if lost:
            raise BackendError(f"{graph.name}: {len(lost)} captured nodes belong to no operator")
        self.parts: tuple[OperatorNodes, ...] = tuple(part_of(row, self.nodes.edges) for row in numbers)
        self.units: dict[int, NodeUnit] = {}
        self.whole: dict[str, str] = {}
        self.obstacles: dict[str, str] = {}
        self._launched: dict[int, NodeUnit] = {}
        for op, (name, part) in enumerate(zip(graph.names, self.parts, strict=True)):
            reason = next(filter(None, map(self.nodes.obstacle, part.nodes)), None)
            if reason is not None:
                self._keep_whole(op, name, reason)

    def _keep_whole(self, op: int, name: str, reason: str) -> None:
        """Have an operator be a graph of its own, or note why it cannot be moved."""
        nodes = self.parts[op].nodes
        obstacle = self.nodes.unit_obstacle(nodes)
        if obstacle is not None:
            self.obstacles[name] = obstacle
            return
        try:
            self.units[op] = self.nodes.unit(nodes)
            self.whole[name] = reason
        except BackendError as error:
            self.obstacles[name] = f"{reason} ({error})"

    @property
    def movable_parts(self) -> tuple[OperatorNodes, ...]:
        """The nodes of each operator as they are moved; a unit is one node, of a number that no other node has."""
        parts = list(self.parts)
        for op in self.units:
            number = self.number_of_unit(op)
            parts[op] = OperatorNodes((number,), (), (number,), (number,))
        return tuple(parts)

    def number_of_unit(self, op: int) -> int:
        """Return the number of the node that a unit is."""
        return len(self.nodes.nodes) + op

    def launched_unit(self, op: int, reason: str) -> int:
        """Return the handle of an operator's nodes as a graph that can be launched.

        Raises
        ------
        BackendError
            If they cannot be a graph of their own.
        """
        if op not in self.units and op not in self._launched:
            nodes = self.parts[op].nodes
            obstacle = self.nodes.unit_obstacle(nodes)
            if obstacle is not None:
                raise BackendError(f"operator {self._graph.names[op]!r} has {reason}, which no call runs; {obstacle}")
            self._launched[op] = self.nodes.unit(nodes)
        return (self.units.get(op) or self._launched[op]).launchable()

    def _count(self, op: int) -> None:
        """Issue an operator; in the capture, note the nodes that the graph has more of."""
        self._compute(op)
        if self._handles is None:
            return
        driver = self._api.driver
        graph = captured_graph(driver, self._api.handle(self._host.stream((0, op))))
        for handle in handles_of(driver, graph):
            if int(handle) not in self._seen:
                self._seen[int(handle)] = None
                self._handles[op].append(handle)

    def kernels(self, op: int) -> tuple[Kernel, ...]:
        """Return the launch shapes of an operator's kernels; each has the same share of its time."""
        shapes = [shape for node in self.parts[op].nodes if (shape := self.nodes.kernel(node)) is not None]
        return tuple(replace(shape, share=1.0 / len(shapes)) for shape in shapes)

    def with_kernels(self, graph: OpGraph) -> OpGraph:
        """Return a graph of the same operators with the kernels that were captured, where there are any."""
        operators = [replace(op, kernels=self.kernels(i) or op.kernels) for i, op in enumerate(graph.operators)]
        return OpGraph(operators, graph.edges, graph.name)

    def host(self, api: DonorCuda, program: Program, *, stamped: bool = False) -> "DonatedHost":
        """Return what runs a program of the network's operators; with `stamped` it takes spans, without a graph.

        Raises
        ------
        BackendError
            If an operator cannot be moved, or the program runs on another device or on several.
        """
        if self.obstacles:
            name, reason = next(iter(self.obstacles.items()))
            more = f", and {len(self.obstacles) - 1} more" if len(self.obstacles) > 1 else ""
            raise BackendError(f"operator {name!r} has {reason}, which cannot be moved{more}")
        if any(devices_of(program)) or len(program.copies.op):
            raise BackendError("the network was captured on the first device, the program runs on others, too")
        return DonatedHost(api, program, self, stamped=stamped)

    def close(self) -> None:
        """Free the units and the streams; the graph is PyTorch's."""
        for unit in (*self.units.values(), *self._launched.values()):
            unit.close()
        self._api.close()


class DonatedHost(CudaHost):
    """Runs a program with the nodes of a donor, a context manager that frees its graph and its streams.

    Parameters
    ----------
    api
        A `DonorCuda` of its own.
    program
        Of the donor's operators, on the donor's device.
    donor
        Has the nodes; it has to live as long.
    stamped
        Whether to record events around each operator instead of launching a graph, see `spans`.

    Attributes
    ----------
    whole
        Why operators run as graphs of their own nodes, by name.

    Raises
    ------
    BackendError
        If the driver refuses a call, or a node has no packed call and its operator cannot be a graph of its own.
    """

    def __init__(self, api: DonorCuda, program: Program, donor: Donor, *, stamped: bool = False) -> None:
        super().__init__(api, program, _refuse, _refuse, timed=stamped)
        self._donor_api = api
        self._donor = donor
        self._reordered: ReorderedGraph | None = None
        self._calls: PackedCalls | None = None
        self.whole: dict[str, str] = dict(donor.whole)
        try:
            if program.execution == "graph" and not stamped:
                units = {donor.number_of_unit(op): unit for op, unit in donor.units.items()}
                self._reordered = donor.nodes.reorder(
                    edges_of(program, donor.movable_parts), node_priorities(program, donor.movable_parts), units
                )
                self.adopt(_Launchable(api, self._reordered, self.origin))
            else:
                self._calls = self._pack()
        except BaseException:
            api.close()
            raise

    def __enter__(self) -> "DonatedHost":
        return self

    def __exit__(self, _type: type[BaseException] | None, _value: object, _traceback: TracebackType | None) -> None:
        if self._reordered is not None:
            self._reordered.close()
        self._donor_api.close()

    def _pack(self) -> PackedCalls:
        api = self._donor_api
        program = self._program
        lanes = {lane: self.stream(lane) for lane in self.lanes}
        some = next(iter(lanes.values()))
        stamps = [event for pair in self.stamps for event in pair]
        for event in (*self.events, *stamps):
            api.record(event, some)  # PyTorch makes an event when it is recorded
        self.finish()
        return packed_calls(
            api.driver,
            api.addresses(),
            self._donor.nodes,
            program,
            self._donor.parts,
            {lane: api.handle(stream) for lane, stream in lanes.items()},
            [api.handle(event) for event in self.events],
            [(api.handle(start), api.handle(end)) for start, end in self.stamps],
            whole=self._donor.units,
            unit_of=self._unit,
        )

    def _unit(self, op: int, reason: str) -> int:
        """Return an operator as a graph that can be launched; a reason is kept in `whole`."""
        handle = self._donor.launched_unit(op, reason)
        if reason:
            self.whole[self._program.graph.names[op]] = reason
        return handle

    def issue(self) -> None:
        """Issue the program once by packed calls."""
        assert self._calls is not None
        self._calls()

    def profiled_marks(self) -> list[str] | None:
        """Return the operator of each node of the graph as a profiler orders them, None if that is not known."""
        order = None if self._reordered is None else self._reordered.profiled_order()
        if order is None:
            return None
        names = self._program.graph.names
        owner = {node: names[op] for op, part in enumerate(self._donor.parts) for node in part.nodes}
        return [owner[node] for node in order if self._donor.nodes.type_of(node) != "EMPTY"]


class _Launchable:
    """A graph as `TorchCuda.launch` launches it."""

    def __init__(self, api: DonorCuda, graph: ReorderedGraph, stream: Any) -> None:
        self._api = api
        self._graph = graph
        self._stream = stream
        graph.upload(api.handle(stream))

    def replay(self) -> None:
        """Launch the graph on the host's first stream."""
        self._api.launch_reordered(self._graph, self._stream)


def alone(graph: OpGraph, cluster: Cluster) -> Program:
    """Return the program that runs each operator on a stream of its own, of the operator's number."""
    first = replace(cluster, devices=cluster.devices[:1], links=())
    name = first.devices[0].name
    order: Sequence[int] = graph.order_index.tolist()
    plan = Schedule.from_columns(graph, order, (name,), stream=order, execution="graph")
    return plan.lower(first)


def _refuse(number: int) -> None:
    raise BackendError(f"operator or copy {number} is called, though its nodes were captured")
