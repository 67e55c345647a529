"""Commands that look at graphs, workloads and devices, and convert files."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from simsched.cli.inputs import (
    check_outputs,
    make_cluster,
    read_graph,
    read_options,
    read_plan,
    read_scheduler,
    read_shapes,
)
from simsched.cli.options import Gpu, Gpus, GraphArgument, Json, LinkOption, Option, Shape
from simsched.cli.printing import print_pairs, print_pictures, print_table

if TYPE_CHECKING:
    from simsched.model.cluster import Cluster
    from simsched.model.graph import OpGraph
    from simsched.model.schedule import Schedule


def show(
    graph: GraphArgument,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    as_json: Json = False,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Draw it; GRAPH may then be a schedule in JSON.")
    ] = None,
    dot: Annotated[str | None, typer.Option("--dot", metavar="FILE", help="The same picture for Graphviz.")] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Draw its schedule: a name, or package.module:function.")
    ] = None,
    option: Option = None,
    plan: Annotated[
        str | None, typer.Option("--schedule", metavar="PLAN", help="Draw this schedule of GRAPH, a JSON file.")
    ] = None,
    shape: Shape = None,
) -> None:
    """Describe GRAPH: operators, edges, width, depth, blocks, flops, and how much parallelism could give."""
    from simsched.base.errors import FormatError, SchedulerError
    from simsched.base.io import write_file
    from simsched.cli.describe import describe_graph
    from simsched.model.calibrated import bare
    from simsched.model.schedule import Schedule

    check_outputs(graph, svg, dot)
    if svg is not None and not svg.lower().endswith(".svg"):
        raise FormatError(f"--svg {svg}: the file must end in .svg")
    cluster = bare(make_cluster(gpu, gpus, link))
    if svg is None and dot is None:
        if scheduler or option or plan:
            raise SchedulerError("--scheduler, --option and --schedule are for pictures: say where with --svg or --dot")
        shown: OpGraph | Schedule = read_graph(graph, shape)
    else:
        if plan is not None:
            check_outputs(plan, svg, dot)
        shown = _to_draw(graph, shape, cluster, scheduler, option or [], plan)
    facts = describe_graph(shown.graph if isinstance(shown, Schedule) else shown, cluster)
    if svg is not None or dot is not None:
        from simsched.show.drawing import to_dot, to_svg

        texts = [(path, draw(shown)) for path, draw in ((svg, to_svg), (dot, to_dot)) if path is not None]
        for path, text in texts:
            write_file(path, text)
    if as_json:
        print(json.dumps({name: value for name, value, _ in facts}, indent=1, allow_nan=False))
    else:
        print_pairs([(name.replace("_", " "), text) for name, _, text in facts])
        print_pictures("picture", svg, dot)


def _to_draw(
    source: str, shape: list[str] | None, cluster: "Cluster", scheduler: str | None, option: list[str], plan: str | None
) -> "OpGraph | Schedule":
    """Return the graph, or the schedule of it that is given or to be made."""
    from simsched.base.errors import FormatError, ScheduleError, SchedulerError
    from simsched.model.graph import OpGraph
    from simsched.model.program import Program
    from simsched.model.schedule import Schedule
    from simsched.schedulers import schedule

    found = read_plan(source, shape)
    if isinstance(found, Program):
        raise FormatError(f"{source}: a program is not drawn; give the schedule that it was made from")
    if (scheduler or option) and (plan is not None or isinstance(found, Schedule)):
        raise SchedulerError(f"{plan or source} is scheduled already: --scheduler and --option do not apply")
    if plan is not None:
        given = read_plan(plan)
        if not isinstance(given, Schedule):
            raise FormatError(f"{plan}: --schedule takes a schedule, as `simsched schedule -o` writes one")
        if given.graph != (found.graph if isinstance(found, Schedule) else found):
            raise ScheduleError(f"{plan} schedules another graph than {source}; to draw it give {plan} as GRAPH")
        return given
    if isinstance(found, OpGraph) and (scheduler or option):
        return schedule(found, cluster, read_scheduler(scheduler or "lios"), **read_options(option))
    return found


def workloads() -> None:
    """List the workloads and their parameters."""
    from simsched.cli.describe import workload_table

    print_table(workload_table())


def gpus() -> None:
    """List the preset devices and links."""
    from simsched.cli.describe import gpu_table, link_table

    print_table(gpu_table())
    print_table(link_table())


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Workload, or a file in any format.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="File to write; its suffix says the format.")],
    read_as: Annotated[str | None, typer.Option("--from", metavar="FORMAT", help="Format of SOURCE.")] = None,
    write_as: Annotated[str | None, typer.Option("--to", metavar="FORMAT", help="Format of TARGET.")] = None,
    shape: Shape = None,
) -> None:
    """Write SOURCE, a graph, schedule or profile, in another format; formats are told by suffix and content.

    A profile that torch.profiler recorded becomes ours, times per operator.
    """
    from workloads import read_spec
    from workloads.formats import FORMATS, as_graph, read, write

    check_outputs(source, target)
    shapes = read_shapes(shape)
    found = read_spec(source, shapes=shapes) if read_as is None else read(source, read_as, shapes=shapes)
    name = write(found, target, write_as)
    written = as_graph(found) if FORMATS[name].holds == "graph" else found
    print(f"{written!r} written to {target} ({name})")


def formats(
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="FORMAT", help="Print its JSON Schema, such as simsched.graph.")
    ] = None,
) -> None:
    """List the file formats that are read and written."""
    if schema is not None:
        from simsched.base import schemas

        print(json.dumps(schemas.schema(schema), indent=2, ensure_ascii=False))
        return
    from simsched.cli.describe import format_table

    print_table(format_table())
