"""Modules under a schedule compute what they compute by themselves."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch_networks import Residual, each_network, error, network  # noqa: E402 - the rest is for those who have PyTorch

import simsched as ss  # noqa: E402
from hwbackend.torch_apply import apply  # noqa: E402
from simsched.base.errors import BackendError, GraphError, ScheduleError  # noqa: E402
from simsched.model.graph import OpGraph  # noqa: E402
from simsched.rewriting import merge  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning", "default::DeprecationWarning")]

A100 = ss.Cluster.preset("a100")


@each_network
@pytest.mark.parametrize(
    ("granularity", "scheduler"), [("operator", "opara"), ("unit", "opara"), ("operator", "greedy"), ("unit", "heft")]
)
def test_a_module_computes_the_same_under_a_schedule(name, granularity, scheduler):
    module, x = network(name)
    graph = from_module(module, x, granularity=granularity)
    run = apply(module, x, ss.schedule(graph, A100, scheduler))
    with torch.no_grad():
        assert error(run(x), module(x)) <= 1e-5
        assert error(run(2 * x), module(2 * x)) <= 1e-5


def test_operators_run_in_the_order_of_the_schedule():
    """Launched backwards as far as edges allow: the shortcut's convolution before the others of its block."""
    module, x = network("residual")
    graph = from_module(module, x)
    ran = []
    for name, part in module.named_children():
        part.register_forward_hook(lambda *_, name=name: ran.append(name))
    order = list(graph.order)
    order.insert(order.index("c"), order.pop(order.index("shortcut")))
    plan = ss.Schedule(graph, [ss.Placement(op, stream=int(op == "shortcut")) for op in order])
    with torch.no_grad():
        run = apply(module, x, plan)
        ran.clear()  # it was traced
        run(x)
    assert ran == ["stem", "a", "b", "shortcut", "c", "d", "norm"]


def test_parameters_are_those_of_the_module():
    """What is loaded into the module later counts, and gradients arrive there."""
    module, x = network("inception")
    run = apply(module, x, ss.schedule(from_module(module, x), A100, "opara"))
    with torch.no_grad():
        module.stem[0].weight.mul_(3.0)
        assert error(run(x), module(x)) <= 1e-5
    run(x).square().sum().backward()
    found = module.stem[0].weight.grad.clone()
    module.zero_grad()
    module(x).square().sum().backward()
    assert error(found, module.stem[0].weight.grad) <= 1e-5


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
            assert error(got, wanted) <= 1e-5
        module.linear.weight.zero_()
        assert error(run(x)[0], module(x)[0]) <= 1e-5


RESIDUAL, X = network("residual")
GRAPH = from_module(RESIDUAL, X)
PLAN = ss.schedule(GRAPH, A100, "opara")


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
        (RESIDUAL, X, on(OpGraph([op for op in GRAPH.operators if op.name != "shortcut"])), ScheduleError,
         "operator 'shortcut' of Residual is not in the schedule's graph"),
        (RESIDUAL, torch.randn(1, 3, 16, 16), PLAN, ScheduleError,
         r"operator 'stem' has output_shape \(1, 8, 12, 12\) in the schedule"),
        (RESIDUAL, X, on(OpGraph(GRAPH.operators, [edge for edge in GRAPH.edges if edge.dst != "a"])), ScheduleError,
         "lacks the edge 'relu' -> 'a'"),
        (*network("inception"), on(merged()), ScheduleError, "runs a rewritten graph"),
        (Residual(), X, PLAN, BackendError, r"Residual is in training; call its eval\(\)"),
        (half_in_training(), X, PLAN, BackendError, r"'norm' of Residual is in training; call its eval\(\)"),
        (RESIDUAL, X, on(GRAPH, "round-robin", 2), BackendError, "the schedule runs on gpu0, gpu1"),
        (torch.relu, X, PLAN, GraphError, "a torch.nn.Module is needed, not builtin_function_or_method"),
        (RESIDUAL, torch.randn(1, 4, 12, 12), PLAN, GraphError, "does not run on the example inputs"),
    ],
)  # fmt: skip
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
    with torch.no_grad():
        assert error(apply(RESIDUAL, X, ss.schedule(GRAPH, cluster, "opara"))(X), RESIDUAL(X)) <= 1e-5
