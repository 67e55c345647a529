"""Pieces: native functions that Python calls, as machine code that is made when it is needed, and kept on disk.

The first call takes code that LLVM has not optimised, which is there in some tenths of a second; a piece that has run
for some tenths of a second is optimised in a thread meanwhile. Both are the same to the last bit.
"""

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from simsched.base.errors import MissingDependencyError, SimschedError
from simsched.base.io import write_file
from simsched.base.jit.functions import (
    SourceFile,
    digest_of,
    native,
    refuse_function,
    signature_of,
    symbol_of,
    units_of,
)
from simsched.base.jit.tables import Table
from simsched.base.streams import write_to_stderr
from simsched.base.system import MIB, require_memory

if TYPE_CHECKING:
    from simsched.base.jit.machine_code import Native

T = TypeVar("T", bound=Table)

SWITCH: Final = "SIMSCHED_JIT"
"""Environment variable: "0" runs native functions as Python, "O0" and "O3" only unoptimised or only optimised code."""
SHIPPED: Final = Path(__file__).parent / "objects"
"""Where a release has optimised code."""
MACHINES: Final = {"linux-x86_64": "x86_64-unknown-linux-gnu", "linux-aarch64": "aarch64-unknown-linux-gnu"}
"""Platform and machine in the name of such a file, and the LLVM triple that it is made for."""
_ROOM: Final = 24 * MIB  # bytes that LLVM may need to compile and to link a piece
_PATIENCE: Final = 0.3  # s that unoptimised code runs before it is optimised
_SILENCE: Final = 2.0  # s of compiling before a line says so
_lock = threading.RLock()
_seconds = 0.0  # spent in making and loading code that is needed at once
_since: float | None = None  # when that began which goes on now
_how = os.environ.get(SWITCH, "")


def piece(task: str) -> Callable[[Callable[[T], None]], "NativePiece[T]"]:
    """Make a piece of a function of one table, which is native thereby; `task` describes it in a line on stderr.

    Raises
    ------
    CompileError
        If the function takes anything but one table, or returns something; the message names file and line.
    """
    return lambda function: NativePiece(cast(FunctionType, native(function)), task)


def running_time() -> float:
    """Return the time in s of a clock that stands still while machine code is made and loaded."""
    since = _since
    return (perf_counter() if since is None else since) - _seconds


@contextmanager
def running(how: str) -> Iterator[None]:
    """Run all pieces in one way, "0", "O0" or "O3"; in all threads, so for tests."""
    global _how
    before = _how
    _how = how
    try:
        yield
    finally:
        _how = before


class NativePiece(Generic[T]):
    """A native function as Python calls it, with a table; it lets other threads run.

    Parameters
    ----------
    function
        A native function of one table that returns nothing.
    task
        Its description.
    """

    def __init__(self, function: FunctionType, task: str) -> None:
        parameters, result = signature_of(function)
        kinds = list(parameters.values())
        if result != "void" or len(kinds) != 1 or not (isinstance(kinds[0], type) and issubclass(kinds[0], Table)):
            refuse_function(function, f"{function.__name__} is a piece, and has to take one table and return None")
        self.function = function
        self.task = task
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self._natives: dict[str, Native] = {}
        self._spent = 0.0
        self._improving = False

    def __call__(self, table: T) -> None:
        """Run it."""
        if _how == "0":
            self.function(table)
        else:
            (self._natives.get(_how) or self._load(_how))(table.address)

    def _load(self, how: str) -> "Native":
        """Return code of a kind, which is made if need be; "": optimised where there is some, else timed."""
        with _lock:
            if how not in self._natives:
                if how not in ("", "O0", "O3"):
                    raise SimschedError(f"{SWITCH} is 0, O0 or O3, not {how!r}")
                with _count_time(self.task):
                    _require_compiler()
                    self._natives[how] = self._find(how or "O3") or (self._make(how) if how else self._run_unoptimised)
            return self._natives[how]

    def _run_unoptimised(self, address: int) -> None:
        """Run unoptimised code; when that has taken long enough, begin to optimise."""
        run = self._load("O0")
        begun = perf_counter()
        run(address)
        self._spent += perf_counter() - begun
        if self._spent > _PATIENCE and not self._improving:
            self._improving = True
            with suppress(RuntimeError):  # no thread is to be had: the code stays as it is
                threading.Thread(target=self._improve, name=f"optimise the {self.task}").start()

    def _improve(self) -> None:
        with suppress(_EndingError):
            self._natives[""] = self._make("O3")

    # --- making code

    @property
    def symbol(self) -> str:
        """The name of its function in object code."""
        return symbol_of(self.function)

    @cached_property
    def _units(self) -> dict[str, SourceFile]:
        return units_of(self.function)

    @cached_property
    def key(self) -> str:
        """A digest of the sources, the tables and the compiler."""
        text = digest_of(self._units) + Path(__file__).with_name("compiler.py").read_text(encoding="utf-8")
        return sha256(text.encode()).hexdigest()[:24]

    def assembly(self) -> str:
        """Return the piece in LLVM assembly."""
        from simsched.base.jit.compiler import compile_piece

        return compile_piece(self.function, self._units)

    def shipped_name(self, machine: str) -> str:
        """Return the name of the file that a release has for a platform and machine."""
        return f"{self.symbol}-{self.key}-{machine}.o"

    def _files(self, how: str) -> list[Path]:
        """Return where code made on this machine may be, the first choice first."""
        from simsched.base.jit.machine_code import this_machine

        name = sha256(f"{self.key} {sys.version} {this_machine()}".encode()).hexdigest()[:24]
        return [folder / f"{self.symbol}-{name}.{how}.o" for folder in folders()]

    def _find(self, how: str) -> "Native | None":
        """Return code from disk, None if there is none that is whole."""
        from simsched.base.jit.machine_code import link

        here = f"{sys.platform}-{platform.machine().lower()}"
        if how == "O3":
            shipped = [SHIPPED / self.shipped_name(here)]
        else:
            shipped = []
        for path in (*shipped, *self._files(how)):
            with suppress(OSError, ValueError):
                return link(self.symbol, read_code(path))
        return None

    def _make(self, how: str) -> "Native":
        """Return code that is made now, and written to disk where that is possible."""
        from simsched.base.jit import machine_code

        data = machine_code.to_object(self.assembly(), how, go_on=_go_on)
        for path in self._files(how):
            with suppress(OSError):
                write_code(path, data)
                break
        return machine_code.link(self.symbol, data)


