"""Graphs of PyTorch (extra ``torch``): modules, torch.fx graph modules, programs of `torch.export`.

Nothing is computed and no weight is read: shapes come from running the calls on fake tensors, which have a shape
and a format and no elements. Modules are read as in inference and left as they were.

Operators
    A call of a module, function or method is an operator under the name of its node; kinds and attributes are
    named as in `workloads.models.network`, costs follow `workloads.costs` with the actual bytes of each tensor.
    Parameters, buffers and constants are weights of the operators that read them, and so are views of them. A
    weight that several operators read counts for each. A recurrent network (`nn.LSTM`, `nn.GRU`, `nn.RNN`) is one
    operator, of a chain of steps. Operations that are not known count their bytes and no FLOP; a
    warning of the logger ``workloads.formats.torch_graph`` lists them.
Views
    A call that only changes how a tensor is seen (reshape, transpose, a slice, the parts of a split, `getitem`) has
    no kernel and takes no time; the same holds for a dropout, a size or a check. Reshaping a tensor whose elements
    do not lie one after the other copies it.
Edges
    One per distinct node that a node reads, in the order of its arguments (``Node.all_input_nodes``): a tensor that is
    read twice by one operator is moved once. A part of a tuple is as large as itself. Where only the size of a
    tensor is read, the edge has 0 bytes.
Writes
    In-place operators, views and buffers are read as PyTorch runs them (`workloads.formats.torch.run`): a reader of
    memory after a write to it waits for the last writer, and a writer waits for all that read the memory
    before, by an edge of 0 bytes. A buffer that is written is not a weight. Where a graph cannot be run, each operator
    that may write is ordered after all before it and before all after it, and a warning says so.
Bodies
    `torch.cond`, loops, regions of autocast and of no gradient are looked into (`workloads.formats.torch.bodies`), and
    so are functions and layers that are not known: their operator consists of the works of all that they call.
Files
    `workloads.formats.torch.files` reads ``.pt2`` files of `torch.export.save` from trusted sources only:
    `torch.export.load` unpickles them, and unpickling can run code.
"""

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from simsched.base.errors import GraphError, MissingDependencyError
from simsched.model import OpGraph
from simsched.model.graph.rearranged import with_works
from workloads.costs import of_one_model
from workloads.formats.torch.bodies import Price, constants_of, flatten_bodies
from workloads.formats.torch.graph import LOGGER, graph_of, is_composite
from workloads.formats.torch.run import Autocast, Run, run_fake
from workloads.retired import refusing_retired

_logger = logging.getLogger(LOGGER)

REGIONS: Final = "simsched.autocast"
"""Key of the regions of autocast that a node was traced in, in its `meta`."""


class Options(TypedDict, total=False):
    """How a graph is made.

    Parameters
    ----------
    granularity
        "operator" (the default), or "unit": views left out and chains folded, see `workloads.fusion.fuse`.
    name
        Of the graph; by default the class of the module, also of one that was exported.
    include_io
        Whether inputs and the output are operators too (kinds "placeholder" and "output", without kernels, time 0), and
        arithmetic on sizes (kind "size"), which makes the operators those that torch.fx counts. By default they are
        not.
    """

    granularity: str
    name: str | None
    include_io: bool


@refusing_retired
def from_module(module: Any, example_inputs: Any, **options: Unpack[Options]) -> OpGraph:
    """Return the graph of a `torch.nn.Module`.

    The module is traced as by `torch.fx.symbolic_trace`, which keeps the layers of `torch.nn` whole (but those made
    of others that have no rule as a whole, such as `nn.TransformerEncoderLayer`, are looked into). If that
    fails, for instance where control flow depends on a tensor, `torch.export` is used, whose operators have the names
    of ATen.

    Parameters
    ----------
    module
        Its mode (training or not) and weights do not matter; it may be on the device "meta".
    example_inputs
        A tensor, or a sequence with one for each argument. Only shapes and formats count.
    **options
        See `Options`.

    Raises
    ------
    MissingDependencyError
        If PyTorch is not installed.
    GraphError
        If the module cannot be traced, does not run on the inputs, or a parameter is out of range.

    Examples
    --------
    With torchvision, the 316 vertices of torch.fx without input and output::

        module = torchvision.models.inception_v3(weights=None)
        graph = from_module(module, torch.empty(1, 3, 299, 299, device="meta"))
        assert len(graph) == 314
    """
    options["name"] = options.get("name") or type(module).__name__
    trace = traced(module, example_inputs, name=options["name"])
    if isinstance(trace, _torch().export.ExportedProgram):
        return from_exported(trace, **options)
    return from_fx(trace, _inputs(example_inputs), **options)


