"""The calls of ``cuda.bindings.driver`` that move nodes of captured graphs, on a `FakeCuda` and a memory of numbers.

Graphs keep nodes and edges, and refuse edges that are there twice, are not there, or form a circle. Nodes of a graph
that is launched run in any order that its edges allow. A kernel is a function of Python on a dict of numbers. Functions
that packed calls name are callbacks with the types of C, so that the loop of LLVM makes real calls.
"""

import ctypes
from collections import namedtuple
from dataclasses import dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter
from types import SimpleNamespace

from fake_cuda import KERNEL_NS, RuleBroken
from fake_torch_cuda import FakeTorchCuda

from hwbackend.torch.donor import DonorCuda

Status = namedtuple("Status", ["name", "value"])
Status.__int__ = lambda self: self.value
SUCCESS, INVALID, CALLBACK_FAILED = Status("CUDA_SUCCESS", 0), Status("CUDA_ERROR_INVALID_VALUE", 1), 999
ATTRIBUTES = (
    "CLUSTER_DIMENSION",
    "COOPERATIVE",
    "PRIORITY",
    "PROGRAMMATIC_STREAM_SERIALIZATION",
    "PROGRAMMATIC_EVENT",
    "LAUNCH_COMPLETION_EVENT",
    "DEVICE_UPDATABLE_KERNEL_NODE",
)
FIELDS = ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes")
EDGE = "type of the edges to it"
_ALLOCATING = {"MEM_ALLOC", "MEM_FREE"}
_COPY = "srcDevice srcXInBytes srcMemoryType dstDevice dstXInBytes dstMemoryType WidthInBytes Height Depth"
CopyParameters = namedtuple("CopyParameters", _COPY)
FillParameters = namedtuple("FillParameters", "dst pitch value elementSize width height")
KernelParameters = namedtuple("KernelParameters", [*FIELDS, "func", "kern", "kernelParams", "extra"])


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` as it is in memory."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in FIELDS),
        ("hStream", ctypes.c_uint64),
        ("list", ctypes.c_uint64),
        ("numAttrs", ctypes.c_uint),
    ]
    attrs = ()

    def getPtr(self):
        return ctypes.addressof(self)


@dataclass(eq=False)
class Work:
    """What a node, or a call on a stream, does: it is called with the times of its start and end."""

    kind: str
    run: object
    parameters: object = None
    attributes: dict = field(default_factory=dict)

    def __call__(self, start, end):
        self.run()


@dataclass
class Graph:
    """Works by the handles of their nodes; edges with their types."""

    works: dict = field(default_factory=dict)
    edges: dict = field(default_factory=dict)
    origin: dict = field(default_factory=dict)  # handles of the graph that this is a clone of
    cut: bool = False  # whether it has no node but some that were taken out of another graph


class FakeDriver:
    """The module ``cuda.bindings.driver``; `memory` holds numbers by address.

    Functions with names as in CUDA return a status and values, as the bindings do.
    """

    CUlaunchConfig = LaunchConfig
    CUlaunchAttribute = CUkernelNodeAttrValue = SimpleNamespace
    CUkernelNodeAttrID = CUlaunchAttributeID = SimpleNamespace(
        **{f"CU_LAUNCH_ATTRIBUTE_{name}": name for name in ATTRIBUTES}
    )
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_NUM_REGS="registers", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=""
    )
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_ACTIVE=1)

    def __init__(self, cuda):
        self.cuda, self.memory = cuda, {}
        self.functions, self.arguments = {}, {}
        self.graphs, self.launchable = {}, {}
        self._captured = {}
        self._next = 0x9000
        self.live = 0
        self.clusters = []

    def handle(self):
        self._next += 8
        return self._next

    # -- work that a program of PyTorch issues

    def kernel(self, stream, function, arguments, *, late=False, **attributes):
        """Launch a kernel; `late` has its function be found as ``kern``, as those of libraries are."""
        name, key = self.handle(), self.handle()
        self.functions[name], self.arguments[key] = function, arguments
        given = KernelParameters(5, 2, 1, 64, 1, 1, 256, 0 if late else name, name + 1 if late else 0, key, 0)
        self._give(stream, Work("KERNEL", partial(function, self.memory, arguments), given, attributes))

    def copy(self, stream, target, source):
        kind = SimpleNamespace(name="CU_MEMORYTYPE_DEVICE")
        given = CopyParameters(source - 3, 3, kind, target, 0, kind, 4, 1, 1)
        self._give(stream, Work("MEMCPY", partial(self._copied, target, source), given))

    def fill(self, stream, target, value):
        self._give(
            stream,
            Work("MEMSET", partial(self.memory.__setitem__, target, value), FillParameters(target, 4, value, 4, 1, 1)),
        )

    def host(self, stream, run=lambda: None):
        """Have the host call a function."""
        self._give(stream, Work("HOST", run))

    def other(self, stream, kind):
        """Issue work of another type, such as ``MEM_ALLOC``, which does nothing here."""
        self._give(stream, Work(kind, lambda: None))

    def _copied(self, target, source):
        self.memory[target] = self.memory[source]

    def _give(self, stream, work):
        self.cuda.give(stream, work, KERNEL_NS)

    def graph_of(self, capture):
        """Return the handle of the graph of a capture, which may go on."""
        handle = self._captured.setdefault(id(capture), 0) or self.handle()
        self._captured[id(capture)] = handle
        graph = self.graphs.setdefault(handle, Graph())
        nodes = list(graph.works)
        for i in range(len(nodes), len(capture.nodes)):
            nodes.append(self.handle())
            graph.works[nodes[i]] = capture.nodes[i][0]
            for before in sorted(capture.direct[i]):
                graph.edges[nodes[before], nodes[i]] = graph.works[nodes[i]].attributes.get(EDGE, 0)
        return handle

    def _work(self, node):
        return next(graph.works[node] for graph in self.graphs.values() if node in graph.works)

    # -- calls of the driver

    def cuStreamGetCaptureInfo(self, stream):
        capture = self.cuda._stream(stream).capture
        return (SUCCESS, int(capture is not None), 1, capture and self.graph_of(capture), [], [], 0)

    def cuGraphGetNodes(self, graph, numNodes=0):
        nodes = list(self.graphs[graph].works)
        return SUCCESS, nodes[::-1][:numNodes], len(nodes)  # in no order that anyone may rely on

    def cuGraphGetEdges(self, graph, numEdges=0):
        rows = list(self.graphs[graph].edges.items())[:numEdges]
        data = [SimpleNamespace(type=kind) for _, kind in rows]
        return SUCCESS, [a for (a, _), _ in rows], [b for (_, b), _ in rows], data, len(self.graphs[graph].edges)

    def cuGraphNodeGetType(self, node):
        return SUCCESS, SimpleNamespace(name=f"CU_GRAPH_NODE_TYPE_{self._work(node).kind}")

    def cuGraphNodeGetToolsId(self, node):
        return SUCCESS, node

    def cuGraphKernelNodeGetParams(self, node):
        return SUCCESS, self._work(node).parameters

    cuGraphMemcpyNodeGetParams = cuGraphMemsetNodeGetParams = cuGraphKernelNodeGetParams

    def cuGraphKernelNodeGetAttribute(self, node, attribute):
        if attribute == "COOPERATIVE":
            return INVALID, None  # a driver that does not know it
        return SUCCESS, self._work(node).attributes.get(attribute, SimpleNamespace())

    def cuGraphKernelNodeSetAttribute(self, node, attribute, value):
        if self._work(node).kind != "KERNEL" or value.priority > 0:
            return (INVALID,)
        self._work(node).attributes[attribute] = value
        return (SUCCESS,)

    def cuFuncGetAttribute(self, attribute, function):
        if function not in self.functions:
            return INVALID, 0
        return SUCCESS, 40 if attribute else 128

    def cuKernelGetFunction(self, kern):
        return (SUCCESS, kern - 1) if kern - 1 in self.functions else (INVALID, 0)

    def cuGraphClone(self, graph):
        handle, twins = self.handle(), {node: self.handle() for node in self.graphs[graph].works}
        works = {
            twins[node]: Work(work.kind, work.run, work.parameters, dict(work.attributes))
            for node, work in self.graphs[graph].works.items()
        }
        edges = {(twins[a], twins[b]): kind for (a, b), kind in self.graphs[graph].edges.items()}
        self.graphs[handle] = Graph(works, edges, twins)
        self.live += 1
        return SUCCESS, handle

    def cuGraphNodeFindInClone(self, node, clone):
        twin = self.graphs[clone].origin.get(node)
        return (SUCCESS, twin) if twin else (INVALID, None)

    def cuGraphDestroyNode(self, hNode):
        graph = next(graph for graph in self.graphs.values() if hNode in graph.works)
        if _ALLOCATING & {work.kind for work in graph.works.values()}:
            return (INVALID,)
        del graph.works[hNode]
        graph.cut = True
        graph.edges = {edge: kind for edge, kind in graph.edges.items() if hNode not in edge}
        return (SUCCESS,)

    def cuGraphAddChildGraphNode(self, hGraph, dependencies, numDependencies, childGraph):
        child = self.graphs[childGraph]
        kinds = {work.kind for work in child.works.values()}
        if dependencies or numDependencies or kinds & {*_ALLOCATING, "CONDITIONAL"}:
            return INVALID, None
        works = {node: Work(w.kind, w.run, w.parameters, dict(w.attributes)) for node, w in child.works.items()}
        copy = Graph(works, dict(child.edges))
        node = self.handle()
        self.graphs[hGraph].cut = False
        self.graphs[hGraph].works[node] = Work("GRAPH", partial(self._run_child, copy), copy)
        return SUCCESS, node

    def _run_child(self, graph):
        """Run the nodes of a graph within a node, in any order that its edges allow."""
        left = list(graph.works)
        while left:
            ready = [node for node in left if not any(a in left for a, b in graph.edges if b == node)]
            node = ready[self.cuda._rng.integers(len(ready))]
            graph.works[node].run()
            left.remove(node)

    def cuGraphRemoveDependencies(self, graph, sources, targets, edgeData, numDependencies):
        edges = list(zip(sources, targets, strict=True))
        if numDependencies != len(edges) or any(edge not in self.graphs[graph].edges for edge in edges):
            return (INVALID,)
        for edge in edges:
            del self.graphs[graph].edges[edge]
        return (SUCCESS,)

    def cuGraphAddDependencies(self, graph, sources, targets, edgeData, numDependencies):
        found = self.graphs[graph]
        edges = list(zip(sources, targets, strict=True))
        known = all(a in found.works and b in found.works and a != b for a, b in edges)
        if (
            numDependencies != len(edges)
            or not known
            or found.edges.keys() & set(edges)
            or len(set(edges)) < len(edges)
        ):
            return (INVALID,)
        found.edges |= dict.fromkeys(edges, 0)
        return (SUCCESS,)

    def cuGraphInstantiate(self, graph, flags):
        found = self.graphs[graph]
        before = {node: set() for node in found.works}
        for a, b in found.edges:
            before[b].add(a)
        try:
            order = list(TopologicalSorter(before).static_order())
        except CycleError:
            return INVALID, None
        if flags != (0 if found.cut else 8):  # a part of a graph has the priority of its stream
            raise RuleBroken("priorities of nodes are dropped")
        place = {node: i for i, node in enumerate(order)}
        all_before = []
        for node in order:
            all_before.append(frozenset().union(*(all_before[place[a]] | {place[a]} for a in before[node])))
        handle = self.handle()
        self.launchable[handle] = [
            (found.works[node], KERNEL_NS, earlier) for node, earlier in zip(order, all_before, strict=True)
        ]
        self.live += 1
        return SUCCESS, handle

    def cuGraphUpload(self, launchable, stream):
        return (SUCCESS if launchable in self.launchable else INVALID,)

    def cuGraphLaunch(self, launchable, stream):
        self.cuda._stream(stream).queue.append(("run", self.launchable[launchable], self.cuda.now))
        return (SUCCESS,)

    def cuGraphExecDestroy(self, launchable):
        del self.launchable[launchable]
        self.live -= 1
        return (SUCCESS,)

    def cuGraphDestroy(self, graph):
        del self.graphs[graph]
        self.live -= 1
        return (SUCCESS,)

    # -- functions that packed calls name

    def addresses(self):
        """Return addresses of callbacks by name; they live as long as the driver."""
        long, word = ctypes.c_int64, ctypes.c_uint32
        types = {
            "cuLaunchKernelEx": (self._launched, long, long, long, long),
            "cuGraphLaunch": (self._launched_graph, long, long),
            "cuEventRecord": (lambda event, stream: self.cuda.record(event, stream), long, long),
            "cuStreamWaitEvent": (lambda stream, event, _flags: self.cuda.wait(stream, event), long, long, word),
            "cuStreamSynchronize": (lambda stream: self.cuda.synchronize_stream(stream), long),
            "cuEventSynchronize": (lambda event: self.cuda.synchronize_event(event), long),
            "cuMemcpyAsync": (self._moved, long, long, long, long),
        } | {f"cuMemsetD2D{bits}Async": (self._filled, long, long, word, long, long, long) for bits in (8, 16, 32)}
        self._callbacks = {
            name: ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(partial(_status, call))
            for name, (call, *kinds) in types.items()
        }
        return {name: ctypes.cast(call, ctypes.c_void_p).value for name, call in self._callbacks.items()}

    def _launched(self, config, function, arguments, extra):
        found = LaunchConfig.from_address(config)
        assert tuple(getattr(found, name) for name in FIELDS) == (5, 2, 1, 64, 1, 1, 256)
        assert extra == 0
        self.clusters.append(found.numAttrs)
        run = partial(self.functions[function], self.memory, self.arguments[arguments])
        self._give(found.hStream, Work("KERNEL", run))

    def _launched_graph(self, launchable, stream):
        self.cuda._stream(stream).queue.append(("run", self.launchable[launchable], self.cuda.now))

    def _moved(self, target, source, nbytes, stream):
        assert nbytes == 4
        self.copy(stream, target, source)

    def _filled(self, target, pitch, value, width, height, stream):
        assert (pitch, width, height) == (4, 1, 1)
        self.fill(stream, target, value)


def _status(call, *arguments):
    """Return 0, or the status of a call that failed: an exception cannot leave a callback."""
    try:
        call(*arguments)
    except BaseException:
        return CALLBACK_FAILED
    return 0


class FakeDonorCuda(FakeTorchCuda):
    """`hwbackend.torch.donor.DonorCuda` on a `FakeDriver`."""

    def __init__(self, driver):
        self.driver, self.cuda, self.current = driver, driver.cuda, None

    def raw_graph(self, graph):
        return self.driver.graph_of(self.cuda._graphs[graph.handle])

    def handle(self, stream_or_event):
        return getattr(stream_or_event, "handle", stream_or_event)

    def addresses(self):
        return self.driver.addresses()

    def launch(self, graph):
        graph.replay()

    launch_reordered = DonorCuda.launch_reordered

    def close(self):
        pass
