"""`NodeGraph`: a captured graph whose nodes get other edges and priorities. Not run on a device yet.

A new order is a clone of the graph with other dependencies, so that parameters and attributes of nodes, clusters of
blocks included, stay as they were captured. A node whose order means more than its edges say is not moved by itself:
programmatic dependent launches (PDL), calls of the host, events, allocations. Nodes of one operator may then be a graph
of their own, a `NodeUnit`, which is moved as one node.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Final

from hwbackend.executor.driver import value_of
from hwbackend.executor.ordering import NodeEdge
from simsched.base.errors import BackendError
from simsched.model import Kernel

NODE_PRIORITIES: Final = 8
"""The flag ``CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY``."""
MOVABLE: Final = ("KERNEL", "MEMCPY", "MEMSET", "EMPTY")
"""Types of nodes that may get other edges."""
_KEPT_WHOLE: Final = ("HOST", "GRAPH")
"""Types of nodes that stay among the nodes of their operator: what runs in them is ordered by edges alone."""
_ALLOCATING: Final = ("MEM_ALLOC", "MEM_FREE")
"""Types of nodes for which CUDA lets no node be taken out of a graph, or the graph be part of another one."""

_TYPE: Final = "CU_GRAPH_NODE_TYPE_"
_ATTRIBUTE: Final = "CU_LAUNCH_ATTRIBUTE_"
_UNKNOWN: Final = 1  # CUDA_ERROR_INVALID_VALUE: the driver is older than the attribute, so that no node has it
_KEPT_WITH: Final[Mapping[str, str]] = {
    "PROGRAMMATIC_STREAM_SERIALIZATION": "programmaticStreamSerializationAllowed",
    "PROGRAMMATIC_EVENT": "programmaticEvent.event",
    "LAUNCH_COMPLETION_EVENT": "launchCompletionEvent.event",
    "DEVICE_UPDATABLE_KERNEL_NODE": "deviceUpdatableKernelNode.deviceUpdatable",
}
"""Attributes that tie a kernel to others, and the field that is not 0 where one is set."""
_TIED_WITHIN: Final = ("PROGRAMMATIC_STREAM_SERIALIZATION",)
"""Those that tie a kernel to the one before it on its stream, which is of the same operator."""


class NodeGraph:
    """A graph as it was captured; it is left as it is, and has to live as long as its clones are made.

    Parameters
    ----------
    driver
        ``cuda.bindings.driver``.
    graph
        A ``CUgraph``.

    Attributes
    ----------
    nodes
        Handles; other methods name nodes by their place in this list.
    edges
        Numbers of the nodes that each edge joins.
    """

    def __init__(self, driver: Any, graph: Any) -> None:
        self._driver = driver
        self._graph = graph
        self.nodes: tuple[Any, ...] = tuple(handles_of(driver, graph))
        self._number = {int(node): i for i, node in enumerate(self.nodes)}
        rows = self._read_edges()
        self.edges: tuple[NodeEdge, ...] = tuple((a, b) for a, b, _ in rows)
        self._programmatic: dict[int, set[int]] = {}
        for a, b, kind in rows:
            if kind:
                self._programmatic.setdefault(a, set()).add(b)
                self._programmatic.setdefault(b, set()).add(a)

    def number(self, handle: Any) -> int:
        """Return the number of a node."""
        return self._number[int(handle)]

    def _read_edges(self) -> list[tuple[int, int, int]]:
        """Return the numbers of both ends of each edge, and its type: 0, or 1 if it is programmatic."""
        read = getattr(self._driver, "cuGraphGetEdges_v2", None) or self._driver.cuGraphGetEdges
        count = value_of(read(self._graph))[-1]
        if not count:
            return []
        sources, targets, data, _ = value_of(read(self._graph, count))
        return [
            (self.number(a), self.number(b), int(row.type)) for a, b, row in zip(sources, targets, data, strict=True)
        ]

    def obstacle(self, node: int) -> str | None:
        """Return why a node cannot get other edges, None if it can."""
        name = self.type_of(node)
        if name not in MOVABLE:
            return f"a node of type {name.lower()}"
        if node in self._programmatic:
            return "a programmatic dependency (PDL)"
        attribute = self._tie(node) if name == "KERNEL" else None
        return attribute and f"the attribute {attribute.lower()}"

    def unit_obstacle(self, nodes: Sequence[int]) -> str | None:
        """Return why nodes cannot be a graph of their own, None if they can.

        CUDA takes no node out of a graph that allocates or frees memory. Events, semaphores and memory on which a node
        waits order it with work that no edge shows; conditional nodes cannot be in another graph.
        """
        own = set(nodes)
        if self._allocating:
            return "the capture allocates memory, so that no node can be taken out of it"
        for node in nodes:
            name = self.type_of(node)
            attribute = self._tie(node) if name == "KERNEL" else None
            if name not in (*MOVABLE, *_KEPT_WHOLE) or (attribute is not None and attribute not in _TIED_WITHIN):
                return self.obstacle(node)
            if not self._programmatic.get(node, own) <= own:
                return "a programmatic dependency (PDL) on another operator"
        return None

    @cached_property
    def _allocating(self) -> frozenset[int]:
        """The nodes that allocate or free memory."""
        return frozenset(node for node in range(len(self.nodes)) if self.type_of(node) in _ALLOCATING)

    def _tie(self, node: int) -> str | None:
        """Return the attribute that ties a kernel to others, None if there is none."""
        for attribute, field in _KEPT_WITH.items():
            value: Any = self.attribute(node, attribute)
            for part in field.split("."):
                value = getattr(value, part, 0)
            if int(value):
                return attribute
        return None

    def type_of(self, node: int) -> str:
        """Return the type of a node, such as ``"KERNEL"``."""
        kind = value_of(self._driver.cuGraphNodeGetType(self.nodes[node]))
        return str(kind.name).removeprefix(_TYPE)

    def attribute(self, node: int, name: str) -> Any:
        """Return an attribute of a kernel, None if the driver does not know it."""
        number = getattr(self._driver.CUkernelNodeAttrID, _ATTRIBUTE + name, None)
        if number is None:
            return None
        answer = self._driver.cuGraphKernelNodeGetAttribute(self.nodes[node], number)
        return None if int(answer[0]) == _UNKNOWN else value_of(answer)

    def parameters(self, node: int) -> Any:
        """Return the parameters of a kernel, a copy or a fill; arguments of a kernel belong to the node."""
        name = self.type_of(node).title()
        return value_of(getattr(self._driver, f"cuGraph{name}NodeGetParams")(self.nodes[node]))

    def function_of(self, parameters: Any) -> Any:
        """Return the function of a kernel."""
        if int(parameters.func):
            return parameters.func
        return value_of(self._driver.cuKernelGetFunction(parameters.kern))

    def kernel(self, node: int) -> Kernel | None:
        """Return the launch shape of a kernel, None for other nodes."""
        if self.type_of(node) != "KERNEL":
            return None
        parameters = self.parameters(node)
        function = self.function_of(parameters)
        attributes = self._driver.CUfunction_attribute
        registers, static = (
            int(value_of(self._driver.cuFuncGetAttribute(getattr(attributes, f"CU_FUNC_ATTRIBUTE_{name}"), function)))
            for name in ("NUM_REGS", "SHARED_SIZE_BYTES")
        )
        return Kernel(
            prod((parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ)),
            prod((parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ)),
            max(1, registers),
            parameters.sharedMemBytes + static,
        )

    def reorder(
        self, edges: Iterable[NodeEdge], priorities: Mapping[int, int], units: Mapping[int, "NodeUnit"] | None = None
    ) -> "ReorderedGraph":
        """Return the same nodes with these edges and no others.

        Parameters
        ----------
        priorities
            Of kernels by number: 0 is the least urgent, lower numbers go first.
        units
            Nodes that come as one node each, whose number no node has; `edges` and `priorities` name that number.

        Raises
        ------
        BackendError
            If the driver refuses, as for edges that form a circle.
        """
        driver = self._driver
        clone = value_of(driver.cuGraphClone(self._graph))
        try:
            twins = self.twins_in(clone)
            place = dict(enumerate(twins))
            for number, unit in (units or {}).items():
                for node in unit.nodes:
                    value_of(driver.cuGraphDestroyNode(place.pop(node)))
                unit.prioritise(priorities[number])
                place[number] = value_of(driver.cuGraphAddChildGraphNode(clone, None, 0, unit.graph))
            wanted = dict.fromkeys(edges)
            present = dict.fromkeys((a, b) for a, b in self.edges if a in place and b in place)
            self._change("Remove", clone, place, [edge for edge in present if edge not in wanted])
            self._change("Add", clone, place, [edge for edge in wanted if edge not in present])
            for node, priority in priorities.items():
                if node < len(twins) and self.type_of(node) == "KERNEL":
                    self.prioritise(twins[node], priority)
            launchable = value_of(driver.cuGraphInstantiate(clone, NODE_PRIORITIES))
        except BaseException:
            driver.cuGraphDestroy(clone)
            raise
        return ReorderedGraph(driver, clone, launchable, () if units else twins)

    def twins_in(self, clone: Any) -> list[Any]:
        """Return the handles that the nodes have in a clone of the graph."""
        return [value_of(self._driver.cuGraphNodeFindInClone(node, clone)) for node in self.nodes]

    def unit(self, nodes: Sequence[int]) -> "NodeUnit":
        """Return some nodes as a graph of their own; see `unit_obstacle`."""
        return NodeUnit(self._driver, self, self._graph, nodes)

    def _change(self, verb: str, graph: Any, place: Mapping[int, Any], edges: Sequence[NodeEdge]) -> None:
        """Remove or add edges."""
        if not edges:
            return
        name = f"cuGraph{verb}Dependencies"
        change = getattr(self._driver, f"{name}_v2", None) or getattr(self._driver, name)
        value_of(change(graph, [place[a] for a, _ in edges], [place[b] for _, b in edges], None, len(edges)))

    def prioritise(self, node: Any, priority: int) -> None:
        """Set the priority of a kernel, by its handle."""
        driver = self._driver
        value = driver.CUkernelNodeAttrValue()
        value.priority = priority
        number = getattr(driver.CUkernelNodeAttrID, f"{_ATTRIBUTE}PRIORITY")
        value_of(driver.cuGraphKernelNodeSetAttribute(node, number, value))


class NodeUnit:
    """Nodes of a graph as a graph of their own: they keep the edges and attributes that they were captured with.

    Parameters
    ----------
    driver
        ``cuda.bindings.driver``.
    whole, captured
        The graph that has the nodes, and its handle.
    nodes
        Their numbers there.

    Attributes
    ----------
    graph
        The ``CUgraph``.

    Raises
    ------
    BackendError
        If the driver refuses.
    """

    def __init__(self, driver: Any, whole: NodeGraph, captured: Any, nodes: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        self.graph = value_of(driver.cuGraphClone(captured))
        self._driver = driver
        self._whole = whole
        self._launchable: Any = None
        try:
            twins = whole.twins_in(self.graph)
            own = set(nodes)
            for node, twin in enumerate(twins):
                if node not in own:
                    value_of(driver.cuGraphDestroyNode(twin))
        except BaseException:
            driver.cuGraphDestroy(self.graph)
            raise
        self._kernels = [twins[node] for node in nodes if whole.type_of(node) == "KERNEL"]

    def prioritise(self, priority: int) -> None:
        """Set the priority of all kernels."""
        for kernel in self._kernels:
            self._whole.prioritise(kernel, priority)

    def launchable(self) -> int:
        """Return the handle of a graph that can be launched; its kernels have the priority of the stream."""
        if self._launchable is None:
            self._launchable = value_of(self._driver.cuGraphInstantiate(self.graph, 0))
        return int(self._launchable)

    def close(self) -> None:
        """Free it; it must not run any more."""
        if self._launchable is not None:
            self._driver.cuGraphExecDestroy(self._launchable)
            self._launchable = None
        if self.graph is not None:
            self._driver.cuGraphDestroy(self.graph)
            self.graph = None


class ReorderedGraph:
    """A graph that can be launched, and that frees itself.

    `nodes` has the handles of all nodes; none where some are within others.
    """

    def __init__(self, driver: Any, graph: Any, launchable: Any, nodes: Sequence[Any]) -> None:
        self._driver = driver
        self._graph = graph
        self._launchable = launchable
        self._nodes = nodes

    def launch(self, stream: Any) -> None:
        """Launch it on a stream, by its handle."""
        value_of(self._driver.cuGraphLaunch(self._launchable, stream))

    def upload(self, stream: Any) -> None:
        """Bring it to the device, so that its first launch takes no longer than the others."""
        value_of(self._driver.cuGraphUpload(self._launchable, stream))

    def profiled_order(self) -> list[int] | None:
        """Return the numbers of the nodes as profilers order them by id, None if ids are not known of all nodes."""
        ask = getattr(self._driver, "cuGraphNodeGetToolsId", None)
        if ask is None or not self._nodes:
            return None
        answers = [ask(node) for node in self._nodes]
        if any(int(answer[0]) for answer in answers):
            return None
        ids = [int(value_of(answer)) for answer in answers]
        return sorted(range(len(ids)), key=ids.__getitem__)

    def close(self) -> None:
        """Free it; it must not run any more."""
        if self._graph is not None:
            self._driver.cuGraphExecDestroy(self._launchable)
            self._driver.cuGraphDestroy(self._graph)
            self._graph = None


def handles_of(driver: Any, graph: Any) -> list[Any]:
    """Return the nodes of a graph, also of one that is being captured."""
    count = value_of(driver.cuGraphGetNodes(graph))[-1]
    return list(value_of(driver.cuGraphGetNodes(graph, count))[0]) if count else []


def captured_graph(driver: Any, stream: Any) -> Any:
    """Return the graph that a stream, by its handle, is being captured into.

    Raises
    ------
    BackendError
        If it is not being captured.
    """
    ask = getattr(driver, "cuStreamGetCaptureInfo_v3", None) or driver.cuStreamGetCaptureInfo
    status, _, graph, *_ = value_of(ask(stream))
    if int(status) != int(driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE):
        raise BackendError("a stream is not part of the capture that it should be in")
    return graph
