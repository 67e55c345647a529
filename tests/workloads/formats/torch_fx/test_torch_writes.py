"""Writes of PyTorch: in-place operators, views, buffers; the same model read by torch.fx, torch.export and ONNX."""

import logging
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from simsched.model import Cluster, Edge, Operator, OpGraph, Placement, Schedule  # noqa: E402 - for those who have PyTorch
from simsched.simulator import simulate  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_fx, from_module  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


class Model(nn.Module):
    """A module that calls a function on itself and its inputs, with layers and buffers by name."""

    def __init__(self, forward, n_inputs=1, **parts):
        super().__init__()
        self._call = forward
        self._n = n_inputs
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)


class One(Model):
    def forward(self, x):
        return self._call(self, x)


class Two(Model):
    def forward(self, x, y):
        return self._call(self, x, y)


def reach(graph):
    """Whether each operator that computes waits for each other one, in program order; shape (n, n)."""
    before = {}
    for name in graph.order:
        sources = [edge.src for edge in graph.edges if edge.dst == name]
        before[name] = set(sources).union(*(before[src] for src in sources))
    names = [op.name for op in graph.operators if op.works]
    return [[a in before[b] for a in names] for b in names]


def waits(graph, later, earlier):
    """Whether an operator waits for another, directly or not."""
    seen, waiting = set(), [later]
    while waiting:
        name = waiting.pop()
        waiting += [edge.src for edge in graph.edges if edge.dst == name and edge.src not in seen]
        seen.add(name)
    return earlier in seen and earlier != later


X = torch.zeros(4, 8)


def both(module, *inputs):
    """The graph by torch.fx, or torch.export where that fails, and by torch.export."""
    return from_module(module, inputs), from_exported(torch.export.export(module.eval(), inputs))


@pytest.mark.parametrize("path", [0, 1])
def test_a_slice_that_is_written_is_waited_for(path):
    def forward(m, x):
        y = x.exp()
        y[:, 0] += 1.0
        return y.sigmoid()

    graph = both(One(forward), X)[path]
    assert waits(graph, "sigmoid", "add_")
    (into,) = [edge for edge in graph.edges if edge.dst == "sigmoid"]
    assert into.nbytes == 128.0
    assert sum(op.nbytes for op in graph.operators if op.works) == 2 * 128 + 2 * 16 + 2 * 128  # a column of 4 numbers


@pytest.mark.parametrize(
    ("forward", "later", "earlier"),
    [
        (
            lambda m, x: (y := x.exp(), y.view(-1).add_(1.0), y.sigmoid())[2],
            "sigmoid",
            "add_",
        ),  # read after a view's write
        (lambda m, x: (y := x.exp(), s := y.sigmoid(), y.add_(1.0), s + y)[3], "add_", "sigmoid"),  # write after read
        (lambda m, x: (y := x.exp(), y.mul_(2.0), y.add_(1.0), y)[3], "add_", "mul_"),  # write after write
        (
            lambda m, x: (y := x.exp(), F.relu_(y), y.sigmoid())[2],
            "sigmoid",
            "relu_",
        ),  # by name of what was made before
        (lambda m, x: (y := x.exp(), v := y.view(-1), y.mul_(2.0), v.sigmoid())[3], "sigmoid", "mul_"),  # an older view
    ],
)
def test_what_is_written_is_ordered(forward, later, earlier):
    for graph in both(One(forward), X):
        name = later if later in graph.index else f"{later}"
        assert waits(graph, name, earlier)


def test_an_activation_in_place_comes_before_the_residual():
    """The sum reads what the layer returned by its old name."""
    module = One(
        lambda m, x: (y := m.norm(m.conv(x)), r := m.relu(y), m.conv2(r) + y)[2],
        conv=nn.Conv2d(2, 2, 1),
        norm=nn.BatchNorm2d(2),
        relu=nn.ReLU(inplace=True),
        conv2=nn.Conv2d(2, 2, 1),
    )
    graph = from_module(module, torch.zeros(1, 2, 4, 4))
    assert [(edge.src, edge.nbytes) for edge in graph.edges if edge.dst == "add"] == [("conv2", 128.0), ("relu", 128.0)]


def test_a_cache_of_keys():
    """8 rows of 64 are written of 100,000; who reads the buffer waits, and it is no weight."""

    def forward(m, x):
        m.cache.index_copy_(0, m.at, x)
        return m.cache.sum() + m.cache.max()

    module = One(forward, cache=torch.zeros(100_000, 64), at=torch.arange(8))
    for graph in both(module, torch.zeros(8, 64)):
        write = next(op for op in graph.operators if op.kind == "indexcopy")
        assert write.nbytes == 8 * (64 * 4 * 2 + 8)
        for op in graph.operators:
            if op.kind == "reduce":
                assert waits(graph, op.name, write.name)
                assert (op.weight_nbytes, op.nbytes) == (0.0, 25.6e6 + 4)


