"""The networks of Opara's experiments under the schedulers it compares, each simulated once for all claims.

How their frameworks are stood for:

- *CUDA Graph*: one operator after the other in one stream, captured.
- *Nimble*: the released code's streams and waits, in topological order, captured. Nimble's other steps (kernel
  selection, folded normalisations, fused elementwise operators) are left out: both schedulers get the same operators.
- *Opara*: the journal's text; *conference*: the version of 2023, whose rule for streams and single queue differ.
- *PyTorch*: one operator after the other, launched by the host at the preset's cost of a launch. That is less than what
  eager PyTorch spends on an operator, so it stands for the ordering alone.

SM efficiency is that of NVIDIA's profilers: the part of the SMs that hold at least one warp, averaged over the run,
which is `Trace.sm_efficiency`. (`Trace.sm_utilization` is of issue slots.)
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import simsched as ss
import workloads
from simsched.base.units import MS

NETWORKS: Final[Mapping[str, tuple[str, str]]] = {
    "GoogLeNet": ("googlenet", "rtx2080super"),
    "Inception-v3": ("inception_v3", "rtx2080super"),
    "DeepFM": ("deepfm", "rtx2080super"),
    "NASNet": ("nasnet_a_large", "a100"),
    "T5": ("t5_small_encoder", "a100"),
    "BERT": ("bert_base", "a100"),
}
"""Name in the paper -> our workload, and the preset of the GPU on which it was measured at batch 1."""
PYTORCH, GRAPH, NIMBLE, OPARA = "PyTorch", "CUDA Graph", "Nimble", "Opara"
CONFERENCE, DEPTH_FIRST = "conference", "depth first"
_SCHEDULED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    PYTORCH: ("sequential", {}),
    GRAPH: ("sequential", {}),
    NIMBLE: ("nimble", {"mode": "impl"}),
    OPARA: ("opara", {}),
    CONFERENCE: ("opara", {"allocation": "conference", "classes": "none"}),
    DEPTH_FIRST: ("opara", {"order": "graph"}),
}


class Ran(NamedTuple):
    """What a simulated run came to.

    Parameters
    ----------
    ms
        Makespan in ms.
    sm_efficiency
        In percent.
    """

    ms: float
    sm_efficiency: float


@cache
def network(name: str, gpu: str | None, batch: int = 1) -> ss.OpGraph:
    """Return a network by its name in the paper, as single operators tiled for a preset, or for None in particular."""
    return workloads.load(NETWORKS[name][0], granularity="operator", device=gpu, batch=batch)


def planned(graph: ss.OpGraph, cluster: ss.Cluster, framework: str) -> ss.Schedule:
    """Return what stands for a framework."""
    scheduler, options = _SCHEDULED[framework]
    plan = ss.schedule(graph, cluster, scheduler, **options)
    return executed(plan, "graph") if framework == GRAPH else plan


def executed(plan: ss.Schedule, execution: str) -> ss.Schedule:
    """Return a schedule of one device executed as ``"events"`` or as ``"graph"``, in the same order and streams."""
    return ss.Schedule.from_columns(
        plan.graph, plan.op, plan.devices, stream=plan.stream, execution=execution, scheduler=plan.scheduler,
        events=plan.events,
    )  # fmt: skip


@cache
def ran(name: str, framework: str, *, gpu: str | None = None, batch: int = 1) -> Ran:
    """Return what a network comes to under a framework; by default on the GPU on which the paper measured it."""
    gpu = gpu or NETWORKS[name][1]
    cluster = ss.Cluster.preset(gpu)
    trace = ss.simulate(planned(network(name, gpu, batch), cluster, framework), cluster)
    return Ran(trace.makespan / MS, 100.0 * trace.sm_efficiency())


def speedup(name: str, over: str, framework: str = OPARA, *, gpu: str | None = None, batch: int = 1) -> float:
    """Return by how much a framework is faster than another."""
    return ran(name, over, gpu=gpu, batch=batch).ms / ran(name, framework, gpu=gpu, batch=batch).ms


@cache
def what_if(
    name: str, over: str, framework: str = OPARA, *, gpu: str | None = None, apart: float | None = None, **fields: Any
) -> float:
    """Return by how much a framework is faster than another on a device that is changed.

    Parameters
    ----------
    name, over, framework, gpu
        As of `speedup`, at batch 1.
    apart
        If given, operators are not captured but issued one after the other, one each so many us; waits and events
        cost nothing. Unlike the nodes of a captured graph they pass the hardware queues (`connections`).
    **fields
        Of the device.
    """
    gpu = gpu or NETWORKS[name][1]
    serial = {} if apart is None else {"launch": apart, "record": 0.0, "wait": 0.0}
    cluster = ss.Cluster.preset(gpu).replace_devices(**serial, **fields)
    plans = [planned(network(name, gpu), cluster, each) for each in (over, framework)]
    if apart is not None:
        plans = [executed(plan, "events") for plan in plans]
    slower, faster = (ss.simulate(plan, cluster).makespan for plan in plans)
    return slower / faster
