"""What PyTorch hides in bodies: branches, loops, regions, wrapped functions, composite layers."""

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from test_torch_writes import One, Two, waits  # noqa: E402 - the rest is for those who have PyTorch

from simsched.model.graph import UNKNOWN  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_fx, from_module  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
X = torch.zeros(4, 8)


def exported(module, *inputs):
    return from_exported(torch.export.export(module.eval(), inputs))


def test_the_costlier_branch_of_a_condition_counts(caplog):
    """A layer of 8 by 8 or a copy: 2 * 4 * 64 FLOP. It waits for the sum and the comparison."""
    module = One(lambda m, x: torch.cond(x.sum() > 0, lambda a: m.a(a), lambda a: a.clone(), (x,)), a=nn.Linear(8, 8))
    graph = exported(module, X)
    assert [op.kind for op in graph.operators if op.works] == ["reduce", "gt", "linear"]
    assert waits(graph, "linear", "gt")
    assert "cond: one of two branches runs; the costlier one counts (true: 512 FLOP" in caplog.text


def test_a_loop_is_its_rounds():
    """Three products of 4 x 8 by 8 x 8 in a row, and four comparisons less one that ends the loop."""

    def forward(m, x):
        body = torch._higher_order_ops.while_loop
        return body(lambda i, a: i < 3, lambda i, a: (i + 1, a @ m.w), (torch.tensor(0), x))[1]

    graph = exported(One(forward, w=torch.zeros(8, 8)), X)
    products = [op for op in graph.operators if op.kind in ("linear", "matmul")]
    assert [op.flops for op in products] == [512.0] * 3
    assert waits(graph, products[2].name, products[0].name)


def test_a_loop_whose_rounds_are_not_known_counts_one(caplog):
    def forward(m, x, n):
        body = torch._higher_order_ops.while_loop
        return body(lambda i, a: i < 3, lambda i, a: (i + 1, a.exp()), (n, x))[1]

    graph = exported(Two(forward), X, torch.tensor(0))
    assert [op.kind for op in graph.operators if op.works].count("exp") == 1
    assert "how often it runs is not known before; one round counts" in caplog.text


def test_a_region_without_gradient_is_a_part_of_the_graph():
    def forward(m, x):
        y = m.a(x)
        with torch.no_grad():
            z = y.relu()
        return z + y

    graph = exported(One(forward, a=nn.Linear(8, 8)), X)
    assert graph.names == ("linear", "relu", "add")
    assert [edge.src for edge in graph.edges if edge.dst == "add"] == ["relu", "linear"]


@pytest.mark.parametrize("path", ["module", "export"])
def test_autocast(path):
    """The product is in bf16; input, matrix and bias are cast before: 32 + 64 + 8 numbers of 4 bytes to 2."""

    def forward(m, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m.a(x)
        return y.float().exp()

    module = One(forward, a=nn.Linear(8, 8))
    graph = from_module(module, X) if path == "module" else exported(module, X)
    product = next(op for op in graph.operators if op.kind == "linear")
    assert (product.dtype, product.flops) == ("bf16", 512.0)
    assert [work.rule for work in product.works] == ["copy", "copy", "copy", "plain"]
    assert (
        sum(work.reads + work.writes for work in product.works[:1])
        + sum(work.weights + work.reads + work.writes for work in product.works[1:3])
        == 104 * 6
    )
    assert next(op for op in graph.operators if op.kind == "exp").dtype == "fp32"


def test_autocast_around_the_import():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = from_module(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), X)
    assert [op.dtype for op in graph.operators] == ["bf16", "bf16"]


@torch.fx.wrap
def attended(x, weight):
    """A function that torch.fx does not look into, as in Swin."""
    scores = torch.softmax(F.linear(x, weight) * (2.0 if x.shape[0] > 2 else 1.0), -1)
    return scores @ x.transpose(0, 1).contiguous().transpose(0, 1)


