"""Valid documents of every format, small, for each version and feature one; the fuzz campaign spoils them."""

import gzip
import json
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import simsched as ss
from simsched.base.io import dump_json
from simsched.model.profile import MeasuredCopy, MeasuredDevice, MeasuredKernel, MeasuredOperator, Profile, Provenance
from workloads import WORKLOADS
from workloads.formats import write


def example_graph() -> ss.OpGraph:
    """Return a graph of which every field of operators and edges is used."""
    kernels = (ss.Kernel(80, 256, 64, 4096, share=0.75), ss.Kernel(7, 32, share=0.25))
    operators = [
        ss.Operator("in", "placeholder", time=0.0),
        ss.Operator("conv 1", "conv", flops=1e6, nbytes=512, weight_nbytes=96, time=12.5, kernels=kernels,
                    intensity="compute", attributes={"stride": 2, "pads": [1, 1], "mode": "same"},
                    input_shapes=((1, 3, 8, 8),), output_shape=(1, 4, 4, 4), block="stem"),
        ss.Operator("relu", "relu", time=3.0, utilization=0.5, dtype="fp16", intensity="memory", block="stem"),
        ss.Operator("add", "add", flops=64.0, nbytes=768.0, time=2.0),
    ]  # fmt: skip
    edges = [
        ss.Edge("in", "conv 1", nbytes=8), ss.Edge("conv 1", "relu", nbytes=256, transfer=1.5),
        ss.Edge("conv 1", "add", nbytes=256), ss.Edge("relu", "add", nbytes=128),
    ]  # fmt: skip
    return ss.OpGraph(operators, edges, "net [1]")


def example_schedules() -> tuple[ss.Schedule, ...]:
    """Return schedules of each execution, on one device and on two."""
    graph = example_graph()
    two = (("in", "gpu0", 0, 0, 0), ("conv 1", "gpu0", 0, 1, 0), ("relu", "gpu1", 1, 0, 0), ("add", "gpu0", 1, 2, 1))
    one = (("in", "gpu0", 0), ("conv 1", "gpu0", 0), ("relu", "gpu0", 1), ("add", "gpu0", 0))
    return (
        ss.Schedule(graph, [ss.Placement(*row) for row in two], "stages", scheduler="ios"),
        ss.Schedule(graph, [ss.Placement(*row, priority=-1) for row in one], "graph", estimate=17.5),
        ss.Schedule(graph, [ss.Placement(*row[:3]) for row in two], "events"),
    )


def graphs() -> tuple[bytes, ...]:
    """Return graphs in our own format."""
    small = {"format": "simsched.graph", "version": 1, "operators": [{"name": "a"}]}
    return _json(example_graph().to_dict()), _json(small)


def schedules() -> tuple[bytes, ...]:
    """Return schedules in our own format."""
    return tuple(_json(one.to_dict()) for one in example_schedules())


def programs() -> tuple[bytes, ...]:
    """Return programs in our own format."""
    cluster = ss.Cluster.preset("a100", 2)
    return tuple(_json(one.lower(cluster).to_dict()) for one in example_schedules())


def profiles() -> tuple[bytes, ...]:
    """Return profiles in our own format."""
    kernels = (MeasuredKernel("gemm", (3.0, 4.5), ss.Kernel(108, 128, 32, 1024), 7), MeasuredKernel("pad", (0.5, 0.5)))
    copies = (MeasuredCopy("memcpy", "Memcpy HtoD", (2.0, 2.5), 4096.0, 7),)
    operators = (
        MeasuredOperator("conv", (3.5, 5.0), kernels),
        MeasuredOperator("load", (2.0, 2.5), (), copies),
        MeasuredOperator("flatten", (0.0,)),
    )
    device = MeasuredDevice(
        "A100", compute_capability="8.0", memory=4e10, sms=108, threads_per_sm=2048, registers_per_sm=65536,
        shared_memory_per_sm=167_936, shared_memory_per_block=166_912,
    )  # fmt: skip
    whence = Provenance("trace.json", "torch.profiler", "12.1", "12.4", "2024-01-01T00:00:00+00:00", 2, 1)
    return _json(Profile(operators, device, whence).to_dict()), _json(Profile(operators[2:]).to_dict())


