"""Errors of the rules of sharing a device, relative to measurements: pairs of a cycle-level simulator, and mixes.

    python -m validation.sharing

The pairs are of kernels on a sixteenth of a V100 (5 SMs, 2 channels of HBM) in a cycle-level simulator: F multiplies
and adds, s likewise with half the threads a block, M reads DRAM; the number is that of the blocks. Parameters are
fitted to the first four pairs and judged by the other three. Micro-cases and mixes run on the synthetic device without
noise. There the simulator is given the device's true parameters, and as the time of a kernel alone what it took in one
stream.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import mean
from typing import Final

import numpy as np

import simsched as ss
from hwbackend import registry
from hwbackend.synthetic.backend import BLOCK_JITTER, INTERFERENCE
from hwbackend.synthetic.truth import truth
from simsched.base.units import KIB
from simsched.model.cluster import Device

MEASURED: Final = {
    "F5+F5": 1.39,
    "M5+M5": 2.18,
    "F5+M5": 1.00,
    "F20+F5": 1.20,
    "F10+F10": 1.94,
    "s5+s5": 1.10,
    "F3+F3": 1.38,
}
"""Time of two kernels side by side over the longer alone."""
FITTED: Final = tuple(MEASURED)[:4]
_CYCLES: Final = {"F3": 3901, "F5": 3890, "F10": 5397, "F20": 10457, "s5": 3579, "M5": 6250}
_CLOCK: Final = 1132.0
_TRIED: Final = (np.arange(8.0, 16.0, 0.2).tolist(), (0.0, 0.03, 0.06, 0.09, 0.12))
SIXTEENTH: Final = replace(
    ss.Cluster.preset("v100").without_overheads().devices[0],
    sms=5,
    peak={"fp32": 724480.0},
    bandwidth=54400.0,
    l2=384.0 * KIB,
    clock=_CLOCK,
    interference=((0, 0), (0, 0)),
)


def cycle_pair(pair: str, device: Device) -> float:
    """Return the simulated time of a pair relative to the longer of its kernels alone."""
    ops = []
    for i, name in enumerate(pair.split("+")):
        blocks, threads = int(name[1:]), 128 if name[0] == "s" else 256
        flops, nbytes = (0.0, 65536.0 * blocks) if name[0] == "M" else (960.0 * blocks * threads, 0.0)
        kernel = ss.Kernel(blocks, threads, 32, 4)
        ops.append(ss.Operator(f"k{i}", time=_CYCLES[name] / _CLOCK, flops=flops, nbytes=nbytes, kernels=(kernel,)))
    return _together(ops, [[op.name] for op in ops], ss.Cluster((device,))) / max(op.time or 0.0 for op in ops)


def fitted_sixteenth() -> Device:
    """Return the sixteenth of a V100 with the saturation and the interference of memory that fit four pairs best."""
    devices = [
        replace(SIXTEENTH, saturating_warps=warps, interference=((0, 0), (0, memory)))
        for warps, memory in product(*_TRIED)
    ]
    return min(devices, key=lambda d: sum((cycle_pair(pair, d) / MEASURED[pair] - 1) ** 2 for pair in FITTED))


Kernel = tuple[int, int, int, float, float]
"""Blocks, threads, registers a thread, FLOP and bytes a block."""
Mix = Sequence[Sequence[Kernel]]
"""The kernels of each stream, one after the other."""

# Full kernels beside each other, parts of a device, one and a half waves: 336 blocks fill the 84 SMs of an A40.
MICRO: Final[Sequence[Mix]] = [
    [[(blocks, 256, 64, 2e7, 4.0)] for blocks in streams]
    for streams in ((336,) * 2, (336,) * 4, (336,) * 8, (168, 42), (252, 42), (504,) * 4)
]


def random_mixes(count: int, seed: int) -> list[Mix]:
    """Return mixes of two to five streams of one to three kernels, a third of which read DRAM."""
    rng = np.random.default_rng(seed)
    return [[[_drawn(rng) for _ in range(rng.integers(1, 4))] for _ in range(rng.integers(2, 6))] for _ in range(count)]


def _drawn(rng: np.random.Generator) -> Kernel:
    threads, registers = int(rng.choice([128, 256, 256, 512])), int(rng.choice([32, 40, 64]))
    blocks, work = round(float(np.exp(rng.uniform(np.log(20), np.log(1500))))), threads / 256 * rng.uniform(0.5, 1.5)
    if rng.random() < 0.35:
        return blocks, threads, registers, 1e6 * threads / 256, 2.5e5 * work
    return blocks, threads, registers, 2e7 * work, 4.0


def errors(mixes: Sequence[Mix], seed: int) -> list[float]:
    """Return simulated over measured time of each mix, less 1, on a synthetic device."""
    backend = registry.get("synthetic", gpu="a40", seed=seed, noise=0.0, drift=0.0, outliers=0.0)
    true = truth(backend.cluster, seed).cluster.replace_devices(
        block_spread=BLOCK_JITTER, interference=((INTERFERENCE, INTERFERENCE), (INTERFERENCE, INTERFERENCE))
    )
    found = []
    for mix in mixes:
        streams = [[f"s{s}k{i}" for i in range(len(kernels))] for s, kernels in enumerate(mix)]
        ops = [
            ss.Operator(
                f"s{s}k{i}",
                "synth",
                flops=flops * blocks,
                nbytes=nbytes * blocks,
                kernels=(ss.Kernel(blocks, threads, registers, 4),),
            )
            for s, kernels in enumerate(mix)
            for i, (blocks, threads, registers, flops, nbytes) in enumerate(kernels)
        ]
        alone = backend.replay(_plan(ops, [[op.name for op in ops]]), repeats=5, warmup=1).trace.operator_times()
        timed = [replace(op, time=alone[op.name][1] - alone[op.name][0]) for op in ops]
        measured = _span(backend.replay(_plan(ops, streams), repeats=5, warmup=1).trace)
        found.append(_together(timed, streams, true) / measured - 1)
    return found


def _plan(ops: Sequence[ss.Operator], streams: Sequence[Sequence[str]]) -> ss.Schedule:
    """Return a captured schedule of streams, kernels launched in turns."""
    turns = range(max(map(len, streams)))
    placements = [ss.Placement(names[i], stream=s) for i in turns for s, names in enumerate(streams) if i < len(names)]
    return ss.Schedule(ss.OpGraph(ops), placements, "graph")


def _together(ops: Sequence[ss.Operator], streams: Sequence[Sequence[str]], cluster: ss.Cluster) -> float:
    return _span(ss.simulate(_plan(ops, streams), cluster))


def _span(trace: ss.Trace) -> float:
    """Return the time from the first start of a kernel to the last end."""
    times = trace.operator_times().values()
    return max(end for _, end in times) - min(start for start, _ in times)


def main() -> None:
    """Print the tables."""
    device = fitted_sixteenth()
    print(f"saturating_warps {device.saturating_warps:.1f}, interference of memory {device.interference[1][1]:.2f}")
    for pair, measured in MEASURED.items():
        error = 100 * (cycle_pair(pair, device) / measured - 1)
        print(f"{pair:8} {measured:.2f} {error:+6.1f} %{'' if pair in FITTED else '  held out'}")
    draws = {f"60 random mixes, draw {draw}": random_mixes(60, draw) for draw in (5, 6, 7)}
    for name, mixes in {"micro-cases": MICRO, **draws}.items():
        for seed in (0, 1):
            off = [100 * part for part in errors(mixes, seed)]
            size, worst = mean(map(abs, off)), max(map(abs, off))
            print(f"{name}, seed {seed}: mean {size:.2f} %, worst {worst:.1f}, bias {mean(off):+.2f}")


if __name__ == "__main__":
    main()
