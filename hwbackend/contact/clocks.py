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
_FIELDS: Final = (
    "clocks.sm",
    "clocks.mem",
    "clocks_throttle_reasons.active",
    "temperature.gpu",
    "power.draw",
)
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
        Number of other processes that use the device, or None where it is not known.
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


def state_of_gpu(index: int = 0) -> DeviceState | None:
    """Return the condition of a GPU; None where neither NVML nor nvidia-smi reports one."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return _state_by_command(index)
    try:
        nvml.nvmlInit()
        return _state_by_nvml(nvml, index)
    except nvml.NVMLError:
        return None


def _state_by_nvml(nvml: Any, index: int) -> DeviceState:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    others = [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(gpu) if one.pid != os.getpid()]
    return DeviceState(
        float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
        reasons_of(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))),
        float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
        len(others),
    )


def _state_by_command(index: int) -> DeviceState | None:
    """Return the condition that nvidia-smi prints; fields that it does not know are None."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "-i", str(index), f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        printed = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    texts = [text.strip() for text in printed.strip().split(",")]
    if len(texts) != len(_FIELDS):
        return None
    sm_clock, memory_clock, mask, temperature, power = texts
    reasons = reasons_of(int(mask, 16)) if mask.startswith("0x") else ()
    return DeviceState(_number(sm_clock), _number(memory_clock), reasons, _number(temperature), _number(power))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
