"""Without PyTorch: what to install is said, and nothing of ours needs it to be imported."""

import sys

import pytest

from hwbackend import torch_apply, torch_backend, torch_compile
from simsched.errors import MissingDependencyError


@pytest.mark.parametrize(
    "use",
    [
        torch_backend.TorchBackend,
        torch_backend.availability,
        lambda: torch_apply.apply(None, (), None),
    ],
    ids=["backend", "availability", "apply"],
)
def test_what_to_install_is_said(use, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[torch\]'"):
        use()


def test_the_compile_backend_is_a_plain_function():
    assert callable(torch_compile.simsched_backend)
    assert "torch" not in vars(torch_compile)