def test_a_buffer_that_nobody_writes_is_a_weight():
    graph = from_module(One(lambda m, x: x + m.table, table=torch.zeros(8)), X)
    assert graph["add"].weight_nbytes == 32.0


def test_a_graph_that_cannot_be_run_is_ordered_conservatively(caplog):
    """A custom operator that PyTorch cannot run without numbers stands between: the shapes are those of the nodes."""
    traced = torch.fx.symbolic_trace(lambda x: (y := x.exp(), z := x.neg(), y.add_(1.0), x.sigmoid() + z)[3])
    torch.fx.passes.shape_prop.ShapeProp(traced).propagate(X)
    for node in traced.graph.nodes:
        if node.name == "neg":
            node.target = "no_such_method"
    graph = from_fx(traced)
    assert waits(graph, "add_", "no_such_method" if "no_such_method" in graph.index else "neg")
    assert waits(graph, "sigmoid", "add_")
    assert "operators that may write (add_) are ordered after all before them" in caplog.text


CONV = {"conv": nn.Conv2d(3, 4, 3, padding=1), "norm": nn.BatchNorm2d(4), "relu": nn.ReLU(inplace=True)}
IMAGE = torch.zeros(2, 3, 8, 8)
SMALL = {
    "mlp": (One(lambda m, x: m.b(F.relu(m.a(x))), a=nn.Linear(8, 16), b=nn.Linear(16, 4)), X),
    "wide": (One(lambda m, x: m.a(x) + m.b(x), a=nn.Linear(8, 8), b=nn.Linear(8, 8)), X),
    "gated": (One(lambda m, x: torch.sigmoid(m.a(x)) * m.b(x), a=nn.Linear(8, 8), b=nn.Linear(8, 8)), X),
    "in place": (One(lambda m, x: m.b(m.a(x).relu_()), a=nn.Linear(8, 8), b=nn.Linear(8, 8)), X),
    "in place, old name": (
        One(lambda m, x: (y := m.a(x), y.relu_(), m.b(y))[2], a=nn.Linear(8, 8), b=nn.Linear(8, 8)),
        X,
    ),
    "add_": (One(lambda m, x: (y := m.a(x), y.add_(x), m.b(y))[2], a=nn.Linear(8, 8), b=nn.Linear(8, 8)), X),
    "two writes": (One(lambda m, x: (y := x.exp(), y.add_(1.0), y.mul_(x), y.sigmoid())[3]), X),
    "in a row": (One(lambda m, x: x.exp().mul_(2.0).sigmoid_().tanh_()), X),
    "conv": (One(lambda m, x: m.relu(m.conv(x)), **CONV), IMAGE),
    "residual": (One(lambda m, x: (y := m.conv(x), m.relu(m.two(y) + y))[1], two=nn.Conv2d(4, 4, 1), **CONV), IMAGE),
    "branches": (One(lambda m, x: torch.cat([m.conv(x), m.two(x)], 1), two=nn.Conv2d(3, 4, 1), **CONV), IMAGE),
    "max pool": (One(lambda m, x: F.max_pool2d(m.conv(x), 2), **CONV), IMAGE),
    "mean pool": (One(lambda m, x: F.avg_pool2d(m.conv(x), 2), **CONV), IMAGE),
    "global pool": (One(lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1).flatten(1), **CONV), IMAGE),
    "grouped": (One(lambda m, x: m.g(m.conv(x)), g=nn.Conv2d(4, 8, 3, groups=4), **CONV), IMAGE),
    "strided": (One(lambda m, x: m.s(x), s=nn.Conv2d(3, 8, 3, stride=2)), IMAGE),
    "transposed": (One(lambda m, x: m.t(m.conv(x)), t=nn.ConvTranspose2d(4, 2, 2, stride=2), **CONV), IMAGE),
    "softmax": (One(lambda m, x: F.softmax(m.a(x), -1), a=nn.Linear(8, 8)), X),
    "norm": (One(lambda m, x: m.n(m.a(x)), a=nn.Linear(8, 8), n=nn.LayerNorm(8)), X),
    "activations": (One(lambda m, x: torch.tanh(x) + torch.sigmoid(x) + F.leaky_relu(x)), X),
    "product": (Two(lambda m, x, y: x @ y), torch.zeros(2, 4, 8), torch.zeros(2, 8, 3)),
    "square": (One(lambda m, x: (y := x.exp()) * y), X),
    "slices": (One(lambda m, x: x[:, :4].exp() + x[:, 4:].neg()), X),
    "transposition": (One(lambda m, x: m.a(x.transpose(0, 1)), a=nn.Linear(4, 8)), X),
    "split": (One(lambda m, x: (p := torch.split(x, 4, 1), p[0].exp() * p[1].sigmoid())[1]), X),
    "two inputs": (Two(lambda m, x, y: m.a(x) * y.sigmoid(), a=nn.Linear(8, 8)), X, X),
    "table": (One(lambda m, x: m.e(x), e=nn.Embedding(1000, 16)), torch.zeros(2, 5, dtype=torch.int64)),
    "sums": (One(lambda m, x: x.sum(1) + x.mean(1)), X),
    "division": (One(lambda m, x: (x - x.mean(1, keepdim=True)) / 3.0), X),
    "buffer": (One(lambda m, x: x * m.scale + m.shift, scale=torch.ones(8), shift=torch.ones(8)), X),
}


