"""Devices and links by name: datasheet figures and priors, to be replaced by calibration.

Sources, in the comments below: **cc** = limits per compute capability from the CUDA toolkit's occupancy header;
**datasheet** = vendor's product brief, whitepaper or ``deviceQuery`` listing; **trace** = device properties recorded in
profiler traces; **prior** = from memory of published figures, not checked here. FP32 rates are SMs x lanes x 2 x clock
rather than the rounded figure of a datasheet; the warps that fill an SM follow from its lanes (`PRIORS`). Costs of
launching are medians of published profiler traces by family, the profiler included, see `_HOST`. Costs of synchronising
were measured on an H100, see `_MEASURED`; other devices have the defaults of `Device`: medians of traces of V100 and
A100 (record 1 us, wait 1.3 us, same-stream gap 0.8-1 us) and priors (hop, barrier, graph launch). The interference of
kernels beside each other was measured on an H100 and is the default of all. Dispatch is strict leftover (interleave 0):
of 94 measured pairs on V100 and A100 whose first kernel has many waves none shared slots.
"""

from collections.abc import Mapping
from typing import Any, Final

from simsched.base.errors import UnknownNameError
from simsched.base.units import GB_PER_S, GIB, KIB, MIB, TFLOP_PER_S, US
from simsched.model.cluster.device import WARP, Device
from simsched.model.cluster.link import Link
from simsched.model.cluster.priors import PRIORS

_LIMITS = (
    "threads_per_sm",
    "blocks_per_sm",
    "registers_per_sm",
    "shared_memory_per_sm",
    "shared_memory_per_block",
    "shared_memory_reserved",
    "shared_memory_granularity",
)
_CAPABILITY: Final[Mapping[str, tuple[int, ...]]] = {
    "3.7": (2048, 16, 131072, 112 * KIB, 48 * KIB, 0, 256),
    "7.0": (2048, 32, 65536, 96 * KIB, 96 * KIB, 0, 256),
    "7.5": (1024, 16, 65536, 64 * KIB, 64 * KIB, 0, 256),
    "8.0": (2048, 32, 65536, 164 * KIB, 163 * KIB, 1 * KIB, 128),
    "8.6": (1536, 16, 65536, 100 * KIB, 99 * KIB, 1 * KIB, 128),
    "8.7": (1536, 16, 65536, 164 * KIB, 163 * KIB, 1 * KIB, 128),
    "8.9": (1536, 24, 65536, 100 * KIB, 99 * KIB, 1 * KIB, 128),
    "9.0": (2048, 32, 65536, 228 * KIB, 227 * KIB, 1 * KIB, 128),
    "10.0": (2048, 32, 65536, 228 * KIB, 227 * KIB, 1 * KIB, 128),
    "12.0": (1536, 24, 65536, 100 * KIB, 99 * KIB, 1 * KIB, 128),
}
"""Limits of an SM, in the order of `_LIMITS`: cc, of NVIDIA's CUDA programming guide, compute capabilities."""
_COMPUTE_UNIT: Final = (2048, 32, 131072, 64 * KIB, 64 * KIB, 0, 512)
"""Limits of a compute unit of AMD's CDNA 3: its instruction set guide. A wave is two warps of the model."""

# Median us of a launch call, and from its beginning to the start of a kernel on an idle device, by compute capability:
# ResNet on V100; DLRM on A100; OWLv2 on H100 (traces in HolisticTraceAnalysis and TraceLens), but its call by CuPy,
# without a profiler: 4.9 to 5.4. Others: prior.
_HOST: Final = {"7.0": (5.2, 6.8), "8.0": (6.0, 8.0), "8.6": (6.0, 8.0), "9.0": (5.0, 6.4)}
_USUAL_HOST: Final = (4.0, 6.0)
# Costs in us by compute capability where a device was measured: an H100. Record and wait take 0.30 each; a hop where
# the host is ahead 0.07; from one kernel of a stream to the next 1.5; a barrier of one busy stream 8, of several 14;
# the launch of a captured graph 5 (by PyTorch 10 to 12), and 0.25 to 0.3 between its kernels.
_MEASURED: Final[Mapping[str, dict[str, Any]]] = {
    "9.0": {
        "record": 0.3,
        "wait": 0.3,
        "hop": 0.1,
        "gap": 1.5,
        "barrier": 8.0,
        "barrier_many": 14.0,
        "graph_launch": 5.0,
        "graph_node": 0.3,
    },
}


