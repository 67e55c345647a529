"""Devices, links and clusters: what is refused, how presets are wired, and which way a copy takes."""

import re
from dataclasses import FrozenInstanceError, fields, replace
from itertools import permutations

import pytest

from simsched.base.errors import ClusterError, UnknownNameError
from simsched.base.units import GB_PER_S
from simsched.model.cluster import LINKS, Cluster, Link
from simsched.model.cluster.device import OVERHEADS

NAN, INF = float("nan"), float("inf")
A100 = Cluster.preset("a100").devices[0]


def wired(devices, *links):
    """A cluster of A100s named in a string such as "abc", without copy limits."""
    return Cluster(tuple(replace(A100, name=name) for name in devices), links)


# Devices -----------------------------------------------------------------------------------------


def test_one_number_of_a_device_may_be_infinite(tmp_path):
    """Files cannot hold infinities: what says of copies that nothing limits them stands there as null."""
    numbers = [one.name for one in fields(A100) if type(getattr(A100, one.name)) in (int, float)]
    assert len(numbers) > 25
    for name in numbers:
        if name != "copy_rate":
            with pytest.raises(ClusterError, match=f"device 'gpu0': {name} must be .*, not inf"):
                replace(A100, **{name: INF})
    for changed in ({"peak": {"fp32": INF}}, {"interference": ((INF, 0.0), (0.0, 0.0))}):
        with pytest.raises(ClusterError, match=r"must be .*finite"):
            replace(A100, **changed)
    free = Cluster([replace(A100, copy_rate=INF)])
    free.save(tmp_path / "free.json")
    assert Cluster.load(tmp_path / "free.json") == free


def test_a_device_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        A100.sms = 1
    with pytest.raises(TypeError):
        A100.peak["fp32"] = 1.0


def test_peak_rate_of_a_dtype_without_hardware_is_that_of_fp32():
    """108 SMs x 64 lanes x 2 x 1410 MHz = 19.49 TFLOP/s; there is no fp8 on an A100."""
    assert A100.peak_rate("fp8") == A100.peak_rate("fp32") == 108 * 64 * 2 * 1410
    assert A100.peak_rate("fp16") == 312e6


# Links and clusters ------------------------------------------------------------------------------


