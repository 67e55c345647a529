"""A backend of `torch.compile`: Inductor, as a CUDA graph or with streams where a measurement says that it pays.

``torch.compile(model, backend="simsched")`` finds it by the entry point group ``torch_dynamo_backends``.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from hwbackend.inductor import doors
from hwbackend.inductor.choice import PLAIN, VariantChoice, choose, key_of, read_choice, remember
from hwbackend.inductor.options import CompileOptions, read_options
from hwbackend.inductor.plan import FusedKernel, StreamPlan, make_plan, scheduled_by
from hwbackend.torch.devices import cuda_cluster, line, require_torch
from hwbackend.torch.effects import draws
from hwbackend.torch.nodes import is_weight
from simsched.base.errors import BackendError
from simsched.model import Target

_logger = logging.getLogger(__name__)

_number: Final = count()  # of the graphs that dynamo hands over, for their names
_WARMUPS: Final = 3  # calls until a graph is captured: PyTorch runs it once as it is, records it, and replays it
_CALLS: Final = 5  # that one timing takes the mean of
STREAMS: Final = "streams"
GRAPH: Final = "graph"


@dataclass(frozen=True)
class Report:
    """Report on one graph.

    Parameters
    ----------
    name
        How the log calls the graph.
    reason
        Why nothing was measured; None where it was.
    choice
        The measurement.
    remembered
        Whether an earlier process measured it.
    failures
        Why variants were not tried, by their names.
    kernels, streams, waits
        Kernels that launch, streams in use and waits of the variant with streams; 0 without one.
    peak, plain_peak
        Bytes that intermediate values need with streams, and in the order of Inductor without reuse.
    """

    name: str
    reason: str | None = None
    choice: VariantChoice | None = None
    remembered: bool = False
    failures: Mapping[str, str] = field(default_factory=dict)
    kernels: int = 0
    streams: int = 0
    waits: int = 0
    peak: float = 0.0
    plain_peak: float = 0.0

    @property
    def chosen(self) -> str:
        """The variant that runs."""
        if self.choice is None:
            return PLAIN
        return self.choice.name

    def __str__(self) -> str:
        parts = [f"{self.name}: runs as {self.chosen}"]
        if self.reason is not None:
            parts.append(self.reason)
        if self.choice is not None:
            times = ", ".join(f"{name} {time:.1f} us" for name, time in self.choice.times.items())
            if self.remembered:
                source = "remembered"
            else:
                source = f"{self.choice.rounds} rounds"
            parts.append(f"{times} ({source})")
        parts += [f"{name} not tried: {why}" for name, why in self.failures.items()]
        if self.streams:
            parts.append(
                f"{self.kernels} kernels on {self.streams} streams with {self.waits} waits, intermediate values of "
                f"{self.peak:.0f} bytes ({self.plain_peak:.0f} in the order of Inductor)"
            )
        return "; ".join(parts)


_REPORTS: Final = "simsched_reports"  # attribute of the callable that one call of `torch.compile` made


def explain(compiled: Any) -> tuple[Report, ...]:
    """Return a report on each graph of a model that `torch.compile` compiled with this backend.

    Parameters
    ----------
    compiled
        Result of ``torch.compile(model, backend="simsched")``, after its first call.

    Raises
    ------
    BackendError
        If it was compiled otherwise, or has not been called yet.
    """
    rows = [row for caller in doors.callers_within(compiled) for row in vars(caller).get(_REPORTS, ())]
    if not rows:
        raise BackendError(
            "nothing to explain: compile it with torch.compile(model, backend='simsched') and call it first"
        )
    return tuple(rows)


def simsched_backend(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[..., Any]:
    """Return the code of Inductor for a graph, in the variant that is fastest on its inputs.

    Parameters
    ----------
    gm
        A `torch.fx.GraphModule`.
    example_inputs
        One for each of its inputs, parameters among them.
    mode
        Of `torch.compile`, which Inductor takes.
    options, **more
        Of `torch.compile`, or by ``partial(simsched_backend, streams=2)``: see
        `hwbackend.inductor.options.CompileOptions`.

    Raises
    ------
    UnknownNameError, ArgumentError, ScheduleError, FileError, FormatError
        If there is no such option, or an option cannot have this value.

    Notes
    -----
    Variants are plain Inductor, Inductor in a CUDA graph, the same with tensors channels last where there are
    convolutions and with folded weights where `freezing` allows it, and the best of these with its kernels on streams.
    What is returned is Inductor's own callable. Where nothing can be measured it is that of plain Inductor: without
    CUDA, with gradients, with sizes that are not fixed, with random numbers, on several devices.
    """
    settings = read_options({**({} if mode is None else {"mode": mode}), **(options or {}), **more})
    caller = doors.caller_of_backend(sys._getframe(1))
    run, report = compile_fastest(gm, example_inputs, settings)
    if caller is not None:
        vars(caller).setdefault(_REPORTS, []).append(report)
    _logger.info("%s", report)
    return run


def compile_fastest(
    gm: Any, inputs: Sequence[Any], options: CompileOptions, measure: "Measure | None" = None
) -> tuple[Callable[..., Any], Report]:
    """Return the fastest variant of a graph, and a report of all variants; tests replace the device by `measure`."""
    name = f"graph-{next(_number)}"
    patches = doors.mode_patches(options.mode)
    try:
        if measure is None:
            reason = why_plain(gm, inputs, options)
        else:
            reason = None
    except Exception as error:  # whatever goes wrong here is no reason for the model to fail
        reason = line(error)
    if reason is not None:
        return doors.compile_inductor(gm, inputs, patches), Report(name, f"not measured: {reason}")
    plain = doors.compile_inductor(doors.copy_graph(gm), inputs, patches)
    try:
        return _Contest(name, gm, inputs, options, patches, plain, measure or Measure(inputs)).decide()
    except Exception as error:  # of a variant, or of the measurement
        _logger.debug("%s", name, exc_info=error)
        return plain, Report(name, f"not measured: {line(error)}")


def why_plain(gm: Any, inputs: Sequence[Any], options: CompileOptions) -> str | None:
    """Return why a graph is left to plain Inductor without a measurement, or None."""
    torch = require_torch()
    doors.require_known(torch.__version__)
    if not options.budget_s:
        return "budget_s is 0"
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if len(tensors) < len(inputs) or any(type(size) is not int for value in tensors for size in value.shape):
        return "its sizes are not fixed"
    if not tensors:
        return "it has no inputs"
    if torch.is_grad_enabled() and any(value.requires_grad for value in (*tensors, *gm.parameters())):
        return "it has gradients, whose graph is not there yet (run it in torch.no_grad() to have it measured)"
    devices = {value.device for value in (*tensors, *gm.parameters(), *gm.buffers())}
    if len(devices) > 1:
        return f"it is on {len(devices)} devices"
    if tensors[0].device.type != "cuda":
        return "CUDA graphs and streams need a CUDA device"
    drawing = next((node.name for node in gm.graph.nodes if draws(gm, node)), None)
    if drawing is None:
        return None
    return f"{drawing!r} draws random numbers"


class Measure:
    """Times calls on the real inputs, and leaves inputs and random numbers as they were.

    Parameters
    ----------
    inputs
        Of the graph.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._torch = require_torch()
        self._inputs = list(inputs)

    def warm(self, run: Callable[..., Any]) -> None:
        """Call a variant until it is captured."""
        for _ in range(_WARMUPS):
            run(*self._inputs)
        self._torch.cuda.synchronize()

    def time(self, name: str, run: Callable[..., Any]) -> float:  # noqa: ARG002 - tests tell variants by it
        """Return the mean time in us of a few calls of a variant, the host's part included."""
        cuda = self._torch.cuda
        begin = cuda.Event(enable_timing=True)
        end = cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(_CALLS):
            run(*self._inputs)
        end.record()
        end.synchronize()
        return float(1e3 * begin.elapsed_time(end) / _CALLS)

    def restoring(self, gm: Any) -> "_Restored":
        """Return a context after which all that the graph writes to is as it was before."""
        with doors.outside_dynamo():
            written = doors.find_mutated_inputs(gm, self._inputs)
        return _Restored(self._torch, [self._inputs[i] for i in written])

    def target(self) -> Target:
        """Return the device as a cluster of one."""
        index = next(value.device.index for value in self._inputs)
        cluster = cuda_cluster(self._torch, index + 1)
        return replace(cluster, devices=(replace(cluster.devices[index], name="gpu0"),), links=())

    def free_memory(self) -> float:
        """Return the bytes of the device that are free."""
        return float(self._torch.cuda.mem_get_info()[0])

    def identity(self) -> tuple[str, ...]:
        """Return the parts of a choice's key besides the graph: device and versions."""
        cuda = self._torch.cuda
        return (cuda.get_device_name(), self._torch.__version__, str(self._torch.version.cuda))