def test_a_wrapped_function_is_looked_into():
    """Two products, 2 * 4 * 8 * 4 and 2 * 4 * 4 * 8, and a softmax of 16 numbers, in one operator."""
    graph = from_module(One(lambda m, x: attended(x, m.w).exp(), w=nn.Parameter(torch.zeros(4, 8))), X)
    op = graph.operators[0]
    assert op.name == "attended"
    assert sum(work.flops for work in op.works if work.family == "product") == 2 * 256
    assert {work.family for work in op.works} >= {"product", "rows"}
    assert op.weight_nbytes == 128.0


def test_what_has_the_name_of_a_function_of_pytorch_is_looked_into():
    """A function called `dropout` that computes is no dropout."""
    graph = from_module(One(lambda m, x: dropout(x)), X)
    assert graph.flops.sum() == 32 * 4


@torch.fx.wrap
def dropout(x):
    return x.exp()


def test_a_layer_without_a_rule_is_looked_into():
    """A cell of an LSTM of 16 units on 4 rows of 8: 2 * 4 * 64 * (8 + 16) FLOP of products."""
    graph = from_module(One(lambda m, x: m.cell(x)[0], cell=nn.LSTMCell(8, 16)), X)
    (op,) = [op for op in graph.operators if op.kind == "lstmcell"]
    assert sum(work.flops for work in op.works if work.family == "product") == 2 * 4 * 64 * 24
    assert UNKNOWN not in op.attributes


def test_what_is_not_known_never_is_free():
    """A function that writes and returns nothing takes its bytes: 2 tensors of 32 numbers read and written."""
    graph = exported(Two(lambda m, x, y: (torch._foreach_erfc_([x, y]), x + y)[1]), X, X.clone())
    op = graph.operators[0]
    assert op.time is None
    assert op.nbytes == 2 * 2 * 128


def test_products_compute_in_the_format_of_what_they_multiply():
    whole = from_module(
        Two(lambda m, x, y: torch._int_mm(x, y)),
        [torch.zeros(32, 64, dtype=torch.int8), torch.zeros(64, 32, dtype=torch.int8)],
    )
    assert (whole.operators[0].kind, whole.operators[0].dtype) == ("matmul", "int8")


def test_a_half_model_is_in_one_format():
    """Arithmetic on sizes is no operator."""
    module = One(lambda m, x: m.a(x).view(x.size(0) * 2, -1) + x.shape[0] // 2, a=nn.Linear(8, 8)).half()
    graph = from_module(module, X.half())
    assert {op.dtype for op in graph.operators} == {"fp16"}
    assert graph.names == ("a", "view", "add")


def test_a_program_has_the_name_of_its_module():
    assert exported(nn.Sequential(nn.Linear(8, 8)), X).name == "Sequential"
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    assert from_fx(graph_module, X, name="mine").name == "mine"


def test_einsum_takes_the_best_order():
    forward = One(lambda m, x: torch.einsum("ij,jk,kl->il", x, m.a, m.b), a=torch.zeros(64, 64), b=torch.zeros(64, 64))
    assert from_module(forward, torch.zeros(64, 64)).flops.sum() == 2 * 2 * 64**3


def test_an_operator_of_the_user_that_writes_and_returns_nothing_is_not_free():
    """It reads two tensors of 16 numbers of 4 bytes and writes one, by whichever path it is read."""
    with torch.library._scoped_library("simsched_test", "FRAGMENT") as library:
        library.define("accumulate_(Tensor(a!) x, Tensor y) -> ()")
        library.impl("accumulate_", lambda x, y: None, "Meta")
        library.impl("accumulate_", lambda x, y: x.add_(y), "CPU")
        module = One(lambda m, x: (y := x.exp(), torch.ops.simsched_test.accumulate_(y, x), y.neg())[2])
        x = torch.zeros(16)
        for graph in (from_module(module, x), from_exported(torch.export.export(module, (x,)))):
            (op,) = [op for op in graph.operators if op.kind == "accumulate"]
            assert op.nbytes == 3 * 64
            assert any(edge.src == op.name for edge in graph.edges)
