"""The only file that knows private names of PyTorch: Inductor's scheduler after fusion, its wrapper, and dynamo.

Everything here is for the versions that `VERSIONS` names; whatever is not as expected raises `BackendError`, and the
backend then keeps plain Inductor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final

from hwbackend.torch.inductor.plan import Allocation, FusedKernel, StreamPlan
from simsched.base.errors import BackendError

VERSIONS: Final = ((2, 10), (2, 15))
"""First and last version of PyTorch whose names these are."""
MODES: Final = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of Inductor; CUDA graphs are a variant here, whatever the mode says of them."""
ORDERED: Final[Mapping[str, Any]] = {
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "reorder_for_peak_memory": False,
    "graph_partition": False,
    "reorder_for_compute_comm_overlap": False,
    "force_disable_caches": True,
}
"""What Inductor must leave alone where another order runs; before 2.13 its cache does not know of the pass either."""
CAPTURED: Final[Mapping[str, Any]] = {"triton.cudagraphs": True}
CHANNELS_LAST: Final[Mapping[str, Any]] = {"force_layout_optimization": True}
FREEZING: Final[Mapping[str, Any]] = {"freezing": True}

_TO_CALLER: Final = (
    "dynamo_ctx",
    "callback",
    "_torchdynamo_orig_backend",
    "_torchdynamo_orig_callable",
    "_compiled_call_impl",  # of a module after `module.compile()`
    "__func__",
)

Plan = Callable[[Sequence[FusedKernel], Sequence[Allocation]], StreamPlan]


def require_known(version: str) -> None:
    """Refuse a version of PyTorch whose private names are not known here.

    Raises
    ------
    BackendError
        If it is not one of `VERSIONS`.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    first, last = VERSIONS
    if not first <= (major, minor) <= last:
        raise BackendError(
            f"PyTorch {version} is not known here; streams need {first[0]}.{first[1]} to {last[0]}.{last[1]}"
        )


def compile_inductor(graph: Any, inputs: Sequence[Any], patches: Mapping[str, Any] | None = None) -> Any:
    """Return what Inductor makes of a graph of dynamo, which it is free to change, with other settings."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, config_patches=dict(patches or {}) or None)


def copy_graph(graph: Any) -> Any:
    """Return a copy of a graph module that shares its parameters and buffers."""
    shared = {id(value): value for value in (*graph.parameters(), *graph.buffers())}
    return deepcopy(graph, shared)


def frozen(graph: Any, inputs: Sequence[Any], weights: Sequence[bool]) -> Any:
    """Return a copy of a graph that has its weights as parameters of its own, for `freezing` to fold.

    Its inputs stay; inputs that were weights are not used any more.
    """
    import torch

    own = copy_graph(graph)
    places = [node for node in own.graph.nodes if node.op == "placeholder"]
    for i, (node, value, fixed) in enumerate(zip(places, inputs, weights, strict=True)):
        if not fixed:
            continue
        name = f"frozen_{i}"
        own.register_parameter(name, torch.nn.Parameter(value.detach(), requires_grad=False))
        with own.graph.inserting_after(places[-1]):
            constant = own.graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
    own.recompile()
    return own


def mode_patches(mode: str | None) -> dict[str, Any]:
    """Return the settings of a mode of Inductor without CUDA graphs, which are variants of their own."""
    if mode is None or mode == "default":
        return {}
    from torch._inductor import list_mode_options

    return {name: value for name, value in list_mode_options(mode).items() if name != "triton.cudagraphs"}