class _Restored:
    """Keeps tensors and the states of random numbers, and puts them back."""

    def __init__(self, torch: Any, tensors: Sequence[Any]) -> None:
        self._torch = torch
        self._tensors = tensors

    def __enter__(self) -> None:
        torch = self._torch
        self._random = torch.random.fork_rng(devices=sorted({x.device.index for x in self._tensors if x.is_cuda}))
        self._random.__enter__()
        self._kept = [value.detach().clone() for value in self._tensors]

    def __exit__(self, *_error: object) -> None:
        with self._torch.no_grad():
            for value, kept in zip(self._tensors, self._kept, strict=True):
                value.copy_(kept)
        self._random.__exit__(None, None, None)


class _Contest:
    """The variants of one graph against each other."""

    def __init__(
        self,
        name: str,
        gm: Any,
        inputs: Sequence[Any],
        options: CompileOptions,
        patches: Mapping[str, Any],
        plain: Callable[..., Any],
        measure: Measure,
    ) -> None:
        self._gm = gm
        self._inputs = inputs
        self._options = options
        self._patches = patches
        self._measure = measure
        self._runs: dict[str, Callable[..., Any]] = {PLAIN: plain}
        self._report = Report(name)
        self._failures: dict[str, str] = {}

    def decide(self) -> tuple[Callable[..., Any], Report]:
        """Return the fastest variant, with those that lost gone."""
        key = key_of((self._gm.code, *map(_form, self._inputs), self._options, *self._measure.identity()))
        kept = read_choice(key)
        with self._measure.restoring(self._gm):
            if kept is not None and self._compile(kept.name):
                return self._runs[kept.name], replace(self._report, choice=kept, remembered=True)
            simple = self._contest([PLAIN, *(name for name in self._simple() if self._compile(name))], 0.5)
            if simple.name != PLAIN:
                bold = f"{simple.name}+{STREAMS}"
            else:
                bold = f"{GRAPH}+{STREAMS}"
            choice = simple
            if self._compile(bold):
                last = self._contest([simple.name, bold], 0.5)
                choice = replace(last, times={**simple.times, **last.times}, noise={**simple.noise, **last.noise})
        remember(key, choice)
        return self._runs[choice.name], replace(self._report, choice=choice, failures=self._failures)

    def _simple(self) -> list[str]:
        names = [GRAPH]
        if any("conv" in str(node.target) for node in self._gm.graph.nodes) or _has_convolutions(self._gm):
            names.append(f"{GRAPH}+channels_last")
        if self._options.freezing:
            names.append(f"{GRAPH}+freezing")
        return names

    def _contest(self, names: Sequence[str], share: float) -> VariantChoice:
        with doors.outside_dynamo():  # compiled within it, as Inductor asks it which inputs stay where they are
            for name in names:
                self._measure.warm(self._runs[name])
            budget = share * self._options.budget_s
            return choose(names, lambda name: self._measure.time(name, self._runs[name]), budget)

    def _compile(self, name: str) -> bool:
        """Compile a variant, or note why there is none."""
        if name in self._runs:
            return True
        parts = name.split("+")
        patches = {**self._patches, **doors.CAPTURED}
        graph = doors.copy_graph(self._gm)
        if "channels_last" in parts:
            patches |= doors.CHANNELS_LAST
        if "freezing" in parts:
            patches |= doors.FREEZING
            graph = doors.frozen(self._gm, self._inputs, list(map(is_weight, self._inputs)))
        try:
            if STREAMS in parts:
                patches |= {**doors.ORDERED, "_post_fusion_custom_pass": self._pass()}
            self._runs[name] = doors.compile_inductor(graph, self._inputs, patches)
            if STREAMS in parts and self._report.streams < 2:
                raise BackendError("the schedule is one stream")
        except Exception as error:
            _logger.debug("%s", name, exc_info=error)
            self._failures[name] = line(error)
            self._runs.pop(name, None)
            return False
        return True

    def _pass(self) -> Callable[[Any], Any]:
        options = self._options
        target = options.calibration or self._measure.target()
        planner = scheduled_by(options.scheduler, target, options.streams)
        limit = options.memory_limit
        if limit is None:
            limit = self._measure.free_memory() / 2

        def plan(kernels: Sequence[FusedKernel], memory: Any) -> StreamPlan:
            made = make_plan(kernels, memory, planner)
            if made.peak > limit:
                raise BackendError(
                    f"intermediate values need {made.peak:.0f} bytes on streams, more than {limit:.0f}; raise "
                    "memory_limit, or lower streams"
                )
            return made

        return doors.ordered_pass(plan, self._note_plan)

    def _note_plan(self, plan: StreamPlan, kernels: Sequence[FusedKernel]) -> None:
        self._report = replace(
            self._report,
            kernels=sum(kernel.launches for kernel in kernels),
            streams=plan.n_streams,
            waits=plan.n_waits,
            peak=plan.peak,
            plain_peak=plan.plain_peak,
        )


def _form(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device.type}"


def _has_convolutions(gm: Any) -> bool:
    return any("Conv" in type(part).__name__ for part in gm.modules())