def traced(module: Any, example_inputs: Any, *, name: str | None = None) -> Any:
    """Return the graph that `from_module` reads: a `torch.fx.GraphModule`, or an `ExportedProgram` if torch.fx fails.

    Parameters
    ----------
    module, example_inputs, name
        See `from_module`. The graph module has the parameters and layers of the module, not copies of them.

    Raises
    ------
    MissingDependencyError, GraphError
        See `from_module`.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise GraphError(f"a torch.nn.Module is needed, not {type(module).__name__}")
    inputs = tuple(_inputs(example_inputs))
    with _inference(module):
        try:
            return _trace(module)
        except Exception as untraceable:  # whatever the module's own code raises
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # they are about running the exported program
                    return torch.export.export(module, inputs)
            except Exception as error:
                raise GraphError(
                    f"{name or type(module).__name__}: cannot be traced by torch.fx ({_line(untraceable)}) nor by "
                    f"torch.export ({_line(error)})"
                ) from error


@refusing_retired
def from_fx(
    graph_module: Any,
    example_inputs: Any = None,
    *,
    parameters: Sequence[bool] | None = None,
    **options: Unpack[Options],
) -> OpGraph:
    """Return the graph of a `torch.fx.GraphModule`.

    Parameters
    ----------
    graph_module
        The traced graph; its nodes are not changed.
    example_inputs
        As for `from_module`; None if the nodes know their shapes (``meta["val"]`` or ``meta["tensor_meta"]``, as
        `torch.fx.passes.shape_prop.ShapeProp` leaves them).
    parameters
        Whether each example input is a parameter or buffer, as inputs of graphs of dynamo may be; None: none is.
    **options
        See `Options`.

    Raises
    ------
    MissingDependencyError, GraphError
        See `from_module`; also if a node has no shape and there are no example inputs.
    """
    torch = _torch()
    if not isinstance(graph_module, torch.fx.GraphModule):
        raise GraphError(f"a torch.fx.GraphModule is needed, not {type(graph_module).__name__}")
    if example_inputs is None:
        arguments = None
    else:
        arguments = _inputs(example_inputs)
    return _graph(
        graph_module, arguments, parameters or (), options.get("name") or type(graph_module).__name__, options
    )


@refusing_retired
def from_exported(program: Any, example_inputs: Any = None, **options: Unpack[Options]) -> OpGraph:
    """Return the graph of a `torch.export.ExportedProgram`.

    Parameters
    ----------
    program
        The result of `torch.export.export`, decomposed or not.
    example_inputs
        Needed if a size is dynamic: one tensor for each input of the program, in its order, nested or not.
    **options
        See `Options`.

    Raises
    ------
    MissingDependencyError, GraphError
        See `from_module`; also if a size is dynamic and there are no example inputs.
    """
    torch = _torch()
    if not isinstance(program, torch.export.ExportedProgram):
        raise GraphError(f"a torch.export.ExportedProgram is needed, not {type(program).__name__}")
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    user_input = torch.export.graph_signature.InputKind.USER_INPUT
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    parameters = [kinds[node.name] is not user_input for node in placeholders]
    arguments = None
    if example_inputs is not None:
        leaves = torch.utils._pytree.tree_leaves(_inputs(example_inputs))
        # of a tensor that it was exported with, a program remembers sizes that are not fixed
        inputs = iter([leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
        weights = zip(placeholders, parameters, strict=True)
        arguments = [node.meta.get("val") if is_one else next(inputs, None) for node, is_one in weights]
        arguments += inputs
    state = _mutated_buffers(program.graph_signature)
    constants = dict(constants_of(program))
    name = options.get("name") or _class_of(program.graph.nodes) or "exported"
    return _graph(program.graph_module, arguments, parameters, name, options, constants, state)


def _mutated_buffers(signature: Any) -> frozenset[str]:
    """Return the placeholders of the buffers that a program without in-place operators returns new values of."""
    names = set(signature.buffers_to_mutate.values())
    return frozenset(name for name, buffer in signature.inputs_to_buffers.items() if buffer in names)


def _class_of(nodes: Iterable[Any]) -> str:
    """Return the class of the module that was exported, "" if its nodes do not say."""
    stacks = (node.meta.get("nn_module_stack") for node in nodes)
    for _, kind in (next(iter(stack.values())) for stack in stacks if stack):
        return str(getattr(kind, "__qualname__", kind)).rpartition(".")[2]
    return ""


def _is_open(value: Any) -> bool:
    """Say whether a size of a value is not a number."""
    if hasattr(value, "shape"):
        sizes = getattr(value, "shape", None)
    else:
        sizes = (value,)
    return any(type(size).__name__.startswith("Sym") for size in sizes or ())


def _graph(
    module: Any,
    arguments: Sequence[Any] | None,
    parameters: Sequence[bool],
    name: str,
    options: Options,
    constants: Mapping[str, Any] | None = None,
    state: frozenset[str] = frozenset(),
) -> OpGraph:
    """Return the graph of a graph module, run on the arguments if there are any.

    Parameters
    ----------
    constants
        Tensors whose values are known, by the name of their placeholder.
    state
        Parameters and buffers that do not stay as they are, by the name of their placeholder.
    """
    settings: dict[str, Any] = {**options, "name": name}
    flat = flatten_bodies(name, module, constants or {}, partial(_price, name))
    for remark in flat.remarks:
        _logger.warning("%s: %s", name, remark)
    module = flat.graph_module
    nodes = list(module.graph.nodes)
    regions = flat.regions | {node.name: node.meta[REGIONS] for node in nodes if REGIONS in node.meta}
    if arguments is None:
        run = _as_in_meta(name, module, nodes, regions)
    else:
        with _inference(module):
            run = _propagate(name, module, arguments, regions)
    weights = {node: _attribute(name, module, node.target) for node in nodes if node.op == "get_attr"}
    inputs = [node for node in nodes if node.op == "placeholder"]
    weights |= {node: run.values[node] for node, is_one in zip(inputs, parameters, strict=False) if is_one}
    changing = {node for node in inputs if node.name in state}
    modules = dict(module.named_modules(remove_duplicate=False))
    return _as_allowed(graph_of(nodes, run, weights, modules, state=changing, guards=flat.guards, **settings))


def _price(name: str, body: Any, operands: Sequence[Any]) -> Price:
    """Return the FLOP and bytes of a body; of one that runs nothing 0."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    arguments = [node.meta.get("val", operand) for node, operand in zip(inputs, operands, strict=False)]
    weighed = _graph(body, arguments, (), name, {"include_io": True})
    return Price(float(weighed.flops.sum()), float(weighed.nbytes.sum()))


