"""What nodes do besides returning a value: such modules do not run in another order."""

from threading import Thread

import pytest

torch = pytest.importorskip("torch")

from torch_networks import network  # noqa: E402 - the rest is for those who have PyTorch

import simsched as ss  # noqa: E402
from hwbackend.torch_apply import apply  # noqa: E402
from hwbackend.torch_effects import changes_what_stays, draws, require_pure  # noqa: E402
from hwbackend.torch_nodes import traced  # noqa: E402
from simsched.base.errors import ScheduleError  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning", "default::DeprecationWarning")]

F = torch.nn.functional


class Two(torch.nn.Module):
    """Calls a function with two buffers."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("spread", torch.ones(8))

    def forward(self, x):
        return self.function(x, self.mean, self.spread)


def module_of(function):
    return traced(Two(function).eval(), [torch.ones(4, 8)], "two")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, m, s: F.batch_norm(x, m, s, training=True) + F.batch_norm(x * 3, m, s, training=True),
         "'batch_norm' of two writes over 'mean', which 'batch_norm_1' uses too"),
        (lambda x, m, s: (m + 1, torch.mul(x[0], 2, out=m)), "'mul' of two writes over 'mean', which 'add' uses too"),
        (lambda x, m, s: (x + 1, x.mul_(2)), "'mul_' of two writes over 'x', which 'add' uses too"),
        (lambda x, m, s: x + torch.rand_like(x), "'rand_like' of two draws random numbers"),
        (lambda x, m, s: x.clone().uniform_(), "'uniform_' of two draws random numbers"),
        (lambda x, m, s: F.dropout(x), "'dropout' of two draws random numbers"),
    ],
)  # fmt: skip
def test_what_matters_beyond_the_edges_is_refused(function, message):
    with pytest.raises(ScheduleError, match=message):
        require_pure(module_of(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m, s: F.batch_norm(x, m, s, training=True),
        lambda x, m, s: F.batch_norm(x, m, s) + F.batch_norm(x * 3, m, s),
        lambda x, m, s: torch.relu_(x * 2) + torch.mul(x, 2, out=torch.empty_like(x)),
        lambda x, m, s: F.dropout(x, 0.5, False),
    ],
)
def test_what_nobody_else_sees_is_not(function):
    require_pure(module_of(function))


@pytest.mark.parametrize(
    ("call", "drawn"),
    [
        (lambda q: F.scaled_dot_product_attention(q, q, q), False),
        (lambda q: F.scaled_dot_product_attention(q, q, q, None, 0.1), True),
        (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1), True),
        (lambda q: F.rrelu(q), False),
        (lambda q: F.rrelu(q, training=True), True),
        (lambda q: torch.dropout(q, 0.5, False), False),
        (lambda q: torch.dropout(q, 0.5, train=True), True),
    ],
)
def test_whether_a_call_draws_is_in_its_arguments(call, drawn):
    graph_module = torch.fx.symbolic_trace(call)
    assert [draws(graph_module, node) for node in graph_module.graph.nodes] == [False, drawn, False]


def test_a_layer_draws_in_training():
    layer = torch.nn.Sequential(torch.nn.Dropout(0.5))
    graph_module = torch.fx.symbolic_trace(layer)
    (node,) = (node for node in graph_module.graph.nodes if node.op == "call_module")
    assert draws(graph_module, node)
    layer.eval()
    assert not draws(graph_module, node)


def test_a_normalisation_in_training_is_refused():
    """As a layer, which nobody sees write into itself."""
    layer = torch.nn.Sequential(torch.nn.BatchNorm1d(8)).train()
    found = traced(layer, [torch.ones(4, 8)], "layer")
    with pytest.raises(ScheduleError, match="operator '_0' of layer is in training, where it changes its averages"):
        require_pure(found)
    layer.eval()
    require_pure(found)


def test_what_stays_is_known():
    """To capture it, it would be run once more."""
    assert changes_what_stays(module_of(lambda x, m, s: x + m.add_(1))) == "add_"
    assert changes_what_stays(module_of(lambda x, m, s: x.view(-1).add_(1))) == "add_"
    assert changes_what_stays(module_of(lambda x, m, s: F.batch_norm(x, m, s, training=True))) == "batch_norm"
    assert changes_what_stays(module_of(lambda x, m, s: F.batch_norm(x, m, s))) is None
    assert changes_what_stays(module_of(lambda x, m, s: torch.relu_(x * 2))) is None


def test_threads_take_turns():
    """A second thread calls while the first is in the middle of the module: it waits, or both would be wrong."""
    module, x = network("residual")
    wanted = [module(x), module(-x)]
    found, others = {}, []
    run = apply(module, x, ss.schedule(from_module(module, x), ss.Cluster.preset("a100"), "opara"))

    def call_from_another(*_):
        if not others:
            others.append(Thread(target=lambda: found.update(other=run(-x))))
            others[0].start()
            others[0].join(0.1)  # would be enough for all of it
            assert "other" not in found

    with torch.no_grad():
        module.b.register_forward_hook(call_from_another)
        found["first"] = run(x)
        others[0].join()
    for got, value in zip((found["first"], found["other"]), wanted, strict=True):
        assert (got - value).abs().max() <= 1e-5 * value.abs().max()
