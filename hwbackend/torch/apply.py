"""Deployment: a module of the user's that runs under a schedule."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from hwbackend.executor.feeds import feeds_of
from hwbackend.torch.devices import cpu_cluster, require_torch
from hwbackend.torch.effects import changes_what_stays, require_pure
from hwbackend.torch.hosts import CpuHost, CudaHost, TorchCuda, capture_errors
from hwbackend.torch.nodes import NodeRunner, Traced, nodes_of, trace_module
from simsched.base.errors import BackendError, ScheduleError
from simsched.model import Cluster, Program, Schedule


def apply(module: Any, example_inputs: Any, schedule: Schedule, *, device: str | None = None) -> Callable[..., Any]:
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

    Returns
    -------
    callable
        Takes what the module takes by position and returns what it returns. On CUDA it issues the operators to
        streams of its own, behind what the current stream has to do, and has the current stream wait for them; with
        ``execution="graph"`` it copies the inputs into memory of a graph that was captured once, launches that, and
        returns copies of its outputs, without gradients. On the CPU it runs the operators in the order of the program.

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
    them returns is kept until the last has been issued, so more memory is needed. Threads that call it take turns; on
    CUDA they have to use one stream.
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
    return schedule_module(found, inputs, schedule, where)


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
    traced: Traced, inputs: Sequence[Any], schedule: Schedule, where: Any, fixed: Sequence[bool] | None = None
) -> "Scheduled":
    """Return what runs a traced module under a schedule on a device of PyTorch; see `apply`.

    `fixed` says which inputs always come at the same address, as parameters do: a captured graph reads them there.
    """
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
    if fixed is None:
        fixed = [False] * len(inputs)
    else:
        fixed = list(fixed)
    return Scheduled(traced, inputs, program, NodeRunner(traced.graph_module, parts), where, fixed)


class Scheduled:
    """A module under a schedule; see `apply`."""

    def __init__(
        self,
        traced: Traced,
        inputs: Sequence[Any],
        program: Program,
        runner: NodeRunner,
        where: Any,
        fixed: Sequence[bool],
    ) -> None:
        self._fixed = fixed
        self._lock = Lock()
        self._torch = require_torch()
        self._traced = traced
        self._program = program
        self._runner = runner
        self._where = where
        self._like = [None if stays else _signature(value) for value, stays in zip(inputs, fixed, strict=True)]
        self._host: CpuHost | CudaHost
        self._static: list[Any] | None = None
        if where.type == "cpu":
            self._host = CpuHost(program, runner.compute, _no_copies)
            return
        self._api = TorchCuda(self._torch)
        self._host = CudaHost(self._api, program, runner.compute, _no_copies)
        if program.execution == "graph":
            self._capture(self._host, inputs)

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
            return self._run(args)

    def _run(self, args: Sequence[Any]) -> Any:
        graph = self._traced.graph_module.graph
        if self._static is not None:
            return self._replay(args)
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

    def _capture(self, host: CudaHost, inputs: Sequence[Any]) -> None:
        torch = self._torch
        graph = self._traced.graph_module.graph
        copied = [isinstance(v, torch.Tensor) and not stays for v, stays in zip(inputs, self._fixed, strict=True)]
        self._static = [v.detach().clone() if own else v for v, own in zip(inputs, copied, strict=True)]
        with capture_errors(host, self._traced.name), torch.no_grad():
            host.finish()
            for run in (host.issue, host.capture):  # first run as it is: PyTorch makes its handles and workspaces
                self._runner.begin(graph.process_inputs(*self._static))
                run()
                host.finish()

    def _replay(self, args: Sequence[Any]) -> Any:
        assert self._static is not None
        assert isinstance(self._host, CudaHost)
        torch = self._torch
        graph = self._traced.graph_module.graph
        with torch.no_grad(), self._api.on(self._api.current_stream(self._where)):
            for i, (static, value) in enumerate(zip(self._static, args, strict=True)):
                if not isinstance(value, torch.Tensor):
                    continue
                if not self._fixed[i]:
                    static.copy_(value)
                elif static.data_ptr() != value.data_ptr():
                    raise BackendError(f"{self._traced.name}: a parameter, input {i}, is not where it was captured")
            self._host.launch_graph()
            found = graph.process_outputs(self._runner.result())
            return torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.clone(), found)

    def _require_like(self, args: Sequence[Any]) -> None:
        if len(args) != len(self._like):
            raise BackendError(f"{self._traced.name} was scheduled for {len(self._like)} inputs, not {len(args)}")
        for i, (wanted, value) in enumerate(zip(self._like, args, strict=True)):
            if wanted is not None and _signature(value) != wanted:
                raise BackendError(
                    f"{self._traced.name} was scheduled for {wanted} as input {i}, not {_signature(value)}; schedule "
                    "it for that"
                )


def _tensors(torch: Any, found: Any) -> list[Any]:
    return [value for value in torch.utils._pytree.tree_leaves(found) if isinstance(value, torch.Tensor)]


def _signature(value: Any) -> str:
    """Return the form that an input has to have, as text."""
    if not hasattr(value, "shape"):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)} on {value.device}"


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
