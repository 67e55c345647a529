"""`open_device`: the device of a contact by name."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from hwbackend import get
from hwbackend.contact.cuda import ContactGpu
from hwbackend.contact.device import FAKE, BackendDevice, ContactDevice
from hwbackend.contact.fake import FakeDevice
from simsched.base.errors import BackendError

_BY_CUDA: Final = ("cuda", "cupy")  # backends on whose GPU the contact launches kernels of its own


def open_device(name: str, options: Mapping[str, Any]) -> ContactDevice:
    """Return the device of a contact.

    Parameters
    ----------
    name
        ``"fake"``, or the name of a backend; see `hwbackend.get`.
    options
        Of the fake or the backend.

    Raises
    ------
    BackendError, UnknownNameError, MissingDependencyError
        If it cannot be used here.
    """
    if name == FAKE:
        try:
            return FakeDevice(**options)
        except TypeError as error:
            raise BackendError(f"the fake device: {error}") from error
    if name == "torch":
        options = {"spans": "events", **options}  # a profiler would slow all that is measured after it
    backend = get(name, **options)
    is_gpu = name in _BY_CUDA or (getattr(backend, "device", None) == "cuda" and find_spec("cupy") is not None)
    return ContactGpu(backend) if is_gpu else BackendDevice(backend)
