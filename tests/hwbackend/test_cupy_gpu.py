"""The cupy backend on a real GPU: run with ``pytest -m gpu`` where there is one."""

import pytest

import workloads
from hwbackend.cupy_backend import CupyBackend, availability
from simsched.calibration.training import random_schedule
from simsched.testing import check_backend
from validation.hardware.graphs import KERNELS, kernel_graph
from validation.hardware.reference import TOLERANCE, error_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def backend():
    usable, reason = availability()
    if not usable:
        pytest.skip(reason)
    return CupyBackend()


def test_the_contract(backend):
    """Clocks of two GPUs agree to some 20 us, that of one ticks once in 1 us at worst."""
    check_backend(backend, clock_us=2.0 if len(backend.cluster) == 1 else 20.0).require()


@pytest.mark.parametrize("execution", ["events", "graph", "stages"])
def test_schedules_compute_what_sequential_execution_does(backend, execution):
    graph = backend.realise(workloads.random_layered(n_ops=30, n_layers=6, rng=0))
    for seed in range(3):
        replay = backend.replay(random_schedule(graph, backend.cluster, rng=seed, execution=execution), repeats=5)
        assert replay.max_relative_error < 1e-3
        assert 0 < replay.median < 1e6


def test_virtual_devices_copy_for_real(backend):
    virtual = CupyBackend(devices=1, virtual_devices=2)
    graph = virtual.realise(workloads.random_layered(n_ops=20, n_layers=5, rng=1))
    replay = virtual.replay(random_schedule(graph, virtual.cluster, rng=1, execution="events"), repeats=3)
    assert len(replay.program.copies.op) > 0
    assert replay.max_relative_error < 1e-3


def test_memory_is_given_back(backend):
    """Free memory after three replays is that after the first."""
    runtime = backend._api._runtime
    graph = backend.realise(workloads.random_layered(n_ops=20, n_layers=5, rng=2))
    free = []
    for seed in range(3):
        backend.replay(random_schedule(graph, backend.cluster, rng=seed), repeats=2)
        free.append(runtime.memGetInfo()[0])
    assert free[1] == free[2]


def test_kernels_compute_what_numpy_does(backend):
    """Single operators in shapes that divide nothing evenly; differences are those of float32."""
    for name in KERNELS:
        graph = backend.realise(kernel_graph(name))
        for op, found in backend.outputs(graph).items():
            assert error_of(graph[op], *found) < TOLERANCE, (name, op)


def test_a_network_runs(backend):
    graph = backend.realise(workloads.load("squeezenet"))
    replay = backend.replay(random_schedule(graph, backend.cluster, rng=0, streams=4, execution="graph"), repeats=5)
    assert replay.max_relative_error < 1e-3
