"""What runs of one kernel alone say: its time, and how its rate grows with the number of its blocks."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from simsched.calibration.evidence import MeasuredRun
from simsched.model import Cluster, Floats, Ints, Operator, OpGraph
from simsched.simulator.workload import demand_on

_SWEEP: Final = 0.04
"""Relative standard deviation of a kernel's time about that of its family."""

_FEWEST: Final = 3  # sizes that make a family
_TURNS: Final = 20

Signature = tuple[float, float, tuple[object, ...]]


def signature(op: Operator) -> Signature:
    """Return what makes two kernels the same work."""
    return op.flops, op.nbytes, (op.kind, op.intensity, op.dtype, *op.kernels)


class SoloRuns:
    """Runs of one kernel alone each.

    Parameters
    ----------
    runs
        Those whose graph has more than one operator, or whose operator has not one kernel, count for nothing.

    Attributes
    ----------
    times
        Median measured us of each kernel.
    families
        Kernels of which each block does the same, in different numbers: rows of `graph`.
    groups
        The number of the kernel that each residual is of.

    Notes
    -----
    A kernel of N blocks, whose blocks take c each on an idle device, takes its latency and the longer of U(N) c and of
    the time in which DRAM moves its bytes; U(N) is what it takes by itself (`Launch.units`), and depends on
    `saturating_warps` and `block_spread`. c is the one with which those of a family that DRAM does not limit fit best.
    """

    def __init__(self, runs: Sequence[MeasuredRun]) -> None:
        found: dict[Signature, list[float]] = {}
        operators: dict[Signature, Operator] = {}
        for run in runs:
            op = run.graph.operator(0)
            if len(run.graph) == 1 and len(op.kernels) == 1:
                found.setdefault(signature(op), []).append(float(run.durations()[0]))
                operators.setdefault(signature(op), op)
        self.times: Mapping[Signature, float] = {key: float(np.median(us)) for key, us in found.items() if min(us) > 0}
        keys = list(self.times)
        alike: dict[tuple[object, ...], list[int]] = {}
        for i, key in enumerate(keys):
            alike.setdefault(_family(operators[key]), []).append(i)
        self.families: list[Ints] = [np.array(rows) for rows in alike.values() if len(rows) >= _FEWEST]
        self.groups: Ints = np.concatenate(self.families) if self.families else np.zeros(0, np.int64)
        self._measured = np.array([self.times[key] for key in keys])
        if keys:
            self._graph = OpGraph([_named(operators[key], f"k{i}") for i, key in enumerate(keys)])

    def residuals(self, cluster: Cluster) -> Floats:
        """Return the logarithm of simulated over measured time of each kernel of a family, over its deviation."""
        asked = demand_on(self._graph, cluster, 0, self._measured)
        units, latencies = asked["units"], np.minimum(cluster.devices[0].kernel_latency, asked["solo"])
        moved = self._graph.nbytes / cluster.devices[0].bandwidth
        residuals = []
        for rows in self.families:
            measured, latency = self._measured[rows], latencies[rows]
            block = float(((measured - latency) / units[rows]).min())
            for _ in range(_TURNS):
                busy = block * units[rows]
                off = np.log((latency + np.maximum(busy, moved[rows])) / measured)
                counts = moved[rows] < busy
                if not counts.any():
                    break
                change = float(np.median(off[counts]))
                block *= float(np.exp(-change))
                if abs(change) < 1e-4:
                    break
            residuals.append(off / _SWEEP)
        return np.concatenate(residuals)


def _family(op: Operator) -> tuple[object, ...]:
    kernel = op.kernels[0]
    work = (float(f"{amount / kernel.blocks:.6g}") for amount in (op.flops, op.nbytes))
    return (op.kind, op.dtype, op.intensity, *work, kernel.threads, kernel.registers)


def _named(op: Operator, name: str) -> Operator:
    return Operator(name, flops=op.flops, nbytes=op.nbytes, kernels=op.kernels, intensity=op.intensity, dtype=op.dtype)
