"""Commands that show graphs, convert files, and list workloads, devices, formats and backends."""

import json
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any, Final

import simsched as ss
from simsched.base.errors import FormatError, SchedulerError, UnknownNameError
from simsched.base.pairs import read_shapes
from simsched.base.units import GB_PER_S, GIB, TFLOP_PER_S, US
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import Text, argument, file_option, option
from simsched.experiments.result import table_of


def show(
    graph: opt.PlanArguments,
    target: opt.Target,
    as_json: opt.Json = False,
    svg: Annotated[Text, file_option("Draw it, or its schedule with --scheduler: .svg.")] = None,
    dot: Annotated[Text, file_option("The same picture for Graphviz.")] = None,
) -> None:
    """Describe GRAPH: operators, edges, width, depth, blocks, flops, and how much parallelism could give.

    A schedule can be drawn, too.
    """
    from simsched.show.facts import graph_facts

    cluster = target.bare(graph)
    chosen = bool(graph.scheduler or graph.option)
    if svg is None and dot is None:
        if chosen:
            raise SchedulerError("--scheduler and --option are for pictures: say where with --svg or --dot")
        shown: ss.OpGraph | ss.Schedule = graph.read()
    else:
        if chosen:
            shown = graph.plan(cluster)
        else:
            shown = graph.read_subject()
    facts = graph_facts(shown.graph if isinstance(shown, ss.Schedule) else shown, cluster.devices[0])
    pictures = [
        ("picture", svg, lambda path: ss.to_svg(shown, path)),
        ("picture", dot, lambda path: ss.to_dot(shown, path)),
    ]
    out.tell_facts(facts, pictures, as_json=as_json, ran=graph.traced_facts())


def convert(
    source: Annotated[str, argument("SOURCE", "Workload, or a file in any format.")],
    target: Annotated[str, argument("TARGET", "File to write; its suffix says the format.")],
    shape: opt.Shape = None,
    trust: opt.Trust = False,
) -> None:
    """Write SOURCE, a graph, schedule or profile, in another format; suffix and content decide the formats.

    A profile that torch.profiler recorded becomes ours, times per operator.
    """
    from workloads import read_spec
    from workloads.formats import FORMATS, as_graph, write

    subject = read_spec(opt.trusted(source) if trust else source, shapes=read_shapes(shape))
    name = write(subject, target)
    if FORMATS[name].holds == "graph":
        held = as_graph(subject)
    else:
        held = subject
    out.say(f"{held!r} written to {target} ({name})")


def list_(
    kind: Annotated[str, argument("KIND", "workloads, gpus (and links), formats or backends.")],
    schema: Annotated[Text, option("Of formats: print a JSON Schema, as of simsched.graph.", metavar="FORMAT")] = None,
    template: Annotated[
        Text, option("Of gpus: print the numbers of a preset as a file for --gpu.", metavar="GPU")
    ] = None,
) -> None:
    """List workloads and their parameters, preset devices and links, file formats, or backends.

    A backend is listed with whether it can be used here, or why not.
    """
    if kind not in _TABLES:
        raise UnknownNameError("kind", kind, list(_TABLES))
    if template is not None:
        if kind != "gpus":
            raise FormatError(f"--template {template}: templates are of gpus, not of {kind}")
        from simsched.model.cluster import GpuSheet

        out.say(*json.dumps(GpuSheet.of(template).to_dict(), indent=1).splitlines())
        return
    if schema is None:
        for table in _TABLES[kind]:
            out.print_table(table())
        return
    if kind != "formats":
        raise FormatError(f"--schema {schema}: schemas are of formats, not of {kind}")
    from simsched.experiments.documents import schema as schema_of_format

    out.say(*json.dumps(schema_of_format(schema), indent=2, ensure_ascii=False).splitlines())


