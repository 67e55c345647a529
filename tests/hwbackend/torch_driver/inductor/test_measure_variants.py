"""Measuring on a device that is not the current one."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from hwbackend.torch.inductor.measure import Measure  # noqa: E402 - the rest is for those who have PyTorch

pytestmark = pytest.mark.torch


class Cuda:
    """Two devices, of which the first is current: events are of the device that is current where they are recorded."""

    def __init__(self):
        self.current = "cuda:0"
        self.log = []

    @contextmanager
    def device(self, device):
        before, self.current = self.current, str(device)
        yield
        self.current = before

    def Event(self, enable_timing):
        def note(action):
            return lambda: self.log.append((action, self.current))

        return SimpleNamespace(record=note("record"), synchronize=list, elapsed_time=lambda _end: 0.05)

    def synchronize(self, device):
        self.log.append(("synchronize", str(device)))

    def get_device_name(self, device):
        return f"name of {device}"

    def mem_get_info(self, device):
        return {"cuda:0": (1, 9), "cuda:1": (7, 9)}[str(device)]


def test_all_is_asked_of_the_device_of_the_inputs():
    """Five calls take 50 us."""
    cuda = Cuda()
    measure = Measure([SimpleNamespace(device=torch.device("cuda", 1))])
    measure._torch = SimpleNamespace(**vars(torch) | {"cuda": cuda})
    run = lambda _x: cuda.log.append(("run", cuda.current))  # noqa: E731
    assert measure.time("plain", run) == 10.0
    assert cuda.log == [("record", "cuda:1"), *[("run", "cuda:1")] * 5, ("record", "cuda:1")]
    measure.warm(run)
    assert cuda.log[-1] == ("synchronize", "cuda:1")
    assert measure.identity()[0] == "name of cuda:1"
    assert measure.free_memory() == 7.0
