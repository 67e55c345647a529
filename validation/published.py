"""What was published, beside what the library says with its uncalibrated presets.

    python -m validation.published

Absolute times are not expected to match before calibration; what is shown is how far they are off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import simsched as ss
import workloads
from simsched.units import MS


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
    exact
        Whether the two have to be equal (a worked example) or not (a measurement).
    """

    source: str
    setting: str
    published: float
    ours: Callable[[], float]
    exact: bool


def _inception(scheduler: str) -> float:
    cluster = ss.Cluster.preset("v100")
    return ss.simulate(ss.schedule(workloads.load("inception_v3"), cluster, scheduler), cluster).makespan / MS


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


_IOS = "IOS, released README 4.2.1 (paper Fig. 6)"
CLAIMS = (
    Claim("IOS, models", "Inception-v3, operators", 119, lambda: len(workloads.load("inception_v3")), True),
    Claim("LIOS, Table IV", "Inception-v3, edges", 153, lambda: len(workloads.load("inception_v3").edges), True),
    Claim(_IOS, "Inception-v3 on V100, sequential, ms", 6.51, lambda: _inception("sequential"), False),
    Claim(_IOS, "Inception-v3 on V100, greedy, ms", 4.62, lambda: _inception("greedy"), False),
    Claim("LIOS, Table III", "worked example, sequential", 73, lambda: _lios("sequential"), True),
    Claim("LIOS, Table III", "worked example, 3 streams", 38, lambda: _lios("lios", streams=3), True),
)


def main() -> None:
    """Print the table."""
    print("| source | setting | published | ours | ours / published | must be equal |")
    print("|---|---|---|---|---|---|")
    for claim in CLAIMS:
        ours = claim.ours()
        equal = ("yes, is" if ours == claim.published else "yes, IS NOT") if claim.exact else "no"
        ratio = ours / claim.published
        print(f"| {claim.source} | {claim.setting} | {claim.published:g} | {ours:.4g} | {ratio:.3f} | {equal} |")


if __name__ == "__main__":
    main()