def sheet(
    cc: str, sms: int, lanes: int, mhz: float, gb_per_s: float, memory: float, l2: float, engines: int, **tflops: float
) -> dict[str, Any]:
    """Return the fields of a `Device`.

    Parameters
    ----------
    cc
        Compute capability. One that is not known has the limits of the next older one.
    sms, lanes
        Streaming multiprocessors, and fp32 lanes of each.
    mhz
        Clock of the SMs.
    gb_per_s, memory, l2
        Rate of DRAM in GB/s, its bytes, and the bytes of the L2 cache.
    engines
        Copy engines.
    tflops
        Dense rates of number formats other than fp32, in TFLOP/s.
    """
    limits = _CAPABILITY[
        max((capability for capability in _CAPABILITY if _order(capability) <= _order(cc)), key=_order, default="3.7")
    ]
    launch, latency = _HOST.get(cc, _USUAL_HOST)
    cycles = PRIORS.get(f"saturating_cycles_{cc}", PRIORS["saturating_cycles"]).value
    rates = {"fp32": sms * lanes * 2 * mhz} | {dtype: rate * TFLOP_PER_S for dtype, rate in tflops.items()}
    return (
        dict(zip(_LIMITS, limits, strict=True))
        | {
            "sms": sms,
            "clock": mhz,
            "peak": rates,
            "bandwidth": gb_per_s * GB_PER_S,
            "memory": memory,
            "l2": l2,
            "copy_engines": engines,
            "launch": launch,
            "launch_latency": latency,
            # cycles until a lane's result is there; at most an SM's number of warps
            "saturating_warps": float(min(cycles * lanes / WARP, limits[0] / WARP)),
            "capability": cc,
        }
        | _MEASURED.get(cc, {})
    )


def _order(capability: str) -> tuple[int, ...]:
    """Return the sort key of a compute capability such as ``"9.0"``."""
    return tuple(map(int, capability.split(".")))


def _slice(whole: Mapping[str, Any], sms: int, eighths: int, engines: int) -> dict[str, Any]:
    """Return the fields of a slice of a GPU (MIG): some SMs, and some eighths of memory, bandwidth and L2."""
    part = eighths / 8
    return dict(whole) | {
        "sms": sms,
        "peak": {dtype: rate * sms / whole["sms"] for dtype, rate in whole["peak"].items()},
        "bandwidth": whole["bandwidth"] * part,
        "memory": whole["memory"] * part,
        "l2": whole["l2"] * part,
        "copy_engines": min(engines, whole["copy_engines"]),
    }


_WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    # One die of the two on a board. cc; 13 SMs, 240 GB/s: prior
    "k80": sheet("3.7", 13, 192, 875, 240, 12 * GIB, 1.5 * MIB, 2, fp64=1.46) | {"resident_kernels": 32},
    # cc and SMs: trace; clock as locked by the IOS authors; bandwidth and tensor rate: datasheet, prior
    "v100": sheet("7.0", 80, 64, 1530, 900, 16 * GIB, 6 * MIB, 6, fp64=7.8, fp16=125),
    "v100s-pcie": sheet("7.0", 80, 64, 1597, 1134, 32 * GIB, 6 * MIB, 6, fp64=8.2, fp16=130),  # prior
    "rtx2080super": sheet("7.5", 48, 64, 1815, 496, 8 * GIB, 4 * MIB, 3, fp64=0.348, fp16=44.6, int8=178.4),  # prior
    "rtx2080ti": sheet("7.5", 68, 64, 1545, 616, 11 * GIB, 5.5 * MIB, 3, fp64=0.42, fp16=53.8, int8=215.2),  # prior
    # SMs, clock, bandwidth, L2: deviceQuery listing; 40 GB card; tensor rates: datasheet
    "a100": sheet("8.0", 108, 64, 1410, 1555, 40 * GIB, 40 * MIB, 3, fp64=9.7, tf32=156, fp16=312, bf16=312, int8=624),
    # product page; tensor rates: datasheet
    "a40": sheet(
        "8.6", 84, 128, 1740, 696, 48 * GIB, 6 * MIB, 2, fp64=0.585, tf32=74.8, fp16=149.7, bf16=149.7, int8=299.3
    ),
    # 10 GB card; prior; tensor rates with fp32 accumulation
    "rtx3080": sheet(
        "8.6", 68, 128, 1710, 760, 10 * GIB, 5 * MIB, 2, fp64=0.465, tf32=29.8, fp16=59.5, bf16=59.5, int8=238
    ),
    # SXM5; prior; tensor rates: datasheet without sparsity
    "h100": sheet(
        "9.0",
        132,
        128,
        1980,
        3352,
        80 * GIB,
        50 * MIB,
        3,
        fp64=33.5,
        tf32=494.7,
        fp16=989.4,
        bf16=989.4,
        fp8=1978.9,
        int8=1978.9,
    ),
    # From here to the MI355X: clocks, bandwidth, memory, L2 and dense tensor rates of datasheets and architecture
    # whitepapers; none was measured here. Tensor rates of GeForce cards are those with fp32 accumulation
    "h100-pcie": sheet(
        "9.0", 114, 128, 1755, 2039, 80 * GIB, 50 * MIB, 3, fp64=25.6, tf32=378, fp16=756, bf16=756, fp8=1513, int8=1513
    ),
    "h100-nvl": sheet(
        "9.0",
        132,
        128,
        1785,
        3938,
        94 * GIB,
        50 * MIB,
        3,
        fp64=30.0,
        tf32=417.5,
        fp16=835,
        bf16=835,
        fp8=1670,
        int8=1670,
    ),
    # HBM3e SXM; two dies that appear as one device
    "b200": sheet(
        "10.0",
        148,
        128,
        1965,
        7700,
        180 * GIB,
        126 * MIB,
        3,
        fp64=37.0,
        tf32=1100,
        fp16=2250,
        bf16=2250,
        fp8=4500,
        int8=4500,
    ),
    "rtx5090": sheet(
        "12.0",
        170,
        128,
        2407,
        1792,
        32 * GIB,
        96 * MIB,
        2,
        fp64=1.64,
        tf32=104.8,
        fp16=209.5,
        bf16=209.5,
        fp8=419,
        int8=838,
    ),
    "l40s": sheet(
        "8.9", 142, 128, 2520, 864, 48 * GIB, 96 * MIB, 2, fp64=1.43, tf32=183, fp16=362, bf16=362, fp8=733, int8=733
    ),
    "l4": sheet(
        "8.9", 58, 128, 2040, 300, 24 * GIB, 48 * MIB, 2, fp64=0.47, tf32=60, fp16=121, bf16=121, fp8=242, int8=242
    ),
    "rtx4090": sheet(
        "8.9",
        128,
        128,
        2520,
        1008,
        24 * GIB,
        72 * MIB,
        2,
        fp64=1.29,
        tf32=82.6,
        fp16=165.2,
        bf16=165.2,
        fp8=330.3,
        int8=660.6,
    ),
    "a10": sheet("8.6", 72, 128, 1695, 600, 24 * GIB, 6 * MIB, 2, fp64=0.49, tf32=62.5, fp16=125, bf16=125, int8=250),
    "t4": sheet("7.5", 40, 64, 1590, 320, 16 * GIB, 4 * MIB, 3, fp64=0.25, fp16=65, int8=130),
    # Jetson AGX Orin 64 GB: memory is shared with the host
    "orin": sheet(
        "8.7", 16, 128, 1300, 204.8, 64 * GIB, 4 * MIB, 1, fp64=0.083, tf32=21.2, fp16=42.5, bf16=42.5, int8=85
    ),
    # 304 compute units. It has no compute capability and no cuBLAS: kernels are chosen as for an A100, which is not
    # verified. "L2" is its Infinity Cache
    "mi300x": sheet(
        "8.0",
        304,
        128,
        2100,
        5300,
        192 * GIB,
        256 * MIB,
        2,
        fp64=81.7,
        tf32=653.7,
        fp16=1307.4,
        bf16=1307.4,
        fp8=2614.9,
        int8=2614.9,
    )
    | dict(zip(_LIMITS, _COMPUTE_UNIT, strict=True)),
    # Hopper with fewer SMs, its tensor rates limited by license
    "h20": sheet(
        "9.0", 78, 128, 1980, 4000, 96 * GIB, 60 * MIB, 3, fp64=1, tf32=74, fp16=148, bf16=148, fp8=296, int8=296
    ),
    # HGX boards of Blackwell Ultra, which gave up fp64 and int8; SMs: as the driver reports them
    "b300": sheet(
        "10.3",
        148,
        128,
        1965,
        8000,
        270 * GIB,
        126 * MIB,
        3,
        fp64=1.25,
        tf32=1125,
        fp16=2250,
        bf16=2250,
        fp8=4500,
        int8=150,
    ),
    # GPUs of racks: 152 SMs as the driver reports them; clocks as those of a B200
    "gb200": sheet(
        "10.0",
        152,
        128,
        1965,
        8000,
        186 * GIB,
        126 * MIB,
        3,
        fp64=40,
        tf32=1250,
        fp16=2500,
        bf16=2500,
        fp8=5000,
        int8=5000,
    ),
    "gb300": sheet(
        "10.3",
        152,
        128,
        1965,
        8000,
        279 * GIB,
        126 * MIB,
        3,
        fp64=1.3,
        tf32=1250,
        fp16=2500,
        bf16=2500,
        fp8=5000,
        int8=165,
    ),
    "rtx-pro-6000": sheet(
        "12.0",
        188,
        128,
        2600,
        1792,
        96 * GIB,
        128 * MIB,
        2,
        fp64=1.95,
        tf32=252,
        fp16=504,
        bf16=504,
        fp8=1007,
        int8=1007,
    ),
    "rtx-6000-ada": sheet(
        "8.9", 142, 128, 2505, 960, 48 * GIB, 96 * MIB, 2, fp64=1.42, tf32=182, fp16=364, bf16=364, fp8=728, int8=728
    ),
    "l20": sheet(
        "8.9",
        92,
        128,
        2520,
        864,
        48 * GIB,
        96 * MIB,
        2,
        fp64=0.93,
        tf32=59.8,
        fp16=119.5,
        bf16=119.5,
        fp8=239,
        int8=239,
    ),
    "rtx-a6000": sheet(
        "8.6", 84, 128, 1800, 768, 48 * GIB, 6 * MIB, 2, fp64=0.605, tf32=77.4, fp16=154.8, bf16=154.8, int8=309.7
    ),
    "rtx3090": sheet(
        "8.6", 82, 128, 1695, 936, 24 * GIB, 6 * MIB, 2, fp64=0.556, tf32=35.6, fp16=71, bf16=71, int8=284
    ),
    # 256 compute units, no tf32
    "mi355x": sheet(
        "8.0", 256, 128, 2400, 8000, 288 * GIB, 256 * MIB, 2, fp64=78.6, fp16=2516, bf16=2516, fp8=5033, int8=5033
    )
    | dict(zip(_LIMITS, _COMPUTE_UNIT, strict=True)),
}

