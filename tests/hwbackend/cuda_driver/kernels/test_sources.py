"""The CUDA sources compile for six architectures, without a driver, and take what is written down of a processor."""

import ctypes
import re
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

import hwbackend
from hwbackend.contact.cuda import KERNELS, SOURCE
from hwbackend.cuda.kernels.launches import KERNEL_NAMES, KERNEL_RESOURCES, NVRTC_OPTIONS, kernel_source
from hwbackend.cuda.streams import STAMP, STAMP_SOURCE

WHEEL = "nvidia-cuda-nvrtc-cu12"
RECORDED = "12.9"  # version of the compiler whose registers are written down
VERBOSE = "--ptxas-options=-v"  # it then says what each kernel takes
USED = r"Compiling entry function '(\w+)'(?:.|\n)*?Used (\d+) registers(?:.*? (\d+) bytes smem)?"
SILENT = r"\s*$|ptxas +(info|\.)|.*Architectures prior to"  # that it will not know sm_70 says nothing of the sources
PACKAGE = Path(hwbackend.__file__).parent
LINES = 220  # of CUDA, in all sources of the package
each_architecture = pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])


@cache
def library():
    """NVRTC of its wheel, or a skip that says what to install."""
    spec = find_spec("nvidia.cuda_nvrtc") if find_spec("nvidia") else None
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*/libnvrtc.so.12")) if spec else []
    if not found:
        pytest.skip(f"NVRTC is not installed: pip install '{WHEEL}>=12.9,<13'")
    return ctypes.CDLL(str(found[0]))


def compiled(source, arch, *options):
    """Registers of a thread and shared memory of a block by kernel, and the complaints of the compiler."""
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    words = [option.encode() for option in (*NVRTC_OPTIONS, *options, VERBOSE, f"-arch={arch}")]
    failed = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    lines = log.value.decode().splitlines()
    found = {name: (int(n), int(shared or 0)) for name, n, shared in re.findall(USED, "\n".join(lines))}
    assert bool(failed) == (not found)
    return found, [line for line in lines if not re.match(SILENT, line)]


def registers(arch, *options):
    """Registers by kernel; every kernel that is launched is there and no other, and shares what is written down."""
    found, complaints = compiled(kernel_source(), arch, *options)
    assert complaints == []
    assert sorted(found) == sorted(KERNEL_NAMES)
    assert {name: shared for name, (_, shared) in found.items()} == {
        name: resources.shared_memory for name, resources in KERNEL_RESOURCES.items()
    }
    return {name: n for name, (n, _) in found.items()}


@each_architecture
def test_every_kernel_holds_the_registers_of_its_name(arch):
    """A stand-in of 168 registers has to keep others from the processor as the original would.

    The allocator rounds up to 8, so that as few as 161 are 168 to the hardware, 57 are 64.
    """
    found = registers(arch)
    assert found.pop("synth") <= 64
    assert found.pop("synth_255") > 248 - 8
    for name, n in found.items():
        wanted = int(name.removeprefix("synth_"))
        assert wanted - 8 < n <= wanted
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.cu")) <= LINES


def test_registers_are_those_that_are_written_down():
    """Of sm_90; another version of the compiler may take a few more or less."""
    found, written = registers("sm_90"), {name: resources.registers for name, resources in KERNEL_RESOURCES.items()}
    if version(WHEEL).startswith(RECORDED):
        assert found == written
    assert all(abs(found[name] - written[name]) <= 32 for name in written)


@each_architecture
def test_the_kernel_that_reads_the_clock_compiles(arch):
    found, complaints = compiled(STAMP_SOURCE, arch)
    assert (list(found), complaints) == ([STAMP], [])


@each_architecture
def test_the_probe_of_a_contact_compiles(arch):
    found, complaints = compiled(files("hwbackend.contact").joinpath(SOURCE).read_text(), arch)
    assert (sorted(found), complaints) == (sorted(KERNELS), [])


@pytest.mark.parametrize(
    ("body", "compiles", "complaint"),
    [("x[0] = y;", False, 'identifier "y" is undefined'), ("int unused; x[0] = 0.0f;", True, "warning")],
)
def test_what_is_wrong_is_found(body, compiles, complaint):
    found, complaints = compiled(f'extern "C" __global__ void kernel(float* x) {{ {body} }}', "sm_90")
    assert bool(found) == compiles
    assert complaint in "\n".join(complaints)
