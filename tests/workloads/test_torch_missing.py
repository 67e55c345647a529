"""Without PyTorch."""

import sys

import pytest

from simsched.base.errors import MissingDependencyError
from workloads.formats import torch_fx


@pytest.mark.parametrize("read", [torch_fx.from_module, torch_fx.from_fx, torch_fx.from_exported])
def test_what_to_install_is_said(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[torch\]'"):
        read(object(), ())
