"""The torch backend and `apply` on a real GPU: run with ``pytest -m gpu`` where there is one."""

from statistics import median
from time import perf_counter

import pytest

torch = pytest.importorskip("torch")

from gpus import require_gpu  # noqa: E402 - the rest is for those who have PyTorch
from torch_networks import agree, each_network, network  # noqa: E402

import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from hwbackend.torch.apply import apply  # noqa: E402
from hwbackend.torch.backend import TorchBackend  # noqa: E402
from simsched.calibration.training import random_schedule  # noqa: E402
from simsched.model import EXECUTIONS  # noqa: E402
from simsched.testing import check_backend  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def cuda_is_usable():
    return torch.cuda.is_available(), f"PyTorch {torch.__version__} finds no CUDA device"


@pytest.fixture(autouse=True, scope="module")
def _gpu():
    require_gpu("torch", cuda_is_usable, lambda: torch.version.cuda is not None)


def test_the_contract():
    """Clocks of two GPUs agree to some 20 us, the clock of one ticks once in 1 us at worst."""
    backend = TorchBackend("cuda")
    check_backend(backend, clock_us=2.0 if len(backend.cluster) == 1 else 20.0).require()


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("spec", ["squeezenet", "tiny_transformer"])
def test_schedules_compute_what_sequential_execution_does(spec, execution):
    backend = TorchBackend("cuda", 1)
    graph = backend.realise(workloads.from_spec(spec))
    for seed in range(3):
        plan = random_schedule(graph, backend.cluster, rng=seed, streams=4, execution=execution)
        replay = backend.replay(plan, repeats=5)
        assert replay.max_relative_error < 1e-3
        assert 0 < replay.median < 1e6


@each_network
@pytest.mark.parametrize("execution", ["events", "graph"])
def test_a_module_computes_the_same_under_a_schedule(name, execution):
    module, x = network(name)
    module, x = module.cuda(), x.cuda()
    graph = from_module(module, x)
    plan = random_schedule(graph, ss.Cluster.preset("a100"), rng=0, streams=3, execution=execution)
    run = apply(module, x, plan)
    with torch.no_grad():
        assert agree(run(x), module(x))


def captured(module, x):
    """A captured eager model: it copies its input, and returns the memory of its output."""
    memory = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(memory)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(memory)

    def run(x):
        memory.copy_(x)
        graph.replay()
        return output

    return run


@each_network
def test_a_captured_schedule_of_one_stream_costs_what_a_captured_model_costs(name):
    """At most 5 % more, medians of 200 pairs of synchronised calls in turns; an output of its own costs a copy more."""
    module, x = network(name)
    module, x = module.cuda(), x.cuda()
    plan = ss.schedule(from_module(module, x), ss.Cluster.preset("h100"), "sequential").like(execution="graph")
    with torch.inference_mode():
        runs = [captured(module, x), apply(module, x, plan, copies=False)]
        assert agree(runs[1](x), runs[0](x))
        times = [[], []]
        for i in range(400):
            for k in (i % 2, 1 - i % 2):
                torch.cuda.synchronize()
                begin = perf_counter()
                runs[k](x)
                torch.cuda.synchronize()
                times[k].append(perf_counter() - begin)
    ours, eager = (median(row[200:]) for row in reversed(times))
    assert ours <= 1.05 * eager, f"{1e6 * ours:.1f} us instead of {1e6 * eager:.1f} us"
