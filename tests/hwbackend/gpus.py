"""When tests of a real GPU run: they are left out where its package is not installed, and fail where it has no GPU."""

from importlib.util import find_spec

import pytest


def require_gpu(package, availability, has_cuda=lambda: True):
    """Skip where a package is not installed or was built without CUDA; fail where it is and cannot be used.

    `availability` returns whether its backend can be used and the reason, `has_cuda` whether the build is for CUDA.
    """
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if not has_cuda():
        pytest.skip(f"{package} was built without CUDA")
    usable, reason = availability()
    if not usable:
        pytest.fail(f"{package} is installed and cannot be used: {reason}")