def _as_allowed(graph: OpGraph) -> OpGraph:
    """Return a graph whose works in fp32 may run in tf32 if the present switches of PyTorch say so."""
    backends = _torch().backends
    allowed = {"convolution": backends.cudnn.allow_tf32, "product": backends.cuda.matmul.allow_tf32}
    return of_one_model(with_works(graph, lambda work: replace(work, tf32=allowed.get(work.family, False))))


def _torch() -> Any:
    try:
        import torch
        import torch.export
        import torch.fx
        import torch.utils._pytree
    except ImportError as error:
        raise MissingDependencyError(
            "PyTorch is needed to read its graphs; install it with: pip install 'simsched[torch]'"
        ) from error
    return torch


def _trace(module: Any) -> Any:
    """Return a module as a graph module."""
    fx = _torch().fx
    tracer = fx.Tracer()
    tracer.proxy_buffer_attributes = True  # otherwise operations on buffers run while tracing
    usual = tracer.is_leaf_module
    tracer.is_leaf_module = lambda layer, path: usual(layer, path) and not is_composite(layer)
    usual_node = tracer.create_node

    def create_node(*args: Any, **kwargs: Any) -> Any:
        node = usual_node(*args, **kwargs)
        regions = _regions()
        if regions:
            node.meta[REGIONS] = regions
        return node

    tracer.create_node = create_node
    return fx.GraphModule(module, tracer.trace(module))


