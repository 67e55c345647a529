"""The cupy backend on a real GPU: run with ``pytest -m gpu`` where there is one."""

import pytest
from gpus import require_gpu

import workloads
from hwbackend.cuda.backend import CupyBackend, availability
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS
from simsched.testing import check_backend

pytestmark = pytest.mark.gpu


RANDOM = "random:layered,n_ops=30,n_layers=6,seed=0"


@pytest.fixture(autouse=True, scope="module")
def _gpu():
    require_gpu("cupy", availability)


def test_the_contract():
    """Clocks of two GPUs agree to some 20 us, that of one ticks once in 1 us at worst."""
    backend = CupyBackend()
    check_backend(backend, clock_us=2.0 if len(backend.cluster) == 1 else 20.0).require()


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("spec", "options"), [(RANDOM, {}), ("squeezenet", {}), (RANDOM, {"devices": 1, "virtual_devices": 2})]
)
def test_schedules_compute_what_sequential_execution_does(spec, options, execution):
    """On virtual devices too, which copy for real; stages are on the first."""
    backend = CupyBackend(**options)
    graph = backend.realise(workloads.from_spec(spec))
    for seed in range(3):
        plan = random_schedule(graph, backend.cluster, rng=seed, streams=4, execution=execution)
        replay = backend.replay(plan, repeats=5)
        assert replay.max_relative_error < 1e-3
        assert 0 < replay.median < 1e6
        assert (len(replay.program.copies.op) > 0) == (bool(options) and execution != "stages")


def test_memory_is_given_back():
    """Free memory after three replays is that after the first."""
    backend = CupyBackend()
    graph, free = backend.realise(workloads.from_spec(RANDOM)), []
    for seed in range(3):
        backend.replay(random_schedule(graph, backend.cluster, rng=seed), repeats=2)
        free.append(backend._api._runtime.memGetInfo()[0])
    assert free[1] == free[2]
