"""Graphs of PyTorch modules: the public names of `workloads.formats.torch.fx`."""

from workloads.formats.torch.fx import Options, from_exported, from_fx, from_module, traced

__all__ = ["Options", "from_exported", "from_fx", "from_module", "traced"]
