"""Functions by name that are imported when they are asked for."""

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import unwrap
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
        self._places: dict[str, tuple[str, ...]] = {}
        self._found: dict[str, F] = {}
        self.add(places)

    def add(self, places: Mapping[str, str]) -> None:
        """Add names, each with its ``package.module:function``."""
        self._places |= {name: tuple(place.split(":")) for name, place in places.items()}

    def __getitem__(self, name: str) -> F:
        if name not in self._found:
            module, function = self._places[name]
            self._found[name] = self._as_given(getattr(import_module(module), function))
        return self._found[name]

    def _as_given(self, function: F) -> F:
        return function

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """Return the name of a function, which may be wrapped; None if it has none."""
        function = unwrap(function)
        for name, (module, known) in self._places.items():
            if module in sys.modules and unwrap(getattr(sys.modules[module], known)) is function:
                return name
        return None

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
