"""The CUDA sources compile for four architectures, without a driver, and take what is written down of a processor."""

import pytest
from nvrtc import compiled, installed_version, kernels_in, library

from hwbackend.cuda_launches import KERNEL_NAMES, KERNEL_RESOURCES, NVRTC_OPTIONS, kernel_source
from hwbackend.cupy_streams import STAMP, STAMP_SOURCE

ARCHITECTURES = ("sm_70", "sm_80", "sm_86", "sm_90")
OLD = "Architectures prior to"  # that later compilers will not know sm_70 says nothing of the sources
RECORDED = "12.9"  # version of the compiler whose registers are written down
RESERVED = {"sm_90": 1024}  # bytes of shared memory that the system adds to a block that has some
FAST = "--device-debug"  # without optimisation, which takes five times as long


def resources(arch, *options):
    """Resources by kernel of a binary that has every kernel that is launched and no other, made without a warning."""
    binary, log = compiled(kernel_source(), arch, (*NVRTC_OPTIONS, *options))
    assert [line for line in log.splitlines() if line.strip() and OLD not in line] == []
    found = kernels_in(binary)
    assert sorted(found) == sorted(KERNEL_NAMES)
    for name, (_, shared_memory) in found.items():
        own = KERNEL_RESOURCES[name].shared_memory
        assert shared_memory == own + (RESERVED.get(arch, 0) if own else 0), name
    return found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_compiles(arch):
    """With what each kernel shares in a block being as written down."""
    resources(arch, FAST)


@pytest.mark.evidence
def test_registers_are_those_that_are_written_down():
    """Of sm_90, optimised; another version of the compiler may take a few more or less."""
    found = {name: registers for name, (registers, _) in resources("sm_90").items()}
    written = {name: resources.registers for name, resources in KERNEL_RESOURCES.items()}
    assert all(registers <= 128 for registers in found.values()), "two blocks of 256 threads would not fit"
    if (installed_version() or "").startswith(RECORDED):
        assert found == written
    assert all(abs(found[name] - written[name]) <= 32 for name in written)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_kernel_that_reads_the_clock_compiles(arch):
    binary, log = compiled(STAMP_SOURCE, arch, NVRTC_OPTIONS)
    assert binary is not None, log
    assert list(kernels_in(binary)) == [STAMP]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('extern "C" __global__ void broken(float* x) { x[0] = y; }', 'identifier "y" is undefined'),
        ('extern "C" __global__ void idle(float* x) { int unused; x[0] = 0.0f; }', "warning"),
    ],
)
def test_what_is_wrong_is_found(text, reason):
    """An error, and a mere warning."""
    library()
    binary, log = compiled(text, "sm_90", NVRTC_OPTIONS)
    assert reason in log
    assert (binary is None) == ("undefined" in reason)
