"""Commands that measure on a backend, and fit and judge the simulator by measurements."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import simsched as ss
from simsched.base.errors import ClusterError, FormatError
from simsched.base.limits import MOST
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import Text, Texts, argument, drawn, file, file_option, option
from simsched.experiments.result import table_of

if TYPE_CHECKING:
    from workloads.formats.kineto.replay import TraceReplay
    from workloads.formats.kineto.traced import TracedProgram


def profile(
    graph: opt.Graph,
    backend: opt.BackendOptions,
    in_situ: Annotated[
        int,
        option(
            "Schedules at random that are run besides sequential ones, in DAG order on cold data; 0 measures each "
            "operator alone, on warm data.",
            min=0,
            max=MOST["in_situ"],
        ),
    ] = 8,
    microbenchmarks: Annotated[bool, option("Measure what identifies the device, too.")] = True,
    seed: opt.RunSeed = 0,
    output: opt.Output = None,
) -> None:
    """Measure GRAPH on a backend: its operators in place, and microbenchmarks of the device.

    The profile is printed, or written to a file that `simsched calibrate` reads.
    """
    runner = backend.make()
    dag = runner.realise(graph.read())
    with out.progress(1 + microbenchmarks) as tell:
        tell("profile")
        measured = runner.profile(dag, in_situ=in_situ, rng=seed)
        if microbenchmarks:
            tell("microbenchmarks")
            measured = measured.joined(runner.microbenchmarks())
    text = f"{measured!r}, {len(measured.runs)} runs{'' if measured.device is None else f' of {measured.device.name}'},"
    out.tell(measured.to_dict, [], [(text, output, measured.save)], as_json=output is None)


def calibrate(
    profiles: Annotated[list[str], argument("PROFILE...", "Files that `simsched profile` wrote.")],
    result: opt.ResultOptions,
    graph: Annotated[Text, option("The graph that is meant; others are refused.", metavar="GRAPH")] = None,
    gpu: opt.Gpu = None,
    gpus: opt.Gpus = None,
    seed: Annotated[int, option("Seed of what is held out.", min=0)] = 0,
    shape: opt.Shape = None,
) -> None:
    """Fit the parameters of a device and the times of operators to measurements, and print them.

    The written file can be used as a cluster: `simsched compare GRAPH --cluster FILE`.

    --gpu is the prior belief about the device, where profiles have no data.
    """
    measured = [_read_profile(path) for path in profiles]
    if gpu is None and gpus is None:
        prior = None
    else:
        prior = opt.Target(gpu, gpus).bare()
    calibration = ss.calibrate(prior, measured, None if graph is None else opt.Graph(graph, shape).read(), rng=seed)
    headings, *rows = calibration.table()
    dim = [i for i, one in enumerate(calibration.parameters) if not one.identified]
    title = f"{calibration.cluster.name}: parameters in us and bytes per us"
    parameters = partial(table_of, title, headings, rows, left=(0, len(headings) - 1), dim=dim)
    result.tell(calibration, parameters, _calibration_facts(calibration), name="calibration")


def _read_profile(path: str) -> "ss.Profile":
    """Return the profile that a file holds, our own or another tool's."""
    from workloads import read_spec

    measured = read_spec(path)
    if not isinstance(measured, ss.Profile):
        raise FormatError(f"{path}: not a profile, as `simsched profile GRAPH --backend NAME -o FILE` writes one")
    return measured


def _calibration_facts(found: "ss.Calibration") -> out.Pairs:
    """Return facts about a calibration, without its parameters."""
    error = found.error
    accuracy_text = "not known: no run was held out"
    if error is not None:
        runs = f"{error.runs} held-out {'run' if error.runs == 1 else 'runs'}"
        accuracy_text = f"mean {100 * error.mean:.1f} %, p90 {100 * error.p90:.1f} % of makespans of {runs}"
    return [
        ("graph", "-" if found.graph is None else found.graph.name),
        ("operators", f"{len(found.times)} measured"),
        ("runs", f"{len(found.residuals)}"),
        ("error", accuracy_text),
        *(("warning", line) for line in found.warnings()),
        ("verdict", found.verdict()),
    ]


