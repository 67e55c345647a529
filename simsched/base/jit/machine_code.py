"""LLVM: from assembly to object code, and from that to a function that Python calls."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import llvmlite
import llvmlite.binding as llvm

from simsched.base.signals import interrupt_later

Native = Callable[[int], None]
"""Machine code that takes the address of a table; it holds no lock of the interpreter."""

_NATIVE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []  # the code lives as long as its engine


def this_machine() -> tuple[str, ...]:
    """Return the target of object code: the version of LLVM's wrapper, and the processor."""
    features = llvm.get_host_cpu_features().flatten()
    return llvmlite.__version__, llvm.get_process_triple(), llvm.get_host_cpu_name(), features


def to_object(assembly: str, how: str, triple: str | None = None, *, go_on: Callable[[], None] = lambda: None) -> bytes:
    """Return object code of some LLVM assembly.

    Parameters
    ----------
    how
        "O0" or "O3".
    triple
        Of the machine it is for, in its oldest form; None for this one as it is.
    go_on
        Called between steps; it may raise.
    """
    with interrupt_later():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    level = int(how[1])
    if triple is None:
        _, triple, cpu, features = this_machine()
        options: dict[str, Any] = {"cpu": cpu, "features": features, "jit": True, "codemodel": "jitdefault"}
    else:
        options = {"reloc": "pic", "codemodel": "small"}
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=level, **options)
    module = llvm.parse_assembly(assembly, llvm.create_context())
    module.triple = triple
    module.data_layout = str(machine.target_data)
    go_on()
    if level:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
        builder.getModulePassManager().run(module, builder)
        go_on()
    return cast(bytes, machine.emit_object(module))


def link(symbol: str, data: bytes) -> Native:
    """Return the function of that name in some object code; raise ValueError if there is none."""
    with interrupt_later():
        with suppress(RuntimeError):  # newer versions do it themselves
            llvm.initialize()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True, codemodel="jitdefault")
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), machine)
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
        if not address:
            raise ValueError(f"the code has no function {symbol}")
        _kept.append(engine)
    return cast(Native, _NATIVE(address))
