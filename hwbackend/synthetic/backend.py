"""A surrogate GPU, simulated SM by SM and block by block, whose true parameters nobody is told: for tests."""

from math import exp
from typing import Final

import numpy as np

from hwbackend.measuring import profiling
from hwbackend.measuring.environment import environment
from hwbackend.measuring.synth import realised
from hwbackend.synthetic.plan import Plan
from hwbackend.synthetic.run import Luck, SyntheticRun
from hwbackend.synthetic.sms import Sms
from hwbackend.synthetic.truth import truth
from hwbackend.synthetic.values import SyntheticValues
from simsched.base.errors import BackendError
from simsched.base.numeric import is_number
from simsched.model import Cluster, Floats, OpGraph, Program, Schedule
from simsched.model.backend import prepare, require_counts
from simsched.model.profile import Profile, Replay
from simsched.model.trace import measured_trace

BLOCK_JITTER: Final = 0.08
"""Standard deviation of the time of a block, over its mean."""

INTERFERENCE: Final = 0.04
"""Slowdown of blocks beside those of another kernel where issue slots or DRAM are short."""

_CLIP: Final = 2.0  # standard deviations
_MOST_DRAWN: Final = 2**16  # factors of blocks; more blocks take them from the first again
_HOST_JITTER: Final = 0.05
_OUTLIER: Final = (1.2, 2.0)  # how much longer everything takes
_DRIFT_OVER: Final = 200.0  # repeats
_HOST: Final[dict[str, float]] = {
    "launch": 4.0,
    "launch_latency": 0.0,
    "record": 1.0,
    "wait": 1.3,
    "copy": 4.5,
    "barrier": 10.0,
    "gap": 0.9,
    "hop": 2.0,
    "graph_launch": 6.0,
    "graph_node": 0.9,
}  # frozen copies: replays stay unchanged when presets change


class SyntheticBackend:
    """A surrogate cluster of one preset's devices.

    Parameters
    ----------
    gpu, gpus, link
        As in `Cluster.preset`: what it says of itself. What it is differs: costs by 10 to 40 percent either way, SMs,
        DRAM and links slower by 9 to 20 percent.
    seed
        Of the true parameters and of all noise.
    noise
        Standard deviation of everything in a repeat, and besides of each kernel, over its mean.
    drift
        Standard deviation of a slow drift over some hundred repeats.
    outliers
        Part of the repeats that take 1.2 to 2 times as long.
    copy_engines
        Copies that a device makes at once; None for as many as the preset says.

    Notes
    -----
    Repeats and calls continue one random stream: two backends made alike to which the same calls are made return
    the same; a call made twice does not.
    """

    name = "synthetic"

    def __init__(
        self,
        *,
        gpu: str = "a40",
        gpus: int = 1,
        link: str | None = None,
        seed: int = 0,
        noise: float = 0.01,
        drift: float = 0.01,
        outliers: float = 0.03,
        copy_engines: int | None = None,
    ) -> None:
        require_counts(0, seed=seed)
        require_counts(1, copy_engines=1 if copy_engines is None else copy_engines)
        for option, value, most in (("noise", noise, 0.5), ("drift", drift, 0.5), ("outliers", outliers, 1.0)):
            if not is_number(value) or not 0 <= value <= most:
                raise BackendError(f"{option} must be from 0 to {most:g}, not {value!r}")
        said = _HOST | {"saturating_warps": 32.0 if gpu == "k80" else 24.0}
        if copy_engines is not None:
            said["copy_engines"] = copy_engines
        self._cluster = Cluster.preset(gpu, gpus, link=link).replace_devices(**said)
        self._gpu = gpu
        self._seed = seed
        self._noise = noise
        self._drift = drift
        self._outliers = outliers
        self._true = truth(self._cluster, seed)
        self._rng = np.random.default_rng([seed, 0])
        self._wandered = 0.0  # of the drift, in standard deviations
        self._before: list[tuple[object, bool]] = [(None, False)] * gpus

    def __repr__(self) -> str:
        return f"SyntheticBackend(gpu={self._gpu!r}, gpus={len(self._cluster)}, seed={self._seed})"

    @property
    def cluster(self) -> Cluster:
        """The preset: parameters before calibration."""
        return self._cluster

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph with a synthetic kernel for each operator without kernels; see `Backend.realise`."""
        return realised(graph, self._cluster)

    def microbenchmarks(self) -> Profile:
        """Measure small schedules made to identify parameters; see `Backend.microbenchmarks`."""
        return profiling.microbenchmarks(self)

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """Measure the operators of a graph; see `Backend.profile`."""
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Run a schedule on the surrogate; see `Backend.replay`.

        Notes
        -----
        The latency of a repeat is when its last kernel or copy ended. The trace has for each span the median of its
        starts and of its ends, after each repeat was scaled to the median latency: what was in order in every repeat
        still is.
        """
        program = prepare(self, schedule, repeats, warmup)
        plan = Plan(program, self._true)
        sms = Sms(plan.devices, plan.columns, plan.blocks, INTERFERENCE)
        values = SyntheticValues(program, np.array(plan.device_of), np.array(plan.source_of, np.int64), rng=self._rng)
        for _ in range(warmup):
            self._repeat(plan, sms)
        runs = []
        error = 0.0
        for _ in range(repeats):
            launches, copies, factor = self._repeat(plan, sms)
            error = max(error, values.error(launches, copies))
            runs.append((launches * factor, copies * factor))
        latency = np.array([max(float(times.max(initial=0.0)) for times in run) for run in runs])
        scale = np.median(latency) / latency
        launches, copies = (
            np.median([run[which] * s for run, s in zip(runs, scale, strict=True)], axis=0) for which in (0, 1)
        )
        return Replay(
            tuple(latency.tolist()),
            measured_trace(program, self._cluster, launches, copies),
            environment(self.name, f"surrogate {self._gpu}", seed=str(self._seed)),
            error,
            schedule.scheduler if isinstance(schedule, Schedule) else "replay",
        )

    def _repeat(self, plan: Plan, sms: Sms) -> tuple[Floats, Floats, float]:
        """Run once; return the times of launches and copies, and how much longer all of it took this time."""
        rng = self._rng
        program = plan.program
        n_blocks = min(int(plan.blocks.sum()), _MOST_DRAWN)
        luck = Luck(
            host=np.exp(_HOST_JITTER * rng.standard_normal(max(1, len(program)))),
            kernels=np.exp(self._noise * rng.standard_normal(len(plan.blocks))),
            copies=np.exp(self._noise * rng.standard_normal(len(plan.copy_at))),
            blocks=1.0 + BLOCK_JITTER * np.clip(rng.standard_normal(n_blocks), -_CLIP, _CLIP),
        )
        self._wandered += rng.standard_normal() * (2.0 / _DRIFT_OVER) ** 0.5 - self._wandered / _DRIFT_OVER
        factor = exp(self._noise * rng.standard_normal() + self._drift * self._wandered)
        if rng.random() < self._outliers:
            factor *= rng.uniform(*_OUTLIER)
        return *SyntheticRun(plan, sms, luck, self._before).times(), factor


def availability() -> tuple[bool, str]:
    """Return that it can be used, and a description."""
    return True, "a surrogate of any preset GPU; options gpu, gpus, link, seed, noise, drift, outliers, copy_engines"
