"""Which backends there are, and whether they can be used here."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from simsched.base.errors import BackendError, SimschedError, UnknownNameError
from simsched.model.backend import Backend

BACKENDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "cupy": ("hwbackend.cuda.backend:CupyBackend", "NVIDIA GPUs, with synthetic kernels through CuPy"),
        "torch": ("hwbackend.torch.backend:TorchBackend", "real cuDNN and cuBLAS operators through PyTorch"),
        "synthetic": ("hwbackend.synthetic.backend:SyntheticBackend", "a surrogate GPU, block by block, for tests"),
        "recorded": ("hwbackend.recorded.backend:RecordedBackend", "answers from files of earlier measurements"),
    }
)
"""By name: ``module:factory``, and what it runs on. Factories take keyword options of their own."""

_METHODS: Final = ("realise", "microbenchmarks", "profile", "replay")


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can be used here.

    Parameters
    ----------
    name, description
        Its name, and the devices that it runs on.
    usable
        Whether it can run something now.
    reason
        The devices, or the reason why it cannot be used and the package to install.
    """

    name: str
    description: str
    usable: bool
    reason: str


def get(name: str, **options: Any) -> Backend:
    """Return a backend by name, or one of the user's as ``package.module:factory``.

    Parameters
    ----------
    name
        A key of `BACKENDS`, or where a callable of no positional arguments is that returns a backend.
    options
        Given to the factory.

    Raises
    ------
    UnknownNameError
        If there is no such backend.
    BackendError
        If it cannot be used here, an option is not known to it, or what the factory returns is no backend.
    MissingDependencyError
        If a package is not installed; the message says how to install it.
    """
    if name not in BACKENDS and ":" not in name:
        raise UnknownNameError("backend", name, list(BACKENDS), "; or package.module:factory")
    module, _, attribute = BACKENDS[name][0].partition(":") if name in BACKENDS else name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except SimschedError:
        raise
    except Exception as error:  # a broken library may raise any error
        raise BackendError(f"backend {name!r} cannot be imported: {_text(error)}") from error
    _require_known(name, factory, options)
    try:
        backend = factory(**options)
    except SimschedError:
        raise
    except Exception as error:  # of a user's own, anything
        raise BackendError(f"backend {name!r} cannot be made: {_text(error)}") from error
    missing = [method for method in _METHODS if not callable(getattr(backend, method, None))]
    missing += [attribute for attribute in ("name", "cluster") if not hasattr(backend, attribute)]
    if missing:
        raise BackendError(f"backend {name!r} is not one: it has no {', '.join(missing)}")
    return cast(Backend, backend)


def _require_known(name: str, factory: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that a factory does not take, if it says which it does."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for option in options:
        if option not in known:
            raise BackendError(
                f"backend {name!r}: unknown option {option!r}; known are: {', '.join(known) or 'none at all'}"
            )


def available() -> tuple[Availability, ...]:
    """Return for each backend whether it can be used here, or why not and what to install.

    A backend's module may have a function ``availability() -> tuple[bool, str]``; it makes no device busy.
    """
    found = []
    for name, (where, description) in BACKENDS.items():
        try:
            usable, reason = importlib.import_module(where.partition(":")[0]).availability()
        except Exception as error:  # a broken library may raise any error
            usable, reason = False, _text(error)
        found.append(Availability(name, description, usable, reason))
    return tuple(found)


def _text(error: Exception) -> str:
    """Return an error as one line, with its class where the text does not tell it."""
    said = " ".join(str(error).split())
    if said and isinstance(error, SimschedError | ImportError | AttributeError | TypeError | ValueError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
