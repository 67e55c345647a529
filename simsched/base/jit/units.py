"""Kernels and where they stand: files, parsed once, and a digest of all that their machine code depends on."""

import ast
import linecache
from collections.abc import Mapping
from hashlib import sha256
from types import FunctionType

from simsched.base.errors import SimschedError
from simsched.base.jit.tables import Row, Table, kind_of


class CompileError(SimschedError, TypeError):
    """A kernel is not in the subset that is compiled."""


def wrapped(number: int) -> int:
    """Return a whole number as 64 bits hold it; machine code, where it always is, does nothing here.

    >>> wrapped(1 << 63), wrapped(2**64 + 1)
    (-9223372036854775808, 1)
    """
    return (number + 2**63) % 2**64 - 2**63


class Unit:
    """A source file with kernels, parsed when it is first needed.

    Parameters
    ----------
    function
        Any function of the file.
    """

    def __init__(self, function: FunctionType) -> None:
        self.file, self.names = function.__code__.co_filename, function.__globals__
        self.source = "".join(linecache.getlines(self.file, self.names))
        self._found: dict[str, ast.FunctionDef] = {}

    def definition(self, name: str) -> ast.FunctionDef:
        """Return the definition of a function."""
        if not self._found:
            nodes = ast.parse(self.source).body
            self._found = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        if name not in self._found:
            raise CompileError(f"{self.file}: no source of {name!r} at the top level of the file; a kernel needs it")
        return self._found[name]


def units_of(entry: FunctionType) -> dict[str, Unit]:
    """Return the files of all kernels that the file of a function, or one it imports kernels from, names."""
    found: dict[str, Unit] = {}
    todo = [entry]
    while todo:
        function = todo.pop()
        if function.__code__.co_filename not in found:
            unit = found[function.__code__.co_filename] = Unit(function)
            todo += [each for each in unit.names.values() if is_kernel(each)]
    return found


def digest_of(units: Mapping[str, Unit]) -> str:
    """Return a digest of what machine code depends on: sources, the numbers they name, the tables they use."""
    text = sha256()
    for unit in sorted(units.values(), key=lambda unit: unit.names["__name__"]):
        numbers = {name: value for name, value in unit.names.items() if isinstance(value, int | float)}
        tables = [
            (name, repr(value.fields))
            for name, value in unit.names.items()
            if isinstance(value, type) and issubclass(value, Row | Table) and value not in (Row, Table)
        ]
        text.update(repr((unit.source, sorted(numbers.items()), tables)).encode())
    return text.hexdigest()


def symbol_of(function: FunctionType) -> str:
    """Return the name of a kernel in object code."""
    return f"{function.__module__}.{function.__name__}"


def is_kernel(value: object) -> bool:
    """Return whether something is a function that kernels may call: all its types are theirs."""
    if not isinstance(value, FunctionType) or value is wrapped:
        return False
    n_types = value.__code__.co_argcount + value.__code__.co_kwonlyargcount + 1
    kinds = [kind_of(annotation) for annotation in value.__annotations__.values()]
    return len(kinds) == n_types and None not in kinds
