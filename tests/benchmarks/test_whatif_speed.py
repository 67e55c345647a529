"""How long a what-if takes: on Inception-v3, without re-scheduling, at most 20 ms with the blame before and after."""

import pytest

from simsched.experiments.whatif import what_if
from simsched.model.cluster import Cluster
from simsched.schedulers import schedule
from workloads import load

A100 = Cluster.preset("a100")
ASKED = {
    "device": lambda asked: asked.device("h100"),
    "speed": lambda asked: asked.operators(kind="conv", speed=1.3),
    "launch": lambda asked: asked.overhead(launch=0),
    "graph": lambda asked: asked.execution("graph"),
    "stages": lambda asked: asked.execution("stages"),
    "fuse": lambda asked: asked.fuse(["stem.conv1", "stem.conv2"]),
}


@pytest.fixture(scope="module")
def plan():
    """In streams; the machine code is there before the clock starts."""
    made = schedule(load("inception_v3"), A100, "lios")
    for ask in ASKED.values():
        assert ask(what_if(made, A100)).blame
    return made


@pytest.mark.parametrize("name", ASKED)
def test_a_whole_answer(benchmark, plan, name):
    """From nothing but the plan: both worlds simulated, and why each takes as long as it does."""

    def answer():
        asked = ASKED[name](what_if(plan, A100))
        return asked.makespan_before, asked.difference, asked.blame_before, asked.blame

    before, difference, blame_before, blame = benchmark(answer)
    assert sum(blame_before.values()) == pytest.approx(before)
    assert sum(blame.values()) == pytest.approx(before + difference)
    assert difference != 0.0


def test_a_longer_question(benchmark, plan):
    """One parameter changed and simulated, as sweeps and sensitivities do many times."""
    asked = what_if(plan, A100)
    assert asked.makespan == asked.makespan_before
    quicker = benchmark(lambda: asked.set("device.bandwidth", 1.01).makespan)
    assert quicker < asked.makespan