def find_mutated_inputs(graph: Any, inputs: Sequence[Any]) -> list[int]:
    """Return the inputs that a graph writes to, found by running it on tensors without data."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    import torch

    fakes = [
        mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value for value in inputs
    ]
    before = [getattr(value, "_version", 0) if _counts(value) else 0 for value in fakes]
    with mode, torch.no_grad():
        graph(*fakes)
    return [i for i, value in enumerate(fakes) if _counts(value) and value._version != before[i]]


def _counts(value: Any) -> bool:
    return hasattr(value, "shape") and not value.is_inference()


@contextmanager
def outside_dynamo() -> Iterator[None]:
    """Run compiled code in the middle of a compilation as if there were none."""
    from torch._guards import tracing

    with tracing(None):
        yield


def caller_of_backend(frame: Any) -> Any:
    """Return what `torch.compile` made for one call of it, from the frame that called the backend; or None."""
    own = frame.f_locals.get("self")
    if type(own).__name__ == "_TorchCompileWrapper":
        return own
    return None


def callers_within(compiled: Any) -> list[Any]:
    """Return what `caller_of_backend` returned for something compiled: an object of its own class, or none."""
    wanted = []
    seen = set[int]()
    pending = [compiled]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value).__name__ == "_TorchCompileWrapper":
            wanted.append(value)
            continue
        pending += [getattr(value, name, None) for name in _TO_CALLER]
        cells = getattr(value, "__closure__", None) or ()
        pending += [cell.cell_contents for cell in cells if type(cell.cell_contents).__module__.startswith("torch._")]
    return wanted


def ordered_pass(plan: Plan, report: Callable[[StreamPlan, Sequence[FusedKernel]], None]) -> Callable[[Any], Any]:
    """Return a pass after fusion that has nodes generated as planned: their order, streams, waits and frees.

    Parameters
    ----------
    plan
        From the kernels and their memory to what is issued.
    report
        Is called with the plan.

    Notes
    -----
    A plain function: `torch.compile` and its cache refuse or cannot read other objects. It changes methods of one
    scheduler and one wrapper of Inductor, no class and no module.
    """

    def after_fusion(nodes: Any) -> Any:
        from torch._inductor.virtualized import V

        kernels, memory, index = _read(nodes, V.graph)
        made = plan(kernels, memory)
        report(made, kernels)
        ordered = [nodes[i] for i in made.order]
        _Emission(V.graph, ordered, made, index).install()
        return ordered

    return after_fusion


def marked_pass(report: Callable[[Sequence[FusedKernel], Mapping[str, Sequence[str]]], None]) -> Callable[[Any], Any]:
    """Return a pass after fusion that keeps the order of Inductor and has each kernel annotated by its name.

    Parameters
    ----------
    report
        Is called with the kernels, and with the names of the functions of Triton that each of those that launch calls;
        the names are there once the wrapper is written.
    """

    def after_fusion(nodes: Any) -> Any:
        from torch._inductor.virtualized import V

        kernels, _, _ = _read(nodes, V.graph)
        marking = _Marking(V.graph, nodes, kernels)
        report(kernels, marking.functions)
        marking.install()
        return nodes

    return after_fusion


def _read(nodes: Sequence[Any], graph: Any) -> tuple[list[FusedKernel], list[Allocation], int | None]:
    """Return the kernels of nodes, the memory that they touch, and the CUDA device, or None on the CPU."""
    devices = {node.get_device() for node in nodes} - {None}
    if len(devices) != 1:
        raise BackendError(f"its kernels are on {len(devices)} devices; streams are for one")
    (device,) = devices
    if graph.cpp_wrapper:
        raise BackendError("Inductor writes its wrapper in C++; streams need one in Python")
    if device.type not in ("cpu", "cuda"):
        raise BackendError(f"its kernels are on {device.type!r}; streams are for 'cuda'")
    _refuse(nodes)
    producer = {name: i for i, node in enumerate(nodes) for name in _names(node)}
    outside = {*graph.graph_inputs, *graph.constants, *getattr(graph, "torchbind_constants", {})}
    memory, number = _memory(nodes, graph, outside)
    kernels = []
    for i, node in enumerate(nodes):
        after = set()
        for dependency in node.unmet_dependencies:
            source = producer.get(dependency.name)
            if source is None and dependency.name not in outside:
                raise BackendError(f"kernel {node.get_name()!r} needs {dependency.name!r}, which nothing here writes")
            if source is not None and source != i:
                after.add(source)
        if any(j > i for j in after):
            raise BackendError(f"kernel {node.get_name()!r} comes before what it needs")
        touched = {number[name] for name in _memory_names(node) if name in number}
        launches = _launches(node)
        kernels.append(
            FusedKernel(
                node.get_name(),
                tuple(sorted(after)),
                tuple(sorted(touched)),
                launches,
                flops=_flops(node) if launches else 0.0,
                nbytes=sum(memory[j].nbytes for j in touched) if launches else 0.0,
                time=_estimate(node) if launches else None,
                elements=_elements(node) if launches else 0,
                kind="extern" if node.is_extern() else "fused",
            )
        )
    return kernels, memory, device.index if device.type == "cuda" else None


def _refuse(nodes: Sequence[Any]) -> None:
    """Refuse nodes whose order means more than their dependencies say."""
    for node in nodes:
        kind = type(node).__name__
        if kind in ("GroupedSchedulerNode", "FusedExternTritonKernelSchedulerNode"):
            raise BackendError(f"kernel {node.get_name()!r} is a {kind}, which keeps its place")
        for part in node.get_nodes():
            inner = part.node
            name = type(inner).__name__
            if "Collective" in name or "Wait" in name or name in ("Conditional", "WhileLoop", "InvokeSubgraph"):
                raise BackendError(f"kernel {node.get_name()!r} is a {name}, which keeps its place")
            target = str(getattr(inner, "op_overload", "") or getattr(inner, "python_kernel_name", ""))
            if any(word in target for word in ("rand", "bernoulli", "philox", "dropout", "multinomial", "normal_")):
                raise BackendError(f"kernel {node.get_name()!r} draws random numbers")


def _names(node: Any) -> list[str]:
    return [*node.get_buffer_names(), *node.get_operation_names()]


def _memory_names(node: Any) -> list[str]:
    """Return names of the memory that a node reads and writes, sorted."""
    used = {dependency.name for dependency in node.read_writes.reads_and_writes()}
    return sorted(used | set(node.get_buffer_names()))


def _launches(node: Any) -> bool:
    if type(node).__name__ == "NopKernelSchedulerNode":
        return False
    return type(node.node).__name__ != "MultiOutput"


def _memory(nodes: Sequence[Any], graph: Any, outside: set[str]) -> tuple[list[Allocation], dict[str, int]]:
    """Return allocations, and the number of that of each name: views, slices and changed versions have one."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while above.setdefault(name, name) != name:
            name = above[name]
        return name

    def join(one: str, other: str) -> None:
        above[root(other)] = root(one)

    sizes: dict[str, float] = {}
    for node in nodes:
        for name in _memory_names(node):
            root(name)
        for buffer in node.get_outputs():
            name = buffer.get_name()
            for other in (*buffer.get_aliases(), *buffer.get_mutations()):
                join(other, name)
            base = _base(buffer.node)
            if base is not None:
                join(base, name)
            sizes[name] = _nbytes(buffer.node)
        if type(node.node).__name__ == "MultiOutput":
            for dependency in node.read_writes.reads:
                join(dependency.name, node.get_name() if node.get_name() in above else _memory_names(node)[0])
                for name in node.get_buffer_names():
                    join(dependency.name, name)
    for new, old in (*graph.scheduler.mutation_renames.items(), *graph.scheduler.mutation_real_name.items()):
        join(old, new)
    members: dict[str, list[str]] = {}
    for name in above:
        members.setdefault(root(name), []).append(name)
    outputs = set(graph.get_output_names())
    memory = []
    number = {}
    for i, names in enumerate(members.values()):
        given = any(name in outside for name in names)
        lasts = given or any(name in outputs for name in names)
        memory.append(Allocation(tuple(names), max((sizes.get(n, 0.0) for n in names), default=0.0), lasts, given))
        number.update(dict.fromkeys(names, i))
    return memory, number


