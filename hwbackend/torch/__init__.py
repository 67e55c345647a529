"""Operators of PyTorch: the measuring backend, `apply`, and the backend of `torch.compile`."""
