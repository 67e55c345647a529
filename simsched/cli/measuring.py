"""Commands that measure on a backend, and fit and judge the simulator by what was measured."""

import json
from typing import Annotated

import typer

from simsched.cli.inputs import (
    check_outputs,
    make_backend,
    make_cluster,
    progress,
    read_graph,
    read_measurable,
    read_profile,
    read_schedulers,
    require_devices,
)
from simsched.cli.options import (
    BackendOption,
    BackendOptions,
    Gpu,
    Gpus,
    GraphArgument,
    Json,
    Output,
    Repeats,
    RunSeed,
    Schedulers,
    Shape,
    TargetFile,
    VirtualDevices,
    Warmup,
)
from simsched.cli.printing import check_pictures, print_pairs, print_pictures, print_table


def backends() -> None:
    """List the backends: what they run on, and whether they can be used here, or why not."""
    from simsched.cli.measured import backend_table

    print_table(backend_table())


def profile(
    graph: GraphArgument,
    backend: BackendOption,
    backend_option: BackendOptions = None,
    virtual_devices: VirtualDevices = None,
    in_situ: Annotated[
        int,
        typer.Option(
            "--in-situ", min=0, max=10_000,
            help="Schedules at random that are run besides sequential ones, in DAG order on cold data; 0 measures each "
            "operator alone, on warm data.",
        ),
    ] = 8,
    microbenchmarks: Annotated[
        bool, typer.Option("--microbenchmarks/--no-microbenchmarks", help="Measure what identifies the device, too.")
    ] = True,
    seed: RunSeed = 0,
    output: Output = None,
    shape: Shape = None,
) -> None:  # fmt: skip
    """Measure GRAPH on a backend: its operators in place, and microbenchmarks of the device.

    The profile is printed, or written to a file that `simsched calibrate` reads.
    """
    from simsched.base.io import dump_json

    check_outputs(graph, output)
    runner = make_backend(backend, backend_option, virtual_devices)
    dag = runner.realise(read_graph(graph, shape))
    with progress(1 + microbenchmarks) as tell:
        tell("profile")
        found = runner.profile(dag, in_situ=in_situ, rng=seed)
        if microbenchmarks:
            tell("microbenchmarks")
            found = found.joined(runner.microbenchmarks())
    if output is None:
        print(dump_json(found.to_dict()), end="")
        return
    found.save(output)
    device = "" if found.device is None else f" of {found.device.name}"
    print(f"{found!r}, {len(found.runs)} runs{device}, written to {output}")


def calibrate(
    profiles: Annotated[list[str], typer.Argument(metavar="PROFILE...", help="Files that `simsched profile` wrote.")],
    graph: Annotated[
        str | None, typer.Option("--graph", metavar="GRAPH", help="The graph that is meant; others are refused.")
    ] = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of what is held out.")] = 0,
    output: Output = None,
    as_json: Json = False,
    shape: Shape = None,
) -> None:
    """Fit the parameters of a device and the times of operators to measurements, and print them.

    What is written stands for a cluster: `simsched compare GRAPH --cluster FILE`.

    --gpu is what is believed of the device beforehand, where profiles do not say.
    """
    from simsched.calibration import calibrate
    from simsched.cli.measured import calibration_facts, parameter_table
    from simsched.model.calibrated import bare

    for path in profiles:
        check_outputs(path, output)
    measured = [read_profile(path) for path in profiles]
    prior = None if gpu is None and gpus is None else bare(make_cluster(gpu, gpus, None))
    meant = None if graph is None else read_graph(graph, shape)
    found = calibrate(prior, measured, meant, rng=seed)
    if output is not None:
        found.save(output)
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
        return
    print_table(parameter_table(found))
    print_pairs(calibration_facts(found))
    print_pictures("calibration", output)