def _regions() -> tuple[Autocast, ...]:
    """Return the regions of autocast that Python is in at the moment."""
    torch = _torch()
    return tuple(
        Autocast(kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
    )


@contextmanager
def _inference(module: Any) -> Iterator[None]:
    """Have a module behave as in inference, and leave it as it was."""
    modes = [(part, part.training) for part in module.modules()]
    for part, _ in modes:
        part.training = False  # `eval` does no more, and some modules refuse it
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _inputs(example_inputs: Any) -> Sequence[Any]:
    if isinstance(example_inputs, list | tuple):
        return example_inputs
    if isinstance(example_inputs, Mapping):
        raise GraphError("example inputs must stand in the order of the arguments, not in a dict")
    return (example_inputs,)


def _propagate(name: str, graph_module: Any, arguments: Sequence[Any], regions: Mapping[str, Any]) -> Run:
    """Return the results of each node of a graph, as fake tensors, and the memory that it touches."""
    n_wanted = sum(node.op == "placeholder" for node in graph_module.graph.nodes)
    if len(arguments) > n_wanted:
        raise GraphError(f"{name}: {len(arguments) - n_wanted} example inputs more than it takes; leave them out")
    run, stopped, error = _run(graph_module, arguments, regions)
    if error is not None:
        raise GraphError(f"{name}: does not run on the example inputs, at {stopped!r}: {_line(error)}") from error
    return run


def _run(graph_module: Any, arguments: Sequence[Any], regions: Mapping[str, Any]) -> tuple[Run, str, Exception | None]:
    """Run a graph module on fake tensors; see `workloads.formats.torch.run.run_fake`."""
    torch = _torch()
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    tensors = (*graph_module.parameters(), *graph_module.buffers())
    modes = [x.fake_mode for x in (*arguments, *tensors) if isinstance(x, FakeTensor)]
    if modes:
        mode = modes[0]
    else:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
    where = next((x.device for x in tensors), None)

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if isinstance(value, FakeTensor):
            fakes = value
        else:
            fakes = mode.from_tensor(value, static_shapes=True)
        if where is None:
            return fakes
        return fakes.to(where)

    with _silent("torch._subclasses.fake_tensor"):
        return run_fake(graph_module, arguments, mode, fake, regions)


def _as_in_meta(name: str, graph_module: Any, nodes: Sequence[Any], regions: Mapping[str, Any]) -> Run:
    """Return the results of nodes for the inputs in their `meta`, or, if they cannot run, the results in `meta`."""
    inputs = [node.meta.get("val", node.meta.get("tensor_meta")) for node in nodes if node.op == "placeholder"]
    if not any(value is None or _is_open(value) for value in inputs):
        with _inference(graph_module):
            run, _, error = _run(graph_module, [_like(value) for value in inputs], regions)
        if error is None:
            return run
    values = {}
    for node in nodes:
        if node.op in ("output", "get_attr"):
            continue
        descriptions = [node.meta[key] for key in ("val", "tensor_meta") if key in node.meta]
        # a node without a tensor may have no description, but a tensor needs one
        if not descriptions and (node.op == "placeholder" or node.users):
            raise GraphError(f"{name}: node {node.name!r} has no shape; give example inputs")
        if descriptions:
            values[node] = descriptions[0]
        else:
            values[node] = None
    return Run(values)


def _like(value: Any) -> Any:
    """Return a tensor of a described shape and format."""
    torch = _torch()
    if isinstance(value, torch.Tensor) or not hasattr(value, "stride"):
        return value
    return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")


def _attribute(name: str, module: Any, path: str) -> Any:
    """Return an attribute of a module by its dotted path."""
    for part in path.split("."):
        if not hasattr(module, part):
            raise GraphError(f"{name}: the graph reads {path!r}, which its module has not")
        module = getattr(module, part)
    return module


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Keep a logger of PyTorch from printing an error that is about to be raised."""
    log = logging.getLogger(logger)
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _line(error: BaseException) -> str:
    """Return an error of others as one line, without the lines that PyTorch adds about the node."""
    text = " ".join(str(error).partition("While executing")[0].split()) or type(error).__name__
    if len(text) <= 200:
        return text
    return f"{text[:197]}..."
