"""Functions by name that are imported when they are asked for."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Imported(Mapping[str, F]):
    """A dict of functions whose modules are imported when one is asked for.

    Parameters
    ----------
    places
        ``package.module:function`` of each name.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> F:
        module, _, function = self._places[name].partition(":")
        found: F = getattr(import_module(module), function)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
