"""Tables: the memory that native functions work on, declared once, with names and types.

A `Row` is a record of named numbers, a `Table` numbers and columns. Columns hold numbers or rows. Machine code takes a
table as the address of its words; interpreted functions take the object. Both see the same memory.
"""

import ctypes
from collections.abc import Callable, Collection
from types import CodeType
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast, get_args, get_origin, overload

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Array = npt.NDArray[Any]

i1 = Annotated[int, "i1"]
"""A whole number of 8 bits, in rows and columns; likewise `i4` and `i8`, of 32 and 64."""
i4 = Annotated[int, "i4"]
i8 = Annotated[int, "i8"]
f8 = Annotated[float, "f8"]
"""A float of 64 bits."""

_KINDS: Final[dict[Any, str]] = {int: "i64", float: "double", bool: "i1", None: "void"}  # as LLVM names them
_DTYPES: Final = {code: np.dtype(code) for code in ("i1", "i4", "i8", "f8")}  # by code
_LINE: Final = 64  # bytes; columns that a table makes begin at multiples of it


class Column(Generic[T]):
    """Numbers side by side, as interpreted functions see them; machine code sees an address.

    Parameters
    ----------
    array
        The array of which it is a view. Numbers that do not fit raise, and so do negative places, which machine code
        does not detect.

    Examples
    --------
    >>> column = Column(np.array([3, 4, 5], np.int32))
    >>> column[1:][0]
    4
    """

    __slots__ = ("_view",)

    def __init__(self, array: Any) -> None:
        self._view: Any = memoryview(array)

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> "Column[T]": ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return type(self)(self._view[_start(i, len(self._view)) :])
        return self._view[i if i >= 0 else _outside(i)]

    def __setitem__(self, i: int, value: T) -> None:
        self._view[i if i >= 0 else _outside(i)] = value


class Rows(Generic[T]):
    """Rows side by side, as interpreted functions see them."""

    __slots__ = ("_of", "_views")

    def __init__(self, of: Callable[[Any, int], T], views: tuple[memoryview, ...]) -> None:
        self._of = of
        self._views = views

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> "Rows[T]": ...
    def __getitem__(self, i: int | slice) -> Any:
        n = len(self._views[0])
        if isinstance(i, slice):
            return Rows(self._of, tuple(view[_start(i, n) :] for view in self._views))
        if not 0 <= i < n:
            _outside(i)
        return self._of(self._views, i)


def _start(part: slice, n: int) -> int:
    if part.stop is not None or part.step is not None or not 0 <= part.start <= n:
        raise IndexError(f"columns have parts [start:] only, 0 <= start <= {n}, not {part}")
    return int(part.start)


def _outside(i: int) -> int:
    raise IndexError(f"place {i} is outside of the column")


class Row:
    """A record of named numbers; subclasses declare them, each `i1`, `i4`, `i8` or `f8`."""

    __slots__ = ("_i", "_views")
    dtype: ClassVar[np.dtype[Any]]
    """How it lies in memory."""
    fields: ClassVar[dict[str, tuple[int, Any]]]
    """Of each number: its offset in bytes, and its code."""

    def __init__(self, views: tuple[memoryview, ...], i: int) -> None:
        self._views = views
        self._i = i

    def __init_subclass__(cls) -> None:
        codes = {name: _code_of_field(cls, name, _DTYPES) for name in cls.__annotations__}
        cls.dtype = np.dtype(list(codes.items()), align=True)
        cls.fields = {name: (cls.dtype.fields[name][1], code) for name, code in codes.items()}  # type: ignore[index]
        for k, name in enumerate(codes):
            setattr(cls, name, _field(k))

    @classmethod
    def over(cls, array: Array) -> Rows[Any]:
        """Return the rows of an array of this dtype."""
        return Rows(cls, tuple(memoryview(cast(Any, array[name])) for name in cls.dtype.names or ()))


def _field(k: int) -> property:
    def write(row: Any, value: float) -> None:
        row._views[k][row._i] = value

    return property(lambda row: row._views[k][row._i], write)


def code_of(annotation: Any) -> str | None:
    """Return the code of a number of a table by its annotation: i1, i4, i8 or f8; None for another annotation."""
    for code in getattr(annotation, "__metadata__", ()):
        if isinstance(code, str) and code in _DTYPES:
            return code
    return None


def _code_of_field(cls: type, name: str, codes: Collection[str]) -> str:
    """Return the code of a number that a row or a table declares; refuse another annotation."""
    annotation = cls.__annotations__[name]
    code = code_of(annotation)
    if code is None or code not in codes:
        raise TypeError(f"{cls.__name__}: {name!r} is one of {', '.join(codes)}, not {annotation}")
    return code


class ColumnKind(NamedTuple):
    """The type of a column: the class of its rows, or the code of its numbers."""

    element: Any


def column_of(kind: Any) -> ColumnKind | None:
    """Return the kind of column of an annotation; None if it is not a column of numbers or rows of tables."""
    origin = get_origin(kind)
    if origin is Column:
        element: Any = code_of(get_args(kind)[0])
    elif origin is Rows:
        (element,) = get_args(kind)
        if not (isinstance(element, type) and issubclass(element, Row)):
            return None
    else:
        return None
    return ColumnKind(element) if element else None


def kind_of(annotation: Any) -> Any:
    """Return the type of native code for an annotation, None if it has none."""
    if annotation is None or isinstance(annotation, type):
        if annotation in _KINDS:
            return _KINDS[annotation]
        if annotation and issubclass(annotation, Row | Table) and annotation not in (Row, Table):
            return annotation
        return None
    return column_of(annotation)


def length(expression: str) -> Any:
    """Let a table make a column where none is given: of so many numbers or rows, computed from its own numbers."""
    return expression


