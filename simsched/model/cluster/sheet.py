"""A GPU by the numbers of its datasheet: for devices without a preset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from simsched.base.codec import Among, Amount, Checked, Document, Name, Rate, Size
from simsched.base.errors import ClusterError
from simsched.base.units import GB_PER_S, GIB, MIB, TFLOP_PER_S
from simsched.model.cluster.device import Device
from simsched.model.cluster.presets import DEFAULT_LINK, LINKS, known_gpu, make_device, sheet

_FULL: Final = "fp32"


@dataclass(frozen=True, slots=True)
class GpuSheet(Checked, Document):
    """A GPU by the numbers of its datasheet.

    Missing numbers are derived: limits of an SM and the kernels that libraries have from the compute capability, costs
    of launching and synchronising from similar devices that were measured.

    Parameters
    ----------
    name
        Name in results.
    compute_capability
        Such as ``"8.9"``.
    sms
        Streaming multiprocessors.
    lanes
        FP32 lanes ("CUDA cores") of an SM.
    clock_mhz
        Clock of the SMs under load in MHz.
    bandwidth_gb_per_s, memory_gib
        Rate of DRAM in GB/s, and its size in GiB.
    l2_mib
        L2 cache in MiB.
    copy_engines
        Engines that drive copies.
    tflops
        Dense rates in TFLOP/s of number formats other than fp32, which follows from SMs, lanes and clock.
    link
        How several of them are joined: a name in ``simsched list gpus``.

    Raises
    ------
    ClusterError
        If a value is out of its range.

    Examples
    --------
    >>> GpuSheet.of("a10").to_device().model
    'a10'
    """

    SUBJECT = "gpu {0.name!r}"
    ERROR = ClusterError
    FORMAT = "simsched.gpu"
    name: Name
    compute_capability: str
    sms: Size
    lanes: Size
    clock_mhz: Rate
    bandwidth_gb_per_s: Rate
    memory_gib: Rate
    l2_mib: Amount
    copy_engines: Size
    tflops: Mapping[str, Rate] = field(hash=False)
    link: Annotated[str, Among(LINKS)] = "pcie4"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        major, _, minor = self.compute_capability.partition(".")
        if not (major.isdecimal() and minor.isdecimal()):
            raise self.refusal(f"compute_capability must be major.minor, such as 8.9, not {self.compute_capability!r}")
        if _FULL in self.tflops:
            raise self.refusal("tflops must leave out fp32, which follows from sms, lanes and clock_mhz")

    @classmethod
    def of(cls, preset: str) -> "GpuSheet":
        """Return the numbers of a preset.

        Raises
        ------
        UnknownNameError
            If no preset has this name.
        """
        name = known_gpu(preset)
        device = make_device(name, name)
        return cls(
            name=name,
            compute_capability=device.capability,
            sms=device.sms,
            lanes=round(device.peak[_FULL] / (2 * device.sms * device.clock)),
            clock_mhz=device.clock,
            bandwidth_gb_per_s=device.bandwidth / GB_PER_S,
            memory_gib=device.memory / GIB,
            l2_mib=device.l2 / MIB,
            copy_engines=device.copy_engines,
            tflops={dtype: rate / TFLOP_PER_S for dtype, rate in device.peak.items() if dtype != _FULL},
            link=DEFAULT_LINK[name],
        )

    def to_device(self, name: str = "gpu0") -> Device:
        """Return the device that the numbers describe, under a name."""
        fields = sheet(
            self.compute_capability,
            self.sms,
            self.lanes,
            self.clock_mhz,
            self.bandwidth_gb_per_s,
            self.memory_gib * GIB,
            self.l2_mib * MIB,
            self.copy_engines,
            **self.tflops,
        )
        return Device(name=name, model=self.name, **fields)


def device_named(text: str, name: str) -> Device:
    """Return the device of a preset, or of a file with a `GpuSheet`, under a name.

    Parameters
    ----------
    text
        Name of a preset in any case, or the path of a JSON file.

    Raises
    ------
    UnknownNameError
        If no preset has this name.
    FileError, FormatError
        If the file cannot be read, or holds no `GpuSheet`.
    """
    if text.lower().endswith(".json"):
        return GpuSheet.load(text).to_device(name)
    return make_device(known_gpu(text), name)
