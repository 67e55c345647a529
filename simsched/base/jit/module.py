"""What the functions of one piece share: operands, symbols, and types as they are written."""

from collections.abc import Mapping
from types import FunctionType
from typing import Any, Final, NamedTuple

from simsched.base.jit.tables import BOOL, FLOAT, INT, NONE, ColumnKind
from simsched.base.jit.units import Unit

_NAMES: Final = {INT: "int", FLOAT: "float", BOOL: "bool", NONE: "None"}


class Value(NamedTuple):
    """An operand: its type, and its text in LLVM assembly."""

    kind: Any
    text: str


class Module:
    """What the functions of a piece share: their symbols, and who of their memory cannot be the same."""

    def __init__(self, units: Mapping[str, Unit]) -> None:
        self.units = units
        self.symbols: dict[FunctionType, str] = {}
        self.todo: list[FunctionType] = []
        self.metadata = {"": "!0 = !{}", "root": '!1 = !{!"memory"}'}

    def symbol(self, function: FunctionType) -> str:
        """Return the symbol of a kernel, which is compiled in due course."""
        if function not in self.symbols:
            self.symbols[function] = f"{function.__module__}.{function.__qualname__}"
            self.todo.append(function)
        return self.symbols[function]

    def tag(self, name: str) -> str:
        """Return the mark of a field, or of columns of a type: nothing else is the same memory."""
        if name not in self.metadata:
            k = len(self.metadata)
            self.metadata[name + " "] = f'!{k} = !{{!"{name}", !1, i64 0}}'
            self.metadata[name] = f"!{k + 1} = !{{!{k}, !{k}, i64 0}}"
        return f", !tbaa {self.metadata[name].partition(' ')[0]}"


def llvm(kind: Any) -> str:
    """Return a type in LLVM assembly."""
    if isinstance(kind, str):
        return kind
    return f"{{ {', '.join(map(llvm, kind))} }}" if type(kind) is tuple else "ptr"


def shown(kind: Any) -> str:
    """Return a type as a reader of the kernel knows it."""
    if isinstance(kind, ColumnKind):
        return f"a column of {kind.element if isinstance(kind.element, str) else kind.element.__name__}"
    if type(kind) is tuple:
        return f"({', '.join(map(shown, kind))})"
    return _NAMES[kind] if isinstance(kind, str) else f"a row or table {kind.__name__}"