def dots() -> tuple[bytes, ...]:
    """Return graphs in DOT."""
    return (
        *_written(example_graph(), "dot"),
        b"digraph two { node [time=3]; a -> {b c} -> d [nbytes=8]; d [time=1.5, color=red] }",
        b"""strict digraph "x\\"y" { // c
        /* - */ rankdir=LR; edge [nbytes=4 transfer=1]
        subgraph cluster_1 { node [kind=conv]; a; "b c" [time=.5 label=<<b>x</b>>]; }
        subgraph cluster_1 { d } -> e:port:ne -> "f" + "g" [transfer="2.5"];
        a -> "b c" -> d; a -> d [nbytes=1]; a -> d; -1.5
        }
# end""",
        rb"""digraph { a [kernels="[{\"blocks\": 8, \"threads\": 64}]", attributes="{\"stride\": [1, 2]}",
        input_shapes="[[1, 3, 8, 8]]", output_shape="[1, 4]", dtype=fp16, intensity=memory, utilization=1] }""",
    )


def stgs() -> tuple[bytes, ...]:
    """Return graphs of the Standard Task Graph Set in its three layouts, with communication and without."""
    return (
        b"4\n0 0 0\n1 20 1 0\n2 7 1 0\n3 3 2 1 2\n4 1 1 3\n5 0 1 4\n# Standard layout\n#   Tasks : 4\n",
        b"2 2\r\n1 14 0\r\n2 20 1 1\r\n3 0 1 2\r\n",
        b"# bench\n 3 4\n 0 15 0\n 1 14 1\n 0 12\n 2 16 2\n 0 1.5\n 1 14\n",
        b"2 1\n0 5 0\n1 6 1 0 9",
    )


def hios_graphs() -> tuple[bytes, ...]:
    """Return graphs of HIOS's simulation."""
    return b"3\n0 0.5 0.8\n1 0.25 1.0\n2 1.5 0.1\n3\n0 1 0.25\n0 2 0.001\n1 2 1e-2\n", b"1\n7 1 1\n0\n"


def ios() -> tuple[bytes, ...]:
    """Return graphs and schedules of IOS."""
    make = _of_tests("ios_documents")
    enter = make.placeholder(4, 6)
    parts = [
        make.node("relu", "a", [[["1", 0, 4], ["0", 0, 4]], [["0", 1, 3]]], [6, 6, 6]),
        make.conv("b", [[["a", 0, 6]]], [6, 6, 6], 3, 1, groups=6, act="identity"),
    ]
    nodes = [
        make.node("activation", "1", [[["0", 0, 4]]], [4, 6, 6], act_type="sigmoid", inplace=True),
        {"type": "sequential", "name": "2", "hint_name": "Sep", "nodes": parts, "output_shape": [6, 6, 6]},
        make.node("element", "3", [[["2", 0, 4], ["1", 0, 4]]], [4, 6, 6], op_type="mul"),
    ]
    return _json(make.merged()), _json(make.graph(enter, (nodes, [[["1"]], [["2"]], [["3"]]])))


def hios() -> tuple[bytes, ...]:
    """Return a schedule of HIOS on two devices."""
    return (_json(_of_tests("ios_documents").two_devices()),)


def kinetos() -> tuple[bytes, ...]:
    """Return traces of torch.profiler in each of its formats of time, plain and gzipped."""
    make = _of_tests("kineto_traces")
    texts = [make.small_network(times, 1).text() for times in ("relative", "decimal", "whole")]
    texts.append(make.small_network("relative", 2, annotated=True).text())
    graph = make.KinetoTrace()
    op = graph.op("aten::conv2d", 0.0, 50.0)
    graph.copy(graph.call("cudaMemcpyAsync", 5.0, external=op), 20.0, 2.0)
    launch = graph.call("cudaGraphLaunch", 60.0)
    for i, name in enumerate(("stem", "left")):
        graph.kernel(launch, 70.0 + 10 * i, 3.0, name, **{"graph node id": 5 + i})
    cpu = make.KinetoTrace(devices=())
    cpu.mark("ProfilerStep#0", 0.0, 40.0)
    cpu.op("aten::relu", 1.0, 5.0)
    texts += [graph.text(), cpu.text()]
    return *(text.encode() for text in texts), gzip.compress(texts[-1].encode(), mtime=0)


def wirings() -> tuple[bytes, ...]:
    """Return wirings of the four stages of RandWire."""
    stage = {"nodes": 4, "edges": [[0, 1], [0, 2], [1, 3], [2, 3]]}
    return (_json({"stages": [stage, stage, {"nodes": 1, "edges": []}, {"nodes": 2, "edges": [[0, 1]]}]}),)


