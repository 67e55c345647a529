"""Programs of events and barriers as packed calls that launch the nodes of a captured graph.

An operator whose nodes have no calls, or that cannot be taken apart, is one call that launches a graph of these nodes.
Not run on a device yet.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from hwbackend.executor.issue import issue
from hwbackend.executor.lanes import Lane, first_rows, threads_of
from hwbackend.executor.nodes import NodeGraph
from hwbackend.executor.ordering import OperatorNodes
from hwbackend.executor.packed import PackedCalls
from simsched.base.errors import BackendError
from simsched.model import Program

_LAUNCH, _WAIT, _SYNCHRONISE, _RECORD, _FILL = range(5)  # the signatures of packed calls
_COPY = _LAUNCH  # four arguments of 64 bits, too
_LAUNCH_GRAPH = _RECORD  # two of them
_ATTRIBUTE: Final = "CU_LAUNCH_ATTRIBUTE_"
_CARRIED: Final = {"CLUSTER_DIMENSION": "clusterDim.x", "COOPERATIVE": "cooperative"}
"""Attributes that come along with a launch, and the field that is not 0 where one is set."""
_ON_DEVICE: Final = ("CU_MEMORYTYPE_DEVICE", "CU_MEMORYTYPE_UNIFIED")


class NoCallError(BackendError):
    """A node that no packed call runs."""


def packed_calls(
    driver: Any,
    addresses: Mapping[str, int],
    graph: NodeGraph,
    program: Program,
    parts: Sequence[OperatorNodes],
    streams: Mapping[Lane, int],
    events: Sequence[int],
    stamps: Sequence[tuple[int, int]] = (),
    *,
    whole: Container[int] = (),
    unit_of: Callable[[int, str], int] | None = None,
) -> PackedCalls:
    """Return the calls that issue a program once, in the order in which one host thread issues it.

    Parameters
    ----------
    driver, addresses
        ``cuda.bindings.driver``, and the functions of the driver by name.
    graph, parts
        The captured graph, and the nodes of each operator of the program's graph.
    streams, events
        Handles of the program's streams and events.
    stamps
        Handles of two events for each operator, recorded before and after it; none where nothing is stamped.
    whole
        Operators that are not taken apart, by number.
    unit_of
        Returns the handle of a graph of an operator's nodes that can be launched: of one of `whole`, with an empty
        text, or of one with a node that has no call, with the reason. Such nodes are copies of the host, of arrays and
        images, and kernels whose arguments are in one buffer.

    Raises
    ------
    BackendError
        If the program has several host threads, or there is no graph for an operator that needs one.
    """
    if len(program.thread_ptr) > 2:
        raise BackendError("a program of several host threads is not packed: lower it with threads='one'")
    packer = _Packer(driver, addresses, graph, program, parts, streams, events, stamps, whole, unit_of)
    issue(program, threads_of(program), packer)
    return PackedCalls(packer.rows, (packer.kept, graph))


class _Packer:
    """A driver that writes rows."""

    def __init__(
        self,
        driver: Any,
        addresses: Mapping[str, int],
        graph: NodeGraph,
        program: Program,
        parts: Sequence[OperatorNodes],
        streams: Mapping[Lane, int],
        events: Sequence[int],
        stamps: Sequence[tuple[int, int]],
        whole: Container[int],
        unit_of: Callable[[int, str], int] | None,
    ) -> None:
        self.thread = 0
        self.rows: list[tuple[int, int, Sequence[int]]] = []
        self.kept: list[Any] = []
        self._driver = driver
        self._addresses = addresses
        self._graph = graph
        self._parts = parts
        self._streams = streams
        self._events = events
        self._stamps = stamps
        self._whole = whole
        self._unit_of = unit_of
        self._first = first_rows(program)

    def launch(self, row: int, device: int, stream: int) -> None:
        op = self._first.get(row)
        if op is None:
            return
        handle = self._streams[device, stream]
        if self._stamps:
            self._add(_RECORD, "cuEventRecord", self._stamps[op][0], handle)
        self._operator(op, handle)
        if self._stamps:
            self._add(_RECORD, "cuEventRecord", self._stamps[op][1], handle)

    def _operator(self, op: int, stream: int) -> None:
        """Add the calls of an operator: of its nodes, or of a graph of them."""
        reason = ""
        if op not in self._whole:
            count = len(self.rows)
            try:
                for node in self._parts[op].nodes:
                    self._node(node, stream)
            except NoCallError as error:
                if self._unit_of is None:
                    raise
                reason = str(error)
                del self.rows[count:]
            else:
                return
        assert self._unit_of is not None
        self._add(_LAUNCH_GRAPH, "cuGraphLaunch", self._unit_of(op, reason), stream)

    def record(self, event: int, device: int, stream: int) -> None:
        self._add(_RECORD, "cuEventRecord", self._events[event], self._streams[device, stream])

    def wait(self, event: int, device: int, stream: int) -> None:
        self._add(_WAIT, "cuStreamWaitEvent", self._streams[device, stream], self._events[event], 0)

    def copy(self, _row: int, _device: int, _stream: int, /) -> None:
        raise BackendError("copies between devices are not packed")

    def is_drained(self, _device: int, lanes: Sequence[Lane]) -> bool:
        for lane in lanes:
            self._add(_SYNCHRONISE, "cuStreamSynchronize", self._streams[lane])
        return True

    def has_passed(self, event: int) -> bool:
        self._add(_SYNCHRONISE, "cuEventSynchronize", self._events[event])
        return True

    def _add(self, signature: int, function: str, *arguments: int) -> None:
        self.rows.append((signature, self._addresses[function], arguments))

    def _node(self, node: int, stream: int) -> None:
        kind = self._graph.type_of(node)
        if kind == "EMPTY":
            return
        parameters = self._graph.parameters(node)
        self.kept.append(parameters)
        if kind == "KERNEL":
            self._kernel(node, parameters, stream)
        elif kind == "MEMCPY":
            self._copy_node(parameters, stream)
        else:
            width = parameters.elementSize
            rows = max(1, parameters.height)
            self._add(
                _FILL,
                f"cuMemsetD2D{8 * width}Async",
                int(parameters.dst),
                parameters.pitch if rows > 1 else parameters.width * width,
                parameters.value,
                parameters.width,
                rows,
                stream,
            )

    def _kernel(self, node: int, parameters: Any, stream: int) -> None:
        if int(parameters.extra) and not int(parameters.kernelParams):
            raise NoCallError("a kernel with its arguments in one buffer")
        driver = self._driver
        config = driver.CUlaunchConfig()
        for name in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes"):
            setattr(config, name, getattr(parameters, name))
        config.hStream = stream
        attributes = self._attributes(node)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        self.kept.append((config, attributes))
        function = int(self._graph.function_of(parameters))
        self._add(_LAUNCH, "cuLaunchKernelEx", int(config.getPtr()), function, int(parameters.kernelParams), 0)

    def _attributes(self, node: int) -> list[Any]:
        attributes = []
        for name, field in _CARRIED.items():
            value = self._graph.attribute(node, name)
            part: Any = value
            for key in field.split("."):
                part = getattr(part, key, 0)
            if int(part):
                attribute = self._driver.CUlaunchAttribute()
                attribute.id = getattr(self._driver.CUlaunchAttributeID, _ATTRIBUTE + name)
                attribute.value = value
                attributes.append(attribute)
        return attributes

    def _copy_node(self, parameters: Any, stream: int) -> None:
        ends = [str(getattr(kind, "name", kind)) for kind in (parameters.srcMemoryType, parameters.dstMemoryType)]
        if any(name not in _ON_DEVICE for name in ends) or parameters.Height > 1 or parameters.Depth > 1:
            raise NoCallError("a copy of the host, or of several rows")
        target = int(parameters.dstDevice) + parameters.dstXInBytes
        source = int(parameters.srcDevice) + parameters.srcXInBytes
        self._add(_COPY, "cuMemcpyAsync", target, source, parameters.WidthInBytes, stream)
