"""Slices of GPUs (MIG) as devices: parts of SMs, memory and L2 as NVIDIA's guide has them."""

import pytest

from simsched.base.errors import ClusterError
from simsched.base.units import GIB
from simsched.model.cluster import DEVICES, Cluster, Device


def test_a_slice_has_parts_of_the_whole():
    """2g.10gb of an A100: 28 of 108 SMs, two eighths of 40 GiB, 1555 GB/s and 40 MiB; a copy engine a slice."""
    whole, part = (Cluster.preset(name).devices[0] for name in ("a100", "a100-2g.10gb"))
    assert (part.sms, part.memory, part.bandwidth, part.copy_engines) == (28, 10 * GIB, 1555e3 / 4, 2)
    assert part.peak["fp16"] == pytest.approx(312e6 * 28 / 108)
    assert part.l2 == whole.l2 / 4
    assert (part.clock, part.capability) == (whole.clock, "8.0")


def test_seven_slices_are_no_more_than_the_whole():
    for name in DEVICES:
        gpu, _, profile = name.partition("-")
        if profile[:2] == "1g":
            whole, part = DEVICES[gpu], DEVICES[name]
            count = 7 if profile in ("1g.5gb", "1g.10gb") and not (gpu == "a100" and profile == "1g.10gb") else 4
            assert count * part["sms"] <= whole["sms"]
            assert count * part["memory"] <= whole["memory"]


def test_capabilities_are_versions():
    fields = dict(DEVICES["h100"])
    assert Device(name="a", model="a", **fields).capability == "9.0"
    with pytest.raises(ClusterError, match=r"device 'a': capability must be major\.minor, such as 9\.0, not 'Hopper'"):
        Device(name="a", model="a", **fields | {"capability": "Hopper"})
