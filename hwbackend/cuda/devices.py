"""GPUs as the driver describes them, as a `Cluster` with what is known of such cards before anything is measured."""

from collections.abc import Mapping, Sequence
from typing import Final

from hwbackend.cuda.interface import CudaDevice
from simsched.base.units import GB_PER_S
from simsched.model.cluster import Cluster, Device
from simsched.model.cluster.presets import sheet
from simsched.model.profile import MeasuredDevice

_LANES: Final[Mapping[str, int]] = {"6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
_MOST_LANES: Final = 128  # fp32 lanes of an SM of any other capability
_CLOCK, _BANDWIDTH = 1500.0, 500e3  # MHz and bytes per us, where the driver says nothing
_UNKNOWN_BUS: Final = "pcie4"
_LIMITS: Final = (
    "threads_per_sm",
    "blocks_per_sm",
    "registers_per_sm",
    "shared_memory_per_sm",
    "shared_memory_per_block",
    "shared_memory_reserved",
)
_ANY_PRESET: Final = "a100"  # for nothing but the shape of its links


def device_of(found: CudaDevice, name: str) -> Device:
    """Return a GPU with its own limits; rates and costs are those of its preset.

    Without a preset rates are as its properties say, and costs those of its compute capability.
    """
    measured = MeasuredDevice(
        found.name,
        sms=found.sms,
        compute_capability=found.capability,
        threads_per_sm=found.threads_per_sm,
        registers_per_sm=found.registers_per_sm,
        shared_memory_per_sm=found.shared_memory_per_sm,
        shared_memory_per_block=found.shared_memory_per_block,
        memory=found.memory,
    )
    preset = measured.to_device(name)
    if preset is not None:
        return preset
    fields = sheet(
        found.capability,
        found.sms,
        _LANES.get(found.capability, _MOST_LANES),
        found.clock or _CLOCK,
        (found.bandwidth or _BANDWIDTH) / GB_PER_S,
        float(found.memory),
        float(found.l2),
        found.copy_engines,
    )
    limits = {limit: getattr(found, limit) for limit in _LIMITS}
    return Device(name=name, model=found.name, **fields | limits)


def cluster_of(found: Sequence[CudaDevice], virtual: int = 1) -> Cluster:
    """Return GPUs as a cluster of ``gpu0``, ``gpu1``, ..., linked as such cards usually are.

    Parameters
    ----------
    virtual
        Logical devices that each of them is. Copies between those of one GPU stay in its memory, whatever links say.
    """
    devices = tuple(device_of(one, f"gpu{i}") for i, one in enumerate(tuple(found) * virtual))
    preset = MeasuredDevice(found[0].name, sms=found[0].sms).preset
    count = len(devices)
    wired = Cluster.preset(preset, count) if preset else Cluster.preset(_ANY_PRESET, count, link=_UNKNOWN_BUS)
    kind = "virtual " if virtual > 1 else "x "
    model = devices[0].model
    return Cluster(devices, wired.links, name=model if count == 1 else f"{count} {kind}{model}")
