"""The data that collectives of a torch.profiler trace exchange, as PyTorch writes them into events."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError
from simsched.model import Collective
from simsched.model.graph.collective import MOST_RANKS

NAME: Final = "Collective name"
RANKS: Final = "Process Group Ranks"
IN: Final = "In msg nelems"
OUT: Final = "Out msg nelems"
DTYPE: Final = "dtype"
SIZE: Final = "Group size"

Arguments = tuple[Any, ...]
"""The arguments of a collective in the order of `ARGUMENTS`; None where an event lacks one."""
ARGUMENTS: Final = (NAME, IN, OUT, DTYPE, SIZE, RANKS)
NOTHING: Final[Arguments] = (None,) * len(ARGUMENTS)
NOT_STATED: Final = "the trace does not say what is exchanged"

_OPERATIONS: Final[Mapping[str, re.Pattern[str]]] = {
    operation: re.compile(pattern)
    for operation, pattern in (
        ("all_reduce", "allreduce(coalesced)?"),
        ("all_gather", "allgather(base|intotensor|single)?(coalesced)?"),
        ("reduce_scatter", "reducescatter(base|tensor|single)?(coalesced)?"),
        ("all_to_all", "alltoall(base|v)?(single)?"),
        ("send_recv", "i?send|i?recv|sendrecv"),
    )
}
"""Operation -> names under which libraries record it, in lower case and without punctuation."""
_BYTES: Final[Mapping[str, int]] = {
    dtype: nbytes
    for nbytes, dtypes in (
        (1, "byte char bool uint8 int8 qint8 quint8 bits8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"),
        (1, "float8_e8m0fnu float4_e2m1fn_x2 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2"),
        (2, "half bfloat16 float16 short int16 uint16 bits16"),
        (4, "float float32 int int32 uint32 qint32 complexhalf complex32"),
        (8, "double float64 long int64 uint64 complexfloat complex64"),
        (16, "complexdouble complex128"),
    )
    for dtype in dtypes.split()
}
"""Number format, as PyTorch calls it in C++ or in Python, in lower case -> bytes of an element."""
_MOST_ELEMENTS: Final = 2**63


class Members(NamedTuple):
    """The lowest and the highest rank of a communicator; 0 and the last one where the trace names none."""

    lowest: int
    highest: int


class ExchangeData(NamedTuple):
    """The data that a collective exchanges.

    Parameters
    ----------
    collective
        Operation, bytes and ranks; None if they are not known.
    unknown
        Why they are not; "" if they are.
    members
        The ranks of its communicator; None if these are not known.
    """

    collective: Collective | None
    unknown: str = ""
    members: Members | None = None


class _UnknownError(Exception):
    """The arguments do not say what is exchanged; the message is why."""


def arguments_of(args: Mapping[str, Any]) -> Arguments:
    """Return the arguments of an event by which its collective is known; values of other types become texts."""
    values = map(args.get, ARGUMENTS)
    return tuple(v if v is None or type(v) in (int, float, str, Decimal) else str(v) for v in values)


def complete(own: Arguments, other: Arguments) -> Arguments:
    """Return the arguments of a kernel, those that it lacks by the event that called for it."""
    return tuple(b if a is None else a for a, b in zip(own, other, strict=True))


def exchange_of(arguments: Arguments) -> ExchangeData:
    """Return the exchange that arguments describe.

    Notes
    -----
    Bytes are as in `Collective`: the buffer of an all-reduce; the output of an all-gather; the input of a
    reduce-scatter; the input of an all-to-all; the message of a send or receive. Numbers of elements that contradict
    each other (an all-gather's output is the input of all ranks), and a number of ranks that contradicts their list,
    leave the exchange unknown. A send or receive has two ranks, however many its communicator has.

    >>> exchange_of(("_allgather_base", 1024, 8192, "BFloat16", 8, "[0, 1, 2, 3, 4, 5, 6, 7]")).collective
    Collective(operation='all_gather', bytes=16384, ranks=8, group=None, algorithm=None)
    >>> exchange_of(("broadcast", 1024, 1024, "Float", 8, None)).unknown
    'broadcast has no model'
    """
    name, n_in, n_out, dtype, size, listed = arguments
    if arguments == NOTHING:
        return ExchangeData(None, NOT_STATED)
    members = None
    try:
        operation = _operation(name)
        ranks, members = _ranks(size, listed)
        n_elements = _elements(operation, _count(n_in, IN), _count(n_out, OUT), ranks)
        if operation == "send_recv":
            ranks = 2
        return ExchangeData(Collective(operation, n_elements * _bytes_of(dtype), ranks), members=members)
    except _UnknownError as why:
        return ExchangeData(None, str(why), members)
    except GraphError as error:
        return ExchangeData(None, str(error), members)


def _operation(name: Any) -> str:
    if name is None:
        raise _UnknownError(f"{NAME!r} is missing")
    last = str(name).rpartition(":")[2]
    plain = re.sub(r"[^a-z0-9]", "", last.lower())
    for operation, pattern in _OPERATIONS.items():
        if pattern.fullmatch(plain):
            return operation
    raise _UnknownError(f"{last[:40] or 'a collective without a name'} has no model")


def _count(value: Any, argument: str) -> int | None:
    """Return a number of elements or ranks; a text counts if it is one; None if there is none."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        number: Any = int(value)
    elif isinstance(value, str):
        number = -1
    else:
        number = value
    if not 0 <= number < _MOST_ELEMENTS or number != int(number):
        raise _UnknownError(f"{argument!r} is {str(value)[:40]!r}, not a number")
    return int(number)


def _ranks(size: Any, listed: Any) -> tuple[int, Members]:
    """Return the number of ranks, and the lowest and the highest one; a list may leave out its middle or its end."""
    numbers = sorted({int(text) for text in re.findall(r"[0-9]{1,9}", str(listed or ""))})
    is_whole = "..." not in str(listed)
    n = _count(size, SIZE)
    if n is None and numbers and is_whole:
        n = len(numbers)
    if n is None:
        raise _UnknownError(f"{SIZE!r} is missing")
    if not 2 <= n <= MOST_RANKS:
        raise _UnknownError(f"{SIZE!r} is {n}")
    if numbers and (len(numbers) > n or (is_whole and len(numbers) < n)):
        raise _UnknownError(f"{SIZE!r} is {n}, but {RANKS!r} has {len(numbers)}")
    if not numbers:
        return n, Members(0, n - 1)
    return n, Members(numbers[0], max(numbers[-1], numbers[0] + n - 1))


def _elements(operation: str, n_in: int | None, n_out: int | None, ranks: int) -> int:
    """Return the number of elements that an operation exchanges by its input and its output."""
    if operation == "all_gather":
        n_elements = _one_of(n_out, n_in and n_in * ranks)
        agrees = None in (n_in, n_out) or n_out == (n_in or 0) * ranks
    elif operation == "reduce_scatter":
        n_elements = _one_of(n_in, n_out and n_out * ranks)
        agrees = None in (n_in, n_out) or n_in == (n_out or 0) * ranks
    elif operation == "all_to_all":  # a rank may receive another number than it sends
        n_elements = _one_of(n_in, None)
        agrees = True
    elif operation == "send_recv":  # the side without a buffer may count none
        n_elements = _one_of(n_in or n_out, n_out)
        agrees = not n_in or not n_out or n_in == n_out
    else:
        n_elements = _one_of(n_in, n_out)
        agrees = None in (n_in, n_out) or n_in == n_out
    if not agrees:
        raise _UnknownError(f"{IN!r} is {n_in} and {OUT!r} {n_out} for {operation} of {ranks} ranks")
    if n_elements == 0:
        raise _UnknownError(f"{operation} of no elements")
    return n_elements


def _one_of(number: int | None, derived: int | None) -> int:
    """Return a number of elements as the trace states it, else as it follows from another one."""
    if number is not None:
        return number
    if derived is None:
        raise _UnknownError(f"{IN!r} is missing")
    return derived


def _bytes_of(dtype: Any) -> int:
    if dtype is None:
        raise _UnknownError(f"{DTYPE!r} is missing")
    name = str(dtype).lower().removeprefix("torch.").rpartition(":")[2]
    if name not in _BYTES:
        raise _UnknownError(f"{DTYPE!r} is {str(dtype)[:40]!r}, whose size is not known")
    return _BYTES[name]


def common_exchange(exchanges: Sequence[ExchangeData]) -> ExchangeData:
    """Return the exchange of a collective by the statements of its ranks.

    Ranks that do not say hold with the others. Of an all-to-all the rank that sends most counts. Others that disagree
    leave the exchange unknown.
    """
    known = [one for one in exchanges if one.collective is not None]
    if not known:
        return exchanges[0]
    most = max(known, key=lambda one: one.collective.bytes if one.collective else 0.0)
    kinds = {(c.operation, c.ranks, 0.0 if c.operation == "all_to_all" else c.bytes) for c, _, _ in known if c}
    if len(kinds) > 1:
        return ExchangeData(None, "its ranks disagree on what is exchanged", most.members)
    return most