def _base(buffer: Any) -> str | None:
    """Return the buffer that another one is a slice of, as parts of a concatenation are, or None."""
    layout: Any = getattr(buffer, "layout", None)
    if type(layout).__name__ != "NonOwningLayout":
        return None
    return str(layout.view.get_name())


def _nbytes(buffer: Any) -> float:
    """Return the bytes of a buffer; 0 where its size is not a number."""
    try:
        count = 1
        for size in buffer.get_size():
            count *= int(size)
        return float(count * buffer.get_dtype().itemsize)
    except (AttributeError, NotImplementedError, TypeError, ValueError, AssertionError):
        return 0.0


def _elements(node: Any) -> int:
    """Return how many elements a node writes; 0 where a size is not a number."""
    total = 0
    for buffer in node.get_outputs():
        nbytes = _nbytes(buffer.node)
        if nbytes:
            total += round(nbytes / buffer.node.get_dtype().itemsize)
    return total


def _flops(node: Any) -> float:
    try:
        return float(node.estimate_flops() or 0.0)
    except Exception:  # an estimate that is not there is no reason to give up
        return 0.0


def _estimate(node: Any) -> float | None:
    """Return Inductor's estimate of a time in us, or None where it has none; it tells ms."""
    try:
        time = 1e3 * float(node.get_estimated_runtime())
    except Exception:  # it asks drivers for rates
        return None
    if 0.0 < time < float("inf"):
        return time
    return None


