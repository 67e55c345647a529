"""Without PyTorch: what to install is said, and nothing of ours needs it to be imported."""

import sys

import pytest

from hwbackend import available, torch_backend, torch_compile
from simsched.base.errors import MissingDependencyError


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


def test_the_compile_backend_is_a_plain_function():
    assert callable(torch_compile.simsched_backend)
    assert "torch" not in vars(torch_compile)
