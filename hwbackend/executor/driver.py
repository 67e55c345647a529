"""The driver of CUDA through cuda-bindings: the package, the values of its calls, and addresses of its functions."""

import ctypes
import importlib
from collections.abc import Mapping
from typing import Any, Final

from simsched.base.errors import BackendError, MissingDependencyError

FUNCTIONS: Final = (
    "cuLaunchKernelEx",
    "cuGraphLaunch",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemcpyAsync",
    "cuMemsetD2D8Async",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32Async",
)
"""Functions of the driver that packed calls name."""


def require_driver() -> Any:
    """Return the module ``cuda.bindings.driver``.

    Raises
    ------
    MissingDependencyError
        If cuda-bindings are not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise MissingDependencyError("cuda-bindings are needed: pip install cuda-bindings") from error


def value_of(answer: tuple[Any, ...]) -> Any:
    """Return the values of a call of the driver without its status: None, one value, or a tuple of several.

    Raises
    ------
    BackendError
        If the status is an error.
    """
    status, *values = answer
    if int(status) != 0:
        raise BackendError(f"the driver of CUDA refuses: {getattr(status, 'name', status)}")
    if len(values) > 1:
        return tuple(values)
    return values[0] if values else None


def addresses() -> Mapping[str, int]:
    """Return the addresses of `FUNCTIONS` in the driver's library, by name.

    Raises
    ------
    BackendError
        If there is no driver, or it is older than CUDA 12 and lacks one of them.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS}
    except (OSError, AttributeError) as error:
        raise BackendError(f"the driver of CUDA cannot be called: {error}; install one for CUDA 12 or newer") from error
