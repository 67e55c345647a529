"""Deployment: a module of the user's that runs under a schedule."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from hwbackend.executor.feeds import feeds_of
from hwbackend.executor.lanes import streams_of
from hwbackend.torch.devices import cpu_cluster, require_torch
from hwbackend.torch.effects import changes_what_stays, require_pure
from hwbackend.torch.hosts import CpuHost, CudaHost, TorchCuda, capture_errors
from hwbackend.torch.nodes import NodeRunner, Traced, nodes_of, trace_module
from simsched.base.errors import BackendError, ScheduleError
from simsched.model import Cluster, Program, Schedule


def apply(
    module: Any, example_inputs: Any, schedule: Schedule, *, device: str | None = None, copies: bool = True
) -> Callable[..., Any]:
    """Return a callable that runs a module under a schedule.

    Parameters
    ----------
    module
        A `torch.nn.Module` in inference (``module.eval()``), or the `torch.export.ExportedProgram` of a ``.pt2`` file.
        Its parameters are used where they are: what is loaded into them later counts.
    example_inputs
        A tensor, or a sequence with one for each argument: shapes, formats and device of what the callable will get.
    schedule
        Of a graph that `workloads.formats.torch_fx.from_module` makes of the module on such inputs, or `from_exported`
        of the program, of either granularity, not rewritten, and on one device.
    device
        Where the module is expected to be, ``"cpu"`` or ``"cuda"``; None takes it where it is.
    copies
        Whether a captured graph returns copies of its outputs. If not, the next call writes over what a call returned,
        and no kernels run but those of the graph and one for each input.

    Returns
    -------
    callable
        Takes what the module takes by position and returns what it returns. On CUDA it issues the operators to
        streams of its own, behind what the current stream has to do, and has the current stream wait for them; with
        ``execution="graph"`` it copies the inputs into memory of a graph that was captured once, launches that, and
        returns copies of its outputs, without gradients; a call does nothing else. On the CPU it runs the operators in
        the order of the program.

    Raises
    ------
    MissingDependencyError
        If PyTorch is not installed.
    GraphError
        If the module cannot be traced, or does not run on the inputs.
    ScheduleError
        If the schedule is one of another graph, or of a rewritten one, or the order of two operators matters though no
        edge joins them, as where one writes over what the other reads, or both draw random numbers.
    BackendError
        If the module is elsewhere or in training, the schedule is for several devices, or capture fails.

    Notes
    -----
    Computes the same as the module: the same calls of PyTorch on the same parameters, in another order. What each of
    them returns is kept until the last has been issued, so more memory is needed; a captured graph has to keep only
    what several streams use. Threads that call it take turns; on CUDA they have to use one stream.
    """
    torch = require_torch()
    if isinstance(example_inputs, list | tuple):
        inputs = list(example_inputs)
    else:
        inputs = [example_inputs]
    name = type(module).__name__
    found = trace_module(module, inputs, name)
    if isinstance(module, torch.export.ExportedProgram):
        # Whether layers train was settled when it was exported.
        where = _place(torch, name, found.graph_module, inputs, device)
    else:
        where = _place(torch, name, module, inputs, device)
        _require_inference(module, name)
    return schedule_module(found, inputs, schedule, where, copies=copies)


def _require_inference(module: Any, name: str) -> None:
    training = next((path for path, part in module.named_modules() if part.training), None)
    if training is None:
        return
    if training:
        what = f"{training!r} of {name}"
    else:
        what = name
    raise BackendError(f"{what} is in training; call its eval() before it is run under a schedule")


def schedule_module(
    traced: Traced, inputs: Sequence[Any], schedule: Schedule, where: Any, *, copies: bool = True
) -> "Scheduled":
    """Return what runs a traced module under a schedule on a device of PyTorch; see `apply`."""
    parts = nodes_of(traced, schedule.graph)
    require_pure(traced)
    used = schedule.devices_used
    if len(used) > 1:
        raise BackendError(
            f"the schedule runs on {', '.join(used)}, but {traced.name} has its parameters on one device; schedule it "
            "for one"
        )
    if where.type == "cuda" and schedule.execution == "graph":
        changing = changes_what_stays(traced)
        if changing is not None:
            raise ScheduleError(
                f"operator {changing!r} of {traced.name} changes an input, a parameter or a buffer, which to capture "
                "it would change once too often; schedule it with execution='events'"
            )
    program = schedule.lower(_cluster(schedule.devices))
    feeds_of(program)  # proves that events and barriers order what is read
    return Scheduled(traced, inputs, program, NodeRunner(traced.graph_module, parts), where, copies=copies)


class Scheduled:
    """A module under a schedule; see `apply`."""

    def __init__(
        self,
        traced: Traced,
        inputs: Sequence[Any],
        program: Program,
        runner: NodeRunner,
        where: Any,
        *,
        copies: bool = True,
    ) -> None:
        self._lock = Lock()
        self._torch = require_torch()
        self._traced = traced
        self._program = program
        self._runner = runner
        self._where = where
        self._forms = [_form(value) for value in inputs]
        self._host: CpuHost | CudaHost
        self._captured: _Captured | None = None
        if where.type == "cpu":
            self._host = CpuHost(program, runner.compute, _no_copies)
            return
        self._api = TorchCuda(self._torch)
        self._host = CudaHost(self._api, program, runner.compute, _no_copies)
        if program.execution == "graph":
            self._captured = self._capture(self._host, inputs, copies)

    def __repr__(self) -> str:
        return f"Scheduled({self._traced.name!r}, {self._program!r})"

    @property
    def program(self) -> Program:
        """What it runs."""
        return self._program

    def __call__(self, *args: Any) -> Any:
        """Run the module on inputs like the examples; threads that call it take turns."""
        self._require_like(args)
        with self._lock:
            if self._captured is None:
                return self._run(args)
            if self._api.is_current(self._where):
                return self._captured(args)
            with self._api.on(self._api.current_stream(self._where)):
                return self._captured(args)

    def _run(self, args: Sequence[Any]) -> Any:
        graph = self._traced.graph_module.graph
        try:
            self._runner.begin(graph.process_inputs(*args))
            if isinstance(self._host, CpuHost):
                self._host.run()
                return graph.process_outputs(self._runner.result())
            current = self._api.current_stream(self._where)
            self._host.issue_within(current)
            found = graph.process_outputs(self._runner.result())
            for tensor in _tensors(self._torch, found):
                self._api.keep_for(tensor, current)
            return found
        finally:
            self._runner.end()

    def _capture(self, host: CudaHost, inputs: Sequence[Any], copies: bool) -> "_Captured":
        torch = self._torch
        graph = self._traced.graph_module.graph
        with torch.inference_mode(False):  # later calls, in whatever mode, have to be allowed to write there
            given = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in inputs]
        runner = self._runner
        with capture_errors(host, self._traced.name), torch.no_grad():
            host.finish()
            runner.begin(graph.process_inputs(*given))
            host.issue()  # as it is: PyTorch makes its handles and workspaces
            runner.result()  # looks at values, too
            host.finish()
            runner.let_go_early(streams_of(self._program))
            runner.begin(graph.process_inputs(*given))
            host.capture()
            returned = graph.process_outputs(runner.result())
            runner.end()
            host.finish()
        return _Captured(torch, host, given, returned, copies)

    def _require_like(self, args: Sequence[Any]) -> None:
        forms = [_form(value) for value in args]
        if forms == self._forms:
            return
        if len(forms) != len(self._forms):
            raise BackendError(f"{self._traced.name} was scheduled for {len(self._forms)} inputs, not {len(forms)}")
        i = next(i for i, form in enumerate(forms) if form != self._forms[i])
        raise BackendError(
            f"{self._traced.name} was scheduled for {_describe(self._forms[i])} as input {i}, not "
            f"{_describe(forms[i])}; schedule it for that"
        )


class _Captured:
    """A call of a captured graph: a copy of each input, one launch, and copies of the outputs."""

    def __init__(self, torch: Any, host: CudaHost, given: Sequence[Any], returned: Any, copies: bool) -> None:
        self._map = torch.utils._pytree.tree_map_only
        self._tensor = torch.Tensor
        self._host = host
        self._memory = [(i, value) for i, value in enumerate(given) if isinstance(value, torch.Tensor)]
        self._returned = self._map(torch.Tensor, lambda tensor: tensor.detach(), returned)
        self._copies = copies

    def __call__(self, args: Sequence[Any]) -> Any:
        """Issue it to the current stream."""
        for i, memory in self._memory:
            value = args[i]
            if value.requires_grad:
                value = value.detach()
            memory.copy_(value)
        self._host.launch_graph()
        if not self._copies:
            return self._returned
        if isinstance(self._returned, self._tensor):
            return self._returned.clone()
        return self._map(self._tensor, lambda tensor: tensor.clone(), self._returned)


def _tensors(torch: Any, found: Any) -> list[Any]:
    return [value for value in torch.utils._pytree.tree_leaves(found) if isinstance(value, torch.Tensor)]


def _form(value: Any) -> tuple[Any, ...]:
    """Return the form that an input has to have; quickly, as each call compares it."""
    if hasattr(value, "shape"):
        return value.dtype, value.shape, value.device
    return (repr(value),)


def _describe(form: tuple[Any, ...]) -> str:
    if len(form) == 1:
        return str(form[0])
    dtype, shape, device = form
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)} on {device}"


def _place(torch: Any, name: str, module: Any, inputs: Sequence[Any], device: str | None) -> Any:
    """Return the device of PyTorch that a module and its inputs are on."""
    tensors = [*module.parameters(), *module.buffers(), *(x for x in inputs if isinstance(x, torch.Tensor))]
    if not tensors:
        return torch.device(device or "cpu")
    where = tensors[0].device
    other = next((x.device for x in tensors if x.device != where), None)
    if other is not None:
        raise BackendError(f"{name} and its inputs must be on one device, not on {where} and {other}")
    if device is not None and torch.device(device).type != where.type:
        raise BackendError(f"{name} is on {where}, not on {device}; move it there with its to()")
    if where.type not in ("cpu", "cuda"):
        raise BackendError(f"{name} is on {where}; schedules run on 'cuda' or 'cpu'")
    return where


def _cluster(names: Sequence[str]) -> Cluster:
    """Return devices of those names: what a schedule is lowered for."""
    from dataclasses import replace

    return Cluster(tuple(replace(cpu_cluster(1).devices[0], name=name) for name in names))


def _no_copies(row: int) -> None:
    raise BackendError(f"a schedule on one device has no copies, and yet one (row {row}) was to be run")
