"""How often the ranges of makespans and speedups hold what the synthetic device measures.

    python -m validation.ranges --cases 200 --seed 0 --log validation/ranges.json --figure docs/ranges.png

A case is a network on a preset, both priors alone, and a synthetic device of that preset. Its costs, rates and
efficiencies of kernels are drawn anew: in `priors` from the intervals of the priors, and the ranges have the error that
the simulator has on that device; in `others` from its own, wider ones, and the ranges have the error of published
figures, as users get them. A range scores its width, in logarithms, and twenty times by how much it misses; beside it
stands the best constant range around the simulated values.

The error of a schedule by itself is that of nine rounds of validation there. What all have in common is more than those
show, where times of operators were measured: a roofline knows no waves of blocks. It was fitted on the 200 cases of
seed 1 (`--seed 1 --common X`): of 0, 0.05 .. 0.3, 0.2 scores best. Seed 0 is what is reported, and had no part in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import cycle, islice, product
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np

import hwbackend
import simsched as ss
import workloads
from hwbackend.surrogate.truth import Truth
from simsched.base.io import dump_json, write_file
from simsched.experiments.ranges import SURE, changed, ranges, rates_of, unsure_of
from simsched.model.cluster import PRIORS
from validation.evidence import options

_GPUS = ("a40", "v100", "a100", "k80", "h100", "rtx2080ti", "rtx3080")
_NETWORKS = ("squeezenet", "googlenet", "inception_v3")
_SCHEDULERS = ("lios", "opara", "nimble", "greedy")
_OWN, _COMMON = 0.03, 0.2  # standard deviations; own: mean 2.4 %, see docs/background/accuracy.md


@contextmanager
def like_priors(backend: Any, seed: int) -> Iterator[None]:
    """Let a synthetic device have parameters from the intervals of the priors."""
    unsure, rng = unsure_of(backend.cluster), np.random.default_rng([seed, 3])
    values = np.array([each.at(rng.random(1))[0] for each in unsure])
    cluster, rates = changed(backend.cluster, unsure, values), rates_of(unsure, values)
    low, high = PRIORS["operator"].low, PRIORS["operator"].high

    def factors(_: Any, op: ss.Operator) -> np.ndarray:
        does = op.kind, op.flops, op.nbytes
        own = low * (high / low) ** np.random.default_rng([seed, 4, crc32(repr(does).encode())]).random()
        return np.array([rates.compute_efficiency / own, rates.memory_efficiency / own, 1.0])

    reach = 1 / (rates.dram_warps * cluster.devices[0].saturating_warps)
    backend._true = Truth(cluster, rates.shortest_kernel, reach, seed)
    with patch("hwbackend.surrogate.truth._own_factors", factors):
        yield


def case(gpu: str, network: str, scheduler: str, seed: int, common: float | None) -> list[list[float]]:
    """Return logarithms of makespan and of speedup: measured, simulated, low, high; without `common`, of others."""
    backend = hwbackend.get("synthetic", gpu=gpu, seed=seed, outliers=0.0, drift=0.0)
    with nullcontext() if common is None else like_priors(backend, seed):
        graph = backend.realise(workloads.load(network, batch=1 + seed % 4, device=gpu))
        base, plan = (
            ss.schedule(graph, backend.cluster, name).lower(backend.cluster) for name in ("sequential", scheduler)
        )
        slow, fast = (backend.replay(program, repeats=5, warmup=1).median for program in (base, plan))
    errors = None if common is None else (_OWN, common)
    low, high, least, most, _ = ranges({scheduler: plan}, backend.cluster, reference=base, errors=errors)[0][scheduler]
    assert least is not None
    assert most is not None
    said, said_fast = (ss.simulate(program, backend.cluster).makespan for program in (base, plan))
    values = (fast, said_fast, low, high), (slow / fast, said / said_fast, least, most)
    return [[float(np.log(value)) for value in each] for each in values]


def score(truth: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Return the mean interval score: less is better."""
    outside = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return float(np.mean(high - low + 2 / (1 - SURE) * outside))


def draw(drawn: dict[str, np.ndarray], found: dict[str, Any], path: str) -> None:
    """Draw each range over what was simulated, from the lowest measured value on, and the measured values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.2), layout="constrained")
    for (name, rows), ax in zip(drawn.items(), figure.subplots(2, 2).T.flat, strict=True):
        truth, said, low, high = rows
        order = np.argsort(truth - said)
        ax.vlines(np.arange(len(truth)), np.exp(low - said)[order], np.exp(high - said)[order], color="#9ab", lw=1.5)
        ax.plot(np.exp(truth - said)[order], ".", color="#b22", ms=4)
        ax.axhline(1.0, color="#444", lw=0.8)
        ax.set_yscale("log")
        ax.set_yticks([0.5, 1.0, 2.0], ["0.5", "1", "2"])
        ax.minorticks_off()
        ax.set_ylabel(f"{name}, over simulated", fontsize=9)
        told = found[name]
        best = told["score of the best constant"]
        ax.set_title(f"{told['held']:.0%} held; score {told['score']:.2f}, best constant {best:.2f}", fontsize=10)
    figure.supxlabel(
        f"{found['cases']} cases on synthetic devices; bars: ranges with 90 %, dots: measured", fontsize=10
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the cases, print what they say, and keep it."""
    given = options(__doc__, cases=200, seed=0, common=_COMMON, log=None, figure=None)
    rng = np.random.default_rng(given.seed)
    asked = {"cases": given.cases, "seed": given.seed, "common": given.common}
    found: dict[str, Any] = asked | {"simsched": ss.__version__}
    chosen = [(each, int(rng.integers(1_000_000)))
              for each in islice(cycle(product(_GPUS, _NETWORKS, _SCHEDULERS)), given.cases)]  # fmt: skip
    drawn = {}
    for kind, common in (("priors", given.common), ("others", None)):
        rows = np.array([case(*each, seed, common) for each, seed in chosen])  # (cases, 2, 4)
        for i, name in enumerate(("makespan", "speedup")):
            truth, said, low, high = drawn[f"{name}, {kind}"] = rows[:, i].T
            ends = np.quantile(truth - said, [(1 - SURE) / 2, (1 + SURE) / 2])
            found[f"{name}, {kind}"] = {
                "held": float(np.mean((low <= truth) & (truth <= high))),
                "score": score(truth, low, high),
                "score of the best constant": score(truth, said + ends[0], said + ends[1]),
                "bias of ln": float(np.mean(said - truth)),
            }
    print(dump_json(found), end="")
    if given.figure:
        draw(drawn, found, given.figure)
    if given.log:
        write_file(given.log, dump_json(found))


if __name__ == "__main__":
    main()
