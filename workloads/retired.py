"""Former options of workloads and readers of files: the refusal of each names its replacement."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, TypeVar

from simsched.base.errors import GraphError

RETIRED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "device": "launch shapes follow the device that is simulated; name it with --gpu, or give a Cluster of it",
    }
)
"""Former option -> its replacement."""

F = TypeVar("F", bound=Callable[..., Any])


def refuse_retired(subject: str, options: Iterable[str]) -> None:
    """Raise a `GraphError` if one of the options was one once.

    >>> refuse_retired("inception_v3", ["batch", "dtype"])
    """
    name = next((option for option in options if option in RETIRED), None)
    if name is not None:
        raise GraphError(f"{subject}: there is no option {name!r} any more: {RETIRED[name]}")


def refusing_retired(function: F) -> F:
    """Let a function refuse former keywords with the name of their replacement."""

    @wraps(function)
    def refusing(*args: Any, **options: Any) -> Any:
        if function.__name__ == "__init__":
            subject = type(args[0]).__name__
        else:
            subject = function.__name__
        refuse_retired(subject, options)
        return function(*args, **options)

    return refusing  # type: ignore[return-value]
