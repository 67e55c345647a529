"""The condition of the first GPU, by NVML through `pynvml` (nvidia-ml-py) if it is installed, or else by nvidia-smi."""

import importlib
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any, Final

_REASONS: Final = {
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks",
}
"""Reasons for lower clocks by their bit in NVML; an idle device (0x1) is not slowed."""
_FIELDS: Final = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_MASKS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # its name today, and before 2023
_PATIENCE: Final = 5.0  # s that nvidia-smi may take


@dataclass(frozen=True)
class DeviceState:
    """The condition of a device, as its driver reports it.

    Parameters
    ----------
    sm_clock, memory_clock
        MHz, or None where they are not known.
    throttled
        Reasons why the clocks are lower than they could be.
    temperature
        Degrees Celsius.
    power
        Watts.
    processes
        Number of other processes that use the device, or None where it is not known. This process is one of those that
        the driver lists, though perhaps by another number: in a container it knows only its own.
    """

    sm_clock: float | None = None
    memory_clock: float | None = None
    throttled: tuple[str, ...] = ()
    temperature: float | None = None
    power: float | None = None
    processes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"throttled": list(self.throttled)}


def reasons_of(mask: int) -> tuple[str, ...]:
    """Return the reasons for lower clocks in a mask of NVML.

    >>> reasons_of(0x21)
    ('sw_thermal_slowdown',)
    """
    return tuple(name for bit, name in _REASONS.items() if mask & bit)


def visible_gpu(visible: str | None) -> str:
    """Return how NVML knows the first GPU that CUDA sees: a number, or a text that begins with ``GPU-`` or ``MIG-``.

    Parameters
    ----------
    visible
        ``CUDA_VISIBLE_DEVICES``, or None if it is not set.

    >>> visible_gpu(None), visible_gpu("3,1"), visible_gpu("GPU-7a,GPU-2b")
    ('0', '3', 'GPU-7a')
    """
    first = (visible or "0").partition(",")[0].strip()
    return first or "0"


def state_of_gpu() -> DeviceState | None:
    """Return the condition of the first GPU that CUDA sees; None where neither NVML nor nvidia-smi reports one."""
    name = visible_gpu(os.environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return _state_by_command(name)
    try:
        nvml.nvmlInit()
        return _state_by_nvml(nvml, name)
    except nvml.NVMLError:
        return None


def _state_by_nvml(nvml: Any, name: str) -> DeviceState:
    """Return the condition that NVML reports; a virtual GPU, or a part of one, does not know all of it."""
    if name.isdigit():
        gpu = nvml.nvmlDeviceGetHandleByIndex(int(name))
    else:
        gpu = nvml.nvmlDeviceGetHandleByUUID(name)

    def ask(call: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, call)(gpu, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    power = ask("nvmlDeviceGetPowerUsage")
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    return DeviceState(
        _number(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
        _number(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)),
        reasons_of(int(ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0)),
        _number(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
        None if power is None else power / 1e3,
        None if processes is None else max(0, len(processes) - 1),
    )


def _state_by_command(name: str) -> DeviceState | None:
    """Return the condition that nvidia-smi prints; fields that it does not know are None."""
    if shutil.which("nvidia-smi") is None:
        return None
    for mask_field in _MASKS:  # a name that it does not know costs the whole answer
        fields = (*_FIELDS, mask_field)
        query = ["nvidia-smi", "-i", name, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            printed = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        texts = [text.strip() for text in printed.strip().split(",")]
        if len(texts) == len(fields):
            *numbers, mask = texts
            sm_clock, memory_clock, temperature, power = map(_number, numbers)
            reasons = reasons_of(int(mask, 16)) if mask.startswith("0x") else ()
            return DeviceState(sm_clock, memory_clock, reasons, temperature, power)
    return None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