class Table:
    """Numbers and columns that a piece of machine code works on.

    Subclasses declare numbers (`i8`, `f8`) and columns (`Column[i4]`, `Rows[Device]`). Where no column is given,
    one with a `length` is made, of zeros; another is missing: native functions see None.

    Parameters
    ----------
    values
        Numbers, 0 where not given, and columns by name: C-contiguous arrays of the declared type, which are used
        and not copied.

    Raises
    ------
    TypeError, ValueError
        If there is no such number or column, or a column is of another type, not contiguous or too short.

    Examples
    --------
    >>> class Sums(Table):
    ...     n: i8
    ...     total: f8
    ...     values: Column[f8] = length("n")
    >>> sums = Sums(n=3)
    >>> sums["values"][:] = 1.5
    >>> sums.values[2], sums["values"]
    (1.5, array([1.5, 1.5, 1.5]))
    """

    __slots__ = ("_arrays", "_memory", "_reals", "_seen", "_words", "address")
    fields: ClassVar[dict[str, tuple[int, Any]]]
    """Of each number and column: its offset in bytes, of a column that of its address; its code or `ColumnKind`."""
    _made: ClassVar[list[tuple[str, int]]]  # columns with a length, and the bytes of a row
    _lengths: ClassVar[CodeType]

    def __init_subclass__(cls) -> None:
        cls.fields = {}
        cls._made = []
        lengths = []
        for k, (name, annotation) in enumerate(cls.__annotations__.items()):
            column = column_of(annotation)
            cls.fields[name] = 8 * k, column or _code_of_field(cls, name, ("i8", "f8"))
            if column and name in cls.__dict__:
                cls._made.append((name, dtype_of(column.element).itemsize))
                lengths.append(cls.__dict__[name])
            setattr(cls, name, _column(name) if column else _number(k, cls.fields[name][1]))
        cls._lengths = compile(f"[{', '.join(lengths)}]", "<length>", "eval")

    def __init__(self, **values: Any) -> None:
        words = np.zeros(len(self.fields), np.int64)
        self.address = address(words)
        """Where its words lie."""
        self._words = words.data
        self._reals = words.view(np.float64).data
        self._arrays: dict[str, Array] = {}
        self._seen: dict[str, Any] = {}
        for name, value in values.items():
            if name not in self.fields:
                raise TypeError(f"{type(self).__name__} has no {name!r}")
            if isinstance(self.fields[name][1], str):
                setattr(self, name, value)
            else:
                self[name] = value
        self._make(values)

    def _make(self, values: dict[str, Any]) -> None:
        """Make the columns that are not given, side by side, and see that those given are long enough."""
        numbers = {name: self._words[self.fields[name][0] >> 3] for name in self._lengths.co_names if name != "max"}
        end = 0
        starts = []
        for (name, itemsize), n in zip(self._made, eval(self._lengths, {"max": max}, numbers), strict=True):
            if values.get(name) is None:
                starts.append((name, end, n))
                end += -(-n * itemsize // _LINE) * _LINE
            elif values[name].size < n:
                raise ValueError(f"{type(self).__name__}: {name} has {values[name].size} rows, and needs {n}")
        self._memory = np.zeros(end + _LINE, np.uint8)
        memory = address(self._memory)
        begin = -memory % _LINE
        for name, start, n in starts:
            self._words[self.fields[name][0] >> 3] = memory + begin + start
            self._seen[name] = begin + start, n

    def _dtype(self, name: str) -> np.dtype[Any]:
        return dtype_of(self.fields[name][1].element)

    def __getitem__(self, name: str) -> Array:
        """Return a column as an array."""
        found = self._arrays.get(name)
        if found is None:
            (start, n) = self._seen.pop(name)
            dtype = self._dtype(name)
            found = self._arrays[name] = self._memory[start : start + n * dtype.itemsize].view(dtype)
        return found

    def __setitem__(self, name: str, array: Array | None) -> None:
        """Use an array as a column; None: the column is missing."""
        self._seen.pop(name, None)
        self._arrays.pop(name, None)
        if array is not None:
            if array.dtype != self._dtype(name) or not array.flags.c_contiguous:
                raise TypeError(f"{type(self).__name__}: {name} is not contiguous {self._dtype(name)}: {array.dtype}")
            self._arrays[name] = array
        if array is None:
            self._words[self.fields[name][0] >> 3] = 0
        else:
            self._words[self.fields[name][0] >> 3] = address(array)

    def _view(self, name: str) -> Any:
        """Return a column as interpreted functions see it."""
        found = self._seen.get(name)
        if not isinstance(found, Column | Rows) and self._words[self.fields[name][0] >> 3]:
            array = self[name].reshape(-1)
            element = self.fields[name][1].element
            found = self._seen[name] = Column(array) if isinstance(element, str) else element.over(array)
        return found


def _column(name: str) -> property:
    return property(lambda table: table._view(name))


def _number(k: int, code: str) -> property:
    def write_word(table: Any, value: int) -> None:
        table._words[k] = value

    def write_real(table: Any, value: float) -> None:
        table._reals[k] = value

    if code == "i8":
        return property(lambda table: table._words[k], write_word)
    return property(lambda table: table._reals[k], write_real)


def dtype_of(element: Any) -> np.dtype[Any]:
    """Return how a row or number of a column lies in memory."""
    if isinstance(element, str):
        return _DTYPES[element]
    return cast("np.dtype[Any]", element.dtype)


def address(array: Array) -> int:
    """Return where an array lies; the caller keeps it."""
    if array.size and array.flags.writeable:  # three times as quick
        return ctypes.addressof(ctypes.c_char.from_buffer(cast(Any, array)))
    return int(array.ctypes.data)
