"""Commands that show graphs and convert files."""

import sys
from functools import partial
from typing import Annotated

import simsched as ss
from simsched.base.errors import FormatError, SchedulerError
from simsched.base.io import is_stream, write_file
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.inputs import read_shapes
from simsched.cli.options import Text, argument, file, option


def show(
    graph: opt.Plan,
    target: opt.Target,
    as_json: opt.Json = False,
    svg: Annotated[Text, file("Draw it, or its schedule with --scheduler: .svg."), opt.WRITTEN] = None,
    dot: Annotated[Text, file("The same picture for Graphviz."), opt.WRITTEN] = None,
) -> None:
    """Describe GRAPH: operators, edges, width, depth, blocks, flops, and how much parallelism could give.

    A schedule can be drawn, too.
    """
    from simsched.show.facts import graph_facts

    if svg is not None and not svg.lower().endswith(".svg"):
        raise FormatError(f"--svg {svg}: the file must end in .svg")
    cluster, chosen = target.bare(), bool(graph.scheduler or graph.option)
    if svg is None and dot is None:
        if chosen:
            raise SchedulerError("--scheduler and --option are for pictures: say where with --svg or --dot")
        shown: ss.OpGraph | ss.Schedule = graph.read()
    else:
        shown = graph.plan(cluster) if chosen else graph.runnable()
    facts = graph_facts(shown.graph if isinstance(shown, ss.Schedule) else shown, cluster.devices[0])

    def write(draw: str, path: str) -> None:
        write_file(path, getattr(ss, draw)(shown))

    pictures = [("picture", svg, partial(write, "to_svg")), ("picture", dot, partial(write, "to_dot"))]
    out.tell_facts(facts, pictures, as_json=as_json)


def convert(
    source: Annotated[str, argument("SOURCE", "Workload, or a file in any format."), opt.READ],
    target: Annotated[str, argument("TARGET", "File to write; its suffix says the format."), opt.WRITTEN],
    read_as: Annotated[Text, option("Format of SOURCE.", "--from", metavar="FORMAT")] = None,
    write_as: Annotated[Text, option("Format of TARGET.", "--to", metavar="FORMAT")] = None,
    shape: opt.Shape = None,
) -> None:
    """Write SOURCE, a graph, schedule or profile, in another format; formats are told by suffix and content.

    A profile that torch.profiler recorded becomes ours, times per operator.
    """
    from workloads import read_spec
    from workloads.formats import FORMATS, SUFFIXES, as_graph, read, write

    shapes = read_shapes(shape)
    path = "/dev/stdin" if source == "-" else source
    found = read_spec(source, shapes=shapes) if read_as is None else read(path, read_as, shapes=shapes)
    stream = is_stream(target)
    name = write(
        found, target, "simsched" if write_as is None and stream and not target.endswith(SUFFIXES) else write_as
    )
    written = as_graph(found) if FORMATS[name].holds == "graph" else found
    print(f"{written!r} written to {target} ({name})", file=sys.stderr if stream else None)
