"""Modules under a schedule compute what they compute by themselves; those that do more do not run in another order."""

from contextlib import nullcontext
from dataclasses import replace
from threading import Thread

import pytest

torch = pytest.importorskip("torch")

from torch_networks import Residual, agree, computes, each_network, network  # noqa: E402 - the rest is for those who have PyTorch

import simsched as ss  # noqa: E402
from hwbackend.torch.apply import apply  # noqa: E402
from hwbackend.torch.effects import changes_what_stays, draws, require_pure  # noqa: E402
from hwbackend.torch.nodes import trace_module  # noqa: E402
from simsched.base.errors import BackendError, GraphError, ScheduleError  # noqa: E402
from simsched.model.graph import OpGraph  # noqa: E402
from simsched.rewriting import merge  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning", "default::DeprecationWarning")]

A100 = ss.Cluster.preset("a100")
F = torch.nn.functional
RESIDUAL, X = network("residual")
GRAPH = from_module(RESIDUAL, X)
PLAN = ss.schedule(GRAPH, A100, "opara")


@each_network
@pytest.mark.parametrize(
    ("granularity", "scheduler"), [("operator", "opara"), ("unit", "opara"), ("operator", "greedy"), ("unit", "heft")]
)
def test_a_module_computes_the_same_under_a_schedule(name, granularity, scheduler):
    module, x = network(name)
    graph = from_module(module, x, granularity=granularity)
    run = apply(module, x, ss.schedule(graph, A100, scheduler))
    assert computes(run, module, x, 2 * x)


def test_operators_run_in_the_order_of_the_schedule():
    """Launched backwards as far as edges allow: the shortcut's convolution before the others of its block."""
    module, x = network("residual")
    graph = from_module(module, x)
    ran = []
    for name, part in module.named_children():
        part.register_forward_hook(lambda *_, name=name: ran.append(name))
    order = list(graph.order)
    order.insert(order.index("c"), order.pop(order.index("shortcut")))
    run = apply(module, x, ss.Schedule(graph, [ss.Placement(op, stream=int(op == "shortcut")) for op in order]))
    ran.clear()  # it was traced
    run(x)
    assert ran == ["stem", "a", "b", "shortcut", "c", "d", "norm"]


def test_parameters_are_those_of_the_module():
    """What is loaded into the module later counts, and gradients arrive there."""
    module, x = network("inception")
    run = apply(module, x, ss.schedule(from_module(module, x), A100, "opara"))
    with torch.no_grad():
        module.stem[0].weight.mul_(3.0)
    assert computes(run, module, x)
    run(x).square().sum().backward()
    found = module.stem[0].weight.grad.clone()
    module.zero_grad()
    module(x).square().sum().backward()
    assert agree(found, module.stem[0].weight.grad)


def test_what_torch_fx_cannot_trace_is_exported():
    class Undecided(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)

        def forward(self, x):
            return (self.linear(x), x + 1) if x.shape[0] > 1 else (x, x)

    module, x = Undecided().eval(), torch.randn(2, 8)
    run = apply(module, x, ss.schedule(from_module(module, x), A100, "opara"))
    with torch.no_grad():
        for got, wanted in zip(run(x), module(x), strict=True):
            assert agree(got, wanted)
        module.linear.weight.zero_()
        assert agree(run(x)[0], module(x)[0])


def on(graph, scheduler="sequential", n_gpus=1):
    return ss.schedule(graph, ss.Cluster.preset("a100", n_gpus), scheduler)


def half_in_training():
    module, _ = network("residual")
    module.norm.train()
    return module


def merged():
    """Such operators have weights of their own, which the module has not."""
    graph, _ = merge(from_module(*network("inception"), granularity="unit"), [("three_0_0", "five_0_0")])
    return graph


