"""The truth of a fake device: parameters that are drawn, and that a contact has to find."""

from dataclasses import dataclass
from math import exp
from typing import Any, Final

import numpy as np

from simsched.model import Cluster, Device

COSTS: Final = (
    "launch",
    "record",
    "wait",
    "barrier",
    "barrier_many",
    "gap",
    "hop",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "crowd_latency",
)
"""Costs in us that are drawn around those of the preset."""
DEVICE_COSTS: Final = ("gap", "hop", "graph_node", "graph_issue", "graph_join", "crowd_latency")
"""Those that the clock of the device scales; the others are times of the host."""
_SPREAD: Final = 0.35  # of the logarithm of a cost over the one of the preset, on either side
_LEAST_HOP: Final = 0.3  # us: the preset's is below the steps of a timer
_CHAIN_WARPS: Final = (12.0, 24.0)
_INTERLEAVED: Final = (0.3, 0.7)


@dataclass(frozen=True)
class FakeTruth:
    """The parameters of a fake device.

    Parameters
    ----------
    cluster
        A cluster of one device with the true costs and rates, at the full clock.
    tick
        us between two values of the timer.
    clock
        MHz of an SM at the full clock.
    ramp_start, ramp_time
        Part of the full clock at which a device starts after it was idle, and s in which e-fold less is missing.
    drift
        Part by which the clock falls in 100 s of the contact.
    chain_warps
        Warps of one FMA chain each that keep an SM busy.
    copy_latency, copy_rate
        us before the first byte of a copy moves, and bytes per us that one engine moves.
    matmul
        Part of the peak rate that a large matrix product reaches.
    noise
        Standard deviation of a measured time over its mean.
    programmatic
        us by which a kernel in a chain starts earlier if it is launched programmatically.
    sm_step
        SMs by whose multiples a green context gets them.
    """

    cluster: Cluster
    tick: float
    clock: float
    ramp_start: float
    ramp_time: float
    drift: float
    chain_warps: float
    copy_latency: float
    copy_rate: float
    matmul: float
    noise: float
    programmatic: float
    sm_step: int

    @property
    def green_sms(self) -> int:
        """SMs of a green context that asks for half of them."""
        sms = self.device.sms
        return min(sms, -(-(sms // 2) // self.sm_step) * self.sm_step)

    @property
    def device(self) -> Device:
        """The device of the cluster."""
        return self.cluster.devices[0]

    def parameters(self) -> dict[str, float]:
        """Return every number that a contact has to find, by the names that its analysis uses."""
        device = self.device
        found = {name: float(getattr(device, name)) for name in (*COSTS, "bandwidth", "saturating_warps", "interleave")}
        found |= {f"chain_warps_{chains}": self.chain_warps / chains for chains in (1, 2, 4)}
        found |= {
            "tick": self.tick,
            "ramp_start": self.ramp_start,
            "ramp_time": self.ramp_time,
            "drift": self.drift,
            "copy_latency": self.copy_latency,
            "copy_rate": self.copy_rate,
            "copy_engines": device.copy_engines,
            "fp32": device.peak["fp32"] * self.matmul,
            "fp16": device.peak_rate("fp16") * self.matmul,
            "programmatic": self.programmatic,
            "green_share": self.green_sms / device.sms,
        }
        return found

    def at(self, clock: float) -> Cluster:
        """Return the cluster at a part of its full clock: rates of SMs fall, and costs of the device grow."""
        device = self.device
        slowed = {name: getattr(device, name) / clock for name in DEVICE_COSTS}
        return self.cluster.replace_devices(**slowed, peak={dtype: rate * clock for dtype, rate in device.peak.items()})


def draw_truth(prior: Cluster, seed: int, **fixed: Any) -> FakeTruth:
    """Draw the truth of a fake device.

    Parameters
    ----------
    prior
        A cluster of one device, as the fake describes itself.
    seed
        Of all that is drawn.
    fixed
        Fields of `FakeTruth` or of `Device` that are given and not drawn.
    """
    rng = np.random.default_rng([seed, 40])
    device = prior.devices[0]
    drawn: dict[str, Any] = {
        name: max(getattr(device, name), _LEAST_HOP if name == "hop" else 0.0) * exp(rng.uniform(-_SPREAD, _SPREAD))
        for name in COSTS
    }
    drawn["bandwidth"] = device.bandwidth * rng.uniform(0.75, 0.95)
    drawn["saturating_warps"] = device.saturating_warps * exp(rng.uniform(-_SPREAD, _SPREAD))
    if rng.random() < 0.5:
        drawn["interleave"] = float(rng.uniform(*_INTERLEAVED))
    else:
        drawn["interleave"] = 0.0
    drawn["copy_engines"] = int(rng.integers(2, 4))
    own: dict[str, Any] = {
        "tick": float(rng.choice([0.032, 0.064, 0.25])),
        "clock": device.clock,
        "ramp_start": float(rng.uniform(0.25, 0.7)),
        "ramp_time": float(rng.uniform(0.1, 0.4)),
        "drift": float(rng.uniform(0.004, 0.02)),
        "chain_warps": float(rng.uniform(*_CHAIN_WARPS)),
        "copy_latency": float(rng.uniform(3.0, 9.0)),
        "copy_rate": float(rng.uniform(18e3, 55e3)),
        "matmul": float(rng.uniform(0.6, 0.9)),
        "noise": 0.005,
        "programmatic": float(rng.uniform(0.3, 0.9)),
        "sm_step": int(rng.choice([2, 4, 8])),
    }
    drawn |= {name: value for name, value in fixed.items() if name not in own}
    own |= {name: value for name, value in fixed.items() if name in own}
    return FakeTruth(prior.replace_devices(**drawn), **own)
