"""True parameters of a surrogate device, which differ from its preset and are not visible to calibration."""

from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

import numpy as np

from hwbackend.measuring.synth import SYNTH
from simsched.model import WARP, Cluster, Device, Floats, Operator

COSTS: Final = ("launch", "record", "wait", "copy", "barrier", "gap", "hop", "graph_launch", "graph_node")
"""Costs that a surrogate has, in the order in which they are drawn; it has no others of the model."""
_FREE: Final = ("graph_issue", "graph_join", "crowd_latency")
"""Costs of the model that it does not have; and all barriers cost the same."""
# Ratio of a true parameter to its prior, or of the prior to the parameter.
_LEAST = 1.1
_MOST = 1.4
_MOST_RATE = 1.25  # of DRAM, SMs and links to their datasheet: all are slower than that
_COLD: Final = (1.3, 2.0)
_EFFICIENCY: Final = ((0.45, 0.7), (0.75, 0.95))  # of kernels that are not synthetic: of FLOP and of bandwidth
_STARTUP: Final = 1.2  # us
_SHORTEST: Final = 0.05  # us of a block


@dataclass(frozen=True, slots=True)
class TrueParameters:
    """True parameters of a surrogate cluster.

    Parameters
    ----------
    cluster
        As the backend describes it, with true costs, rates and links.
    startup
        us that every block takes before it computes.
    reach
        Part of an SM's share of DRAM that a warp can ask for.
    seed
        Operators' own factors are drawn from it.
    """

    cluster: Cluster
    startup: float
    reach: float
    seed: int


def truth(cluster: Cluster, seed: int) -> TrueParameters:
    """Draw the true parameters of a cluster whose datasheet is given; equal devices are equal in truth too."""
    rng = np.random.default_rng([seed, 1])
    costs = {name: _away(rng) for name in COSTS}
    sms, dram, links = (1.0 / rng.uniform(_LEAST, _MOST_RATE) for _ in range(3))
    saturating = 1.0 / rng.uniform(_LEAST, _MOST)
    latency = _away(rng)

    free: dict[str, Any] = dict.fromkeys(_FREE, 0.0)

    def real(device: Device) -> Device:
        return replace(
            device,
            **{name: getattr(device, name) * factor for name, factor in costs.items()},
            **free,
            barrier_many=device.barrier * costs["barrier"],
            peak={dtype: rate * sms for dtype, rate in device.peak.items()},
            bandwidth=device.bandwidth * dram,
            saturating_warps=device.saturating_warps * saturating,
        )

    return TrueParameters(
        replace(
            cluster,
            devices=tuple(map(real, cluster.devices)),
            links=tuple(
                (a, b, replace(link, bandwidth=link.bandwidth * links, latency=link.latency * latency))
                for a, b, link in cluster.links
            ),
        ),
        startup=_STARTUP * _away(rng),
        reach=float(rng.uniform(1.0, 1.15)) / cluster.devices[0].saturating_warps,
        seed=seed,
    )


def _away(rng: np.random.Generator) -> float:
    """Draw a ratio that is away from 1, in either direction."""
    ratio = float(rng.uniform(_LEAST, _MOST))
    if rng.random() < 0.5:
        return ratio
    return 1.0 / ratio


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Demand of the blocks of one launch on an idle SM of an idle device.

    Parameters
    ----------
    compute, memory
        us that issuing and DRAM take, of which the longer counts; `memory` on cold data.
    warm
        Part of `memory` that is left on warm data.
    issue, dram
        Part of an SM's issue slots, and of the device's DRAM, that a block asks for.
    """

    compute: float
    memory: float
    warm: float
    issue: float
    dram: float


def block_costs(true: TrueParameters, device: Device, op: Operator) -> list[BlockCost]:
    """Return the cost of a block for each kernel of an operator.

    An operator without FLOP and bytes computes for its time.
    """
    drawn = _own_factors(true, op)
    found = []
    for kernel in op.kernels:
        warps = -(-kernel.threads // WARP)
        part = min(1.0, warps / device.saturating_warps) / device.sms
        flops = op.flops * kernel.share / kernel.blocks
        nbytes = op.nbytes * kernel.share / kernel.blocks
        compute = flops / (device.peak_rate(op.dtype) * part * drawn[0])
        memory = nbytes / (device.bandwidth * min(1.0, warps * true.reach) / device.sms * drawn[1])
        if not flops and not nbytes:
            waves = max(1.0, kernel.blocks * part)
            compute = (op.time or 0.0) * kernel.share / waves
        cold = max(compute, memory, _SHORTEST)
        found.append(
            BlockCost(
                compute=max(compute, _SHORTEST) + true.startup,
                memory=memory,
                warm=1.0 / drawn[2] if memory > compute else 1.0,
                issue=min(1.0, part * device.sms) * max(compute, _SHORTEST) / cold,
                dram=nbytes / (device.bandwidth * max(memory, 1e-300)),
            )
        )
    return found


def _own_factors(true: TrueParameters, op: Operator) -> Floats:
    """Return an operator's own parameters: efficiencies of FLOP and bandwidth, and the slowdown of cold data.

    Operators that do the same have the same.
    """
    does = op.kind, op.flops, op.nbytes, [(k.blocks, k.threads, k.shared_memory) for k in op.kernels]
    rng = np.random.default_rng([true.seed, 2, crc32(repr(does).encode())])
    low, high = np.array([*_EFFICIENCY, _COLD]).T
    drawn: Floats = rng.uniform(low, high)
    if op.kind == SYNTH:
        drawn[:2] = 1.0
    return drawn
