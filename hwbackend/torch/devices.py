"""PyTorch and its devices: whether they are there, what is known of them, and how they are made to run the same way."""

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from math import log
from typing import Any, Final

from simsched.base.errors import MissingDependencyError
from simsched.base.units import GB_PER_S, GIB, KIB, MIB, US
from simsched.model.cluster import DEVICES, Cluster, Device, Link
from simsched.model.cluster.presets import make_device
from simsched.model.profile import MeasuredDevice

_logger = logging.getLogger(__name__)

_CPU: Final = {
    "sms": 1,
    "threads_per_sm": 1024,
    "blocks_per_sm": 1,
    "registers_per_sm": 1 << 20,
    "shared_memory_per_sm": 1 * MIB,
    "shared_memory_per_block": 1 * MIB,
    "shared_memory_reserved": 0,
    "shared_memory_granularity": 1,
    "clock": 3000.0,
    "peak": {"fp32": 40e3},
    "bandwidth": 10 * GB_PER_S,
    "memory": 4 * GIB,
    "l2": 512 * KIB,
    "copy_engines": 1,
    "launch": 5.0,
    "record": 0.0,
    "wait": 0.0,
    "copy": 5.0,
    "barrier": 0.0,
    "gap": 0.0,
    "hop": 0.0,
    "graph_launch": 0.0,
    "graph_node": 0.0,
    "saturating_warps": 8.0,
    "interleave": 0.0,
}
"""One core as a device of one SM that runs a block at a time: priors for a common one."""
_ANY_PRESET: Final = "a100"
_LIMITS: Final = (
    "sms",
    "threads_per_sm",
    "registers_per_sm",
    "shared_memory_per_sm",
    "shared_memory_per_block",
    "memory",
)
"""Limits that the driver tells."""


def require_torch() -> Any:
    """Return PyTorch.

    Raises
    ------
    MissingDependencyError
        If it is not installed, or cannot be loaded.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "PyTorch is needed for the torch backend; install it with: pip install 'simsched[torch]'"
        ) from error
    except OSError as error:  # a library of CUDA that is not there
        raise MissingDependencyError(
            f"PyTorch cannot be loaded ({line(error)}); install it anew with: pip install 'simsched[torch]'"
        ) from error
    return torch


@contextmanager
def pin_algorithms(torch: Any, *, one_thread: bool = False) -> Iterator[None]:
    """Have PyTorch choose the same algorithms each time: none by trying out, deterministic, TF32 on request."""
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    try:
        torch.set_float32_matmul_precision("highest")
        if one_thread:
            torch.set_num_threads(1)
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


@contextmanager
def tf32_allowed(torch: Any) -> Iterator[None]:
    """Let products and convolutions of float32 use TF32 within a ``with`` block, inside of `pinned`."""
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def cpu_cluster(count: int) -> Cluster:
    """Return so many devices, each one core of the CPU, joined by memory."""
    devices = tuple(Device(f"gpu{i}", "cpu-core", **_CPU) for i in range(count))  # type: ignore[arg-type]
    link = Link(10 * GB_PER_S, 1 * US)
    links = tuple((device.name, "memory", link) for device in devices) if count > 1 else ()
    return Cluster(devices, links, name="cpu-core")


def cuda_cluster(torch: Any, count: int) -> Cluster:
    """Return the CUDA devices as presets of their products, with the limits that the driver tells."""
    devices = []
    for i in range(count):
        found = torch.cuda.get_device_properties(i)
        known = MeasuredDevice(
            str(found.name),
            sms=found.multi_processor_count,
            compute_capability=f"{found.major}.{found.minor}",
            threads_per_sm=getattr(found, "max_threads_per_multi_processor", None),
            registers_per_sm=getattr(found, "regs_per_multiprocessor", None),
            shared_memory_per_sm=getattr(found, "shared_memory_per_multiprocessor", None),
            shared_memory_per_block=getattr(found, "shared_memory_per_block_optin", None),
            memory=float(found.total_memory),
        )
        device = known.to_device(f"gpu{i}")
        if device is None:
            similar = _similar_preset(known)
            _logger.warning("no preset of %s: rates and overheads are those of an %s", found.name, similar)
            limits = {name: getattr(known, name) for name in _LIMITS if getattr(known, name) is not None}
            capability = known.compute_capability or ""
            device = replace(make_device(similar, f"gpu{i}"), model=str(found.name), capability=capability, **limits)
        devices.append(device)
    preset = devices[0].model if devices[0].model in DEVICES else _ANY_PRESET
    return replace(Cluster.preset(preset, count), devices=tuple(devices))


def _similar_preset(found: MeasuredDevice) -> str:
    """Return the preset of the same compute capability whose SMs and memory are the most similar, in proportion."""
    same = [name for name, fields in DEVICES.items() if fields["capability"] == found.compute_capability]

    def distance(name: str) -> float:
        fields = DEVICES[name]
        pairs = ((found.sms, fields["sms"]), (found.memory, fields["memory"]))
        return sum(abs(log(ours / theirs)) for ours, theirs in pairs if ours)

    return min(same, key=distance, default=_ANY_PRESET)


@cache
def driver() -> dict[str, str]:
    """Return the driver's version, where nvidia-smi tells; it is asked once in a process."""
    words = ["nvidia-smi", "-i", "0", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        text = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"driver": text.strip()}


def clock(torch: Any) -> dict[str, str]:
    """Return the SM clock of the first GPU now, where PyTorch can ask NVML (with ``nvidia-ml-py``)."""
    with suppress(ImportError, RuntimeError):
        return {"clock": f"{torch.cuda.clock_rate(0)} MHz"}
    return {}


def line(error: BaseException) -> str:
    """Return what PyTorch raised as one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
