"""Documents of every format in which each field stands at least once, small enough to be spoilt field by field."""

import json

import numpy as np

import simsched as ss
from simsched.calibration import Calibration, ParameterRow, Residual
from simsched.calibration.evidence import MeasuredRun
from simsched.experiments.accuracy import Accuracy
from simsched.experiments.rounds import Outcome, Round
from simsched.model.cluster import GpuSheet
from simsched.model.graph import Kernel, Work
from simsched.model.profile import MeasuredCopy, MeasuredDevice, MeasuredKernel, MeasuredOperator, Profile, Provenance
from simsched.model.trace import COPY, KERNEL, measured_trace

CLUSTER = ss.Cluster.preset("a40", 2)
WORKS = (Work("convolution", "strided", 1.2e9, 1e6, 1e6, 3e6, 2, 3136, 32, 288, 9, 200704, 1, True, True, 8e6),)
KERNELS = (Kernel(160, 256, 64, 8704, 0.25), Kernel(8, share=0.75))
GRAPH = ss.OpGraph(
    [
        ss.Operator(
            "a",
            "conv",
            1.2e9,
            5e6,
            1e6,
            80.0,
            KERNELS,
            None,
            "compute",
            "fp16",
            {"stride": [1, 1]},
            ((1, 64, 56, 56),),
            (1, 64, 56, 56),
            "stem",
            1.5,
            WORKS,
        ),
        ss.Operator("b", time=20.0, utilization=0.5, intensity="memory"),
    ],
    [ss.Edge("a", "b", 802816.0, 15.0)],
    "two",
)


def plan(execution="events"):
    """The second operator on the second device."""
    rows = [ss.Placement("a", "gpu0", 1, 0, 0, -1), ss.Placement("b", "gpu1", 0, 1)]
    return ss.Schedule(GRAPH, rows, execution, 100.0, "by hand", search={"states": 12, "stopped": None})


def timed(**options):
    """The program of the plan: something passes on the host before `a`, and its first instruction takes 5 us."""
    program = plan().lower(CLUSTER, **options)
    assert program.lead.any()
    return program.timed(program.lead, np.where(np.arange(len(program)) == 0, 5.0, np.nan))


def replay():
    """A run as simulated: two launches of one operator, a copy, a launch of the other."""
    simulated = ss.simulate(timed(), CLUSTER)
    times = [[(span.start, span.end) for span in simulated.spans if span.kind == kind] for kind in ("kernel", "copy")]
    assert [len(rows) for rows in times] == [3, 1]
    assert {KERNEL, COPY} <= set(simulated.kind.tolist())
    trace = measured_trace(simulated.program, CLUSTER, *times)
    return ss.Replay((120.0, 121.5), trace, {"backend": "none", "date": "2026-11-20"}, 1e-7, "by hand")


def profile():
    """Both operators, one with all that can be measured of it."""
    kernel = MeasuredKernel("gemm", (50.0, 51.0), Kernel(160, 128, 32, 1024), 7)
    copy = MeasuredCopy("memcpy", "Memcpy HtoD", (1.0, 1.5), 4096.0, 7)
    device = MeasuredDevice("NVIDIA A40", 84, "8.6", 1536, 65536, 102400, 101376, 48e9)
    provenance = Provenance("a.json", "Kineto 1", "12.4", "550.1", "2026-11-20T08:00:00+00:00", 2, 1)
    operators = (MeasuredOperator("a", (80.0, 81.0), (kernel,), (copy,)), MeasuredOperator("b", (20.0, 20.5)))
    return Profile(operators, device, provenance, (replay(),), GRAPH, CLUSTER)


def calibration():
    """One parameter fitted, another not, a run held out."""
    rows = (ParameterRow("launch", 2.9, 4.0, 2.4, 3.6, True), ParameterRow("gap", 0.9, 0.9, 0.2, 3.0, False, "unseen"))
    residuals = (Residual("one", 121.0, 125.0, "held-out"),)
    return Calibration(
        CLUSTER.replace_devices(launch=2.9),
        CLUSTER,
        GRAPH,
        {"a": 81.0, "b": 20.0},
        {"conv": 1.31},
        rows,
        residuals,
        (MeasuredRun.of(replay()),),
        (True,),
        microbenchmarked=rows[:1],
        provenance={"device": "A40"},
    )