class _Writing:
    """Lines before each kernel of one wrapper, and after the last one."""

    def __init__(self, graph: Any, nodes: Sequence[Any]) -> None:
        self._graph = graph
        self._scheduler = graph.scheduler
        self._nodes = list(nodes)

    def install(self) -> None:
        """Install the hooks of the scheduler; the wrapper does not exist yet."""
        scheduler = self._scheduler
        generate = scheduler._codegen
        enter = scheduler.enter_context

        def generate_planned(nodes: Any) -> Any:
            if [node.get_name() for node in nodes] != [node.get_name() for node in self._nodes]:
                raise BackendError("Inductor changed its kernels after they were planned")
            wrapper = self._graph.wrapper_code
            leave = wrapper.codegen_device_guard_exit

            def leave_after_end() -> Any:
                self._end()
                return leave()

            wrapper.codegen_device_guard_exit = leave_after_end
            self._hook(wrapper)
            return generate(nodes)

        def enter_lane(node: Any) -> Any:
            self._scheduler.flush()  # kernels that Inductor would write together, whatever comes between them
            self._before(node)
            return enter(node)

        scheduler._codegen = generate_planned
        scheduler.enter_context = enter_lane

    def _hook(self, wrapper: Any) -> None:
        """Change the wrapper before it is written."""

    def _before(self, node: Any) -> None:
        """Write the lines before a kernel."""

    def _end(self) -> None:
        """Write the lines after the last kernel."""

    def _write(self, text: str) -> None:
        self._graph.wrapper_code.writeline(text)


class _Marking(_Writing):
    """An annotation around each kernel, and the functions of Triton that it calls by its name."""

    def __init__(self, graph: Any, nodes: Sequence[Any], kernels: Sequence[FusedKernel]) -> None:
        super().__init__(graph, nodes)
        self.functions: dict[str, list[str]] = {kernel.name: [] for kernel in kernels if kernel.launches}
        self._at: str | None = None

    def _hook(self, wrapper: Any) -> None:
        call = wrapper.generate_kernel_call

        def note_and_call(function: str, *args: Any, **more: Any) -> Any:
            if self._at is not None and more.get("triton", True):
                self.functions[self._at].append(function)
            return call(function, *args, **more)

        wrapper.generate_kernel_call = note_and_call

    def _before(self, node: Any) -> None:
        if node.get_name() not in self.functions:
            return
        if self._at is None:
            self._write("from hwbackend.torch.inductor.profiled import Marks")
            self._write("marks = Marks()")
        self._at = node.get_name()
        self._write(f"marks.on({self._at!r})")

    def _end(self) -> None:
        if self._at is not None:
            self._write("marks.close()")


class _Emission(_Writing):
    """Streams, records and waits between the kernels, and no frees of what several streams touch."""

    def __init__(self, graph: Any, nodes: Sequence[Any], plan: StreamPlan, index: int | None) -> None:
        super().__init__(graph, nodes)
        self._plan = plan
        self._index = index
        self._position = dict(zip((node.get_name() for node in nodes), plan.order, strict=True))
        self._on = 0
        self._begun = False

    @property
    def _is_forked(self) -> bool:
        return self._index is not None and self._plan.n_streams > 1

    def _hook(self, wrapper: Any) -> None:
        free = wrapper.codegen_free

        def free_unless_kept(buffer: Any) -> Any:
            if buffer.get_name() in self._plan.kept:
                return None
            return free(buffer)

        wrapper.codegen_free = free_unless_kept

    def _end(self) -> None:
        if self._is_forked:
            self._write("streams.join()")

    def _before(self, node: Any) -> None:
        if not self._is_forked:
            return
        if not self._begun:
            self._begin()
        row = self._position[node.get_name()]
        stream = self._plan.stream[row]
        if stream < 0:
            return
        for what, lane, event in self._plan.steps[row]:
            if what == "record":
                text = f"event{event} = streams.record({lane})"
            else:
                text = f"streams.wait({lane}, event{event})"
            self._write(text)
        if stream != self._on:
            self._write(f"streams.on({stream})")
            self._on = stream

    def _begin(self) -> None:
        """Make the streams, once what all of them read is in its place."""
        self._begun = True
        wrapper = self._graph.wrapper_code
        copies = getattr(wrapper, "codegen_deferred_alignment_copies", None)
        if copies is not None:  # a copy where the first reader is would be on that one's stream
            copies(list(self._graph.graph_inputs))
        self._write("from hwbackend.torch.inductor.forked import fork")
        self._write(f"streams = fork({self._plan.n_streams}, {self._index})")
