"""Modules of PyTorch, exported or traced: `fx` reads them from memory, `files` from ``.pt2`` and ``.py`` files."""
