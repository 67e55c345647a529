"""Operators of PyTorch as nodes of a fake driver: outputs are checked on the memory of one capture."""

import pytest

torch = pytest.importorskip("torch")

from fake_cuda import FakeCuda  # noqa: E402 - the rest is for those who have PyTorch
from fake_driver import FakeDonorCuda, FakeDriver  # noqa: E402

import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from hwbackend.measuring.synth import realised  # noqa: E402
from hwbackend.torch import backend as backend_module  # noqa: E402
from hwbackend.torch import donor  # noqa: E402
from hwbackend.torch.backend import TorchBackend  # noqa: E402
from hwbackend.torch.donated import DonatedNetwork, NotDonatedError  # noqa: E402
from hwbackend.torch.donor import alone  # noqa: E402
from hwbackend.torch.operators import Place, call_of, uses_tf32  # noqa: E402
from hwbackend.torch.values import Values  # noqa: E402
from hwbackend.torch.weights import GraphWeights  # noqa: E402
from simsched.base.errors import BackendError, MissingDependencyError  # noqa: E402
from simsched.calibration.training import random_schedule  # noqa: E402
from simsched.model import EXECUTIONS, Kernel, Operator, Work  # noqa: E402

pytestmark = pytest.mark.torch

CLUSTER = ss.Cluster.preset("h100")


class FakeValues(Values):
    """Values whose operators compute when a fake kernel runs; what they return is memory until then.

    Operators of numbers in `hosts` call the host first.
    """

    driver = api = None
    hosts = ()

    def compute(self, i):
        super().compute(i)
        written = self._written[i]
        reads = self._read(i, self._feeds[i], self._bring)
        if not any(written.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in reads):
            call = self._calls[i]
            if i in self.hosts:
                self.driver.host(self.api.current)
            self.driver.kernel(self.api.current, lambda memory, arguments: written.copy_(call(reads)), ())


@pytest.fixture
def made():
    """A network of a name as a donor on a fake, with its graph and its driver."""

    def make(spec, seed=0):
        graph = realised(workloads.from_spec(spec), CLUSTER)
        cuda = FakeCuda(1, seed)
        cuda.set_device(0)
        driver = FakeDriver(cuda)
        program = alone(graph, CLUSTER)
        place = Place(torch, torch.device("cpu"))
        values = FakeValues(torch, program, [place], GraphWeights(graph, [place]))
        values.driver, values.api = driver, FakeDonorCuda(driver)
        apis = iter([values.api])
        network = DonatedNetwork(torch, lambda: next(apis, None) or FakeDonorCuda(driver), program, values)
        return network, graph, driver

    torch.set_num_threads(1)
    with torch.inference_mode():
        yield make


@pytest.mark.parametrize("spec", ["tiny_inception", "tiny_transformer"])
def test_outputs_are_those_of_sequential_execution(made, spec):
    """Under three schedules of each execution; latencies are of as many runs as were asked for."""
    network, graph, driver = made(spec)
    for seed, execution in enumerate(EXECUTIONS * 3):
        plan = random_schedule(graph, CLUSTER, rng=seed, streams=4, execution=execution)
        found = network.measure(plan.lower(CLUSTER), 3, 1, profiled=False)
        assert found.error == 0.0
        assert len(found.latency) == 3
        assert min(found.latency) > 0.0
        assert found.issued == "nodes of one capture"
        assert found.spans == ("events, of a run that was not captured" if execution == "graph" else "events")
        assert (found.launches[:, 1] >= found.launches[:, 0]).all()
    assert driver.live == 0


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_result_names_operators_that_are_graphs_of_their_own(made, monkeypatch, execution):
    """Four operators call the host: three are named with the reason, and all others are moved as ever."""
    monkeypatch.setattr(FakeValues, "hosts", (1, 2, 3, 4))
    network, graph, driver = made("tiny_inception")
    plan = random_schedule(graph, CLUSTER, rng=1, streams=3, execution=execution)
    found = network.measure(plan.lower(CLUSTER), 2, 1, profiled=True)
    assert found.error == 0.0
    names = list(network._donor.whole)
    assert len(names) == 4
    named = ", ".join(f"{name!r} (a node of type host)" for name in names[:3])
    assert found.issued == f"nodes of one capture; as graphs of their own: {named}, 1 more"
    assert found.spans == ("events, of a run that was not captured" if execution == "graph" else "events")
    network.close()
    assert driver.live == 0


