"""A backend of `torch.compile` that runs what dynamo traced under a schedule, where the simulator predicts a gain.

``torch.compile(model, backend="simsched")`` finds it by the entry point group ``torch_dynamo_backends``.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from hwbackend.torch_apply import scheduled
from hwbackend.torch_devices import cpu_cluster, cuda_cluster, line, require_torch
from hwbackend.torch_effects import draws
from hwbackend.torch_nodes import is_weight, launches_nothing, traced_by_dynamo
from simsched.base.errors import UnknownNameError
from simsched.base.io import read_json
from simsched.calibration import Calibration
from simsched.experiments.advise import WORTH
from simsched.experiments.ranges import ranges
from simsched.model import Cluster, Schedule, Target
from simsched.schedulers import schedule
from simsched.simulator import simulate
from workloads.fusion import without_io

_logger = logging.getLogger(__name__)

_number: Final = count()  # of the graphs that dynamo hands over, for their names
OPTIONS: Final = ("scheduler", "calibration", "always", "least_gain")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the simulator says of a graph.

    Parameters
    ----------
    scheduled, sequential
        Makespans in us of the schedule and of one stream with the same execution.
    low, high
        Between what the gain lies with 90 %, see `simsched.experiments.ranges`; None where that was not found.
    """

    scheduled: float
    sequential: float
    low: float | None = None
    high: float | None = None

    @property
    def gain(self) -> float:
        """How many times as fast the schedule is."""
        return self.sequential / self.scheduled if self.scheduled else 1.0

    def __str__(self) -> str:
        between = "" if self.low is None else f", {self.low:.2f}-{self.high:.2f} with 90 %"
        return f"{self.gain:.3f} times as fast{between}"


