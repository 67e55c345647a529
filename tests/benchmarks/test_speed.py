"""How long things take: a row each, with what its answer says of itself beside the time.

Targets: HIOS 10 ms at 200 operators on 4 GPUs and 10 s at 10,000 on 8; streams of GoogLeNet's operators 1 ms each;
AutoGraph 60 s on Inception-v3 and 10 min on NASNet-A; building a network 50 ms; a million operators drawn in 5 s; an
ONNX file of 10,000 nodes read in 5 s; a what-if on Inception-v3 20 ms, its sensitivity 2 s.

What others take: the released HIOS 5.2 s of CPU for its paths and 0.7 s for its windows at 200 operators on 4 GPUs;
the paper's LIOS 1.79 s on NASNet; HEFT of SAGA 2.1.0 14 ms, 95 ms and 4.8 s at 200, 1,000 and 10,000 operators, ETF of
Estee with its simulation 17 ms, 0.10 s and 0.85 s; the released streams of Opara 0.59 ms and of Nimble 0.39 ms on
GoogLeNet; the released search of IOS 8109 s on a GPU for its four networks.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
from kineto_traces import KinetoTrace

import simsched as ss
import workloads
from simsched.bounds import bounds
from simsched.optimum import optimal
from simsched.schedulers import schedule
from simsched.schedulers.nimble import assign_streams
from simsched.schedulers.opara import allocate_streams
from simsched.schedulers.stage_costs import StageFormula
from workloads import read_kineto_program
from workloads.formats.kineto import read_kineto
from workloads.formats.onnx.models import read_onnx

A100, FOUR = ss.Cluster.preset("a100"), ss.Cluster.preset("a40", 4)
BY_OPERATOR = "granularity=operator"
GOOGLENET = f"googlenet,{BY_OPERATOR}"


def of(spec, action, *given, **options):
    """Something that is done with a workload."""
    return lambda _: partial(action, workloads.from_spec(spec), *given, **options)


def near_operators(action, *given, **options):
    """The same with 10,000 operators, each with two producers among the 20 before it."""

    def make(_):
        rng = np.random.default_rng(0)
        dst = np.repeat(np.arange(20, 10_000), 2)
        src, names = dst - rng.integers(1, 20, len(dst)), [f"o{i}" for i in range(10_000)]
        graph = ss.OpGraph.from_columns(names, src, dst, time=rng.uniform(1, 20, 10_000), utilization=0.5)
        return partial(action, graph, *given, **options)

    return make


def streams_of_opara(graph, allocation):
    return allocate_streams(graph, graph.order_index.tolist(), allocation)


def planned(action):
    """Something that is asked of Inception-v3 in streams."""
    return lambda _: partial(action, schedule(workloads.load("inception_v3"), A100, "lios"))


def asked(question):
    """Both worlds simulated, and why each takes as long as it does."""
    assert sum(question.blame_before.values()) + question.difference == pytest.approx(sum(question.blame.values()))


def onnx_file(n_sizes, granularity):
    """Some 10,000 nodes: blocks of two branches of convolutions with so many numbers of channels, and their sum."""

    def make(folder):
        from onnx import helper

        nodes, weights, x, channels = [], [], "x", 16

        def layer(name, x, n, m):
            weights.append(helper.make_tensor(f"{name}.w", 1, [m, n, 1, 1], bytes(4 * n * m), raw=True))
            nodes.append(helper.make_node("Conv", [x, f"{name}.w"], [name], name=name))
            nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], name=f"{name}.relu"))
            return f"{name}.relu"

        for i in range(1111):
            wide = 16 + i % n_sizes
            ends = [layer(f"{i}.{side}1", layer(f"{i}.{side}0", x, channels, wide), wide, wide) for side in "ab"]
            x, channels = f"{i}.sum", wide
            nodes.append(helper.make_node("Add", ends, [x], name=x))
        image, result = helper.make_tensor_value_info("x", 1, [1, 16, 8, 8]), helper.make_tensor_value_info(x, 1, None)
        graph = helper.make_graph(nodes, "wide", [image], [result], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (folder / "wide.onnx").write_bytes(model.SerializeToString())
        return partial(read_onnx, folder / "wide.onnx", granularity=granularity)

    return make


def profiler_trace(action, n_steps=50, n_layers=715):
    """Half a million events with shapes: convolutions of four operators in one another, activations of two."""

    def make(folder):
        trace = KinetoTrace()
        shapes = {"Input Dims": [[1, 3, 8, 8], [8, 3, 3, 3], [8], [], []], "Input type": ["float"] * 3 + ["Scalar"] * 2}
        for step in range(n_steps):
            start = 200.0 * n_layers * step
            trace.mark(f"ProfilerStep#{step}", start, 200.0 * n_layers - 1)
            for layer in range(n_layers):
                now = start + 200.0 * layer
                for k, name in enumerate(("conv2d", "convolution", "_convolution", "cudnn_convolution")):
                    inner = trace.op(f"aten::{name}", now + k, 90.0 - 2 * k, **shapes)
                trace.kernel(trace.call("cudaLaunchKernel", now + 10, external=inner), now + 40, 3.456)
                trace.launched("aten::relu", now + 100, 90.0, [(now + 140, 3.456, {})], inner="aten::clamp_min")
        return partial(action, trace.write(folder / "trace.json"))

    return make


def makespan_of_all_steps(path):
    """From the file to a makespan; the host decides, so it is the measured one."""
    program = read_kineto_program(path, step="all")
    assert ss.simulate(program, program.cluster).makespan == pytest.approx(program.measured_makespan, rel=1e-3)
    return program.graph


def families(n):
    """Random DAGs of every kind, of about so many operators."""
    side, cube = round(n**0.5), (3 * n) ** (1 / 3)
    alike = ("erdos-renyi", "watts-strogatz", "fork-join", "series-parallel", "out-tree", "in-tree")
    yield from (f"{kind},n_ops={n}" for kind in alike)
    yield from (
        f"layered,n_ops={n},n_layers={n // 1000 + 10}",
        f"layered,n_ops={n},n_layers={n // 2000 + 30},mode=impl",
    )
    yield from (f"wavefront,rows={side},columns={side}", f"fft,points={2 ** (n.bit_length() - 4)}")
    yield from (f"cholesky,tiles={int(2 ** (1 / 3) * cube)}", f"lu,tiles={int(cube)}")
    yield from (f"inception-like,n_blocks={n // 8}", f"transformer-like,n_layers={n // 57}")


CHANGES = [
    ("device", "h100"),
    ("overhead.launch", 0),
    ("execution", "graph"),
    ("execution", "stages"),
    ("fuse", ("stem.conv1", "stem.conv2")),
]


def layered(n, wide=14.3):
    """The HIOS paper's layered DAG, 14 layers to 200 operators, or as narrow as networks are."""
    return f"random:layered,n_ops={n},n_layers={max(3, round(n / wide))},comm_ratio=0.8,seed=0"