def test_a_schedule_that_runs_too_early_is_refused(made, monkeypatch):
    """Without the edges between operators one of them reads NaN."""
    network, graph, _ = made("tiny_inception")
    inner = lambda program, parts: [edge for part in parts for edge in part.edges]  # noqa: E731
    monkeypatch.setattr(donor, "edges_of", inner)
    program = random_schedule(graph, CLUSTER, rng=0, streams=4, execution="graph").lower(CLUSTER)
    with pytest.raises(BackendError, match=r"operator '.*' wrote NaN under the schedule: it ran before"):
        network.measure(program, 1, 0, profiled=False)


def test_inputs_of_the_network_are_not_poisoned(made):
    """An operator that only looks at an input shares its memory."""
    network, _, _ = made("tiny_inception")
    before = [value.clone() for row in network._values._inputs for value in row if value is not None]
    network._values.poison()
    after = [value for row in network._values._inputs for value in row if value is not None]
    assert before
    assert all(map(torch.equal, before, after))


def test_a_program_for_two_devices_is_not_donated(made):
    network, graph, _ = made("tiny_inception")
    two = ss.Cluster.preset("h100", 2)
    program = random_schedule(graph, two, rng=1, streams=2, execution="events").lower(two)
    with pytest.raises(NotDonatedError, match="was captured on the first device, the program runs on others"):
        network.measure(program, 1, 0, profiled=False)


@pytest.mark.parametrize(
    ("dtype", "works", "tf32"),
    [
        ("tf32", (), True),
        ("fp32", (Work("convolution", tf32=True),), True),
        ("fp32", (Work("product"),), False),
        ("fp16", (Work("convolution", tf32=True),), False),
    ],
)
def test_tf32_is_used_where_the_model_says_so(monkeypatch, dtype, works, tf32):
    """A call on a GPU is made with TF32 on, and leaves it as it was; here the GPU is a name."""
    op = Operator(
        "relu", "relu", kernels=(Kernel(1),), dtype=dtype, works=works, input_shapes=((4,),), output_shape=(4,)
    )
    assert uses_tf32(op) == tf32
    place = Place(torch, torch.device("cuda", 0))
    seen = []
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: seen.append(torch.get_float32_matmul_precision()) or x)
    torch.set_float32_matmul_precision("highest")
    call_of(op, 16.0, place)([torch.zeros(4)])
    assert seen == ["high" if tf32 else "highest"]
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.fixture
def backend(monkeypatch):
    """A backend on the CPU that takes a fake driver for a GPU's."""
    cuda = FakeCuda(1, 0)
    cuda.set_device(0)
    driver = FakeDriver(cuda)
    apis = []

    def open_api(_torch, _driver):
        apis.append(FakeDonorCuda(driver))
        FakeValues.api = FakeValues.api or apis[0]
        return apis[-1]

    monkeypatch.setattr(FakeValues, "driver", driver)
    monkeypatch.setattr(FakeValues, "api", None)
    monkeypatch.setattr(backend_module, "Values", FakeValues)
    monkeypatch.setattr(backend_module, "DonorCuda", open_api)
    monkeypatch.setattr(backend_module, "require_driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a fake")
    found = TorchBackend("cpu", spans="events")
    found._api = object()
    return found


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_backend_measures_all_schedules_with_one_capture(backend, execution):
    """The graph is realised with the shapes of nodes: 10 blocks of 64 threads on a fake."""
    graph = backend.realise(workloads.from_spec("tiny_inception"))
    shapes = {(kernel.blocks, kernel.threads, kernel.registers) for op in graph.operators for kernel in op.kernels}
    assert shapes == {(10, 64, 40)}
    captured = backend._donated.network
    for seed in range(2):
        plan = random_schedule(graph, backend.cluster, rng=seed, streams=3, execution=execution)
        replay = backend.replay(plan, repeats=2, warmup=1)
        assert replay.environment["issued"] == "nodes of one capture"
        assert replay.max_relative_error == 0.0
    assert backend._donated.network is captured


def test_without_the_bindings_weights_are_kept_and_the_reason_is_known(backend, monkeypatch):
    def missing():
        raise MissingDependencyError("cuda-bindings are needed: pip install cuda-bindings")

    monkeypatch.setattr(backend_module, "require_driver", missing)
    graph = realised(workloads.from_spec("tiny_inception"), backend.cluster)
    weights = backend._weights_of(graph)
    for _ in range(2):
        with pytest.raises(NotDonatedError, match="cuda-bindings are needed: pip install cuda-bindings"):
            backend._donated_of(graph)
        assert backend._weights_of(graph) is weights


def test_spans_come_from_a_profiler_or_from_events():
    with pytest.raises(BackendError, match="spans come from 'profiler' or 'events', not from 'x'"):
        TorchBackend("cpu", spans="x")
