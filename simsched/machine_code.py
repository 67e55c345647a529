"""Machine code made once: compiled by numba, kept on disk, and loaded without numba ever after.

Importing numba and reading its own cache takes most of a second; handing the object code to LLVM
takes some hundredths. What is compiled so allocates nothing, raises nothing, and takes one
address of 64 bits, behind which it finds all it works on.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from inspect import signature
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any, Final, TypeVar, cast

from simsched.errors import SimschedError
from simsched.signals import interrupt_later

F = TypeVar("F", bound=Callable[..., Any])
Native = Callable[[int], None]

FOLDER: Final = "SIMSCHED_CACHE_DIR"
"""Environment variable: where machine code is kept."""
# Without reference counts; a wrapper for Python around every function would take longer to compile than the function.
_OPTIONS: Final[dict[str, Any]] = {
    "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
}  # fmt: skip
_SIGNATURE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_lock = Lock()
_loaded: dict[str, Native] = {}
_seconds = 0.0  # spent in `load`
_kept: list[Any] = []  # the code lives as long as its engine


def compiled(function: F, rows: Mapping[str, Any] | None = None) -> F:
    """Compile a function into those that call it.

    Parameters
    ----------
    function
        What to compile.
    rows
        Numba types of the parameters annotated with `Any`, by name. With them the function is compiled once, for the
        types its annotations say, and numbers are converted; else for the types of each call.
    """
    import numba

    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    if rows is not None:
        numbers = {int: numba.int64, float: numba.float64, bool: numba.boolean, None: numba.void}
        parameters, find = signature(function), dispatcher.get_call_template
        kinds = [rows[p.name] if p.annotation is Any else numbers[p.annotation] for p in parameters.parameters.values()]
        declared = numbers[parameters.return_annotation](*kinds)

        def get_call_template(arguments: Any, keywords: Any) -> Any:
            if not dispatcher.signatures:
                dispatcher.compile(declared)
                dispatcher.disable_compile()
            return find(arguments, keywords)

        dispatcher.get_call_template = get_call_template
    return cast(F, dispatcher)


def load(entry: str, sources: Sequence[Path], task: str) -> Native:
    """Return machine code that takes the address of what it works on and releases the interpreter's lock.

    Parameters
    ----------
    entry
        ``package.module:function``: a function of one integer that returns nothing; its module may
        import numba, and is imported only if there is no code for these sources yet.
    sources
        All files that are compiled in; a change of any of them makes new code.
    task
        What it does, for the line on stderr that says what is going on while it is compiled.

    Notes
    -----
    The code is kept beside the package, or in the user's cache folder if that cannot be written to
    (``SIMSCHED_CACHE_DIR`` overrides both), under the versions of the compilers and the processor;
    where nothing can be written it is compiled in every process.
    """
    global _seconds
    with _lock:
        if entry not in _loaded:
            begun = perf_counter()
            name, data = _code(entry, sources, task)
            with interrupt_later():
                _loaded[entry] = _link(name, data)
            _seconds += perf_counter() - begun
        return _loaded[entry]


def seconds_loading() -> float:
    """Return the wall time in s that this process has spent on making and loading machine code."""
    return _seconds


def _code(entry: str, sources: Sequence[Path], task: str) -> tuple[str, bytes]:
    """Return the name of the function and its object code, from disk or from the compiler."""
    file = f"{entry.rpartition('.')[2].replace(':', '.')}-{_digest(sources)[:24]}.o"
    folders = _folders()
    for folder in folders:
        with suppress(OSError, ValueError):
            return _unpack((folder / file).read_bytes())
    sys.stderr.write(f"simsched: compiling the {task}, once for this machine (some seconds) ...\n")
    name, data = _compile(entry)
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / file, _pack(name, data))
            break
    return name, data


def _digest(sources: Sequence[Path]) -> str:
    """Return a digest of the sources, the compilers and the processor."""
    from importlib.metadata import version

    import llvmlite.binding as llvm

    text = sha256()
    for part in (version("numba"), version("llvmlite"), sys.version, llvm.get_process_triple(),
                 llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()):  # fmt: skip
        text.update(part.encode())
    for path in (Path(__file__), *sources):
        text.update(path.read_bytes())
    return text.hexdigest()


def _folders() -> list[Path]:
    """Return where code may be kept, the first choice first."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return [Path(chosen)]
    folders = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        folders.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simsched")
    return folders


def _pack(name: str, data: bytes) -> bytes:
    """Return the content of a file: a digest of the rest, the name of the function, its code."""
    rest = name.encode() + b"\n" + data
    return sha256(rest).digest() + rest


def _unpack(content: bytes) -> tuple[str, bytes]:
    digest, rest = content[:32], content[32:]
    if sha256(rest).digest() != digest:
        raise ValueError("not what was written")
    name, _, data = rest.partition(b"\n")
    return name.decode(), data


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; whoever is first, the content is the same."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _compile(entry: str) -> tuple[str, bytes]:
    import numba

    module, _, attribute = entry.partition(":")
    make: Any = numba.njit("void(int64)", **_OPTIONS)
    function = make(getattr(import_module(module), attribute))
    result = function.overloads[function.signatures[0]]
    data: bytes = result.library._get_compiled_object()
    return result.fndesc.llvm_func_name, data


def _link(name: str, data: bytes) -> Native:
    """Return the function of that name in some object code."""
    import llvmlite.binding as llvm

    with suppress(RuntimeError):  # newer versions do it themselves
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3, jit=True, codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
    engine.finalize_object()
    address = engine.get_function_address(name)
    if not address:
        raise SimschedError(f"the compiled code has no function {name}")
    function, nothing = _SIGNATURE(address), ctypes.create_string_buffer(16)  # where results and errors would go
    place = ctypes.addressof(nothing)
    _kept.append((engine, nothing))

    def call(argument: int) -> None:
        function(place, place + 8, argument)

    return call
