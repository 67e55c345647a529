"""A backend of `torch.compile`: Inductor, as a CUDA graph or with streams where a measurement says that it pays.

``torch.compile(model, backend="simsched")`` finds it by the entry point group ``torch_dynamo_backends``.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from hwbackend.torch.devices import line, require_torch
from hwbackend.torch.effects import draws
from hwbackend.torch.inductor import doors
from hwbackend.torch.inductor.contest import Contest
from hwbackend.torch.inductor.measure import Measure
from hwbackend.torch.inductor.options import CompileOptions, merge_options, read_options, require_device
from hwbackend.torch.inductor.report import Report
from simsched.base.errors import BackendError

_logger = logging.getLogger(__name__)

_number: Final = count()  # of the graphs that dynamo hands over, for their names


_REPORTS: Final = "simsched_reports"  # attribute of what one call of `torch.compile` made


def explain(compiled: Any) -> tuple[Report, ...]:
    """Return what became of each graph of something that `torch.compile` compiled with this backend.

    Parameters
    ----------
    compiled
        What ``torch.compile(model, backend="simsched")`` returned, after its first call.

    Raises
    ------
    BackendError
        If it was compiled otherwise, or has not been called yet.
    """
    rows = [row for caller in doors.callers_within(compiled) for row in vars(caller).get(_REPORTS, ())]
    if not rows:
        raise BackendError(
            "nothing to explain: compile it with torch.compile(model, backend='simsched') and call it first; of "
            "modules that share their code and were compiled alike, the first that was called has all reports"
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
    """Return what Inductor makes of a graph, in the variant that is the fastest on its inputs.

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
        `hwbackend.torch.inductor.options.CompileOptions`.

    Raises
    ------
    UnknownNameError, ArgumentError, ScheduleError, FileError, FormatError
        If there is no such option, or an option cannot have this value.

    Notes
    -----
    Variants are plain Inductor, Inductor in a CUDA graph, the same with tensors channels last where there are
    convolutions and with folded weights where `freezing` allows it, and the best of these with its kernels on streams.
    What is returned is Inductor's own callable. Where nothing can be measured it is plain Inductor's: without
    CUDA, with gradients, with sizes that are not fixed, with random numbers, on several devices.
    """
    settings = read_options(merge_options(mode, options, more))
    caller = doors.caller_of_backend(sys._getframe(1))
    run, report = compile_fastest(gm, example_inputs, settings)
    if caller is not None:
        vars(caller).setdefault(_REPORTS, []).append(report)
    _logger.info("%s", report)
    return run


def compile_fastest(
    gm: Any, inputs: Sequence[Any], options: CompileOptions, measure: Measure | None = None
) -> tuple[Callable[..., Any], Report]:
    """Return the fastest variant of a graph and what was tried; `measure` stands for the device in tests.

    Raises
    ------
    ScheduleError
        If the calibration is of another product than the device.
    """
    name = f"graph-{next(_number)}"
    patches = doors.mode_patches(options.mode)
    reason = None
    there = None
    try:
        if measure is None:
            reason = why_plain(gm, inputs, options)
        if reason is None:
            measure = measure or Measure(inputs)
            if options.calibration is not None:
                there = measure.target()
    except Exception as error:  # whatever goes wrong here is no reason for the model to fail
        reason = line(error)
    if reason is not None:
        return doors.compile_inductor(gm, inputs, patches), Report(name, f"not measured: {reason}")
    assert measure is not None
    if there is not None:
        require_device(options.calibration, there)
    plain = doors.compile_inductor(doors.copy_graph(gm), inputs, patches)
    try:
        return Contest(name, gm, inputs, options, patches, plain, measure).decide()
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