def rows():
    """Yield what is measured, a function that makes it in a folder before the clock starts, and how often it runs."""
    for name in ("nasnet_a_large", f"nasnet_a_large,{BY_OPERATOR}", "inception_v3", "randwire", "bert_large"):
        yield f"build {name}", lambda _, name=name: partial(workloads.from_spec, name), 50
    for spec in (*families(10_000), *families(1_000_000)):
        yield f"draw {spec}", lambda _, spec=spec: partial(workloads.from_spec, f"random:{spec},seed=0"), 3
    for n, granularity in product((1, 100), ("unit", "operator")):
        yield f"onnx with {n} sizes by {granularity}", onnx_file(n, granularity), 3
    yield "kineto to a profile", profiler_trace(partial(read_kineto, skip=0)), 3
    yield "kineto to a makespan", profiler_trace(makespan_of_all_steps), 1
    for name in ("heft", "peft", "etf", "lios"):
        for n in (200, 1000, 10_000):
            yield f"{name} of {n}", of(layered(n), schedule, FOUR, name), 20
        for spec in (layered(1_000_000), "random:in-tree,n_ops=1000000,seed=0"):
            yield f"{name} of {spec}", of(spec, schedule, FOUR, name), 1
    yield "lios of nasnet", of("nasnet_a_large", schedule, FOUR, "lios"), 100
    for name, (n, gpus) in product(("inter-lp", "inter-mr", "hios-lp", "hios-mr"), ((200, 4), (10_000, 8))):
        for options in ({}, {"stage_latency": "hios-sim"})[: 1 + name.startswith("hios")]:
            make = of(layered(n), schedule, ss.Cluster.preset("a40", gpus), name, **options)
            yield f"{name} of {n} on {gpus} {options}", make, 3
    for name in ("inception_v3", "nasnet_a_large", "squeezenet", "randwire"):
        yield f"ios of {name}", of(name, schedule, A100, "ios"), 1
    for r, s in ((None, None), (3, 8)):
        options = {"strategy": "parallel", "r": r, "s": s, "stage_latency": StageFormula()}
        yield f"ios by formula, r {r} s {s}", of("randwire", schedule, A100, "ios", **options), 3
    for name in ("inception_v3", f"inception_v3,{BY_OPERATOR}", f"nasnet_a_large,{BY_OPERATOR}"):
        yield f"autograph of {name}", of(name, schedule, A100, "autograph"), 1
    for name, mode in product(("opara", "nimble"), ("paper", "impl")):
        yield f"{name} of googlenet, {mode}", of(GOOGLENET, schedule, A100, name, mode=mode), 50
        yield f"{name} of 10000 near, {mode}", near_operators(schedule, A100, name, mode=mode), 1
    for how in ("journal", "conference"):
        yield f"streams of opara, {how}", of(GOOGLENET, streams_of_opara, how), 50
    for how in ("chains", "reuse", "dilworth"):
        yield f"streams of nimble, {how}", of(GOOGLENET, assign_streams, how), 50
    for (name, cluster), n in product((("random:layered,seed=0", FOUR), ("inception_v3", A100)), (2000, 10_000)):
        yield f"search of {name}, {n} evaluations", of(name, schedule, cluster, "search", evaluations=n), 1
    for n in (1000, 10_000, 100_000):
        yield f"bounds of {n}", of(layered(n), bounds, FOUR), 3
    for n, wide in product((20, 50, 100, 200), (14.3, 4)):
        yield f"optimum in 30 s of {n}, {wide} wide", of(layered(n, wide), optimal, FOUR, 30.0), 1
    for name, gpus, yes in product(("inception_v3", "nasnet_mobile", "squeezenet"), (1, 2), (False, True)):
        make = of(name, ss.compare, ss.Cluster.preset("h100", gpus), ranges=yes)
        yield f"compare {name} on {gpus}, ranges {yes}", make, 5
    yield "advise inception_v3", of("inception_v3", ss.advise, A100), 2
    for change in CHANGES:
        yield f"what if {change}", planned(lambda plan, change=change: asked(ss.what_if(plan, A100).set(*change))), 20
    for yes in (False, True):
        yield f"sensitivity, per operator {yes}", planned(partial(ss.sensitivity, cluster=A100, per_operator=yes)), 3
    for n in (1, 4, 8):
        yield f"throughput, {n} in flight", planned(partial(ss.throughput, cluster=A100, in_flight=n)), 3