def accuracy():
    """Two rounds; of the second one schedule could not be measured."""
    row = Outcome("lios", 118.0, 120.0, 119.0, 122.0, 90.0, 130.0, held_out=True, max_relative_error=1e-7)
    other = Outcome("random-1", 140.0, 150.0, 149.0, 151.0, 120.0, 145.0)
    refused = Outcome("ios", reason="no stage fits")
    rounds = (Round.of([row, other]), Round.of([row, refused]))
    return Accuracy(
        "two", "none", "NVIDIA A40", {"date": "2026-11-20"}, 0, rounds, {"lios": "round-2.json"}, calibration(), {}
    )


STUDY = ss.Study(
    "all fields",
    ["lios", {"scheduler": "hios-lp", "label": "lp", "w": [2, 4]}],
    [{"kind": "layered", "n_ops": [8, 16]}, {"kind": ["chain", "none"]}],
    [
        {
            "gpu": "a40",
            "gpus": [1, 2],
            "link": "pcie4",
            "gpus_per_node": 8,
            "overheads": [True, False],
            "device": {"launch": [0.0, 4.0]},
            "links": {"latency": 5.0},
        },
        {"file": "a40.json"},
    ],
    seeds=(0, 3),
    seed=1,
    simulation={"jitter": [0.01, 0.02], "samples": 20, "events": "literal"},
    execution={"time_limit": 20.0, "memory_limit": 4_000_000_000},
    figure=[
        {
            "kind": "line",
            "x": "n_ops",
            "y": "makespan",
            "by": "scheduler",
            "where": {"gpus": 2},
            "name": "one",
            "title": "t",
            "xlabel": "x",
            "ylabel": "y",
            "logx": True,
            "logy": False,
            "columns": 1,
            "scale": 2.0,
            "schedulers": ["lios"],
        }
    ],
)


def study_folder():
    """What a study writes into its folder before it runs."""
    return {"format": "simsched.study", "version": 1, "simsched": "0.1.0", "folder": "/tmp", "study": STUDY.to_dict()}


def comparison():
    """A scheduler that refuses the graph, and three makespans of each other."""
    return ss.compare(GRAPH, CLUSTER, ["sequential", "lios", "autograph"], jitter=0.1, rng=0, samples=3)


def asked():
    return ss.what_if(plan(), CLUSTER)


THINGS = {  # that have a format, by its name
    "graph": lambda: GRAPH,
    "cluster": lambda: CLUSTER,
    "gpu": lambda: GpuSheet.of("l4"),
    "schedule": plan,
    "program": lambda: timed(transfers="blocking"),
    "profile": profile,
    "replay": replay,
    "calibration": calibration,
    "accuracy": accuracy,
    "comparison": comparison,
    "whatif": lambda: ss.what_if(plan(), CLUSTER, reschedule=True).link(bandwidth=2.0).answer(),
    "sweep": lambda: asked().sweep("gpus", [1, 2], "link.bandwidth", [0.5, ss.absolute(1e5)]),
    "sensitivity": lambda: asked().sensitivity(),
    "breakeven": lambda: ss.breakeven("overhead.launch", plan(), plan("graph"), CLUSTER),
    "explanation": lambda: ss.explain(plan(), CLUSTER),
    "robustness": lambda: ss.robust([plan(), plan("stages")], CLUSTER, jitter=0.1, samples=3, rng=0),
    "advice": lambda: ss.advise(plan().graph, CLUSTER, ["lios"]),
    "overlap": lambda: ss.overlap(GRAPH, CLUSTER),
    "duel": lambda: ss.duel(GRAPH, CLUSTER, "round-robin", "lios", evaluations=2),
    "throughput": lambda: ss.throughput(plan(), CLUSTER, in_flight=2),
}
DOCUMENTS = {f"simsched.{name}": lambda make=make: make().to_dict() for name, make in THINGS.items()} | {
    "simsched.study": study_folder,
}


def document(name):
    """One document of a format, as it is read from a file."""
    return json.loads(json.dumps(DOCUMENTS[name](), allow_nan=False))
