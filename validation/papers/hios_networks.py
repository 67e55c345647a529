"""HIOS's measured figures in simulation: two convolutions on an A40, and networks on two A40 joined by NVLink.

HIOS's executor receives on the host, which issues nothing else until the data is there, and sends each edge on its own:
``transfers="blocking", events="literal"``. The same schedules with copies ordered by events show what that costs.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from statistics import median
from typing import Final

import simsched as ss
import workloads
from simsched.model.costmodel import operator_times
from validation.hardware.graphs import convolutions
from validation.papers.claims import Run, Values

SIZES: Final[Mapping[str, tuple[int, ...]]] = {
    "inception_v3": (299, 512, 1024, 2048), "nasnet_a_large": (331, 512, 1024, 2048)
}  # fmt: skip
"""The networks' own image sizes, and larger ones."""
_MEASURED_OVER_SIMULATED: Final = 22.95 / 12.95
"""NASNet-A, one operator after the other on a V100: as IOS measured it, over what the presets make of it."""


def side_by_side(sizes: Iterable[int]) -> Values:
    """Return the latency of two equal convolutions side by side on an A40 over one after the other, by pixels."""
    found = {}
    for pixels in sizes:
        graph = convolutions(pixels)
        first, second = graph.names
        stage = ss.StageLatency(graph, ss.Cluster.preset("a40"))
        found[str(pixels)] = stage([[first], [second]]) / stage([[first, second]])
    return found


def transfer_ratios(_run: Run) -> Values:
    """Return the median over edges of transfer time over the time of the producer, at the networks' own sizes."""
    cluster = ss.Cluster.preset("a40", 2, link="nvlink-bridge")
    found: dict[str, float] = {}
    for name, (pixels, *_) in SIZES.items():
        graph = workloads.load(name, image_size=pixels, device="a40")
        us = dict(zip(graph.names, operator_times(graph, cluster.devices[0], ss.default_cost).tolist(), strict=True))
        found[name] = median(
            cluster.transfer_time("gpu0", "gpu1", edge.nbytes, edge.transfer) / us[edge.src] for edge in graph.edges
        )
    return found


@cache
def makespans(network: str, pixels: int, slower: float = 1.0) -> dict[str, float]:
    """Return simulated makespans in us of a network on two A40, under names of schedulers and transfers.

    `slower` multiplies the times of operators.
    """
    two = ss.Cluster.preset("a40", 2, link="nvlink-bridge")
    one = ss.Cluster(two.devices[:1])
    graph = workloads.load(network, image_size=pixels, device="a40")

    def cost(op: ss.Operator, device: ss.Device) -> float:
        return slower * ss.default_cost(op, device)

    found = {"sequential": ss.simulate(ss.schedule(graph, one, "sequential", cost), one, cost).makespan}
    for scheduler in ("inter-lp", "hios-lp"):
        plan = ss.schedule(graph, two, scheduler, cost)
        blocking = plan.lower(two, transfers="blocking", events="literal")
        found[f"{scheduler} blocking"] = ss.simulate(blocking, two, cost).makespan
        found[f"{scheduler} async"] = ss.simulate(plan, two, cost).makespan
    return found


def speedup(network: str, pixels: int, *, of: str = "hios-lp blocking", over: str = "sequential") -> float:
    """Return a simulated speedup."""
    return makespans(network, pixels)[over] / makespans(network, pixels)[of]


def small_over_ios(_run: Run) -> Values:
    """Return the speedup over IOS on one A40 at NASNet's own size, and that with asynchronous copies."""
    one, graph = ss.Cluster.preset("a40"), workloads.load("nasnet_a_large", image_size=331, device="a40")
    ios, found = ss.simulate(ss.schedule(graph, one, "ios"), one).makespan, makespans("nasnet_a_large", 331)
    return {"331": ios / found["hios-lp blocking"], "331 async": ios / found["hios-lp async"]}


def nasnet(pixels: int, _run: Run) -> Values:
    """Return the speedup on NASNet over one operator after the other, and two what-ifs."""
    slower = makespans("nasnet_a_large", pixels, _MEASURED_OVER_SIMULATED)
    return {
        f"{pixels}": speedup("nasnet_a_large", pixels),
        f"{pixels} async": speedup("nasnet_a_large", pixels, of="hios-lp async"),
        f"{pixels} slower operators": slower["sequential"] / slower["hios-lp blocking"],
    }


def inception(_run: Run) -> Values:
    """Return the speedups by image size."""
    return {str(pixels): speedup("inception_v3", pixels) for pixels in SIZES["inception_v3"]}


def asynchronous(_run: Run) -> Values:
    """Return by how much asynchronous copies shorten the makespans of the same schedules."""
    return {
        f"{name} {pixels}": speedup(name, pixels, of="hios-lp async", over="hios-lp blocking")
        for name, sizes in SIZES.items()
        for pixels in sizes
    }


def stages_on_nasnet(_run: Run) -> Values:
    """Return by how many % Algorithm 2 shortens the makespan of NASNet-A, by image size."""
    return {
        str(pixels): 100.0 * (1.0 - 1.0 / speedup("nasnet_a_large", pixels, over="inter-lp blocking"))
        for pixels in SIZES["nasnet_a_large"]
    }