REFUSED = {
    "a cluster needs at least one device": lambda: Cluster(()),
    "device 'a' stands twice": lambda: wired("aba"),
    "link a - a joins an end with itself": lambda: wired("ab", ("a", "a", Link(1.0))),
    "links[0] must be a list of 3, not ('a', 'b')": lambda: wired("ab", ("a", "b")),
    "must be a Link, not 5.0": lambda: wired("ab", ("a", "b", 5.0)),
    "links[0] must be a list of 3, not 'ab'": lambda: wired("ab", "ab"),
    "unknown gpu 'a1000'; closest of 45 known: a100, a10": lambda: Cluster.preset("a1000"),
    "unknown link 'nvlink'; known are: nvlink-bridge": lambda: Cluster.preset("a100", 2, link="nvlink"),
    "Device has no field 'lanch'; known are: name": lambda: Cluster.preset("a100").replace_devices(lanch=1.0),
    "n_gpus must be a whole number of at least 1, not 0": lambda: Cluster.preset("a100", 0),
    "n_gpus must be a whole number of at least 1, not 1.5": lambda: Cluster.preset("a100", 1.5),
    "gpus_per_node must be a whole number of at least 1, not 0": lambda: Cluster.preset("a100", 1, gpus_per_node=0),
    "unknown device 'gpu7'; known are: gpu0, gpu1": lambda: Cluster.preset("a100", 2)["gpu7"],
    "unknown device 'x'": lambda: Cluster.preset("a100", 2).route("x", "gpu0"),
    "unknown device 'nvlink3'": lambda: Cluster.preset("a100", 2).route("gpu0", "nvlink3"),
    "device 'gpu0': peak must name fp32, not fp16": lambda: replace(A100, peak={"fp16": 1.0}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    with pytest.raises((ClusterError, UnknownNameError), match=re.escape(message)):
        REFUSED[message]()


def test_copies_with_changes():
    """`replace_devices` on each device, `replace_links` on each link; the rest stays."""
    cluster = Cluster.preset("a100", 2)
    slow = cluster.replace_devices(launch=9.0).replace_links(latency=7.0)
    assert [d.launch for d in slow.devices] == [9.0, 9.0]
    assert [link.latency for _, _, link in slow.links] == [7.0, 7.0]
    assert [link.bandwidth for _, _, link in slow.links] == [link.bandwidth for _, _, link in cluster.links]
    assert slow != cluster
    assert slow.replace_devices(launch=6.0).replace_links(latency=1.0) == cluster
    free = cluster.without_overheads()
    assert {getattr(free.devices[0], name) for name in OVERHEADS} == {0.0}
    assert free.replace_devices(**{name: getattr(A100, name) for name in OVERHEADS}) == cluster


# Presets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("n", "per_node"), [(2, 8), (3, 8), (5, 2), (6, 3), (3, 1)])
def test_every_link_joins_every_two_devices(link, n, per_node):
    """A way within a node costs what the link says, once; over the network it is never less than its 12 us."""
    cluster = Cluster.preset("a40", n, link=link, gpus_per_node=per_node)
    shape, wire = LINKS[link]
    for i, j in permutations(range(n), 2):
        route = cluster.route(f"gpu{i}", f"gpu{j}")
        if i // per_node != j // per_node:
            assert (route.latency, route.bandwidth) == (12.0, 24 * GB_PER_S)
        elif shape != "pairs" or (i // 2 == j // 2 and per_node % 2 == 0):
            assert (route.latency, route.bandwidth) == (wire.latency, wire.bandwidth)


def test_switch_is_shared_at_its_ends_only():
    """Through NVSwitch gpu0 sends to gpu1 and gpu2 over one port, and they receive over different ones."""
    cluster = Cluster.preset("a100", 3)
    there, other, back = (cluster.route(f"gpu{a}", f"gpu{b}").channels for a, b in ((0, 1), (0, 2), (1, 0)))
    assert (len(there), there[0], there[1] != other[1]) == (2, other[0], True)
    assert not set(there) & set(back)
    assert cluster.route("gpu0", "gpu1").latency == 2.0


# Routes ------------------------------------------------------------------------------------------


def test_of_equal_ways_the_link_given_first():
    """Two switches of equal latency: the one whose links come first; of two equal wires the first."""
    slow, fast = Link(10.0, 1.0), Link(20.0, 1.0)
    links = [("a", "s", slow), ("s", "b", slow), ("a", "t", fast), ("t", "b", fast)]
    for given, bandwidth in (
        (links, 10.0),
        ([*links[2:], *links[:2]], 20.0),
        ([("a", "b", slow), ("a", "b", fast)], 10.0),
        ([("b", "a", fast), ("a", "b", slow)], 20.0),
    ):
        assert wired("ab", *given).route("a", "b").bandwidth == bandwidth


def test_devices_are_not_passed_through():
    """a - b - c: no way from a to c but through b, which is a device and no switch."""
    ends, far = [("a", "b", Link(1.0)), ("b", "c", Link(1.0))], Link(1.0, 50.0)
    with pytest.raises(
        ClusterError, match="no links lead from a to c: they are joined through device b, and devices do"
    ):
        wired("abc", *ends).route("a", "c")
    with pytest.raises(
        ClusterError, match="from a to d: they are joined through devices b, c, and devices do not forward"
    ):
        wired("abcd", *ends, ("c", "s", far), ("s", "d", far)).route("a", "d")
    with pytest.raises(ClusterError, match="no links lead from a to c; add one, or give the edges an exact `transfer`"):
        wired("abc", ends[0]).route("a", "c")
    assert wired("abc", *ends, ("a", "s", far), ("s", "c", far)).route("a", "c").latency == 100.0


# Transfers ---------------------------------------------------------------------------------------


def test_transfer_time():
    """2 us + 1,000,000 bytes / 50,000 bytes per us = 22 us; 0 within a device; exact times hold as given.

    Those need no links. A copy engine that moves 10,000 bytes per us: 2 + 100 us.
    """
    cluster = wired("ab", ("a", "b", Link(50 * GB_PER_S, 2.0)))
    assert cluster.transfer_time("a", "b", 1e6) == 22.0
    assert cluster.transfer_time("a", "b", 0.0) == 2.0
    assert cluster.transfer_time("a", "a", 1e6) == cluster.transfer_time("a", "a", 1e6, exact=5.0) == 0.0
    assert cluster.transfer_time("b", "a", 1e6, exact=5.0) == 5.0
    assert cluster.replace_devices(copy_rate=10 * GB_PER_S).transfer_time("a", "b", 1e6) == 102.0
    assert wired("ab").transfer_time("a", "b", 1e6, exact=3.0) == 3.0
