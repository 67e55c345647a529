"""What `show`, `workloads` and `gpus` print."""

from inspect import Parameter, signature
from typing import Any

from rich.table import Table

from simsched.base.units import GB_PER_S, GIB, TFLOP_PER_S, US, format_bytes, format_time
from simsched.experiments.comparison import operators_without_load
from simsched.model.cluster import DEVICES, LINKS, Cluster
from simsched.model.cluster.presets import DEFAULT_LINK
from simsched.model.costmodel import operator_times
from simsched.model.graph import OpGraph
from simsched.model.graph.structure import longest_to

_LARGEST_WIDTH = 100_000  # operators up to which the width is found in seconds

Fact = tuple[str, Any, str]


def describe_graph(graph: OpGraph, cluster: Cluster) -> list[Fact]:
    """Return facts about a graph as (name, JSON value, text)."""
    times = operator_times(graph, cluster.devices[0])
    work, path = float(times.sum()), float(max(longest_to(graph, times)))
    width = graph.width if len(graph) <= _LARGEST_WIDTH else None
    sizes = [len(block) for block in graph.blocks]
    bound = work / path if path else 1.0
    model = cluster.devices[0].model
    return [
        ("name", graph.name, graph.name),
        ("operators", len(graph), str(len(graph))),
        ("edges", len(graph.src), str(len(graph.src))),
        ("width", width, "not computed for so many operators" if width is None else str(width)),
        ("depth", graph.depth, str(graph.depth)),
        ("blocks", sizes, f"{len(sizes)}: {', '.join(map(str, sizes[:20]))}{', ...' if len(sizes) > 20 else ''}"),
        ("flops", float(graph.flops.sum()), f"{graph.flops.sum() / 1e9:.3f} G"),
        ("dram_traffic_bytes", float(graph.nbytes.sum()), format_bytes(float(graph.nbytes.sum()))),
        ("weights_bytes", float(graph.weight_nbytes.sum()), format_bytes(float(graph.weight_nbytes.sum()))),
        ("work_us", work, f"{format_time(work)} one operator after the other on {model}, without overheads"),
        ("critical_path_us", path, format_time(path)),
        ("parallelism_bound", bound, f"{bound:.2f}x: work over critical path"),
        (
            "operators_without_load",
            operators_without_load(graph),
            f"{operators_without_load(graph)} (no kernels, no utilization)",
        ),
    ]


def workload_table() -> Table:
    """Return the registered workloads with their size at default parameters."""
    from workloads import WORKLOADS, from_spec

    table = Table(title="workloads", title_justify="left")
    table.add_column("name")
    for heading in ("operators", "edges", "width", "depth", "GFLOP"):
        table.add_column(heading, justify="right")
    table.add_column("parameters")
    for name in WORKLOADS:
        graph = from_spec(name)
        parameters = ", ".join(_setting(p) for p in signature(WORKLOADS[name]).parameters.values())
        figures = (len(graph), len(graph.src), graph.width, graph.depth)
        table.add_row(name, *map(str, figures), f"{graph.flops.sum() / 1e9:.2f}", parameters)
    return table


def _setting(parameter: Parameter) -> str:
    """Return a parameter and its default as one types them."""
    if parameter.name == "rng":
        return "seed=0"
    value = parameter.default
    text = "none" if value is None else ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{parameter.name}={text}"


def format_table() -> Table:
    """Return the formats of files."""
    from workloads.formats import FORMATS

    table = Table(title="formats", title_justify="left")
    for heading in ("name", "suffix", "holds", "read", "write"):
        table.add_column(heading)
    for name, entry in FORMATS.items():
        suffixes = (".json", *entry.suffixes) if entry.keys else entry.suffixes  # JSON is told apart by keys
        table.add_row(name, " ".join(suffixes), entry.holds, "yes", "-" if entry.write is None else "yes")
    return table


def gpu_table() -> Table:
    """Return the preset devices."""
    table = Table(title="gpus", title_justify="left")
    table.add_column("name")
    for heading in ("SMs", "MHz", "FP32\nTFLOP/s", "FP16\nTFLOP/s", "DRAM\nGB/s", "memory\nGiB"):
        table.add_column(heading, justify="right")
    table.add_column("link")
    for name in DEVICES:
        device = Cluster.preset(name).devices[0]
        half = f"{device.peak['fp16'] / TFLOP_PER_S:.1f}" if "fp16" in device.peak else "-"
        table.add_row(
            name, str(device.sms), f"{device.clock:.0f}", f"{device.peak['fp32'] / TFLOP_PER_S:.1f}", half,
            f"{device.bandwidth / GB_PER_S:.0f}", f"{device.memory / GIB:.0f}", DEFAULT_LINK[name],
        )  # fmt: skip
    return table


def link_table() -> Table:
    """Return the preset links."""
    table = Table(title="links", title_justify="left")
    table.add_column("name")
    table.add_column("GB/s per\ndirection", justify="right")
    table.add_column("latency\nus", justify="right")
    table.add_column("joins")
    joins = {
        "pairs": "devices 2i and 2i+1, the rest over pcie4",
        "mesh": "every two devices",
        "switch": "all through a switch",
    }
    for name, (shape, link) in LINKS.items():
        table.add_row(name, f"{link.bandwidth / GB_PER_S:.1f}", f"{link.latency / US:.1f}", joins[shape])
    return table
