"""The command that replays profiler traces."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsched.cli.inputs import read_traced
from simsched.cli.options import Json, Perfetto
from simsched.cli.printing import check_pictures, print_pairs, print_table

if TYPE_CHECKING:
    from workloads.formats.kineto_replay import TraceReplay

_SHOWN = 10  # operators that are off


def replay_trace(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="What torch.profiler exported, .json or .json.gz.")],
    step: Annotated[
        str | None, typer.Option("--step", metavar="N", help="Number of ProfilerStep, or all; the last unless given.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="CHANGE",
            help="PARAMETER*=FACTOR or PARAMETER=VALUE: launch*=0.5, gap=0us, device=h100, contention=true, "
            "operators.collective.speed*=2, ...; repeatable.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="traced, none (it takes no time), or captured (all is one CUDA graph).")
    ] = "traced",
    streams: Annotated[str, typer.Option("--streams", help="traced, or one for all of a device.")] = "traced",
    gantt: Annotated[
        str | None, typer.Option("--gantt", metavar="FILE", help="Draw measured over simulated: .png, .svg or .pdf.")
    ] = None,
    perfetto: Perfetto = None,
    as_json: Json = False,
) -> None:
    """Simulate what a profiler trace ran, beside what was measured; with --set, --host or --streams as it might run."""
    from simsched.base.errors import FormatError
    from simsched.base.io import read_bytes
    from simsched.experiments.whatif import parse_change
    from workloads.formats.kineto_replay import known_change, replay_traced

    check_pictures(trace, perfetto, gantt)
    asked = [parse_change(known_change(text)) for text in changes or ()]
    program = read_traced(trace if step is None else f"{trace},step={step}")
    if program is None:
        read_bytes(trace.partition(",")[0], 1)  # what cannot be read is said first
        raise FormatError(f"{trace}: not a trace of torch.profiler")
    found = replay_traced(program, asked, host=host, streams=streams)
    for path, write in ((perfetto, found.to_perfetto), (gantt, found.gantt)):
        if path is not None:
            write(path)
    if as_json:
        print(json.dumps(found.to_dict() | {"changes": [str(change) for change in asked]}, indent=1, allow_nan=False))
        return
    print_table(_table(found))
    print_pairs(_facts(found, bool(asked) or (host, streams) != ("traced", "traced")))
    for path in (perfetto, gantt):
        if path is not None:
            print(f"both traces written to {path}")


def _table(found: "TraceReplay") -> Any:
    """Return the streams as a table."""
    from rich.table import Table

    table = Table(title=f"{found.traced.graph.name}, us")
    for name in ("device", "stream", "operators", "busy measured", "busy simulated", "end measured", "end simulated"):
        table.add_column(name, justify="left" if name == "device" else "right")
    for row in found.busy:
        times = (row.measured, row.simulated, row.measured_end, row.simulated_end)
        table.add_row(row.device, str(row.stream), str(row.operators), *(f"{time:.1f}" for time in times))
    return table


def _facts(found: "TraceReplay", changed: bool) -> list[tuple[str, str]]:
    """Return what is said of a replay below the table."""
    program, late = found.traced, found.late
    facts = [
        ("measured makespan", f"{found.measured_us:.1f} us"),
        ("simulated makespan", f"{found.simulated_us:.1f} us, {100 * found.error:+.2f} %"),
        ("starts", f"{100 * found.start_error:.2f} % of the makespan off on average"),
        ("waits", f"{program.n_waits} between streams, of which {program.guessed_waits} are guessed"),
    ]  # fmt: skip
    if found.other_us is not None:
        facts.insert(2, ("if bound otherwise", f"{found.other_us:.1f} us: FP32 and DRAM rates of the device differ"))
    if program.n_lost:
        facts.append(("lost", f"{program.n_lost} operators whose call is not in the trace start when they did"))
    if not changed:
        facts.append(("over 5 % off", f"{len(late)} operators" + (", the worst first:" if late else "")))
        facts += [(f"  {name[:60]}", f"measured {a:.1f}, simulated {b:.1f} us") for name, a, b in late[:_SHOWN]]
    return facts
