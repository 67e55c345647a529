"""`Change`: one thing that is to be different; and `PARAMETERS`, the numbers of devices and links that can be."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Final, get_type_hints

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.base.kinds import Kind, Many, Number, Range, Refused, Text, Truth
from simsched.base.numeric import is_number, plain_value
from simsched.base.units import GB_PER_S, MHZ, MS, SECOND, TFLOP_PER_S, US
from simsched.model.cluster import DEVICES, Cluster, Device, Link
from simsched.model.cluster.device import OVERHEADS
from simsched.model.program import EXECUTIONS

REBUILD: Final = "rebuild."
_LEAST_NAMES: Final = {"fuse": 2, "remove": 1}
_NAMES: Final = {"device": DEVICES, "execution": EXECUTIONS}
_KINDS: Final[Mapping[str, Kind]] = {
    "gpus": Number(True, Range(1, 4096)), "contention": Truth(), **dict.fromkeys(_LEAST_NAMES, Many(Text(filled=True))),
}  # fmt: skip
_AS_THEY_ARE: Final = ("gpus", *_NAMES, "contention", *_LEAST_NAMES)
_PATTERNS: Final = ("operators.KIND.speed", "operator.NAME.speed", "rebuild.PARAMETER")
_TIME: Final = {"us": US, "ms": MS, "s": SECOND}
_RATE: Final = {"B/us": 1.0, "GB/s": GB_PER_S}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "latency": _TIME, "bandwidth": _RATE, "copy_rate": _RATE, "clock": {"MHz": MHZ},
    "peak": {"FLOP/us": 1.0, "TFLOP/s": TFLOP_PER_S}, **dict.fromkeys(OVERHEADS, _TIME),
}  # fmt: skip
_SHOWN_IN: Final = ("us", "GB/s", "MHz", "TFLOP/s")  # of the units of a parameter
_QUANTITY: Final = re.compile(r"([-+0-9.eE]*[0-9.])\s*([A-Za-z/]+)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of all devices or of all links, that takes factors and values of its own.

    Parameters
    ----------
    part
        `Device` or `Link`.
    fields
        Those that are changed alike.
    units
        In which a text may give it, in library units.
    whole
        Whether it is rounded, to at least 1.
    below
        What it cannot be or exceed under any factor: 1 of parts of something.
    """

    part: type[Device | Link]
    fields: tuple[str, ...]
    units: Mapping[str, float]
    whole: bool
    below: float

    def values(self, cluster: Cluster) -> list[float | None]:
        """Return what it is on each device or link; None where its fields differ."""
        parts: Iterable[Any] = cluster.devices if self.part is Device else (link for _, _, link in cluster.links)
        return [common([_number_of(part, name) for name in self.fields]) for part in parts]

    def changed(self, cluster: Cluster, change: "Change") -> Cluster:
        """Return a cluster after a change of it."""
        if self.part is Link:
            return replace(cluster, links=tuple((a, b, self._changed(link, change)) for a, b, link in cluster.links))
        return replace(cluster, devices=tuple(self._changed(device, change) for device in cluster.devices))

    def _changed(self, part: Any, change: "Change") -> Any:
        for name in self.fields:
            old = _number_of(part, name)
            new: float = change.of(old)
            if self.whole and (not change.is_absolute or new == int(new)):
                new = max(1, round(new)) if new > 0 else 0
            if name == "interference":  # in proportion; from none at all every pair becomes alike
                pairs = tuple(tuple(x * (new / old) if old else change.of(x) for x in row) for row in part.interference)
                part = replace(part, interference=pairs)
            elif name != "peak":
                part = replace(part, **{name: new})
            if name in ("peak", "sms", "clock"):  # peak = SMs x lanes x 2 x clock
                part = replace(part, peak={dtype: rate * (new / old) for dtype, rate in part.peak.items()})
        return part


def _number_of(part: Any, name: str) -> float:
    """Return a field of a device or a link; of several numbers the one that stands for all."""
    value: Any = getattr(part, name)
    return float(max(map(max, value)) if name == "interference" else value["fp32"] if name == "peak" else value)


def common(values: Sequence[float | None]) -> float | None:
    """Return the value that all of some have in common, or None."""
    return float(values[0]) if values and values[0] is not None and len(set(values)) == 1 else None


