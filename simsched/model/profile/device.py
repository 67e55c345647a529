"""The device on which a profile was measured, as the profiler describes it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from simsched.base.codec import Checked, Name, Rate, Size, brief
from simsched.base.errors import CostError
from simsched.model.cluster import DEVICES, Device
from simsched.model.cluster.presets import make_device

_WORDS = re.compile(r"[a-z0-9]+")
_BRANDS: Final = ("nvidia", "tesla", "geforce", "quadro")
# what may follow the name of a preset and still be that product: form factor and size of memory
_FORM = re.compile(r"sxm\d?|pcie|hbm\d?e?|oam|\d+gb")
_PRESETS: Final[Mapping[str, str]] = MappingProxyType({name.replace("-", ""): name for name in DEVICES})
LIMITS: Final = ("sms", "threads_per_sm", "registers_per_sm", "shared_memory_per_sm", "shared_memory_per_block")


@dataclass(frozen=True, slots=True)
class MeasuredDevice(Checked):
    """A device by its name and its limits, those that are known.

    Parameters
    ----------
    name
        As the driver calls it, such as ``"NVIDIA A100-SXM4-40GB"``.
    sms
        Streaming multiprocessors.
    compute_capability
        Such as ``"8.0"``.
    threads_per_sm, registers_per_sm, shared_memory_per_sm
        What an SM can hold at once (shared memory in bytes).
    shared_memory_per_block
        Most bytes of shared memory a block may ask for (opt-in limit).
    memory
        DRAM bytes.

    Examples
    --------
    >>> MeasuredDevice("Tesla V100-SXM2-32GB", sms=80, memory=34e9).to_device().memory
    34000000000.0
    """

    SUBJECT, ERROR = "device {0.name!r}", CostError
    name: Name
    sms: Size | None = brief(None)
    compute_capability: str | None = brief(None)
    threads_per_sm: Size | None = brief(None)
    registers_per_sm: Size | None = brief(None)
    shared_memory_per_sm: Size | None = brief(None)
    shared_memory_per_block: Size | None = brief(None)
    memory: Rate | None = brief(None)

    @property
    def preset(self) -> str | None:
        """Name of the preset of this product, or None if there is none with as many SMs."""
        words = _WORDS.findall(self.name.lower())
        while words and words[0] in _BRANDS:
            del words[0]
        for end in range(len(words), 0, -1):
            name = _PRESETS.get("".join(words[:end]))
            if name is not None and all(_FORM.fullmatch(word) for word in words[end:]):
                return name if self.sms in (None, DEVICES[name]["sms"]) else None
        return None

    def to_device(self, name: str = "gpu0") -> Device | None:
        """Return the preset of this product with the limits that were measured, or None if there is no preset.

        Rates and overheads remain those of the preset: a profiler does not report them.
        """
        preset = self.preset
        if preset is None:
            return None
        known = {key: getattr(self, key) for key in (*LIMITS, "memory") if getattr(self, key) is not None}
        return replace(make_device(preset, name), **known)