@pytest.mark.parametrize(
    ("module", "x", "plan", "error", "says"),
    [
        (RESIDUAL, X, on(from_module(*network("inception"))), ScheduleError, r"'\w+' of the schedule is not in Resid"),
        (
            RESIDUAL,
            X,
            on(OpGraph([op for op in GRAPH.operators if op.name != "shortcut"])),
            ScheduleError,
            "operator 'shortcut' of Residual is not in the schedule's graph",
        ),
        (
            RESIDUAL,
            torch.randn(1, 3, 16, 16),
            PLAN,
            ScheduleError,
            r"operator 'stem' has output_shape \(1, 8, 12, 12\) in the schedule",
        ),
        (
            RESIDUAL,
            X,
            on(OpGraph(GRAPH.operators, [edge for edge in GRAPH.edges if edge.dst != "a"])),
            ScheduleError,
            "lacks the edge 'relu' -> 'a'",
        ),
        (*network("inception"), on(merged()), ScheduleError, "runs a rewritten graph"),
        (Residual(), X, PLAN, BackendError, r"Residual is in training; call its eval\(\)"),
        (half_in_training(), X, PLAN, BackendError, r"'norm' of Residual is in training; call its eval\(\)"),
        (RESIDUAL, X, on(GRAPH, "round-robin", 2), BackendError, "the schedule runs on gpu0, gpu1"),
        (torch.relu, X, PLAN, GraphError, "a torch.nn.Module is needed, not builtin_function_or_method"),
        (RESIDUAL, torch.randn(1, 4, 12, 12), PLAN, GraphError, "does not run on the example inputs"),
    ],
)
def test_what_cannot_be_deployed_is_refused(module, x, plan, error, says):
    with pytest.raises(error, match=says):
        apply(module, x, plan)


def test_a_module_that_is_elsewhere_and_inputs_that_differ_are_refused():
    with pytest.raises(BackendError, match="Residual is on cpu, not on cuda"):
        apply(RESIDUAL, X, PLAN, device="cuda")
    run = apply(RESIDUAL, X, PLAN)
    wanted = r"float32 of shape \(1, 3, 12, 12\) on cpu as input 0"
    for inputs, says in (
        ([torch.randn(1, 3, 8, 8)], f"{wanted}, not float32 of shape"),
        ([X.double()], f"{wanted}, not float64 of shape"),
        ([X, X], "scheduled for 1 inputs, not 2"),
    ):
        with pytest.raises(BackendError, match=says):
            run(*inputs)


def test_devices_by_other_names_will_do():
    cluster = replace(A100, devices=(replace(A100.devices[0], name="mine"),))
    assert computes(apply(RESIDUAL, X, ss.schedule(GRAPH, cluster, "opara")), RESIDUAL, X)


# What nodes do besides returning a value


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
    module = function if isinstance(function, torch.nn.Module) else Two(function).eval()
    return trace_module(module, [torch.ones(4, 8)], "two")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x, m, s: F.batch_norm(x, m, s, training=True) + F.batch_norm(x * 3, m, s, training=True),
            "'batch_norm' of two writes over 'mean', which 'batch_norm_1' uses too",
        ),
        (lambda x, m, s: (m + 1, torch.mul(x[0], 2, out=m)), "'mul' of two writes over 'mean', which 'add' uses too"),
        (lambda x, m, s: (x + 1, x.mul_(2)), "'mul_' of two writes over 'x', which 'add' uses too"),
        (lambda x, m, s: x + torch.rand_like(x), "'rand_like' of two draws random numbers"),
        (lambda x, m, s: x.clone().uniform_(), "'uniform_' of two draws random numbers"),
        (lambda x, m, s: F.dropout(x), "'dropout' of two draws random numbers"),
        (torch.nn.Sequential(torch.nn.Dropout()), "'_0' of two draws random numbers"),
        (torch.nn.Sequential(torch.nn.BatchNorm1d(8)), "'_0' of two is in training, where it changes its averages"),
        (torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(8)).eval(), None),
        (lambda x, m, s: F.batch_norm(x, m, s, training=True), None),
        (lambda x, m, s: F.batch_norm(x, m, s) + F.batch_norm(x * 3, m, s), None),
        (lambda x, m, s: torch.relu_(x * 2) + torch.mul(x, 2, out=torch.empty_like(x)), None),
        (lambda x, m, s: F.dropout(x, 0.5, False), None),
    ],
)
def test_what_matters_beyond_the_edges_is_refused(function, message):
    """But not what nobody else sees."""
    with pytest.raises(ScheduleError, match=message) if message else nullcontext():
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
    found, others = {}, []
    run = apply(module, x, PLAN)

    def call_from_another(*_):
        if not others:
            others.append(Thread(target=lambda: found.update(other=run(-x))))
            others[0].start()
            others[0].join(0.1)  # would be enough for all of it
            assert "other" not in found

    with torch.no_grad():
        module.b.register_forward_hook(call_from_another)
        first = run(x)
        others[0].join()
        assert agree(first, RESIDUAL(x))
        assert agree(found["other"], RESIDUAL(-x))
