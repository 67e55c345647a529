"""What was published, beside what the library says with its uncalibrated presets.

    python -m validation.published

Absolute times are not expected to match before calibration; what is shown is how far they are off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.schedulers.stage_costs import StageFormula


@dataclass(frozen=True, slots=True)
class Claim:
    """A published figure and how ours is made.

    Parameters
    ----------
    source
        Paper and table.
    setting
        What was measured or computed.
    published
        Their figure.
    ours
        Makes ours, in the same unit.
    tolerance
        By how much ours may differ, as a part of theirs: 0 for counts and worked examples; None for a
        measurement, which nothing here has to meet before calibration.
    """

    source: str
    setting: str
    published: float
    ours: Callable[[], float]
    tolerance: float | None


def _inception(scheduler: str) -> float:
    graph, cluster = workloads.load("inception_v3", device="v100"), ss.Cluster.preset("v100")
    return ss.simulate(ss.schedule(graph, cluster, scheduler), cluster).makespan / MS


def lios_example() -> ss.OpGraph:
    """Return the worked example of LIOS, Table III; the latency of v6 follows from the sequential time of 73."""
    latencies = (3, 5, 5, 5, 8, 15, 10, 7, 13, 2)
    edges = ((1, 2), (1, 3), (1, 4), (1, 5), (3, 6), (4, 7), (5, 8), (2, 9), (6, 9), (7, 9), (8, 9), (9, 10))
    return ss.OpGraph(
        [ss.Operator(f"v{i}", time=float(us)) for i, us in enumerate(latencies, 1)],
        [ss.Edge(f"v{a}", f"v{b}") for a, b in edges],
        "LIOS Table III",
    )


def _lios(scheduler: str, **options: Any) -> float:
    cluster = ss.Cluster.preset("rtx3080").without_overheads()
    return ss.simulate(ss.schedule(lios_example(), cluster, scheduler, **options), cluster).makespan


def hios_example() -> ss.OpGraph:
    """Return the worked example of HIOS, Fig. 4: its structure follows from the text, its times are one choice."""
    times = (4, 2, 2, 3, 1, 4, 2, 2)
    edges = ((1, 2, 1), (1, 3, 1), (2, 4, 1), (3, 5, 1), (4, 6, 1), (5, 6, 2), (5, 7, 1), (6, 8, 1), (7, 8, 1))
    return ss.OpGraph(
        [ss.Operator(f"v{i}", time=float(us)) for i, us in enumerate(times, 1)],
        [ss.Edge(f"v{a}", f"v{b}", transfer=float(us)) for a, b, us in edges],
        "HIOS Fig. 4",
    )


def _hios() -> float:
    plan = ss.schedule(hios_example(), ss.Cluster.preset("a40", 2), "inter-lp")
    return plan.estimate or 0.0


def _transitions(name: str, endings: str) -> float:
    """Return the transitions of IOS's dynamic program over a network, unpruned."""
    plan = ss.schedule(
        workloads.load(name), ss.Cluster.preset("v100"), "ios",
        strategy="parallel", endings=endings, r=None, s=None, stage_latency=StageFormula(),
    )  # fmt: skip
    return float(plan.search["transitions"])


def _searched(title: str, name: str, single_root: int, exact: int) -> tuple[Claim, ...]:
    return (
        Claim("IOS, released search", f"{title}, transitions", single_root,
              lambda: _transitions(name, "single_root"), 0.0),
        Claim("IOS, section 4 enumerated", f"{title}, transitions by definition", exact,
              lambda: _transitions(name, "exact"), 0.0),
    )  # fmt: skip


def _macs(name: str) -> float:
    """Return the multiply-adds of a network's convolutions in G."""
    graph = workloads.load(name, granularity="operator")
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2e9


def _network(title: str, name: str, operators: int, edges: int, macs: float) -> tuple[Claim, ...]:
    return (
        Claim("LIOS, Table IV", f"{title}, vertices", operators, lambda: len(workloads.load(name)), 0.0),
        Claim("LIOS, Table IV", f"{title}, edges", edges, lambda: len(workloads.load(name).edges), 0.0),
        Claim("IOS, models", f"{title}, multiply-adds, G", macs, lambda: _macs(name), 1e-3),
    )


def _nodes(title: str, name: str, nodes: int) -> Claim:
    """Return the claim about torch.fx nodes: single operators, the input and the output."""
    return Claim(
        "torchvision 0.28, torch.fx", f"{title}, nodes", nodes,
        lambda: len(workloads.load(name, granularity="operator")) + 2, 0.0,
    )  # fmt: skip


_IOS = "IOS, released README 4.2.1 (paper Fig. 6)"
CLAIMS = (
    *_network("SqueezeNet", "squeezenet", 50, 65, 1.187),
    *_network("Inception-v3", "inception_v3", 119, 153, 5.711),
    *_network("RandWire", "randwire", 120, 260, 7.822),
    *_network("NASNet-A", "nasnet_a_large", 374, 576, 22.18),
    _nodes("GoogLeNet", "googlenet", 199),
    _nodes("Inception-v3", "inception_v3", 316),
    _nodes("ResNet-50", "resnet50", 177),
    _nodes("SqueezeNet 1.1", "squeezenet1_1", 68),
    _nodes("DenseNet-121", "densenet121", 433),
    Claim(_IOS, "Inception-v3 on V100, sequential, ms", 6.51, lambda: _inception("sequential"), None),
    Claim(_IOS, "Inception-v3 on V100, greedy, ms", 4.62, lambda: _inception("greedy"), None),
    Claim(
        _IOS,
        "Inception-v3 on V100, sequential over greedy",
        6.51 / 4.62,
        lambda: _inception("sequential") / _inception("greedy"),
        0.02,
    ),
    Claim("LIOS, Table III", "worked example, sequential", 73, lambda: _lios("sequential"), 0.0),
    Claim("LIOS, Table III", "worked example, 3 streams", 38, lambda: _lios("lios", streams=3), 0.0),
    Claim("HIOS, Fig. 4", "worked example, 2 GPUs", 16, _hios, 0.0),
    *_searched("SqueezeNet", "squeezenet", 284, 328),
    *_searched("Inception-v3", "inception_v3", 27_742, 28_829),
    *_searched("NASNet-A", "nasnet_a_large", 5_284_405, 5_626_796),
)


def main() -> None:
    """Print the table."""
    print("| source | setting | published | ours | ours / published | must agree |")
    print("|---|---|---|---|---|---|")
    for claim in CLAIMS:
        ours = claim.ours()
        ratio = ours / claim.published
        if claim.tolerance is None:
            verdict = "no"
        else:
            within = "exactly" if claim.tolerance == 0 else f"within {claim.tolerance:.1%}"
            verdict = f"{within}: {'yes' if abs(ratio - 1) <= claim.tolerance else 'NO'}"
        print(f"| {claim.source} | {claim.setting} | {claim.published:g} | {ours:.4g} | {ratio:.3f} | {verdict} |")


if __name__ == "__main__":
    main()