def replay(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A file with a schedule or program.")],
    backend: BackendOption,
    backend_option: BackendOptions = None,
    virtual_devices: VirtualDevices = None,
    repeats: Repeats = 20,
    warmup: Warmup = 3,
    target: TargetFile = None,
    output: Output = None,
    as_json: Json = False,
    gantt: Annotated[
        str | None,
        typer.Option(
            "--gantt",
            metavar="FILE",
            help="Draw what ran when: .png, .svg or .pdf; with --cluster below what was predicted.",
        ),
    ] = None,
) -> None:
    """Run a schedule on a backend, again and again, and print how long it takes.

    With --cluster the prediction stands beside it.
    """
    from simsched.calibration import read_target
    from simsched.cli.measured import replay_facts
    from simsched.simulator import simulate

    check_pictures(plan, output, gantt)
    check_outputs(target or "", output, gantt)
    found, runner = read_measurable(plan), make_backend(backend, backend_option, virtual_devices)
    upon = None if target is None else read_target(target)
    if target is not None and upon is not None:
        require_devices(upon, target, runner)
    with progress(1) as tell:
        tell("replay")
        run = runner.replay(found, repeats=repeats, warmup=warmup)
    if output is not None:  # before anything else can fail
        run.save(output)
    trace = None if upon is None else simulate(run.program, upon)
    if gantt is not None:
        if trace is None:
            run.trace.gantt(gantt)
        else:
            from simsched.show.accuracy import overlaid_gantt

            overlaid_gantt(trace, run, gantt)
    facts = replay_facts(run, None if trace is None else trace.makespan)
    if as_json:
        print(json.dumps({name: value for name, value, _ in facts}, indent=1, allow_nan=False))
        return
    print_pairs([(name.removesuffix("_us").replace("_", " "), text) for name, _, text in facts])
    print_pictures("run", output)
    print_pictures("trace", gantt)


def validate(
    graph: GraphArgument,
    backend: BackendOption,
    backend_option: BackendOptions = None,
    virtual_devices: VirtualDevices = None,
    schedulers: Schedulers = "fast",
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100, help="Rounds; each learns from those before.")] = 3,
    training: Annotated[
        int, typer.Option("--training", min=0, max=10_000, help="Schedules at random to calibrate on.")
    ] = 8,
    held_out: Annotated[
        int, typer.Option("--held-out", min=0, max=10_000, help="Schedules at random to predict, others in each round.")
    ] = 8,
    repeats: Repeats = 12,
    warmup: Warmup = 3,
    seed: RunSeed = 0,
    as_json: Json = False,
    scatter: Annotated[
        str | None,
        typer.Option("--scatter", metavar="FILE", help="Plot predicted against measured: .png, .svg or .pdf."),
    ] = None,
    gantt: Annotated[
        str | None,
        typer.Option(
            "--gantt", metavar="FILE", help="Draw the predicted above the measured trace of the simulator's choice."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", metavar="FOLDER", help="Keep measurements there, and make none that is there already."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the last calibration to a JSON file.")
    ] = None,
    shape: Shape = None,
) -> None:
    """Calibrate on a backend, schedule GRAPH, predict, replay, compare, recalibrate, in rounds.

    Errors are over schedules that no fit has seen. After a round, its schedules
    at random are fitted to, never those of schedulers. The table is of the last
    round. Regret: how much slower than the fastest scheduler's schedule the one
    is that the simulator ranks first.
    """
    from simsched.experiments.accuracy import validate
    from simsched.show.accuracy import overlaid_gantt
    from simsched.show.accuracy import scatter as draw_scatter

    check_pictures(graph, output, scatter, gantt)
    dag, runner = read_graph(graph, shape), make_backend(backend, backend_option, virtual_devices)
    asked = read_schedulers(schedulers, dag)
    with progress(2 + rounds * (len(asked) + held_out)) as tell:
        found = validate(
            dag, runner, asked, rounds=rounds, training=training, random_held_out=held_out, repeats=repeats,
            warmup=warmup, rng=seed, folder=resume, progress=tell,
        )  # fmt: skip
    chosen = found.rounds[-1].chosen
    if output is not None and found.calibration is not None:
        found.calibration.save(output)
    if scatter is not None:
        draw_scatter(found, scatter)
    if gantt is not None and chosen is not None:
        trace, run = found.traces[chosen.scheduler]
        overlaid_gantt(trace, run, gantt, title=f"{found.graph}: {chosen.scheduler}")
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
        return
    print_table(found.table())
    print_table(found.summary())
    print_pictures("calibration", output)
    print_pictures("scatter plot", scatter)
    if chosen is not None:
        print_pictures(chosen.scheduler, gantt)