_WITH_OTHER_MEMORY: Final[Mapping[str, tuple[str, float, float, float]]] = {
    "a100-80gb": ("a100", 2039, 80 * GIB, 40 * MIB),
    "h200": ("h100", 4800, 141e9, 60 * MIB),
    "mi325x": ("mi300x", 6000, 256 * GIB, 256 * MIB),
}
"""A GPU -> the one with the same chip; its own rate of DRAM in GB/s, its bytes of DRAM, and of L2; of datasheets.

The SMs, clock and L2 of the H200 are as the driver of such a card reports them.
"""

# Slices by profile of MIG: SMs, eighths of memory and L2, copy engines. Parts: NVIDIA's guide to MIG. SMs: a listing by
# `nvidia-smi mig -lgip` of an H100; of an A100 sevenths of 98. Bandwidth by the parts of memory: prior
_SLICES: Final[Mapping[str, Mapping[str, tuple[int, int, int]]]] = {
    "a100": {
        "1g.5gb": (14, 1, 1),
        "1g.10gb": (14, 2, 1),
        "2g.10gb": (28, 2, 2),
        "3g.20gb": (42, 4, 3),
        "4g.20gb": (56, 4, 4),
        "7g.40gb": (98, 8, 7),
    },
    "h100": {
        "1g.10gb": (16, 1, 1),
        "1g.20gb": (26, 2, 1),
        "2g.20gb": (32, 2, 2),
        "3g.40gb": (60, 4, 3),
        "4g.40gb": (64, 4, 4),
        "7g.80gb": (132, 8, 7),
    },
}

FOREIGN: Final = frozenset({"mi300x", "mi325x", "mi355x"})
"""Presets of devices whose kernels are not known: they are chosen as for an A100."""
ALIASES: Final = {"h100-sxm": "h100", "a6000": "rtx-a6000"}
"""Other names of presets."""

DEVICES: Final[Mapping[str, Mapping[str, Any]]] = {
    **_WHOLE,
    **{
        gpu: {**_WHOLE[like], "bandwidth": gb_per_s * GB_PER_S, "memory": memory, "l2": l2}
        for gpu, (like, gb_per_s, memory, l2) in _WITH_OTHER_MEMORY.items()
    },
    **{
        f"{gpu}-{profile}": _slice(_WHOLE[gpu], *parts)
        for gpu, profiles in _SLICES.items()
        for profile, parts in profiles.items()
    },
}

