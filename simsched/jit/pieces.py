"""Pieces: kernels that Python calls, as machine code that is made when it is needed, and kept on disk.

The first call takes code that LLVM has not optimised, which is there in some tenths of a second; a piece that has run
for some tenths of a second is optimised in a thread meanwhile. Both are the same to the last bit.
"""

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, cast

from simsched.errors import SimschedError
from simsched.jit import store
from simsched.jit.tables import Table
from simsched.jit.units import Unit, digest_of, units_of
from simsched.signals import interrupt_later

T = TypeVar("T", bound=Table)
Native = Callable[[int], None]

SWITCH: Final = "SIMSCHED_JIT"
"""Environment variable: "0" runs kernels as Python, "O0" and "O3" only unoptimised or only optimised code."""
_PATIENCE: Final = 0.3  # s that unoptimised code runs before it is optimised
_SILENCE: Final = 2.0  # s of compiling before a line says so
_NATIVE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_lock = threading.RLock()
_seconds = 0.0  # spent in making and loading what is needed at once
_since: float | None = None  # when that began which goes on now
_kept: list[Any] = []  # the code lives as long as its engine
_how = os.environ.get(SWITCH, "")


def piece(task: str) -> Callable[[Callable[[T], None]], "Piece[T]"]:
    """Make a piece of a kernel that takes one table; `task` says what it does, in a line on stderr."""
    return lambda function: Piece(cast(FunctionType, function), task)


def running_time() -> float:
    """Return the time in s of a clock that stands still while machine code is made and loaded."""
    since = _since
    return (perf_counter() if since is None else since) - _seconds


@contextmanager
def running(how: str) -> Iterator[None]:
    """Run all pieces in one way, "0", "O0" or "O3"; in all threads, so for tests."""
    global _how
    before, _how = _how, how
    try:
        yield
    finally:
        _how = before


class Piece(Generic[T]):
    """A kernel as Python calls it, with a table; it lets other threads run.

    Parameters
    ----------
    function
        A kernel of one table that returns nothing.
    task
        What it does.
    """

    def __init__(self, function: FunctionType, task: str) -> None:
        self.function, self.task = function, task
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self._run: Native | None = None
        self._natives: dict[str, Native] = {}
        self._spent = 0.0
        self._improving = False

    def __call__(self, table: T) -> None:
        """Run it."""
        if _how:
            self._call_as(_how, table)
        else:
            (self._run or self._load())(table.address)

    def _call_as(self, how: str, table: T) -> None:
        if how == "0":
            self.function(table)
            return
        if how not in ("O0", "O3"):
            raise SimschedError(f"{SWITCH} is 0, O0 or O3, not {how!r}")
        if how not in self._natives:
            with _lock, _counted(self.task):
                self._natives[how] = self._native(how)
        self._natives[how](table.address)

    def _load(self) -> Native:
        """Return what is there: optimised code, or else unoptimised code, which is made if need be."""
        with _lock:
            if self._run is None:
                with _counted(self.task):
                    for path in self._paths("O3"):
                        with suppress(OSError, ValueError):
                            self._run = _link(self._symbol, store.read(path))
                            return self._run
                    self._natives["O0"] = self._native("O0")
                    self._run = self._timed
            return self._run

    def _timed(self, address: int) -> None:
        """Run unoptimised code; when that has taken long enough, begin to optimise."""
        begun = perf_counter()
        self._natives["O0"](address)
        self._spent += perf_counter() - begun
        if self._spent > _PATIENCE and not self._improving:
            self._improving = True
            threading.Thread(target=self._improve, name=f"optimise the {self.task}").start()

    def _improve(self) -> None:
        with suppress(_EndingError):
            self._run = self._native("O3")

    # --- making code

    @property
    def _symbol(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"

    def _units(self) -> dict[str, Unit]:
        return units_of(self.function)

    def key(self) -> str:
        """Return a digest of the sources, the tables and the compiler."""
        text = digest_of(self._units()) + (Path(__file__).with_name("compiler.py")).read_text()
        return sha256(text.encode()).hexdigest()[:24]

    def assembly(self) -> str:
        """Return the piece in LLVM assembly."""
        from simsched.jit.compiler import compile_piece

        return compile_piece(self.function, self._symbol, self._units())

    def _paths(self, how: str) -> list[Path]:
        """Return where the code may be: shipped with the package, or made on this machine."""
        key = self.key()
        shipped = [store.SHIPPED / f"{self._symbol}-{key}-{platform.machine().lower()}.o"] if how == "O3" else []
        import llvmlite
        import llvmlite.binding as llvm

        machine = (key, llvmlite.__version__, sys.version, llvm.get_process_triple(), llvm.get_host_cpu_name(),
                   llvm.get_host_cpu_features().flatten())  # fmt: skip
        name = f"{self._symbol}-{sha256(repr(machine).encode()).hexdigest()[:24]}.{how}.o"
        return shipped + [folder / name for folder in store.folders()]

    def _native(self, how: str) -> Native:
        """Return the code from disk, or made and written there."""
        paths = self._paths(how)
        for path in paths:
            with suppress(OSError, ValueError):
                return _link(self._symbol, store.read(path))
        data = to_object(self.assembly(), how)
        for path in paths:
            if path.parent != store.SHIPPED:
                with suppress(OSError):
                    store.write(path, data)
                    break
        return _link(self._symbol, data)


class _EndingError(Exception):
    """The program is over: nobody needs the code any more."""


def to_object(assembly: str, how: str, triple: str | None = None) -> bytes:
    """Return object code of some LLVM assembly.

    Parameters
    ----------
    how
        "O0" or "O3".
    triple
        Of the machine it is for, in its oldest form; None for this one as it is.
    """
    import llvmlite.binding as llvm

    _initialise()
    level = int(how[1])
    if triple is None:
        target = llvm.Target.from_default_triple()
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    else:
        target, cpu, features = llvm.Target.from_triple(triple), "", ""
    machine = target.create_target_machine(
        cpu,
        features,
        opt=level,
        jit=triple is None,
        reloc="pic" if triple else "default",
        codemodel="jitdefault" if triple is None else "small",
    )
    module = llvm.parse_assembly(assembly, llvm.create_context())
    module.triple, module.data_layout = triple or llvm.get_process_triple(), str(machine.target_data)
    _go_on()
    if level:
        tuning = llvm.create_pipeline_tuning_options(speed_level=level)
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        _go_on()
    return cast(bytes, machine.emit_object(module))


def _go_on() -> None:
    """Stop a thread that makes code for a program that has ended."""
    if not threading.main_thread().is_alive():
        raise _EndingError


def _initialise() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _link(symbol: str, data: bytes) -> Native:
    """Return the function of that name in some object code."""
    import llvmlite.binding as llvm

    with interrupt_later():
        _initialise()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True, codemodel="jitdefault")
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), machine)
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
        if not address:
            raise ValueError(f"the code has no function {symbol}")
        _kept.append(engine)
    return cast(Native, _NATIVE(address))


@contextmanager
def _counted(task: str) -> Iterator[None]:
    """Stop the clock of `running_time`; say what is going on if it goes on for long."""
    global _seconds, _since
    _since = begun = perf_counter()
    line = f"simsched: compiling the {task}, once for this machine ...\n"
    timer = threading.Timer(_SILENCE, sys.stderr.write, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seconds += perf_counter() - begun
        _since = None
