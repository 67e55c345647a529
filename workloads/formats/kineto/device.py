"""The devices of a torch.profiler trace: their stated properties, and the presets that complete them."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from simsched.base.codec import Record
from simsched.base.errors import ClusterError, CostError, FormatError
from simsched.model.cluster import DEVICES, Device
from simsched.model.cluster.presets import make_device
from simsched.model.profile import MeasuredDevice

_logger = logging.getLogger(__name__)

# field of deviceProperties -> field of MeasuredDevice and of Device
_PROPERTIES: Final = {
    "numSms": "sms",
    "maxThreadsPerMultiprocessor": "threads_per_sm",
    "regsPerMultiprocessor": "registers_per_sm",
    "sharedMemPerMultiprocessor": "shared_memory_per_sm",
    "sharedMemPerBlockOptin": "shared_memory_per_block",
    "totalGlobalMem": "memory",
}
# Begin of a maker or compute capability -> preset of a device whose product has none; "" fits all others.
_STAND_INS: Final[Mapping[str, str]] = {
    "AMD": "mi300x",
    "3": "k80",
    "7.0": "v100",
    "7.5": "rtx2080ti",
    "8.0": "a100",
    "8": "rtx3080",
    "9": "h100",
    "10": "b200",
    "12": "rtx5090",
    "": "h100",
}

_AMD: Final = re.compile(r"\b(AMD|Instinct|Radeon)\b|\bMI[0-9]{3}", re.IGNORECASE)
_HINTS: Final[Mapping[str, str]] = {
    "volta_": "v100",
    "turing_": "rtx2080ti",
    "ampere_": "a100",
    "sm80_": "a100",
    "sm90_": "h100",
    "sm100_": "b200",
    "cijk_": "mi300x",
    "gfx9": "mi300x",
}
"""Part of a kernel's name -> preset of a device that runs such kernels."""


def measured_device(header: dict[str, Any], number: int | None, source: str) -> MeasuredDevice | None:
    """Return the stated properties of the GPU of that number; None if the trace states none.

    Where the trace states other GPUs than that, and all of these are alike, it is like them.
    """
    properties = Record(header, source).records("deviceProperties", [])
    if number is None or not properties:
        return None
    others = []
    for row in properties:
        its = row.take("id", int)
        device = _device_in(row, its)
        if its == number:
            return device
        others.append(device)
    _logger.warning("%s: nothing is said of device %s, on which kernels ran", source, number)
    if all(device == others[0] for device in others):
        return others[0]
    return None


def _device_in(row: Record, number: int) -> MeasuredDevice:
    """Return a device of the list of properties."""
    major = row.take("computeMajor", int, None)
    minor = row.take("computeMinor", int, None)
    properties_of = {ours: row.take(theirs, int, None) for theirs, ours in _PROPERTIES.items()}
    if major is None or minor is None:
        capability = None
    else:
        capability = f"{major}.{minor}"
    name = row.take("name", str)
    if not name:
        name = f"device {number}"
        _logger.warning("%s: device %d has no name; it is called %r", row.where, number, name)
    try:
        return MeasuredDevice(name, compute_capability=capability, **properties_of)
    except CostError as error:
        raise FormatError(f"{row.where}: {error}") from error


def traced_device(measured: MeasuredDevice | None, name: str, costs: Mapping[str, float], source: str) -> Device:
    """Return a device with its stated properties, the measured costs, and a preset for the rest; contention is off.

    The preset is the product's own, else one of the same compute capability.
    """
    base = make_device(_preset(measured), name)
    changes: dict[str, Any] = {"model": base.model}
    if measured is not None:
        stated = {name: getattr(measured, name) for name in _PROPERTIES.values()}
        changes = {"model": measured.name} | {name: value for name, value in stated.items() if value}
    try:
        return replace(base, contention=False, **(changes | dict(costs)))
    except ClusterError as error:
        raise FormatError(f"{source}: {error}") from error


def hinted_preset(names: Iterable[str]) -> str | None:
    """Return the preset that names of kernels hint at; None if they do not.

    >>> hinted_preset(["volta_sgemm_128x64_nn"]), hinted_preset(["elementwise"])
    ('v100', None)
    """
    text = "\n".join(names).lower()
    return next((preset for part, preset in _HINTS.items() if part in text), None)


def preset_of(device: Device) -> str:
    """Return the preset of a traced device, by its model."""
    preset = MeasuredDevice(device.model).preset
    return preset or next((name for name in DEVICES if name in device.model.lower()), "h100")


def _preset(measured: MeasuredDevice | None) -> str:
    if measured is None:
        capability = ""
    else:
        capability = measured.compute_capability or ""
    if measured is not None and _AMD.search(measured.name):
        maker = "AMD"
    else:
        maker = capability
    stand_in = next(preset for start, preset in _STAND_INS.items() if maker.startswith(start))
    if measured is None:
        return stand_in
    return measured.preset or stand_in
