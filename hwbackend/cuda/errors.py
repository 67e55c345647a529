"""CUDA's errors in one line each, with what to do about them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from simsched.base.errors import BackendError, SimschedError

INSTALL: Final = "pip install 'simsched[cuda12]' (or 'simsched[cuda13]' for CUDA 13)"
OLDEST_CUPY: Final = 14

_CAPTURE: Final = "StreamCapture"
# What to say, by the name that the runtime or the driver gives an error.
_REMEDIES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"),
        "out of GPU memory: free some, take a smaller batch, or more devices",
    ),
    (
        ("cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT"),
        "a kernel ran into the driver's time limit: use a GPU without a display, or smaller operators; "
        "this process can use the GPU no more",
    ),
    (
        (
            "cudaErrorIllegalAddress",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "cudaErrorMisalignedAddress",
            "CUDA_ERROR_MISALIGNED_ADDRESS",
            "cudaErrorLaunchFailure",
            "CUDA_ERROR_LAUNCH_FAILED",
            "cudaErrorIllegalInstruction",
            "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        ),
        "a kernel failed on the device; start a new process, and run it under compute-sanitizer to see where",
    ),
    (
        ("cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE"),
        "there is no GPU that CUDA can see: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    (
        ("cudaErrorDevicesUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        "the GPU is in use by another process in exclusive mode: wait, or change the compute mode",
    ),
    (
        ("cudaErrorNoKernelImageForDevice", "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorInvalidKernelImage"),
        f"this build of CuPy does not serve the GPU: {INSTALL}; CUDA 13 serves compute capability 7.5 and newer",
    ),
    (
        ("cudaErrorUnsupportedPtxVersion", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        "NVRTC is newer than the driver: update the driver, or install the CuPy of its CUDA version",
    ),
)
_NVRTC: Final = ("NVRTC_ERROR", "CompileException", "DynamicLibNotFoundError", "nvrtc")

_logger = logging.getLogger(__name__)


def insufficient_driver(driver: int, runtime: int) -> BackendError:
    """Return the error to raise where the driver is too old for this build of CuPy, or there is none.

    Parameters
    ----------
    driver, runtime
        Newest CUDA version that the driver supports and the one that CuPy was built for, as ``1000 * major + 10 *
        minor``; 0 if there is no driver.

    >>> print(insufficient_driver(12040, 13000))
    the driver supports CUDA 12.4, CuPy needs 13.0: pip install 'simsched[cuda12]' instead, or update the driver
    """
    if not driver:
        return BackendError("there is no NVIDIA driver here: install it, or use another backend, such as 'synthetic'")
    have, need = version_text(driver), version_text(runtime)
    remedy = f"pip install 'simsched[cuda{driver // 1000}]' instead, or " if driver // 1000 >= 12 else ""
    return BackendError(f"the driver supports CUDA {have}, CuPy needs {need}: {remedy}update the driver")


def version_text(version: int) -> str:
    """Return a CUDA version as it is written, such as ``"12.4"`` for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def translate_error(error: Exception) -> BackendError:
    """Return an error of CuPy, the CUDA runtime or the driver as one of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    name = text.partition(":")[0]
    for names, remedy in _REMEDIES:
        if name in names:
            return BackendError(f"{remedy} ({text})")
    if _CAPTURE in name or "STREAM_CAPTURE" in name:
        return BackendError(f"the capture of a graph was invalidated ({text}); run the schedule as 'events'")
    if any(mark in f"{type(error).__name__} {text}" for mark in _NVRTC):
        return BackendError(
            "the kernels cannot be compiled: NVRTC must be installed and know the GPU "
            f"(pip install 'cupy-cuda12x[ctk]' brings it; CUDA 13 knows compute capability 7.5 and newer): {text}"
        )
    return BackendError(f"CUDA refused a call: {text}")


@contextmanager
def cuda_errors(doing: str = "") -> Iterator[None]:
    """Raise errors of CUDA as `BackendError`; `doing` says during what."""
    try:
        yield
    except SimschedError:
        raise
    except MemoryError as error:
        raise BackendError(f"{doing}: out of memory of the host" if doing else "out of memory of the host") from error
    except (RuntimeError, ImportError, OSError) as error:
        found = translate_error(error)
        raise (BackendError(f"{doing}: {found}") if doing else found) from error


def quietly(release: Callable[..., object], *arguments: object) -> None:
    """Free something, whatever state the device is in: after a kernel has failed every call does."""
    try:
        release(*arguments)
    except RuntimeError as error:
        _logger.debug("%s%r: %s", getattr(release, "__name__", "release"), arguments, error)
