"""`Change`: one thing that is to be different; and `PARAMETERS`, the numbers of devices and links that can be."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, get_type_hints

from simsched.base.codec import Kind, Many, Number, Range, Refused, Text, Truth
from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.base.limits import MOST
from simsched.base.numeric import is_number, plain_value
from simsched.base.units import GB_PER_S, MHZ, TFLOP_PER_S, US
from simsched.model.cluster import DEVICES, Cluster, Device, Link, device_named
from simsched.model.cluster.device import OVERHEADS
from simsched.model.costmodel import Rates
from simsched.model.graph.collective import MOST_RANKS
from simsched.model.program import EXECUTIONS

REBUILD: Final = "rebuild."
_EDITS: Final = ("fuse", "remove")
_NAMES: Final = {"device": DEVICES, "execution": EXECUTIONS}
_KINDS: Final[Mapping[str, Kind]] = {
    "gpus": Number(True, Range(1, MOST["gpus"])),
    "ranks": Number(True, Range(2, MOST_RANKS)),
    "contention": Truth(),
    **dict.fromkeys(_EDITS, Many(Text(filled=True), filled=True)),
}
_SMS: Final = Number(True, Range(1))
_AS_THEY_ARE: Final = ("gpus", "ranks", *_NAMES, "contention", *_EDITS)
RATES: Final = Rates._fields
"""Factors of the terms of estimated times; at first each is 1."""
_PATTERNS: Final = ("operators.KIND.speed", "operator.NAME.speed", "rebuild.PARAMETER", "stream.NUMBER.sms")
_HINTS: Final = {part: get_type_hints(part) for part in (Device, Link)}
_NO_UNIT: Final = ("", 1.0)
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "latency": ("us", US),
    "bandwidth": ("GB/s", GB_PER_S),
    "copy_rate": ("GB/s", GB_PER_S),
    "clock": ("MHz", MHZ),
    "peak": ("TFLOP/s", TFLOP_PER_S),
    **dict.fromkeys(OVERHEADS, ("us", US)),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of all devices or of all links, that takes factors and absolute values.

    Parameters
    ----------
    part
        `Device` or `Link`.
    fields
        Fields that the parameter changes alike.
    """

    part: type[Device | Link]
    fields: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the number is rounded, to at least 1."""
        return _HINTS[self.part][self.fields[0]] is int

    def values(self, cluster: Cluster) -> list[float | None]:
        """Return the number of each device or link; None where its fields differ."""
        if self.part is Device:
            parts: Iterable[Any] = cluster.devices
        else:
            parts = (link for _, _, link in cluster.links)
        return [common([_number_of(part, name) for name in self.fields]) for part in parts]

    def change_cluster(self, cluster: Cluster, change: "Change") -> Cluster:
        """Return a cluster after a change of it."""
        if self.part is Link:
            return cluster.with_links(lambda link: self._changed_part(link, change))
        return replace(cluster, devices=tuple(self._changed_part(device, change) for device in cluster.devices))

    def _changed_part(self, part: Any, change: "Change") -> Any:
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
    """Return a field of a device or a link; for several numbers the one that represents them all."""
    value: Any = getattr(part, name)
    return float(max(map(max, value)) if name == "interference" else value["fp32"] if name == "peak" else value)


def common(values: Sequence[float | None]) -> float | None:
    """Return the value that all of some have in common, or None."""
    if values and values[0] is not None and len(set(values)) == 1:
        return float(values[0])
    return None


PARAMETERS: Final[Mapping[str, Parameter]] = {
    **{f"link.{name}": Parameter(Link, (name,)) for name, kind in _HINTS[Link].items() if kind is float},
    **{
        f"device.{name}": Parameter(Device, (name,))
        for name, kind in _HINTS[Device].items()
        if (kind in (int, float) or name == "peak") and name not in OVERHEADS
    },
    "overhead": Parameter(Device, OVERHEADS),
    **{f"overhead.{name}": Parameter(Device, (name,)) for name in OVERHEADS},
    "interference": Parameter(Device, ("interference",)),
}


def _short_names() -> dict[str, tuple[str, ...]]:
    """Return the parameters that a last part of their name may mean: ``launch`` is ``overhead.launch``."""
    meanings: dict[str, tuple[str, ...]] = {"n_gpus": ("gpus",)}
    for name in PARAMETERS:
        short = name.rpartition(".")[2]
        if short not in PARAMETERS:
            meanings[short] = (*meanings.get(short, ()), name)
    return meanings


SHORT_NAMES: Final[Mapping[str, tuple[str, ...]]] = _short_names()


def full_name(parameter: str) -> str:
    """Return the full name of a parameter, given that or its last part alone.

    Raises
    ------
    WhatIfError
        If several parameters end so.

    >>> full_name("launch"), full_name("sms"), full_name("link.bandwidth"), full_name("n_gpus")
    ('overhead.launch', 'device.sms', 'link.bandwidth', 'gpus')
    """
    meanings = SHORT_NAMES.get(parameter, (parameter,))
    if len(meanings) > 1:
        raise WhatIfError(f"{parameter!r} may be {' or '.join(meanings)}: give its full name")
    return meanings[0]


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
        A factor of the present value, or the value itself; names of operators for ``"fuse"`` and ``"remove"``.
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
        if isinstance(self.value, float):
            text = f"{self.value:g}"
        else:
            text = str(self.value)
        if isinstance(self.value, float) and float(text) != self.value:
            text = repr(self.value)
        return f"{self.parameter}{'=' if self.is_absolute else '*='}{text}"

    @property
    def given(self) -> Any:
        """The value in the form that `WhatIf.set` takes."""
        if self.is_absolute and not is_taken_as_is(self.parameter):
            return Absolute(self.value)
        return self.value

    def of(self, value: float) -> float:
        """Return a number after the change."""
        number = float(self.value)
        # A number that is 0 stays 0: infinity times 0 is not a number.
        if self.is_absolute or not number:
            return number
        return value * number


def make_change(parameter: str, value: Any) -> Change:
    """Return a checked change of a parameter; a bare number is a factor where the parameter takes factors.

    Raises
    ------
    UnknownNameError
        If no parameter, preset or execution has this name.
    WhatIfError
        If the value does not suit it.
    """
    plain = value.value if isinstance(value, Absolute) else value
    parameter = full_name(parameter)
    if is_taken_as_is(parameter):
        names = list(_NAMES.get(parameter, ()))
        edits = parameter in _EDITS
        if parameter == "device":
            device_named(str(plain), "gpu0")  # an unknown preset or an unreadable file is refused at once
            plain = str(plain)
        elif names and plain not in names:
            raise UnknownNameError(parameter, str(plain), names)
        try:
            kind = _SMS if stream_of(parameter) is not None else _KINDS.get(parameter, Kind())
            checked = kind.take((plain,) if edits and isinstance(plain, str) else plain)
        except Refused as refused:
            raise WhatIfError(refused.says(parameter)) from None
        return Change(parameter, tuple(dict.fromkeys(checked)) if edits else checked, True)
    if not _takes_factors(parameter):
        raise UnknownNameError(
            "parameter", parameter, [*_AS_THEY_ARE, *PARAMETERS, *RATES, "operators.speed", *_PATTERNS]
        )
    if not is_number(plain) or not (isfinite(plain) and plain >= 0):
        raise WhatIfError(f"{parameter}: give a finite number that is not negative, not {plain!r}")
    if speed_of(parameter) is not None and plain == 0:
        raise WhatIfError(f"{parameter}: a speed must be positive; `remove` takes operators out")
    return Change(parameter, float(plain), isinstance(value, Absolute))


def is_taken_as_is(parameter: str) -> bool:
    """Return whether a parameter takes plain values, never factors."""
    is_named = parameter in _AS_THEY_ARE or stream_of(parameter) is not None
    return is_named or (parameter.startswith(REBUILD) and len(parameter) > len(REBUILD))


def stream_of(parameter: str) -> int | None:
    """Return the stream whose SMs a parameter is, None if it is another one.

    >>> stream_of("stream.1.sms"), stream_of("device.sms")
    (1, None)
    """
    match = re.fullmatch(r"stream\.([0-9]{1,9})\.sms", parameter)
    return None if match is None else int(match[1])


def _takes_factors(parameter: str) -> bool:
    return parameter in PARAMETERS or parameter in RATES or speed_of(parameter) is not None


def speed_of(parameter: str) -> tuple[str | None, str | None] | None:
    """Return the kind and the name of the operators whose speed a parameter is, None for any; None if it is no speed.

    >>> speed_of("operators.conv.speed"), speed_of("operator.a.speed"), speed_of("operators.speed"), speed_of("gpus")
    (('conv', None), (None, 'a'), (None, None), None)
    """
    match = re.fullmatch(r"operators(?:\.(.+))?\.speed|operator\.(.+)\.speed", parameter, re.S)
    if match is None:
        return None
    return (match[1], match[2])


def parse_change(text: str) -> Change:
    """Return the change that a text describes: ``PARAMETER*=FACTOR`` or ``PARAMETER=VALUE``.

    Parameters
    ----------
    text
        Such as ``link.bandwidth*=2``, ``gpus=4``, ``device=h100``, ``overhead.launch=5us`` or
        ``link.bandwidth=600GB/s``; a value without a unit is in library units. The names after ``fuse=``
        and ``remove=`` are separated by commas.

    Raises
    ------
    WhatIfError
        If it is not of that form, the unit is not the parameter's, or the value does not suit it.
    UnknownNameError
        If no parameter has this name.

    >>> parse_change("link.bandwidth=600GB/s")
    Change(parameter='link.bandwidth', value=600000.0, is_absolute=True)
    """
    parameter, equals, value = (part.strip() for part in text.partition("="))
    factor = parameter.endswith("*")
    parameter = full_name(parameter.removesuffix("*").rstrip())
    if not equals or not parameter or not value:
        raise WhatIfError(f"{text!r}: expected PARAMETER*=FACTOR or PARAMETER=VALUE, such as link.bandwidth*=2")
    if is_taken_as_is(parameter):
        if factor:
            raise WhatIfError(f"{text!r}: {parameter} takes no factor; write {parameter}=VALUE")
        return make_change(parameter, value.split(",") if parameter in _EDITS else plain_value(value))
    if not _takes_factors(parameter):
        return make_change(parameter, value)  # its error lists the parameters
    if factor:
        unit, scale = _NO_UNIT
    else:
        unit, scale = unit_of(parameter)
    number = value.removesuffix(unit)
    try:
        amount = float(number) * (1.0 if number == value else scale)
    except ValueError:
        raise WhatIfError(f"{text!r}: give a number{unit and f', or one of {unit}'}, not {value!r}") from None
    return make_change(parameter, amount if factor else Absolute(amount))


def unit_of(parameter: str) -> tuple[str, float]:
    """Return the unit of a parameter's values in texts, and its size in library units; ("", 1) without unit."""
    if parameter in PARAMETERS:
        return _UNITS.get(PARAMETERS[parameter].fields[0], _NO_UNIT)
    return _NO_UNIT


def with_unit(parameter: str, value: float) -> str:
    """Return a value of a parameter, which is in library units, with its unit, as `parse_change` reads it.

    >>> with_unit("link.bandwidth", 12000.0), with_unit("overhead.launch", 4.0), with_unit("gpus", 4)
    ('12 GB/s', '4 us', '4')
    """
    unit, scale = unit_of(parameter)
    return f"{value / scale:.6g} {unit}".rstrip()