class _EndingError(Exception):
    """The program is over: nobody needs the code any more."""


def _go_on() -> None:
    """Stop a thread that makes code for a program that has ended."""
    if not threading.main_thread().is_alive():
        raise _EndingError


def _require_compiler() -> None:
    """Import LLVM, which ends the process where its memory does not suffice.

    Raises
    ------
    MissingDependencyError
        If it cannot be loaded, as where there is too little memory for it.
    MemoryError
        If there is too little to run it.
    """
    try:
        from simsched.base.jit import machine_code  # noqa: F401
    except (OSError, ImportError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]
        raise MissingDependencyError(
            f"the compiler cannot be loaded ({why}): is there too little memory (ulimit -v), or is llvmlite damaged? "
            f"{SWITCH}=0 does without, and is slow"
        ) from error
    require_memory(_ROOM)


@contextmanager
def _count_time(task: str) -> Iterator[None]:
    """Stop the clock of `running_time`; report the task if it takes long."""
    global _seconds, _since
    _since = begun = perf_counter()
    line = f"simsched: compiling the {task}, once for this machine ..."
    timer = threading.Timer(_SILENCE, write_to_stderr, [line])
    timer.daemon = True
    with suppress(RuntimeError):  # no thread is to be had: nobody is told
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seconds += perf_counter() - begun
        _since = None


# Machine code on disk: each file begins with a digest of its rest, so that a damaged one counts as none --------


def folders() -> list[Path]:
    """Return where code may be kept, the first choice first."""
    chosen = os.environ.get("SIMSCHED_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    found = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        found.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simsched")
    return found


def read_code(path: Path) -> bytes:
    """Return the code in a file; raise ValueError if it is damaged."""
    content = path.read_bytes()
    if sha256(content[32:]).digest() != content[:32]:
        raise ValueError(f"{path} is not what was written")
    return content[32:]


def write_code(path: Path, data: bytes) -> None:
    """Write code whole or not at all; whoever is first, the content is the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, sha256(data).digest() + data)


def all_pieces(root: Path) -> Iterator[NativePiece[Any]]:
    """Yield all pieces of the packages in a folder; their modules are imported."""
    for package in ("simsched", "hwbackend"):
        for path in sorted((root / package).rglob("*.py")):
            if "\n@piece(" in path.read_text(encoding="utf-8"):
                module = import_module(".".join(path.relative_to(root).with_suffix("").parts))
                pieces = (each for each in vars(module).values() if isinstance(each, NativePiece))
                yield from (each for each in pieces if each.__module__ == module.__name__)


def ship(folder: Path, root: Path) -> Iterator[Path]:
    """Write the optimised code of all pieces for all `MACHINES`, for a wheel that compiles nothing; yield the files."""
    from simsched.base.jit.machine_code import to_object

    for each in all_pieces(root):
        assembly = each.assembly()
        for machine, triple in MACHINES.items():
            path = folder / each.shipped_name(machine)
            write_code(path, to_object(assembly, "O3", triple))
            yield path
