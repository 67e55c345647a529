"""The options of the backend of `torch.compile`, checked by name and by value."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from math import inf, nan
from numbers import Integral, Real
from typing import Any, Final

from hwbackend.torch.inductor.doors import MODES
from simsched.base.errors import ArgumentError, ScheduleError, UnknownNameError, brief_text
from simsched.base.io import read_json
from simsched.calibration import Calibration
from simsched.model import Cluster, Target
from simsched.model.cluster import DEVICES
from simsched.model.costmodel import bare
from simsched.schedulers import resolve
from simsched.schedulers.protocol import Scheduler

MOST_STREAMS: Final = 8  # PyTorch hands out 32 again and again, to whoever asks


@dataclass(frozen=True)
class CompileOptions:
    """Options of `torch.compile(model, backend="simsched", options=...)`.

    Parameters
    ----------
    scheduler
        As `simsched.schedule` takes it; it has to keep the operators of the graph.
    streams
        Streams at most, 1 to 8.
    calibration
        What to schedule for: a `Calibration`, a `Cluster` of one device, or the path of a file with one; None is the
        preset of the device.
    budget_s
        Seconds for measuring variants of a graph, without compilation; 0 keeps plain Inductor.
    mode
        Mode of Inductor for all variants.
    freezing
        Whether weights never change from now on, so that a variant may fold them.
    memory_limit
        Bytes that intermediate values may need at most on streams; None is half of the memory that is free.
    """

    scheduler: str | Scheduler = "nimble"
    streams: int = 4
    calibration: Cluster | Calibration | None = None
    budget_s: float = 1.0
    mode: str | None = None
    freezing: bool = False
    memory_limit: float | None = None


def merge_options(mode: str | None, options: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one call of `torch.compile`: its `mode`, its `options`, and more from a `partial`.

    Raises
    ------
    ArgumentError
        If `options` is no dictionary, or an option is given twice with different values.
    """
    if not isinstance(options, Mapping | None):
        raise ArgumentError(f"options must be a dictionary, not {brief_text(options)}")
    given: dict[str, Any] = {} if mode is None else {"mode": mode}
    for name, value in (*(options or {}).items(), *more.items()):
        if name in given and given[name] is not value and given[name] != value:
            raise ArgumentError(
                f"{name} is given twice, as {brief_text(given[name])} and as {brief_text(value)}; leave one out"
            )
        given[name] = value
    return given


def read_options(given: Mapping[str, Any]) -> CompileOptions:
    """Return options that are known and possible.

    Raises
    ------
    UnknownNameError
        If there is no such option, scheduler or mode.
    ArgumentError
        If a value is of another kind, or out of range.
    ScheduleError
        If a calibration is of several devices.
    FileError, FormatError
        If the file of a calibration cannot be read.
    """
    known = [field.name for field in fields(CompileOptions)]
    for name in given:
        if name not in known:
            raise UnknownNameError("option", str(name), known)
    checks: Mapping[str, Callable[[Any], Any]] = _CHECKS
    values = {name: checks[name](value) for name, value in given.items()}
    return CompileOptions(**values)


def _scheduler(value: Any) -> Any:
    if not isinstance(value, str) and not callable(value):
        raise ArgumentError(f"scheduler must be a name or a function, not {brief_text(value)}")
    resolve(value)
    return value


def _streams(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST_STREAMS:
        raise ArgumentError(f"streams must be a whole number from 1 to {MOST_STREAMS}, not {brief_text(value)}")
    return int(value)


def _amount(name: str, value: Any) -> float:
    amount = nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            amount = float(value)
    if not 0.0 <= amount < inf:
        raise ArgumentError(f"{name} must be a number that is not negative, not {brief_text(value)}")
    return amount


def _mode(value: Any) -> str | None:
    if value is not None and value not in MODES:
        raise UnknownNameError("mode", str(value), list(MODES))
    return None if value is None else str(value)


def _freezing(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(f"freezing must be True or False, not {brief_text(value)}")
    return value


def _calibration(value: Any) -> Cluster | Calibration | None:
    target: Any = value
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        data = read_json(path)
        is_cluster = isinstance(data, dict) and data.get("format") == "simsched.cluster"
        if is_cluster:
            target = Cluster.from_dict(data, str(path))
        else:
            target = Calibration.from_dict(data, str(path))
    if target is not None and not isinstance(target, Cluster | Calibration):
        raise ArgumentError(f"calibration must be a Calibration, a Cluster or a path, not {brief_text(value)}")
    if target is not None and len(bare(target).devices) != 1:
        raise ScheduleError(f"calibration has {len(bare(target).devices)} devices; give one of one device")
    checked: Cluster | Calibration | None = target
    return checked


def require_device(calibration: Target | None, target: Target) -> None:
    """Refuse a calibration of one product where the model runs on another one.

    Raises
    ------
    ScheduleError
        If both are known products.
    """
    if calibration is None:
        return
    given, there = (bare(each).devices[0].model for each in (calibration, target))
    if given != there and given in DEVICES and there in DEVICES:
        raise ScheduleError(
            f"calibration is of {given}, but the model runs on {there}; give one of {there}, or leave it out"
        )


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "scheduler": _scheduler,
    "streams": _streams,
    "calibration": _calibration,
    "mode": _mode,
    "freezing": _freezing,
    "budget_s": lambda value: _amount("budget_s", value),
    "memory_limit": lambda value: None if value is None else _amount("memory_limit", value),
}
