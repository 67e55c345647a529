"""Tables: the memory that native functions work on, declared once, with names and types.

A `Row` is a record of named numbers, a `Table` numbers, columns and further tables. Columns hold numbers or rows.
Machine code takes a table as the address of its words; interpreted functions take the object. Both see the same memory.
The words of a nested table are among the words of the table that has it: native code adds an offset to the address.
"""

import ctypes
from collections.abc import Callable, Collection, Mapping
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
        for name in cls.__annotations__:
            if hasattr(Row, name) or name in Row.__annotations__:
                raise TypeError(f"{cls.__name__}: {name!r} is a name that all rows have; take another")
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
    """Let a table make a column where none is given: the number of its rows, computed from the table's numbers."""
    return expression


class Table:
    """Numbers, columns and nested tables that a piece of machine code works on.

    Subclasses declare numbers (`i8`, `f8`), columns (`Column[i4]`, `Rows[Device]`) and tables, by their classes. Where
    no column is given, one with a `length` is made, of zeros; another is missing: native functions see None.

    Parameters
    ----------
    values
        Numbers, 0 where not given; columns: C-contiguous arrays of the declared type, which are used and not copied;
        and of nested tables mappings of their values.

    Raises
    ------
    TypeError, ValueError
        If there is no such number, column or table, or a column is of another type, not contiguous or too short.

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
    >>> class Exam(Table):
    ...     weight: f8
    ...     sums: Sums
    >>> exam = Exam(weight=0.5, sums={"n": 2})
    >>> exam.sums.total = 7.0
    >>> exam.weight * exam.sums.total, len(exam.sums["values"])
    (3.5, 2)
    """

    __slots__ = ("_arrays", "_memory", "_nested", "_reals", "_seen", "_words", "address")
    fields: ClassVar[dict[str, tuple[int, Any]]]
    """Offset in bytes and kind of each field: a number and its code, the address of a column and its `ColumnKind`, or
    the words of a nested table and its class."""
    _size: ClassVar[int]  # number of words of 64 bits, with the words of nested tables
    _made: ClassVar[list[tuple[str, int]]]  # columns with a length, and the bytes of a row
    _lengths: ClassVar[CodeType]
    _tables: ClassVar[list[tuple[str, int, type["Table"]]]]  # nested tables: name, first word, class

    def __init_subclass__(cls) -> None:
        cls.fields = {}
        cls._size = 0
        cls._made = []
        cls._tables = []
        lengths = []
        for name, annotation in cls.__annotations__.items():
            k = cls._size
            kind = kind_of(annotation)
            if hasattr(Table, name) or name in Table.__annotations__:
                raise TypeError(f"{cls.__name__}: {name!r} is a name that all tables have; take another")
            if isinstance(kind, type) and issubclass(kind, Table):
                cls._tables.append((name, k, kind))
                cls._size += kind._size
                setattr(cls, name, _table(name))
            elif isinstance(kind, ColumnKind):
                cls._size += 1
                if name in cls.__dict__:
                    cls._made.append((name, dtype_of(kind.element).itemsize))
                    lengths.append(cls.__dict__[name])
                setattr(cls, name, _column(name))
            else:
                cls._size += 1
                kind = _code_of_field(cls, name, ("i8", "f8"))
                setattr(cls, name, _number(k, kind))
            cls.fields[name] = 8 * k, kind
        cls._lengths = compile(f"[{', '.join(lengths)}]", "<length>", "eval")

    def __init__(self, **values: Any) -> None:
        words = np.zeros(self._size, np.int64)
        self._take(words.data, words.view(np.float64).data, address(words), values)
        self._make()

    def _take(self, words: memoryview, reals: memoryview, place: int, values: Mapping[str, Any]) -> None:
        """Use words at an address, and set the values that are given, with those of nested tables."""
        self.address = place
        """Where its words lie."""
        self._words = words
        self._reals = reals
        self._arrays: dict[str, Array] = {}
        self._seen: dict[str, Any] = {}
        self._nested: dict[str, Table] = {}
        self._memory: Array  # of the columns that the table makes
        for name, first, kind in self._tables:
            table = self._nested[name] = kind.__new__(kind)
            inside = values.get(name, {})
            if not isinstance(inside, Mapping):
                raise TypeError(
                    f"{type(self).__name__}: {name} is a table; give a mapping of its values, not {inside!r}"
                )
            end = first + kind._size
            table._take(words[first:end], reals[first:end], place + 8 * first, inside)
        for name, value in values.items():
            kind = self.fields.get(name, (0, None))[1]
            if isinstance(kind, str):
                setattr(self, name, value)
            elif isinstance(kind, ColumnKind):
                self[name] = value
            elif kind is None:
                raise TypeError(f"{type(self).__name__} has no {name!r}")

    def _make(self) -> None:
        """Make the columns that are not given, side by side, and see that those given are long enough."""
        tables = [self]
        for table in tables:  # which gets longer meanwhile
            tables += table._nested.values()
        end = 0
        starts = []
        for table in tables:
            for (name, itemsize), n in zip(table._made, table._count_rows(), strict=True):
                array = table._arrays.get(name)
                if array is None:
                    starts.append((table, name, end, n))
                    end += -(-n * itemsize // _LINE) * _LINE
                elif array.size < n:
                    raise ValueError(f"{type(table).__name__}: {name} has {array.size} rows, and needs {n}")
        memory = np.zeros(end + _LINE, np.uint8)
        place = address(memory)
        begin = -place % _LINE
        for table in tables:
            table._memory = memory
        for table, name, start, n in starts:
            table._words[table.fields[name][0] >> 3] = place + begin + start
            table._seen[name] = begin + start, n

    def _count_rows(self) -> list[int]:
        """Return the number of rows of each column with a length."""
        numbers = {name: self._words[self.fields[name][0] >> 3] for name in self._lengths.co_names if name != "max"}
        return cast("list[int]", eval(self._lengths, {"max": max}, numbers))

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


def _table(name: str) -> property:
    return property(lambda table: table._nested[name])


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