def said(found):
    """What an answer says of itself."""
    if isinstance(found, ss.OpGraph):
        return {"operators": len(found), "edges": len(found.src)}
    known = {key: value for key, value in (getattr(found, "search", None) or {}).items() if np.isscalar(value)}
    if isinstance(found, ss.Schedule):
        known |= {"streams": found.n_streams, "estimate_us": found.estimate}
    return known


def streams(found):
    return max(getattr(found, "stream", found)) + 1


KNOWN = {  # operators and edges of papers, streams of released code
    **{
        f"build {name}": lambda found, n=n: (len(found), len(found.src)) == n
        for name, n in {
            "nasnet_a_large": (374, 576),
            "inception_v3": (119, 153),
            "randwire": (120, 260),
            "bert_large": (266, 361),
        }.items()
    },
    **{f"streams of opara, {how}": lambda found: streams(found) == 28 for how in ("journal", "conference")},
    **{
        f"streams of nimble, {how}": lambda found, n=n: (streams(found), found.chains) == (n, 28)
        for how, n in {"chains": 28, "reuse": 4, "dilworth": 4}.items()
    },
    **{
        f"opara of 10000 near, {mode}": lambda found, n=n: found.n_streams == n
        for mode, n in {"paper": 2168, "impl": 2125}.items()
    },
    "nimble of 10000 near, paper": lambda found: found.n_streams == 1659,
    "kineto to a profile": lambda found: {op.samples for op in found.operators} == {(3.456,) * 50},
    "sensitivity, per operator False": lambda found: found.rows[0].parameter == "operators.speed",
}


def sound(found, arguments):
    """Whether an answer can be: no schedule is below the bounds of its graph, and ranges are there if wanted."""
    if isinstance(found, ss.Schedule):
        target = arguments.args[1]
        return ss.simulate(found, target).makespan >= bounds(found.graph, target).best * (1 - 1e-9)
    if isinstance(found, ss.Comparison):
        ranged = [row.speedup_low is not None for row in found.rows if row.makespan_us is not None]
        return all(each == arguments.keywords["ranges"] for each in ranged)
    return True


ROWS = {name: (make, rounds) for name, make, rounds in rows()}


@pytest.mark.parametrize("row", ROWS)
def test_time(best, note, tmp_path, row):
    make, rounds = ROWS[row]
    action = make(tmp_path)
    seconds, found = best(action, rounds)
    assert sound(found, action)
    assert row not in KNOWN or KNOWN[row](found)
    note(row=row, ms=round(1e3 * seconds, 3), **said(found))
