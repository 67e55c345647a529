"""Commands that show graphs and convert files."""

from functools import partial
from typing import Annotated

import simsched as ss
from simsched.base.errors import SchedulerError
from simsched.base.io import write_file
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.inputs import read_shapes
from simsched.cli.options import Text, argument, written


def show(
    graph: opt.Plan,
    target: opt.Target,
    as_json: opt.Json = False,
    svg: Annotated[Text, written("Draw it, or its schedule with --scheduler: .svg.")] = None,
    dot: Annotated[Text, written("The same picture for Graphviz.")] = None,
) -> None:
    """Describe GRAPH: operators, edges, width, depth, blocks, flops, and how much parallelism could give.

    A schedule can be drawn, too.
    """
    from simsched.show.facts import graph_facts

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
    source: Annotated[str, argument("SOURCE", "Workload, or a file in any format.")],
    target: Annotated[str, argument("TARGET", "File to write; its suffix says the format.")],
    shape: opt.Shape = None,
) -> None:
    """Write SOURCE, a graph, schedule or profile, in another format; formats are told by suffix and content.

    A profile that torch.profiler recorded becomes ours, times per operator.
    """
    from workloads import read_spec
    from workloads.formats import FORMATS, as_graph, write

    found = read_spec(source, shapes=read_shapes(shape))
    name = write(found, target)
    held = as_graph(found) if FORMATS[name].holds == "graph" else found
    print(f"{held!r} written to {target} ({name})")
