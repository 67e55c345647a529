"""NVRTC of its wheel through ctypes, without a driver; and what stands in the binaries that it makes."""

import ctypes
import struct
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

WHEEL = "nvidia-cuda-nvrtc-cu12"
_ARGUMENTS = ".nv.constant0."
MISSING = f"NVRTC is not installed: pip install '{WHEEL}>=12.4,<13'"


def installed_version():
    try:
        return version(WHEEL)
    except PackageNotFoundError:
        return None


@cache
def library():
    """The compiler, or a skip that says what to install."""
    spec = find_spec("nvidia.cuda_nvrtc") if find_spec("nvidia") else None
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*/libnvrtc.so.12")) if spec else []
    if not found:
        pytest.skip(MISSING)
    return ctypes.CDLL(str(found[0]))


def compiled(source, arch, options=()):
    """Binary and log of a source for an architecture such as "sm_90"; the binary is None if it does not compile."""
    nvrtc, program = library(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    words = [option.encode() for option in (*options, f"-arch={arch}")]
    failed = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    binary = None if failed else text_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    log = text_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return binary, log.rstrip(b"\0").decode()


def text_of(size_of, fill, program):
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert fill(program, buffer) == 0
    return buffer.raw


def kernels_in(binary):
    """Registers of a thread and shared memory of a block, by kernel, of an ELF file for a GPU.

    A kernel is what has arguments, a section ``.nv.constant0.NAME``. Its registers stand in the section ``.nv.info``:
    entries of the format 4, the attribute 47, a length of 8, the number of a symbol and the count. Its shared memory is
    as large as the section ``.nv.shared.NAME``.
    """
    assert binary[:4] == b"\x7fELF"
    (table,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", binary, table + i * size) for i in range(count)]

    def name_at(strings, offset):
        start = rows[strings][4] + offset
        return binary[start : binary.index(b"\0", start)].decode()

    sections = {name_at(names, row[0]): row for row in rows}
    symbols = sections[".symtab"]
    registers = {}
    _, _, _, _, at, nbytes, *_ = sections[".nv.info"]
    end = at + nbytes
    while at < end:
        form, attribute, length = struct.unpack_from("<BBH", binary, at)
        if (form, attribute) == (4, 47):
            symbol, n = struct.unpack_from("<II", binary, at + 4)
            (name,) = struct.unpack_from("<I", binary, symbols[4] + 24 * symbol)
            registers[name_at(symbols[6], name)] = n
        at += 4 + (length if form == 4 else 0)
    kernels = [name.removeprefix(_ARGUMENTS) for name in sections if name.startswith(_ARGUMENTS)]
    return {
        name: (registers[name], sections[f".nv.shared.{name}"][5] if f".nv.shared.{name}" in sections else 0)
        for name in kernels
    }