def onnxes() -> tuple[bytes, ...]:
    """Return ONNX models, each valid and small."""
    make = _of_tests("onnx_makers")
    models = [make.MODELS[name]() for name in ("conv_norm_relu", "branches", "mlp", "attention", "with_if")]
    models.append(make.model(_CUSTOM, w=make.external(1, 4, 8)))
    models.append(make.model(_CONSTANTS))
    weights = {"w": (4, 2, 2, 2), "lstm_w": (1, 12, 2), "lstm_r": (1, 12, 3)}
    models.append(make.model(_OPERATORS, 18, parts=[3, 1], pads=[0, 0, 1, 1, 0, 0, 1, 1], axes=[2], **weights))
    return tuple(model.SerializeToString() for model in models)


_CUSTOM: Final = """(float[1, 4] x) => (out) <float[1, 4] custom> {
  custom = com.acme.Custom <depth = 3> (x)
  product = MatMul(custom, w)
  out = Softmax <axis = -1> (product)
}"""
_OPERATORS: Final = """(float[1, 4, 8, 8] x) => (y) <float[4] scales = {1, 1, 2, 0.5}> {
  act = HardSwish(x)
  left, right = Split <axis = 1> (act, parts)
  joined = Concat <axis = 1> (left, right)
  small = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (joined)
  wide = ConvTranspose <strides = [2, 2], kernel_shape = [2, 2]> (small, w)
  sized = Resize <mode = "nearest"> (wide, , scales)
  padded = Pad(sized, pads)
  mean = ReduceMean <keepdims = 0> (padded, axes)
  turned = Transpose <perm = [2, 0, 1]> (mean)
  sequence, state = LSTM <hidden_size = 3, direction = "forward"> (turned, lstm_w, lstm_r)
  pairs = Einsum <equation = "sdbh,sdbh->bh"> (sequence, sequence)
  y = Flatten <axis = 1> (pairs)
}"""
_CONSTANTS: Final = """(float[2, 6, 32] x) => (float[a, b] y)
<int64[1] zero = {0}, int64[1] two = {2}, int64 one = {1}, int64 six = {6}, int64[1] all = {-1}> {
  shape = Shape(x)
  last = Gather(shape, two)
  half = Div(last, two)
  steps = Range(one, six, one)
  many = Tile(steps, two)
  ones = ConstantOfShape <value = int64[1] {1}> (two)
  wide = Expand(ones, two)
  all_wide = Concat <axis = 0> (many, wide)
  part = Slice(shape, zero, two, zero)
  count = ReduceProd <keepdims = 1> (part)
  less = Less(half, last)
  some = Where(less, half, last)
  real = Cast <to = 1> (some)
  root = Sqrt(real)
  back = Cast <to = 7> (root)
  least = Min(back, all_wide)
  sizes = Concat <axis = 0> (count, all)
  flat = Reshape(x, sizes)
  left, right = Split <axis = 1> (flat)
  sum = Add(left, right)
  y = Relu(sum)
}"""


def specs() -> tuple[bytes, ...]:
    """Return specs of every workload, with each parameter that has a default, and of files; see `fuzz_parsers`."""
    found = [
        "{}/net.dot", "{}/net.stg,time_unit=2.5", "{}/net.txt,floor=0.5", "{}/ios.json,batch=2,dtype=fp16,device=a100",
        "{}/net.json", "{}/net.onnx,granularity=operator,dtype=bf16", "randwire,graphs={}/wiring.json",
        "random:layered,n_ops=30,seed=7",
    ]  # fmt: skip
    for name, function in WORKLOADS.items():
        settings = {key: one.default for key, one in signature(function).parameters.items() if key != "rng"}
        settings = {key: _SMALL.get(key, value) for key, value in settings.items()}
        texts = {key: f"{v[0]}:{v[1]}" if isinstance(v, tuple) else str(v).lower() for key, v in settings.items()}
        found.append(",".join([name, *(f"{key}={text}" for key, text in texts.items())]))
    return tuple(spec.encode() for spec in found)


_SMALL: Final = {
    "n_ops": 20,
    "n_layers": 3,
    "layers": 2,
    "rows": 4,
    "columns": 5,
    "tiles": 4,
    "points": 8,
    "n_blocks": 3,
}


def _json(data: Any) -> bytes:
    return dump_json(data).encode() if isinstance(data, dict) else json.dumps(data).encode()


def _written(subject: ss.OpGraph | ss.Schedule, format: str) -> tuple[bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "written"
        write(subject, path, format)
        return (path.read_bytes(),)


def _of_tests(module: str) -> Any:
    """Import a module that makes documents for the tests."""
    folder = str(Path(__file__).resolve().parent.parent / "tests" / "workloads")
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module(module)
