"""Native functions: their mark, their types, and the files that have their sources.

`native` marks a function that is compiled, and refuses one whose hints are not types of native code. The compiler reads
the source in a `SourceFile`; machine code depends on all files whose native functions a file names, and on nothing
else.
"""

import ast
import linecache
from collections.abc import Mapping
from hashlib import sha256
from types import FunctionType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from simsched.base.errors import SimschedError
from simsched.base.jit.tables import ColumnKind, Row, Table, kind_of

F = TypeVar("F")

_HINTS: Final = "int, float, bool, a row, table or column"
_VARIADIC: Final = 0x04 | 0x08  # flags of code with *args or **kwargs
_SUSPENDED: Final = 0x20 | 0x80 | 0x200  # flags of generators and coroutines


class CompileError(SimschedError, TypeError):
    """A native function is not in the subset that is compiled."""


class Signature(NamedTuple):
    """Types of a native function, as `kind_of` returns them: of each parameter, and of the result."""

    parameters: dict[str, Any]
    result: Any


# By identity: a wrapper that has copied the attributes of a native function is not native.
_signatures: "WeakKeyDictionary[FunctionType, Signature]" = WeakKeyDictionary()


def native(function: F) -> F:
    """Mark a function as native: pieces that call it compile it. Python may call it, too.

    Raises
    ------
    CompileError
        If the hint of a parameter or of the result is missing, or is not a type of native code; the message names file,
        line and hint.

    Examples
    --------
    >>> @native
    ... def half(number: float) -> float:
    ...     return number / 2.0
    >>> half(3.0)
    1.5
    """
    if not isinstance(function, FunctionType):
        raise CompileError(f"@native marks a function, not {function!r}; put other decorators above it")
    _signatures[function] = _read_signature(function)
    return function


def _read_signature(function: FunctionType) -> Signature:
    """Return the types of a function by its hints."""
    code = function.__code__
    if code.co_flags & (_VARIADIC | _SUSPENDED) or code.co_kwonlyargcount:
        refuse_function(
            function, f"{function.__name__} is native, and has to take and return single values by position"
        )
    names = code.co_varnames[: code.co_argcount]
    kinds = {name: _kind(function, name) for name in (*names, "return")}
    return Signature({name: kinds[name] for name in names}, kinds["return"])


def _kind(function: FunctionType, name: str) -> Any:
    """Return the type of a parameter, or of the result, by its hint."""
    hints = function.__annotations__
    kind = kind_of(hints[name]) if name in hints else None
    if kind is None or (kind == "void" and name != "return"):
        subject = "the result" if name == "return" else f"parameter {name!r}"
        hint = f", not {_show_hint(hints[name])}" if name in hints else ""
        remedy = f"{_HINTS}, or None" if name == "return" else _HINTS
        refuse_function(function, f"{subject} of {function.__name__} needs a type: {remedy}{hint}")
    return kind


def _show_hint(hint: Any) -> str:
    if isinstance(hint, str):
        return f"the text {hint!r}"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def refuse_function(function: FunctionType, why: str) -> NoReturn:
    """Raise a `CompileError` that names the file and the line of a function.

    The line of a function with a decorator is the decorator's.
    """
    code = function.__code__
    raise CompileError(f"{code.co_filename}:{code.co_firstlineno}: {why}")


def is_native(value: object) -> bool:
    """Return whether something is a function that is marked as native."""
    return isinstance(value, FunctionType) and value in _signatures


def signature_of(function: FunctionType) -> Signature:
    """Return the types of a native function."""
    return _signatures[function]


def wrapped(number: int) -> int:
    """Return a whole number as 64 bits hold it; machine code, where it always is, does nothing here.

    >>> wrapped(1 << 63), wrapped(2**64 + 1)
    (-9223372036854775808, 1)
    """
    return (number + 2**63) % 2**64 - 2**63


class SourceFile:
    """A source file with native functions, parsed when it is first needed.

    Parameters
    ----------
    function
        Any function of the file.
    """

    def __init__(self, function: FunctionType) -> None:
        self.file = function.__code__.co_filename
        self.names = function.__globals__
        self.source = "".join(linecache.getlines(self.file, self.names))
        self._definitions: dict[str, ast.FunctionDef] = {}

    def definition(self, name: str) -> ast.FunctionDef:
        """Return the definition of a function."""
        if not self._definitions:
            nodes = ast.parse(self.source).body
            self._definitions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        if name not in self._definitions:
            raise CompileError(
                f"{self.file}: no source of {name!r} at the top level of the file; a native function needs it"
            )
        return self._definitions[name]


def units_of(entry: FunctionType) -> dict[str, SourceFile]:
    """Return the files of all native functions that the file of a function, or one it imports some from, names."""
    units: dict[str, SourceFile] = {}
    todo = [entry]
    while todo:
        function = todo.pop()
        if function.__code__.co_filename not in units:
            unit = units[function.__code__.co_filename] = SourceFile(function)
            todo += [value for value in unit.names.values() if is_native(value)]
    return units


def _layouts_in(table: type[Row | Table]) -> list[str]:
    """Return how the rows and the nested tables of a table lie in memory; its file may not name their classes."""
    layouts = []
    for _, kind in table.fields.values():
        inside = kind.element if isinstance(kind, ColumnKind) else kind
        if isinstance(inside, type) and issubclass(inside, Row | Table):
            layouts += [repr(inside.fields), *_layouts_in(inside)]
    return layouts


def digest_of(units: Mapping[str, SourceFile]) -> str:
    """Return a digest of the inputs of machine code: sources, the numbers they name, the tables they use."""
    text = sha256()
    for unit in sorted(units.values(), key=lambda unit: unit.names["__name__"]):
        numbers = {name: value for name, value in unit.names.items() if isinstance(value, int | float)}
        tables = [
            (name, repr(value.fields), *_layouts_in(value))
            for name, value in unit.names.items()
            if isinstance(value, type) and issubclass(value, Row | Table) and value not in (Row, Table)
        ]
        text.update(repr((unit.source, sorted(numbers.items()), tables)).encode())
    return text.hexdigest()


def symbol_of(function: FunctionType) -> str:
    """Return the name of a native function in object code."""
    return f"{function.__module__}.{function.__name__}"
