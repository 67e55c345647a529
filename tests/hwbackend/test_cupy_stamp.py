"""The kernel that reads the clock compiles for every architecture; without a driver."""

import pytest
from nvrtc import compiled, kernels_in

from hwbackend.cuda_launches import NVRTC_OPTIONS
from hwbackend.cupy_streams import STAMP, STAMP_SOURCE


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_86", "sm_90"])
def test_it_compiles(arch):
    binary, log = compiled(STAMP_SOURCE, arch, NVRTC_OPTIONS)
    assert binary is not None, log
    assert list(kernels_in(binary)) == [STAMP]