def _parameter(part: type[Device | Link], name: str, kind: Any = float) -> Parameter:
    below = 1.0 if name in ("interleave", "least_sm_share", "block_spread") else inf
    return Parameter(part, (name,), _UNITS.get(name, {}), kind is int, below)


_ON_DEVICES: Final = {name: _parameter(Device, name, kind) for name, kind in get_type_hints(Device).items()
                      if kind in (int, float) or name == "peak"}  # fmt: skip
PARAMETERS: Final[Mapping[str, Parameter]] = {
    **{f"link.{name}": _parameter(Link, name) for name, kind in get_type_hints(Link).items() if kind is float},
    **{f"device.{name}": each for name, each in _ON_DEVICES.items() if name not in OVERHEADS},
    "overhead": Parameter(Device, OVERHEADS, _TIME, False, inf),
    **{f"overhead.{name}": _ON_DEVICES[name] for name in OVERHEADS},
    "interference": _parameter(Device, "interference"),
}


@dataclass(frozen=True, slots=True)
class Absolute:
    """A value in library units, as opposed to a factor; see `absolute`."""

    value: float


def absolute(value: float) -> Absolute:
    """Return a value that a parameter is to have, in library units, where a bare number would be a factor.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100"))
    >>> asked.overhead(launch=ss.absolute(5.0)).cluster.devices[0].launch
    5.0
    """
    return Absolute(value)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is to be different.

    Parameters
    ----------
    parameter
        Such as ``"link.bandwidth"``; see `WhatIf.set`.
    value
        A factor of what there is, or the value itself; names of operators for ``"fuse"`` and ``"remove"``.
    is_absolute
        Whether it is the value itself, in library units.

    >>> print(Change("link.bandwidth", 2.0), Change("gpus", 4, True))
    link.bandwidth*=2 gpus=4
    """

    parameter: str
    value: Any
    is_absolute: bool = False

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return f"{self.parameter}={','.join(self.value)}"
        text = f"{self.value:g}" if isinstance(self.value, float) else str(self.value)
        if isinstance(self.value, float) and float(text) != self.value:
            text = repr(self.value)
        return f"{self.parameter}{'=' if self.is_absolute else '*='}{text}"

    @property
    def given(self) -> Any:
        """What `WhatIf.set` takes for it."""
        return Absolute(self.value) if self.is_absolute and not is_taken_as_is(self.parameter) else self.value

    def of(self, value: float) -> float:
        """Return what becomes of a number."""
        number = float(self.value)
        return number if self.is_absolute or not number else value * number  # not inf x 0


def make_change(parameter: str, value: Any) -> Change:
    """Return a checked change of a parameter; a bare number is a factor where the parameter takes factors.

    Raises
    ------
    UnknownNameError
        If there is no such parameter, preset or execution.
    WhatIfError
        If the value does not suit it.
    """
    if is_taken_as_is(parameter):
        given = value.value if isinstance(value, Absolute) else value
        return Change(parameter, _as_it_is(parameter, given), True)
    if not _takes_factors(parameter):
        raise UnknownNameError("parameter", parameter, [*_AS_THEY_ARE, *PARAMETERS, "operators.speed", *_PATTERNS])
    number = value.value if isinstance(value, Absolute) else value
    if not is_number(number) or not (isfinite(number) and number >= 0):
        raise WhatIfError(f"{parameter}: give a finite number that is not negative, not {number!r}")
    if speed_of(parameter) is not None and number == 0:
        raise WhatIfError(f"{parameter}: a speed must be positive; `remove` takes operators out")
    return Change(parameter, float(number), isinstance(value, Absolute))


def is_taken_as_is(parameter: str) -> bool:
    """Return whether a parameter takes its values as they are, never as factors."""
    return parameter in _AS_THEY_ARE or (parameter.startswith(REBUILD) and len(parameter) > len(REBUILD))


def _takes_factors(parameter: str) -> bool:
    return parameter in PARAMETERS or speed_of(parameter) is not None


def speed_of(parameter: str) -> tuple[str | None, str | None] | None:
    """Return the kind and the name of the operators whose speed a parameter is, None for any; None if it is no speed.

    >>> speed_of("operators.conv.speed"), speed_of("operator.a.speed"), speed_of("operators.speed"), speed_of("gpus")
    (('conv', None), (None, 'a'), (None, None), None)
    """
    if parameter == "operators.speed":
        return None, None
    for start, place in (("operators.", 0), ("operator.", 1)):
        name = parameter.removeprefix(start).removesuffix(".speed")
        if name and parameter == f"{start}{name}.speed":
            return (name, None) if place == 0 else (None, name)
    return None


def _as_it_is(parameter: str, value: Any) -> Any:
    names, least = list(_NAMES.get(parameter, ())), _LEAST_NAMES.get(parameter, 0)
    if names and value not in names:
        raise UnknownNameError("gpu" if parameter == "device" else parameter, str(value), names)
    if parameter == "contention" and value in (0, 1):
        return bool(value)
    try:
        taken = _KINDS.get(parameter, Kind()).take((value,) if least and isinstance(value, str) else value)
    except Refused as refused:
        raise WhatIfError(refused.says(parameter)) from None
    taken = tuple(dict.fromkeys(taken)) if least else taken
    if least and len(taken) < least:
        raise WhatIfError(f"{parameter}: give the names of at least {least} operators, not {value!r}")
    return taken


def parse_change(text: str) -> Change:
    """Return the change that a text stands for: ``PARAMETER*=FACTOR`` or ``PARAMETER=VALUE``.

    Parameters
    ----------
    text
        Such as ``link.bandwidth*=2``, ``gpus=4``, ``device=h100``, ``overhead.launch=5us`` or
        ``link.bandwidth=600GB/s``; a value without a unit is in library units. The names after ``fuse=``
        and ``remove=`` are separated by commas.

    Raises
    ------
    WhatIfError
        If it is not of that form, the unit is none of the parameter's, or the value does not suit it.
    UnknownNameError
        If there is no such parameter.

    >>> parse_change("link.bandwidth=600GB/s")
    Change(parameter='link.bandwidth', value=600000.0, is_absolute=True)
    """
    parameter, equals, value = (part.strip() for part in text.partition("="))
    factor = parameter.endswith("*")
    parameter = parameter.removesuffix("*").rstrip()
    if not equals or not parameter or not value:
        raise WhatIfError(f"{text!r}: expected PARAMETER*=FACTOR or PARAMETER=VALUE, such as link.bandwidth*=2")
    if is_taken_as_is(parameter):
        if factor:
            raise WhatIfError(f"{text!r}: {parameter} takes no factor; write {parameter}=VALUE")
        return make_change(parameter, value.split(",") if parameter in _LEAST_NAMES else plain_value(value))
    if not _takes_factors(parameter):
        return make_change(parameter, value)  # which says what is known
    number = _number(text, value, {} if factor else _units(parameter))
    return make_change(parameter, number if factor else Absolute(number))


def _units(parameter: str) -> Mapping[str, float]:
    return PARAMETERS[parameter].units if parameter in PARAMETERS else {}


def shown_unit(parameter: str) -> tuple[str, float]:
    """Return the unit in which values of a parameter are shown, and what it is in library units; of some ("", 1)."""
    units = _units(parameter)
    return next(((name, units[name]) for name in _SHOWN_IN if name in units), ("", 1.0))


def with_unit(parameter: str, value: float) -> str:
    """Return a value of a parameter, which is in library units, with its unit, as `parse_change` reads it.

    >>> with_unit("link.bandwidth", 12000.0), with_unit("overhead.launch", 4.0), with_unit("gpus", 4)
    ('12 GB/s', '4 us', '4')
    """
    unit, scale = shown_unit(parameter)
    return f"{value / scale:.6g} {unit}".rstrip()


def _number(text: str, value: str, units: Mapping[str, float]) -> float:
    quantity = _QUANTITY.fullmatch(value)
    value, unit = quantity.groups() if quantity is not None else (value, None)
    if unit is not None and unit not in units:
        known = f"known are: {', '.join(units)}" if units else "it takes none"
        raise WhatIfError(f"{text!r}: unit {unit!r} does not suit; {known}")
    try:
        return float(value) * (1.0 if unit is None else units[unit])
    except ValueError:
        raise WhatIfError(f"{text!r}: {value!r} is no number") from None
