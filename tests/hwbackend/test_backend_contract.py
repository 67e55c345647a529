"""What every backend promises, on every backend that can be used here."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fake_cuda import FakeCuda

from hwbackend import get
from hwbackend.cupy_backend import CupyBackend
from simsched.testing import check_backend, diamond, schedules_of


def torch_or_skip(**options):
    """PyTorch may be missing here."""
    pytest.importorskip("torch")
    return get("torch", device="cpu", **options)


def recorded():
    """A backend with the files of all runs that are asked for."""
    source = get("synthetic", gpu="k80")
    with TemporaryDirectory() as name:
        folder = Path(name)
        source.profile(diamond(), in_situ=1).save(folder / "profile.json")
        for i, plan in enumerate(schedules_of(source)):
            source.replay(plan, repeats=3, warmup=0).save(folder / f"run-{i}.json")
        return get("recorded", folder=folder)


CANDIDATES = {  # how each is made, and by how many us its clocks may err
    "synthetic": (lambda: get("synthetic", gpu="k80", outliers=0.2), 0.0),
    "synthetic-2": (lambda: get("synthetic", gpu="a40", gpus=2), 0.0),
    "recorded": (recorded, 1e-5),  # times are written to a picosecond
    "cupy": (lambda: CupyBackend(api=FakeCuda(), virtual_devices=2), 1.0),
    "cupy-2": (lambda: CupyBackend(api=FakeCuda(2)), 1.0),
    "torch": (torch_or_skip, 5.0),
    "torch-2": (lambda: torch_or_skip(n_devices=2), 5.0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.torch] * name.startswith("torch")) for name in CANDIDATES]
)
def test_a_backend_keeps_its_promises(name):
    make, clock = CANDIDATES[name]
    check_backend(make(), clock_us=clock).require()