def _workloads() -> Any:
    """Return the registered workloads with their size at default parameters."""
    from workloads import WORKLOADS, from_spec

    rows = []
    for name in WORKLOADS:
        graph = from_spec(name)
        parameters = ", ".join(_setting(p) for p in signature(WORKLOADS[name]).parameters.values())
        figures = (len(graph), len(graph.src), graph.width, graph.depth, f"{graph.flops.sum() / 1e9:.2f}")
        rows.append((name, *map(str, figures), parameters))
    headings = ("name", "operators", "edges", "width", "depth", "GFLOP", "parameters")
    return table_of("workloads", headings, rows, left=(0, 6))


def _models() -> Any:
    """Return the language models that are known by name, with their parameters and sources."""
    from workloads.llm import PUBLISHED, llm

    rows = []
    for name, model in PUBLISHED.items():
        nbytes = float(llm(name, dtype="fp16", context=1).weight_nbytes.sum())
        rows.append((f"llm:{name}", f"{nbytes / 2e9:.1f}", model.source))
    return table_of("language models", ("name", "parameters\nbillions", "source"), rows, left=(0, 2))


def _setting(parameter: Parameter) -> str:
    """Return a parameter and its default as one types them."""
    if parameter.name == "rng":
        return "seed=0"
    value = parameter.default
    if value is None:
        text = "none"
    elif isinstance(value, tuple):
        text = ":".join(map(str, value))
    else:
        text = str(value)
    return f"{parameter.name}={text}"


def _formats() -> Any:
    """Return the formats of files."""
    from workloads.formats import FORMATS

    rows = []
    for name, entry in FORMATS.items():
        # Keys distinguish formats in JSON.
        if entry.keys:
            suffixes = (".json", *entry.suffixes)
        else:
            suffixes = entry.suffixes
        rows.append((name, " ".join(suffixes), entry.holds, "yes", "-" if entry.write is None else "yes"))
    return table_of("formats", ("name", "suffix", "holds", "read", "write"), rows, left=range(5))


def _gpus() -> Any:
    """Return the preset devices."""
    from simsched.model.cluster import DEVICES
    from simsched.model.cluster.presets import DEFAULT_LINK

    rows = []
    for name in DEVICES:
        device = ss.Cluster.preset(name).devices[0]
        full, half = (f"{device.peak[d] / TFLOP_PER_S:.1f}" if d in device.peak else "-" for d in ("fp32", "fp16"))
        clock, *sizes = (f"{x:.0f}" for x in (device.clock, device.bandwidth / GB_PER_S, device.memory / GIB))
        rows.append((name, str(device.sms), clock, full, half, *sizes, DEFAULT_LINK[name]))
    headings = ("name", "SMs", "MHz", "FP32\nTFLOP/s", "FP16\nTFLOP/s", "DRAM\nGB/s", "memory\nGiB", "link")
    return table_of("gpus", headings, rows, left=(0, 7))


def _links() -> Any:
    """Return the preset links."""
    from simsched.model.cluster import LINKS

    joins = {
        "pairs": "devices 2i and 2i+1, the rest over pcie4",
        "mesh": "every two devices",
        "switch": "all through a switch",
    }
    rows = [
        (name, f"{link.bandwidth / GB_PER_S:.1f}", f"{link.latency / US:.1f}", joins[shape])
        for name, (shape, link) in LINKS.items()
    ]
    return table_of("links", ("name", "GB/s per\ndirection", "latency\nus", "joins"), rows, left=(0, 3))


def _backends() -> Any:
    """Return the backends, and whether they can be used here."""
    from hwbackend import available

    statuses = available()
    rows = [(one.name, "yes" if one.usable else "no", one.description, one.reason) for one in statuses]
    dim = [i for i, one in enumerate(statuses) if not one.usable]
    return table_of("backends", ("name", "usable", "runs on", "found"), rows, left=range(4), dim=dim)


_TABLES: Final[Mapping[str, tuple[Callable[[], Any], ...]]] = {
    "workloads": (_workloads, _models),
    "gpus": (_gpus, _links),
    "formats": (_formats,),
    "backends": (_backends,),
}