# How devices are wired: "pairs" bridges devices 2i and 2i+1 (the rest over the given bus), "mesh" links
# every pair directly, "switch" links each device to a hub that never saturates. Start, step and efficiency of
# collectives over nvlink3 and nvlink4 were fitted to all-reduces of A100 and H100 in Vidur's tables, whose ranks come
# late at times (`validation/collectives.py`); numbers of others are priors.
LINKS: Final[Mapping[str, tuple[str, Link]]] = {
    # A40 bridge, NVLink3 x4: 56.25 GB/s per direction (datasheet), about 52 reached (prior)
    "nvlink-bridge": ("pairs", Link(52 * GB_PER_S, 2 * US)),
    # V100 SXM2, two NVLink2 per pair: 47.9 GB/s measured on a Dell C4130
    "nvlink2": ("mesh", Link(47.9 * GB_PER_S, 2 * US)),
    # A100, 12 links through NVSwitch: 300 peak; prior
    "nvlink3": ("switch", Link(275 * GB_PER_S, 2 * US, start=41.2, step=2.08, efficiency=0.626)),
    # H100/H200, 18 links: 450 peak; prior
    "nvlink4": ("switch", Link(400 * GB_PER_S, 2 * US, start=24.9, step=0.63, efficiency=0.886, reduces=True)),
    # B200, 18 links: 900 peak; prior
    "nvlink5": ("switch", Link(800 * GB_PER_S, 2 * US, start=24.9, step=0.63, efficiency=0.886, reduces=True)),
    "infinity-fabric": ("mesh", Link(55 * GB_PER_S, 3 * US)),  # MI300X, a link to each of seven others: 64 peak; prior
    # x16: 15.75 and 31.5 peak, 11-13 of the former reached peer to peer; prior. Host memory is slower: `PRIORS`
    "pcie3": ("switch", Link(PRIORS["pcie3"].value * GB_PER_S, 5 * US, step=5.0)),
    "pcie4": ("switch", Link(PRIORS["pcie4"].value * GB_PER_S, 5 * US, step=5.0)),
    "pcie5": ("switch", Link(54.3 * GB_PER_S, 4.1 * US, step=5.0)),  # x16: 63 peak; 54.3, 4.1 us measured by p2pmark
    # between nodes, 200 Gb/s InfiniBand: prior
    "network": ("switch", Link(24 * GB_PER_S, 12 * US, start=30.0, step=8.0)),
}

DEFAULT_LINK: Final[Mapping[str, str]] = {
    "k80": "pcie3",
    "v100": "nvlink2",
    "v100s-pcie": "pcie3",
    "rtx2080super": "pcie3",
    "rtx2080ti": "pcie3",
    "a100": "nvlink3",
    "a40": "nvlink-bridge",
    "rtx3080": "pcie4",
    "h100": "nvlink4",
    "h200": "nvlink4",
    "h100-pcie": "pcie5",
    "h100-nvl": "pcie5",
    "b200": "nvlink5",
    "rtx5090": "pcie5",
    "l40s": "pcie4",
    "l4": "pcie4",
    "rtx4090": "pcie4",
    "a10": "pcie4",
    "a100-80gb": "nvlink3",
    "t4": "pcie3",
    "orin": "pcie4",
    "mi300x": "infinity-fabric",
    "h20": "nvlink4",
    "b300": "nvlink5",
    "gb200": "nvlink5",
    "gb300": "nvlink5",
    "rtx-pro-6000": "pcie5",
    "rtx-6000-ada": "pcie4",
    "l20": "pcie4",
    "rtx-a6000": "pcie4",
    "rtx3090": "pcie4",
    "mi325x": "infinity-fabric",
    "mi355x": "infinity-fabric",
    # slices reach each other only by way of the host
    **{f"{gpu}-{profile}": bus for gpu, bus in (("a100", "pcie4"), ("h100", "pcie5")) for profile in _SLICES[gpu]},
}
BRIDGED_BUS: Final = "pcie4"
"""The bus between devices that no bridge joins."""


def known_gpu(name: str) -> str:
    """Return the name of a preset, written in any case, or by one of `ALIASES`.

    Raises
    ------
    UnknownNameError
        If no preset has this name; the message lists all presets.

    >>> known_gpu("H100-SXM"), known_gpu("L40S")
    ('h100', 'l40s')
    """
    lower = name.lower()
    canonical = ALIASES.get(lower, lower)
    if canonical not in DEVICES:
        raise UnknownNameError("gpu", name, list(DEVICES))
    return canonical


def make_device(model: str, name: str) -> Device:
    """Return the preset `model` as a device called `name`."""
    return Device(name=name, model=model, **DEVICES[model])
