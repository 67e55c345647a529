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


def test_a_schedule_of_another_graph_is_refused():
    module, x = network("residual")
    graph = from_module(module, x)
    smaller = OpGraph([op for op in graph.operators if op.name != "shortcut"], [])
    loose = OpGraph(graph.operators, [edge for edge in graph.edges if edge.dst != "a"], graph.name)
    for other, size, says in (
        (from_module(*network("inception")), 12, r"operator '\w+' of the schedule is not in Residual"),
        (smaller, 12, "operator 'shortcut' of Residual is not in the schedule's graph"),
        (graph, 16, r"operator 'stem' has output_shape \(1, 8, 12, 12\) in the schedule"),
        (loose, 12, "lacks the edge 'relu' -> 'a'"),
    ):
        with pytest.raises(ScheduleError, match=says):
            apply(module, torch.randn(1, 3, size, size), ss.schedule(other, A100, "sequential"))


def test_a_rewritten_graph_is_refused():
    """Merged operators have weights of their own, which the module has not."""
    module, x = network("inception")
    graph = from_module(module, x, granularity="unit")
    merged, _ = merge(graph, [("three_0_0", "five_0_0")])
    with pytest.raises(ScheduleError, match="runs a rewritten graph"):
        apply(module, x, ss.schedule(merged, A100, "opara"))


def test_inputs_that_differ_are_refused():
    module, x = network("residual")
    run = apply(module, x, ss.schedule(from_module(module, x), A100, "opara"))
    with pytest.raises(
        BackendError, match=r"float32 of shape \(1, 3, 12, 12\) on cpu as input 0, not float32 of shape"
    ):
        run(torch.randn(1, 3, 8, 8))
    with pytest.raises(BackendError, match="scheduled for 1 inputs, not 2"):
        run(x, x)
    with pytest.raises(BackendError, match="not float64 of shape"):
        run(x.double())


def test_what_cannot_be_deployed_is_refused():
    module, x = network("residual")
    plan = ss.schedule(from_module(module, x), A100, "opara")
    with pytest.raises(BackendError, match=r"Residual is in training; call its eval\(\)"):
        apply(Residual(), x, plan)
    inner, _ = network("residual")
    inner.norm.train()
    with pytest.raises(BackendError, match=r"'norm' of Residual is in training; call its eval\(\)"):
        apply(inner, x, plan)
    with pytest.raises(BackendError, match="Residual is on cpu, not on cuda"):
        apply(module, x, plan, device="cuda")
    two = ss.schedule(plan.graph, ss.Cluster.preset("a100", 2), "round-robin")
    assert len(two.devices_used) == 2
    with pytest.raises(BackendError, match="the schedule runs on gpu0, gpu1"):
        apply(module, x, two)
    with pytest.raises(GraphError, match=r"a torch.nn.Module is needed, not builtin_function_or_method"):
        apply(torch.relu, x, plan)
    with pytest.raises(GraphError, match="does not run on the example inputs"):
        apply(module, torch.randn(1, 4, 12, 12), plan)


def test_devices_by_other_names_will_do():
    module, x = network("residual")
    graph = from_module(module, x)
    cluster = replace(A100, devices=(replace(A100.devices[0], name="mine"),))
    with torch.no_grad():
        assert error(apply(module, x, ss.schedule(graph, cluster, "opara"))(x), module(x)) <= 1e-5
