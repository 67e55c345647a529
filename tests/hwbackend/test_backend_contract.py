"""Which backends there are, and what every one promises, on each that can be used here."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fake_cuda import FakeCuda

from hwbackend import BACKENDS, available, get
from hwbackend.cuda.backend import CupyBackend
from hwbackend.torch import backend as torch_backend
from simsched.base.errors import BackendError, MissingDependencyError, UnknownNameError
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


def test_each_backend_says_whether_it_can_be_used():
    found = {entry.name: entry for entry in available()}
    assert list(found) == list(BACKENDS)
    assert found["synthetic"].usable
    assert all(entry.reason for entry in found.values())


def broken_driver():
    """Fail as a library does of which a part is missing."""
    raise OSError("libcuda.so: no such file")


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("gpu", {}, r"unknown backend 'gpu'; known are: cupy, .*package.module:factory"),
        ("synthetic", {"colour": "red"}, "'synthetic': unknown option 'colour'; known are: gpu, gpus, "),
        ("json:loads", {}, "'json:loads' cannot be made: .*argument"),
        (f"{__name__}:broken_driver", {}, "cannot be made: OSError: libcuda.so: no such file"),
        ("no_such_module:make", {}, "cannot be imported"),
        ("math:nothing", {}, "cannot be imported"),
        ("builtins:dict", {}, "is not one: it has no realise, microbenchmarks, profile, replay, name, cluster"),
    ],
)
def test_what_is_no_backend_is_refused(name, options, text):
    with pytest.raises(UnknownNameError if name == "gpu" else BackendError, match=text):
        get(name, **options)


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[torch\]'"):
        torch_backend.TorchBackend()


def test_one_that_cannot_be_loaded_is_said(monkeypatch):
    """As where a library that it was built with is gone."""

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match=r"PyTorch cannot be loaded \(libcudart.so.12: cannot open"):
        torch_backend.availability()
    found = next(entry for entry in available() if entry.name == "torch")
    assert not found.usable
    assert "cannot be loaded" in found.reason