def exported(path, module, inputs):
    logging.disable(logging.WARNING)  # the exporter's own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                inputs,
                path,
                dynamo=False,
                verbose=False,
                opset_version=17,
                do_constant_folding=True,
                training=torch.onnx.TrainingMode.EVAL,
            )
    finally:
        logging.disable(logging.NOTSET)
    return path


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_the_same_by_three_paths(name, tmp_path):
    """The same FLOP, bytes within 2 %, and whether each operator waits for each other one."""
    pytest.importorskip("onnx")
    from workloads.formats.onnx.models import read_onnx

    module, *inputs = SMALL[name]
    module.eval()
    by_fx, by_export = both(module, *inputs)
    by_onnx = read_onnx(exported(tmp_path / "m.onnx", module, tuple(inputs)))
    for other in (by_export, by_onnx):
        assert other.flops.sum() == by_fx.flops.sum()
        assert other.nbytes.sum() == pytest.approx(by_fx.nbytes.sum(), rel=0.02)
        assert reach(other) == reach(by_fx)


def program(seed):
    """A random program of arithmetic on tensors and views of them, some of it in place."""
    rng = np.random.default_rng(seed)
    steps = [(*(int(n) for n in rng.integers(0, 10**6, 3)), int(rng.integers(0, 6))) for _ in range(12)]

    def forward(x):
        values, n_left = [x.exp(), x.neg()], 8
        for a, b, c, kind in steps:
            if n_left == 0:
                break
            first, second = values[a % len(values)], values[b % len(values)].view(4, 8)
            if kind == 0:
                values.append(first.view(4, 8).view(32))
                continue
            n_left -= 1
            if kind == 1:
                values.append(first.sigmoid())
            elif kind == 2:
                values.append(first.view(4, 8) + second)
            elif kind == 3:
                first.mul_(2.0 + c % 3)
            elif kind == 4:
                first.view(4, 8).add_(second)
            else:
                first.tanh_()
        total = values[0].view(4, 8)
        for value in values[1:]:
            total = total + value.view(4, 8)
        return total

    return forward


def functional(forward):
    """The graph of a program without in-place operators, as PyTorch makes it."""
    traced = torch.fx.experimental.proxy_tensor.make_fx(torch.func.functionalize(forward, remove="mutations"))(X)
    return from_fx(traced, [X])


def makespan(waiting, times, streams):
    """Of operators that wait for others, launched in this order on streams, without overheads; `waiting` as `reach`."""
    operators = [Operator(f"op{i}", time=us) for i, us in enumerate(times)]
    edges = [Edge(f"op{a}", f"op{b}") for b, row in enumerate(waiting) for a in np.flatnonzero(row)]
    placed = [Placement(op.name, "gpu0", stream) for op, stream in zip(operators, streams, strict=True)]
    cluster = Cluster.preset("a100").without_overheads()
    return simulate(Schedule(OpGraph(operators, edges), placed), cluster).makespan


def no_faster(seed):
    """Whether writes order as much as PyTorch's own functionalisation: any schedule of the same order takes as long."""
    forward = program(seed)
    ours, theirs = from_fx(torch.fx.symbolic_trace(forward), [X]), functional(forward)
    needed, given = np.array(reach(theirs)), np.array(reach(ours))
    assert needed.shape == given.shape
    assert not (needed & ~given).any(), seed
    rng = np.random.default_rng(seed)
    times = rng.uniform(1.0, 10.0, len(given))
    streams = [int(n) for n in rng.integers(0, 4, len(given))]
    slow, fast = (makespan(waiting, times.tolist(), streams) for waiting in (given, needed))
    assert slow >= fast * (1 - 1e-9), seed
    return slow > fast


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_in_place_is_never_faster_than_functional(first):
    assert any(no_faster(seed) for seed in range(first, first + 20))