def simsched_backend(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[..., Any]:
    """Return what runs a graph of dynamo: under a schedule where the simulator predicts a gain, else as it is.

    Parameters
    ----------
    gm
        A `torch.fx.GraphModule`.
    example_inputs
        One for each of its inputs, parameters among them.
    mode
        Of `torch.compile`; it has no meaning here.
    options, **more
        Of `torch.compile`, or by ``partial(simsched_backend, scheduler="ios")``:

        ``scheduler`` (``"opara"``)
            As `simsched.schedule` takes it; one that rewrites the graph is of no use here.
        ``calibration``
            A `Calibration` or a `Cluster` of one device, or the path of a file that holds one; by default the preset
            of the current device, or a core of the CPU.
        ``always`` (False)
            Run the schedule whatever is predicted.
        ``least_gain`` (1.05)
            How many times as fast as one stream the schedule has to be predicted to be, to be run; with 90 % it has
            to be faster at all, too.

    Raises
    ------
    UnknownNameError
        If there is no such option.

    Notes
    -----
    Nothing else that fails here breaks the model: it is run as it is, and a warning says why. So is, with the reason in
    the log at level INFO, a graph that autograd has to look into, one that draws random numbers, and one whose sizes
    are not fixed: dynamo makes a graph of each size at first, and of any size when there have been several
    (``dynamic=False`` keeps it from that). The prediction is logged at level INFO too. It is against the same kernels
    on one stream: what Inductor would make of the graph is not compared.
    """
    name = f"dynamo-{next(_number)}"
    plain: Callable[..., Any] = gm.forward
    given = _known({**(options or {}), **more})
    try:
        reason = _why_plain(gm, example_inputs)
        if reason is not None:
            _logger.info("%s: runs as it is: %s", name, reason)
            return plain
        if mode is not None:
            _logger.info("%s: mode %r of torch.compile has no meaning here", name, mode)
        return _compiled(name, gm, example_inputs, given)
    except Exception as error:  # whatever goes wrong here is no reason for the model to fail
        _warn(name, "could not be scheduled", error)
        return plain


def _compiled(name: str, gm: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    forward: Callable[..., Any] = gm.forward
    traced = traced_by_dynamo(gm, inputs, name)
    graph = without_io(traced.full)
    if all(map(launches_nothing, graph.operators)):
        _logger.info("%s: runs as it is: it launches nothing", name)
        return forward
    where = next(value.device for value in inputs)
    target = _target(where, options.get("calibration"))
    plan = schedule(graph, target, options.get("scheduler", "opara"))
    prediction = predict(plan, target)
    pays = prediction.gain >= float(options.get("least_gain", WORTH)) and (prediction.low or 1.0) >= 1.0
    runs = bool(options.get("always", False)) or pays
    _logger.info(
        "%s: %d operators, predicted %.1f us by %s on %d streams against %.1f us one after the other (%s); runs %s; "
        "not compared with Inductor",
        name,
        len(graph),
        prediction.scheduled,
        plan.scheduler,
        plan.n_streams,
        prediction.sequential,
        prediction,
        "under the schedule" if runs else "as it is",
    )
    if not runs:
        return forward
    fixed = [is_weight(value) for value in inputs]
    return _Guarded(name, scheduled(traced, inputs, plan, where, fixed), forward)


class _Guarded:
    """Runs a graph under a schedule, and if that ever fails from then on as it is."""

    def __init__(self, name: str, run: Callable[..., Any], plain: Callable[..., Any]) -> None:
        self._name, self._run, self._plain = name, run, plain
        self._failed = False

    def __call__(self, *args: Any) -> Any:
        if not self._failed:
            try:
                return self._run(*args)
            except Exception as error:  # of ours, or of the model itself, which then fails again
                self._failed = True
                _warn(self._name, "failed under its schedule", error)
        return self._plain(*args)


def predict(plan: Schedule, target: Target) -> Prediction:
    """Return the makespans of a schedule and of its operators on one stream, with the same kind of execution.

    One stream needs no stages, which would only add barriers: against stages it is launched with events.
    """
    execution = "graph" if plan.execution == "graph" else "events"
    one = Schedule.from_columns(plan.graph, plan.graph.order_index, plan.devices_used[:1], execution=execution)
    made, base = (simulate(each, target) for each in (plan, one))
    found = ranges({"plan": made.program}, target, reference=base.program)[0].get("plan")
    low, high = (None, None) if found is None else (found.speedup_low, found.speedup_high)
    return Prediction(made.makespan, base.makespan, low, high)


def _warn(name: str, what: str, error: Exception) -> None:
    _logger.warning("%s: %s, so it runs as it is: %s", name, what, line(error))
    _logger.debug("%s", name, exc_info=error)


def _known(options: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise UnknownNameError("option", str(unknown), list(OPTIONS))
    return options


def _why_plain(gm: Any, inputs: Sequence[Any]) -> str | None:
    """Return why a graph is not for us, or None."""
    torch = require_torch()
    if not all(isinstance(value, torch.Tensor) for value in inputs) or any(map(_is_symbolic, inputs)):
        return "its sizes are not fixed"
    if not len(inputs):
        return "it has no inputs"
    if torch.is_grad_enabled() and any(value.requires_grad for value in (*inputs, *gm.parameters())):
        return "autograd has to look into it (run it in torch.no_grad() to have it scheduled)"
    if len({value.device for value in inputs}) > 1 or inputs[0].device.type not in ("cpu", "cuda"):
        return "its inputs are not on one device that schedules run on"
    drawn = next((node.name for node in gm.graph.nodes if draws(gm, node)), None)
    return None if drawn is None else f"{drawn!r} draws random numbers"


def _is_symbolic(value: Any) -> bool:
    return not all(type(size) is int for size in value.shape)


def _target(where: Any, given: Any) -> Target:
    """Return what to schedule for: what is given, read from a file if it is a path, or the device that is there."""
    if given is None:
        return cpu_cluster(1) if where.type == "cpu" else cuda_cluster(require_torch(), 1)
    if not isinstance(given, str | os.PathLike):
        target: Target = given
        return target
    path = os.fspath(given)
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") == "simsched.cluster":
        return Cluster.from_dict(data, str(path))
    return Calibration.from_dict(data, str(path))
