"""More devices like those there are, or fewer."""

from dataclasses import replace

import pytest

from simsched.base.errors import ClusterError
from simsched.model.cluster import Cluster, resize


@pytest.mark.parametrize("gpu", ["a100", "a40", "v100", "h100"])
@pytest.mark.parametrize(("n", "more"), [(1, 4), (2, 3), (4, 8), (8, 16)])
def test_presets_are_widened_to_presets(gpu, n, more):
    wide = resize(Cluster.preset(gpu, n), more)
    assert wide == Cluster.preset(gpu, more)


def test_what_was_fitted_stays():
    """Devices under names of their own, with fitted costs, over a bus that is not the usual one."""
    devices = tuple(replace(d, name=f"cuda:{i}", launch=7.0) for i, d in enumerate(Cluster.preset("a100", 2).devices))
    links = tuple((a.replace("gpu", "cuda:"), b, w) for a, b, w in Cluster.preset("a100", 2, link="pcie4").links)
    wide = resize(Cluster(devices, links, "ours"), 3)
    assert [device.name for device in wide.devices] == ["cuda:0", "cuda:1", "gpu0"]
    assert [device.launch for device in wide.devices] == [7.0] * 3
    assert wide.links[:2] == links
    assert wide.route("cuda:0", "gpu0") == wide.route("cuda:0", "cuda:1")._replace(channels=(0, 5))
    one = resize(Cluster(devices[:1], (), "ours"), 2)
    assert ([device.name for device in one.devices], one.name) == (["cuda:0", "gpu0"], "2 x ours")


def test_fewer():
    """Of a mesh of four V100, the three links between the first three are left."""
    cluster = Cluster.preset("v100", 4)
    few = resize(cluster, 3)
    assert [device.name for device in few.devices] == ["gpu0", "gpu1", "gpu2"]
    assert [wire[:2] for wire in few.links] == [("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu1", "gpu2")]
    assert resize(cluster, 4) is cluster


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster((*Cluster.preset("a100", 1).devices, Cluster.preset("v100", 2).devices[1])),
        Cluster.preset("a100", 2).replace_links(bandwidth=1.0),
        Cluster((replace(Cluster.preset("a100").devices[0], model="mine"),)),
    ],
)
def test_what_cannot_be_widened(cluster):
    with pytest.raises(
        ClusterError, match=r"4 devices: how more of those of .* are joined is not known: they differ, "
    ):
        resize(cluster, 4)
