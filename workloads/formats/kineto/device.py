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
    """Return the stated properties of the GPU of that number; None if the trace states none."""
    properties = Record(header, source).records("deviceProperties", [])
    for row in properties if number is not None else ():
        if row.take("id", int) == number:
            major, minor = row.take("computeMajor", int, None), row.take("computeMinor", int, None)
            known = {ours: row.take(theirs, int, None) for theirs, ours in _PROPERTIES.items()}
            capability = None if major is None or minor is None else f"{major}.{minor}"
            name = row.take("name", str)
            if not name:
                name = f"device {number}"
                _logger.warning("%s: device %d has no name; it is called %r", source, number, name)
            try:
                return MeasuredDevice(name, compute_capability=capability, **known)
            except CostError as error:
                raise FormatError(f"{row.where}: {error}") from error
    if properties:
        _logger.warning("%s: nothing is said of device %s, on which kernels ran", source, number)
    return None


def traced_device(found: MeasuredDevice | None, name: str, costs: Mapping[str, float], source: str) -> Device:
    """Return a device with its stated properties, the measured costs, and a preset for the rest; contention is off.

    The preset is the product's own, else one of the same compute capability.
    """
    base = make_device(_preset(found), name)
    known: dict[str, Any] = {} if found is None else {ours: getattr(found, ours) for ours in _PROPERTIES.values()}
    known = {ours: value for ours, value in known.items() if value} | dict(costs)
    try:
        model = base.model if found is None else found.name
        return replace(base, model=model, contention=False, **known)
    except ClusterError as error:
        raise FormatError(f"{source}: {error}") from error


def hinted(names: Iterable[str]) -> str | None:
    """Return the preset that names of kernels hint at; None if they do not.

    >>> hinted(["volta_sgemm_128x64_nn"]), hinted(["elementwise"])
    ('v100', None)
    """
    text = "\n".join(names).lower()
    return next((preset for part, preset in _HINTS.items() if part in text), None)


def preset_of(device: Device) -> str:
    """Return the preset of a traced device, by its model."""
    found = MeasuredDevice(device.model).preset
    return found or next((name for name in DEVICES if name in device.model.lower()), "h100")


def _preset(found: MeasuredDevice | None) -> str:
    capability = "" if found is None else found.compute_capability or ""
    maker = "AMD" if found is not None and _AMD.search(found.name) else capability
    stand_in = next(preset for start, preset in _STAND_INS.items() if maker.startswith(start))
    return stand_in if found is None else found.preset or stand_in
