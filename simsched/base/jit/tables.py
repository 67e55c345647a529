"""Tables: the memory that native functions work on, declared once, with names and types.

A `Row` is a record of named numbers, a `Table` numbers, columns and further tables. Columns hold numbers or rows.
Machine code takes a table as the address of its words; interpreted functions take the object. Both see the same memory.
The words of a nested table are among the words of the table that has it: native code adds an offset to the address.
"""

import ctypes
import re
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
_OF_LENGTHS: Final = ("max", "if", "else")  # words of lengths that are not numbers of the table
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

    __slots__ = ("_arrays", "_first", "_nested", "_reals", "_seen", "_words", "address")
    fields: ClassVar[dict[str, tuple[int, Any]]]
    """Offset in bytes and kind of each field: a number and its code, the address of a column and its `ColumnKind`, or
    the words of a nested table and its class."""
    _size: ClassVar[int]  # number of words of 64 bits, with the words of nested tables
    _made: ClassVar[list["_MadeColumn"]]  # columns with a length, with the columns of nested tables
    _lengths: ClassVar[CodeType | None]  # of these columns, compiled when a table is first made

    def __init_subclass__(cls) -> None:
        cls.fields = {}
        cls._size = 0
        cls._made = []
        lengths = {}  # own columns that are made: their places
        for name, annotation in cls.__annotations__.items():
            word = cls._size
            kind = kind_of(annotation)
            if hasattr(Table, name) or name in Table.__annotations__:
                raise TypeError(f"{cls.__name__}: {name!r} is a name that all tables have; take another")
            if isinstance(kind, type) and issubclass(kind, Table):
                cls._size += kind._size
                for column in kind._made:
                    length = _shift_words(column.length, word)
                    cls._made.append(column._replace(word=word + column.word, length=length))
                setattr(cls, name, _table(word, kind))
            elif isinstance(kind, ColumnKind):
                cls._size += 1
                if name in cls.__dict__:
                    lengths[name] = len(cls._made)
                    cls._made.append(_MadeColumn(cls, name, word, dtype_of(kind.element).itemsize, cls.__dict__[name]))
                setattr(cls, name, _column(name))
            else:
                cls._size += 1
                kind = _code_of_field(cls, name, ("i8", "f8"))
                setattr(cls, name, _number(word, kind))
            cls.fields[name] = 8 * word, kind
        for name, i in lengths.items():
            cls._made[i] = cls._made[i]._replace(length=_length_by_words(cls, name, cls._made[i].length))
        cls._lengths = None

    def __init__(self, **values: Any) -> None:
        words = np.zeros(self._size, np.int64)
        self.address = address(words)
        """Where its words lie."""
        self._words = words.data
        self._reals = words.view(np.float64).data
        # Columns and nested tables by the number of their first word; a nested table shares these with its table.
        self._first = 0
        self._arrays: dict[int, Array] = {}
        self._seen: dict[int, Any] = {}
        self._nested: dict[int, Table] = {}
        self._take(type(self), 0, values)
        self._make()

    def update(self, **values: Any) -> None:
        """Set some values, given as for a new table; columns of nested tables, too."""
        self._take(type(self), 0, values)

    def _take(self, table: "type[Table]", first: int, values: Mapping[str, Any]) -> None:
        """Set the values that are given, of this table or of a nested one whose words begin at a number."""
        fields = table.fields
        for name, value in values.items():
            if name not in fields:
                raise TypeError(f"{table.__name__} has no {name!r}")
            offset, kind = fields[name]
            word = first + (offset >> 3)
            if type(kind) is str:
                numbers = self._words if kind == "i8" else self._reals
                numbers[word] = value
            elif type(kind) is ColumnKind:
                self._put(kind, word, value, table, name)
            elif isinstance(value, Mapping):
                self._take(kind, word, value)
            else:
                raise TypeError(f"{table.__name__}: {name} is a table; give a mapping of its values, not {value!r}")

    def _make(self) -> None:
        """Make the columns that are not given, side by side, and see that those given are long enough."""
        cls = type(self)
        if cls._lengths is None:
            cls._lengths = compile(f"[{', '.join(column.length for column in cls._made)}]", "<length>", "eval")
        lengths = eval(cls._lengths, {"max": max}, {"words": self._words})
        end = 0
        places = []
        for (table, name, word, itemsize, _), n in zip(cls._made, lengths, strict=True):
            array = self._arrays.get(word)
            if array is None:
                places.append((word, end, n))
                end += -(-n * itemsize // _LINE) * _LINE
            elif array.size < n:
                raise ValueError(f"{table.__name__}: {name} has {array.size} rows, and needs {n}")
        memory = np.zeros(end + _LINE, np.uint8)
        place = address(memory)
        begin = -place % _LINE
        for word, start, n in places:
            self._words[word] = place + begin + start
            self._seen[word] = memory, begin + start, n

    def _word(self, name: str) -> int:
        """Return the number of the first word of a field, in the words of the outermost table."""
        return self._first + (self.fields[name][0] >> 3)

    def __getitem__(self, name: str) -> Array:
        """Return a column as an array."""
        word = self._word(name)
        array = self._arrays.get(word)
        if array is None:
            memory, start, n = self._seen.pop(word)
            dtype = dtype_of(self.fields[name][1].element)
            array = self._arrays[word] = memory[start : start + n * dtype.itemsize].view(dtype)
        return array

    def __setitem__(self, name: str, array: Array | None) -> None:
        """Use an array as a column; None: the column is missing."""
        offset, kind = self.fields[name]
        self._put(kind, offset >> 3, array, type(self), name)

    def _put(self, kind: ColumnKind, word: int, array: Array | None, table: "type[Table]", name: str) -> None:
        """Use an array as a column, with a word for its address; the table and the name are for errors."""
        key = self._first + word
        if array is None:
            self._words[word] = 0
            self._arrays.pop(key, None)
        else:
            dtype = dtype_of(kind.element)
            if array.dtype != dtype or not array.flags.c_contiguous:
                raise TypeError(f"{table.__name__}: {name} is not contiguous {dtype}: {array.dtype}")
            self._words[word] = address(array)
            self._arrays[key] = array
        if self._seen:
            self._seen.pop(key, None)

    def _view(self, name: str) -> Any:
        """Return a column as interpreted functions see it."""
        word = self._word(name)
        view = self._seen.get(word)
        if not isinstance(view, Column | Rows) and self._words[word - self._first]:
            array = self[name].reshape(-1)
            element = self.fields[name][1].element
            view = self._seen[word] = Column(array) if isinstance(element, str) else element.over(array)
        return view

    def _part(self, word: int, kind: "type[Table]") -> Any:
        """Return a nested table, whose words begin at a number among the words of this one."""
        table = self._nested.get(self._first + word)
        if table is None:
            table = self._nested[self._first + word] = kind.__new__(kind)
            table.address = self.address + 8 * word
            table._words = self._words[word : word + kind._size]
            table._reals = self._reals[word : word + kind._size]
            table._first = self._first + word
            table._arrays = self._arrays
            table._seen = self._seen
            table._nested = self._nested
        return table


class _MadeColumn(NamedTuple):
    """A column that a table makes, of the table or of one nested in it."""

    table: type[Table]
    name: str
    word: int  # number of the word that has its address
    itemsize: int  # bytes of a number or a row
    length: str  # an expression of the words


def _length_by_words(table: type[Table], name: str, expression: str) -> str:
    """Return the length of a column as an expression of the words, given as one of the numbers of its table."""

    def place(match: re.Match[str]) -> str:
        word = match[0]
        if word in _OF_LENGTHS:
            return word
        offset, kind = table.fields.get(word, (0, None))
        if kind != "i8":
            raise TypeError(f"{table.__name__}: the length of {name} names {word!r}, which is no i8 of the table")
        return f"words[{offset >> 3}]"

    return re.sub(r"[^\W\d]\w*", place, expression)


def _shift_words(length: str, first: int) -> str:
    """Return a length for a table that is nested in another one, where its words begin at a number."""
    return re.sub(r"words\[(\d+)\]", lambda match: f"words[{int(match[1]) + first}]", length)


def _table(word: int, kind: type[Table]) -> property:
    return property(lambda table: table._part(word, kind))


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