def replay(
    plan: Annotated[str, argument("PLAN", "A file with a schedule or program.")],
    backend: opt.BackendOptions,
    result: opt.ResultOptions,
    repeats: opt.Repeats = 20,
    warmup: opt.Warmup = 3,
    cluster: Annotated[Text, file("Predict it on a calibration, as `simsched calibrate` writes one.")] = None,
    gantt: Annotated[
        Text, drawn("Draw what ran when: .png, .svg or .pdf; with --cluster below what was predicted.")
    ] = None,
) -> None:
    """Run a schedule on a backend, again and again, and print how long it takes.

    With --cluster the prediction is shown beside it.
    """
    from simsched.calibration import read_target
    from simsched.model.costmodel import bare
    from simsched.show.facts import replay_facts

    subject = opt.read_plan(plan)
    if isinstance(subject, ss.OpGraph):
        raise FormatError(f"{plan}: a graph does not say what runs where; `simsched schedule {plan} -o FILE` does")
    runner = backend.make()
    if cluster is None:
        upon = None
    else:
        upon = read_target(cluster)
    if upon is not None and [d.sms for d in bare(upon).devices] != [d.sms for d in runner.cluster.devices]:
        raise ClusterError(f"{cluster} is of other devices than those of the backend {runner.name!r}; calibrate these")
    with out.progress(1) as tell:
        tell("replay")
        run = runner.replay(subject, repeats=repeats, warmup=warmup)
    if result.output is not None:  # before anything else can fail
        run.save(result.output)
    if upon is None:
        trace = None
    else:
        trace = ss.simulate(run.program, upon)
    if trace is None:
        draw = run.trace.gantt
    else:
        draw = partial(trace.gantt, measured=run.trace)
    facts = replay_facts(run, None if trace is None else trace.makespan)
    out.tell_facts(facts, [("run", result.output, lambda _: None), ("trace", gantt, draw)], as_json=result.as_json)


def validate(
    graph: opt.Graph,
    backend: opt.BackendOptions,
    schedulers: opt.Schedulers = "fast",
    rounds: Annotated[int, option("Rounds; each learns from those before.", min=1, max=MOST["rounds"])] = 3,
    training: Annotated[int, option("Schedules at random to calibrate on.", min=0, max=MOST["training"])] = 8,
    held_out: Annotated[
        int, option("Schedules at random to predict, others in each round.", min=0, max=MOST["random_held_out"])
    ] = 8,
    repeats: opt.Repeats = 12,
    warmup: opt.Warmup = 3,
    seed: opt.RunSeed = 0,
    as_json: opt.Json = False,
    scatter: Annotated[Text, drawn("Plot predicted against measured: .png, .svg or .pdf.")] = None,
    gantt: Annotated[Text, drawn("Draw the predicted beside the measured trace of the simulator's choice.")] = None,
    resume: Annotated[Text, option("Keep measurements there; make only those missing.", metavar="FOLDER")] = None,
    output: Annotated[Text, file_option("Write the last calibration to a JSON file.", "--output", "-o")] = None,
) -> None:
    """Calibrate on a backend, schedule GRAPH, predict, replay, compare, recalibrate, in rounds.

    Errors are over schedules that no fit has seen. After a round, its random schedules are fitted to, but never a
    scheduler's. The table is of the last round. Regret: how much slower than the fastest scheduler's schedule the one
    is that the simulator ranks first.
    """
    from simsched.experiments.accuracy import validate

    dag = graph.read()
    runner = backend.make()
    names = opt.read_schedulers(schedulers, dag)
    with out.progress(2 + rounds * (len(names) + held_out)) as tell:
        accuracy = validate(
            dag,
            runner,
            names,
            rounds=rounds,
            training=training,
            random_held_out=held_out,
            repeats=repeats,
            warmup=warmup,
            rng=seed,
            folder=resume,
            progress=tell,
        )
    chosen = accuracy.rounds[-1].chosen
    files: list[out.File] = [
        ("calibration", output, accuracy.calibration.save),
        ("scatter plot", scatter, accuracy.plot),
    ]
    if chosen is not None:
        trace, run = accuracy.traces[chosen.scheduler]
        files.append((chosen.scheduler, gantt, partial(trace.gantt, measured=run.trace)))
    verdict = list(accuracy.verdict())
    left_out = ("format", "version", "runs", "calibration")
    out.tell(
        lambda: {k: v for k, v in accuracy.to_dict().items() if k not in left_out} | {"verdict": verdict},
        [accuracy.table, accuracy.summary, *verdict],
        files,
        as_json=as_json,
    )


def replay_trace(
    trace: Annotated[
        list[str],
        argument(
            "TRACE...",
            "What torch.profiler exported, plain or compressed; of several ranks the file of each, or an archive.",
        ),
    ],
    step: Annotated[Text, option("Number of ProfilerStep, or all; the last unless given.", metavar="N")] = None,
    changes: Annotated[
        Texts,
        option(
            "PARAMETER*=FACTOR or PARAMETER=VALUE: launch*=0.5, gap=0us, device=h100, contention=true, ranks=16, "
            "link.bandwidth*=2, operators.collective.speed*=2, ...; repeatable.",
            "--set",
            metavar="CHANGE",
        ),
    ] = None,
    host: Annotated[str, option("traced, none (it takes no time), or captured (all is one CUDA graph).")] = "traced",
    streams: Annotated[str, option("traced, or one for all of a device.")] = "traced",
    gantt: Annotated[Text, drawn("Draw simulated beside measured: .png, .svg or .pdf.")] = None,
    perfetto: opt.Perfetto = None,
    as_json: opt.Json = False,
) -> None:
    """Simulate a profiler trace's program, beside its measurements; with --set, --host or --streams changed."""
    from simsched.experiments.whatif import parse_change
    from workloads.formats.kineto.replay import replay_traced

    parsed = [parse_change(text) for text in changes or ()]
    program = _read_ranks(trace, step)
    replayed = replay_traced(program, parsed, host=host, streams=streams)
    files: list[out.File] = [("both traces", perfetto, replayed.to_perfetto), ("both traces", gantt, replayed.gantt)]
    facts = _trace_facts(replayed, bool(parsed) or (host, streams) != ("traced", "traced"))
    if host == "captured" and program.of_trace.blocking:
        rows = ", ".join(f"{count} {name}" for name, count in program.of_trace.blocking.items())
        facts.append(("captured", f"blocking calls inside the step would end a capture: {rows}"))
    data = {"changes": [str(change) for change in parsed]}
    out.tell(lambda: replayed.to_dict() | data, [partial(_busy_table, replayed), facts], files, as_json=as_json)


