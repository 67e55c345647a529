"""How often the ranges of makespans and speedups hold what the synthetic device measures.

    python -m validation.ranges --cases 200 --seed 0 --log validation/ranges.json --figure docs/ranges.png

A case is a network on a preset, both priors alone, and a synthetic device of that preset whose costs, rates and
efficiencies of kernels are drawn anew; no range was chosen by it. A range scores its width, in logarithms, and twenty
times by how much it misses; beside it stands the best constant range around the simulated values.
"""

import argparse
from itertools import cycle, islice, product
from typing import Any

import numpy as np

import hwbackend
import simsched as ss
import workloads
from simsched.base.io import dump_json, write_file
from simsched.experiments.ranges import SURE, ranges

_GPUS = ("a40", "v100", "a100", "k80", "h100", "rtx2080ti", "rtx3080")
_NETWORKS = ("squeezenet", "googlenet", "inception_v3")
_SCHEDULERS = ("lios", "opara", "nimble", "greedy")


def case(gpu: str, network: str, scheduler: str, seed: int) -> list[list[float]]:
    """Return logarithms of makespan and of speedup: measured, simulated, low, high."""
    backend = hwbackend.get("synthetic", gpu=gpu, seed=seed, outliers=0.0, drift=0.0)
    graph = backend.realise(workloads.load(network, batch=1 + seed % 4, device=gpu))
    base, plan = (
        ss.schedule(graph, backend.cluster, name).lower(backend.cluster) for name in ("sequential", scheduler)
    )
    found = ranges({scheduler: plan}, backend.cluster, reference=base)
    assert found is not None
    row = found[0][scheduler]
    assert row.speedup is not None
    slow, fast = (backend.replay(program, repeats=5, warmup=1).median for program in (base, plan))
    said, said_fast = (ss.simulate(program, backend.cluster).makespan for program in (base, plan))
    values = (fast, said_fast, *row.makespan), (slow / fast, said / said_fast, *row.speedup)
    return [[float(np.log(value)) for value in each] for each in values]


def score(truth: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Return the mean interval score: less is better."""
    outside = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return float(np.mean(high - low + 2 / (1 - SURE) * outside))


def draw(rows: np.ndarray, found: dict[str, Any], path: str) -> None:
    """Draw each range over what was simulated, from the lowest measured value on, and the measured values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    for i, (name, ax) in enumerate(zip(("makespan", "speedup"), figure.subplots(2, 1), strict=True)):
        truth, said, low, high = rows[:, i].T
        order = np.argsort(truth - said)
        ax.vlines(np.arange(len(rows)), np.exp(low - said)[order], np.exp(high - said)[order], color="#9ab", lw=1.5)
        ax.plot(np.exp(truth - said)[order], ".", color="#b22", ms=4)
        ax.axhline(1.0, color="#444", lw=0.8)
        ax.set_yscale("log")
        ax.set_yticks([0.5, 1.0, 2.0], ["0.5", "1", "2"])
        ax.minorticks_off()
        ax.set_ylabel(f"{name} over simulated")
        told = found[name]
        best = told["score of the best constant"]
        ax.set_title(
            f"{told['held']:.0%} held; interval score {told['score']:.2f}, best constant {best:.2f}", fontsize=10
        )
    ax.set_xlabel(f"{len(rows)} cases on synthetic devices; bars: ranges with 90 %, dots: measured")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the cases, print what they say, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log")
    parser.add_argument("--figure", help="draw the ranges, and what was measured")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    chosen = islice(cycle(product(_GPUS, _NETWORKS, _SCHEDULERS)), given.cases)
    rows = np.array([case(*each, int(rng.integers(1_000_000))) for each in chosen])  # (cases, 2, 4)
    found: dict[str, Any] = {"cases": given.cases, "seed": given.seed, "simsched": ss.__version__}
    for i, name in enumerate(("makespan", "speedup")):
        truth, said, low, high = rows[:, i].T
        ends = np.quantile(truth - said, [(1 - SURE) / 2, (1 + SURE) / 2])
        found[name] = {
            "held": float(np.mean((low <= truth) & (truth <= high))),
            "score": score(truth, low, high),
            "score of the best constant": score(truth, said + ends[0], said + ends[1]),
            "bias of ln": float(np.mean(said - truth)),
        }
    print(dump_json(found), end="")
    if given.figure:
        draw(rows, found, given.figure)
    if given.log:
        write_file(given.log, dump_json(found))


if __name__ == "__main__":
    main()