def _read_ranks(traces: list[str], step: str | None) -> "TracedProgram":
    """Return the program of one or several traces."""
    from workloads.formats.kineto.program import read_kineto_program

    if len(traces) == 1:
        program = opt.Graph(traces[0] if step is None else f"{traces[0]},step={step}").traced
        if program is None:
            raise FormatError(f"{traces[0]}: not a trace of torch.profiler")
        return program
    return read_kineto_program(traces, step=int(step) if step is not None and step.isdecimal() else step)


def pairs(
    trace: Annotated[list[str], argument("TRACE...", "What torch.profiler exported, or folders of such.")],
    output: Annotated[
        Text,
        option(
            "Write the tables into a folder, for `python -m validation.realtraces`.", "--output", "-o", metavar="FOLDER"
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Count pairs of kernels in traces that show how GPUs share, and write tables of them.

    Dispatch: when a kernel started that became ready beside one that fills the GPU. Slow-down: how long
    kernels took alone and beside another one, a collective for one. A file that cannot be read is a row.
    """
    from workloads.formats.kineto.pairs import read_all_pairs, write_pairs

    tables = read_all_pairs(trace)
    files: list[out.File] = []
    if output is not None:
        files = [("tables", path, lambda _: None) for path in write_pairs(tables, output)]
    rows = [(one.source, str(len(one.dispatch)), str(len(one.slowdowns)), one.error or "") for one in tables]
    table = partial(table_of, "pairs of kernels", ("trace", "dispatch", "slow-down", "error"), rows, left=(0, 3))
    data = {
        "traces": [
            {"trace": one.source, "dispatch": list(one.dispatch), "slowdowns": list(one.slowdowns), "error": one.error}
            for one in tables
        ]
    }
    out.tell(lambda: data, [table], files, as_json=as_json)


def _busy_table(found: "TraceReplay") -> Any:
    """Return how busy the streams are."""
    rows = [
        (
            r.device,
            str(r.stream),
            str(r.operators),
            *(f"{time:.1f}" for time in (r.measured_us, r.simulated_us, r.measured_end_us, r.simulated_end_us)),
        )
        for r in found.busy
    ]
    headings = ("device", "stream", "operators", "busy measured", "busy simulated", "end measured", "end simulated")
    return table_of(f"{found.traced.graph.name}, us", headings, rows)


def _trace_facts(found: "TraceReplay", changed: bool) -> out.Pairs:
    """Return facts about a replayed trace, to print below the table."""
    from workloads.formats.kineto.facts import DOUBTED

    program = found.traced
    late = found.late
    facts = [
        ("measured makespan", f"{found.measured_us:.1f} us"),
        ("simulated makespan", f"{found.simulated_us:.1f} us, {100 * found.error:+.2f} %"),
        ("starts", f"{100 * found.start_error:.2f} % of the makespan off on average"),
        ("waits", f"{program.n_waits} between streams, of which {program.guessed_waits} are guessed"),
    ]
    if found.other_us is not None:
        facts.insert(2, ("if bound otherwise", f"{found.other_us:.1f} us: FP32 and DRAM rates of the device differ"))
    if found.link_effect is not None:
        facts.append(("links", found.link_effect.line))
    if not changed and abs(found.error) > DOUBTED:
        facts.append(
            ("doubt", f"the replay is {100 * abs(found.error):.0f} % off: do not believe what follows from it")
        )
    if not program.of_trace.is_stated:
        facts.append(("device", "the trace does not say which; times that depend on it are those of a stand-in"))
    facts += [(name, text) for name, _, text in (line.partition(": ") for line in program.lines())]
    if program.n_lost:
        facts.append(("lost", f"{program.n_lost} operators whose call is not in the trace start when they did"))
    if not changed:
        facts.append(("over 5 % off", f"{len(late)} operators" + (", the worst first:" if late else "")))
        facts += [(f"  {name[:60]}", f"measured {a:.1f}, simulated {b:.1f} us") for name, a, b in late[:10]]
    return facts
