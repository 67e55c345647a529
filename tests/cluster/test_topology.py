"""Routes of many pairs at once: those that Dijkstra finds for each pair, in any cluster."""

from dataclasses import replace
from itertools import pairwise, product
from math import inf

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsched.base.errors import ClusterError
from simsched.base.units import GB_PER_S
from simsched.model.cluster import DEVICES, LINKS, Cluster, Link

A100 = Cluster.preset("a100").devices[0]


def reference(cluster, src, dst):
    """Channels, latency and bandwidth of the way that networkx finds; None if there is none."""

    def cost(u, _v, link):
        return None if u in cluster.index and u != src else link["latency"] + 1e-6

    topology, channel = nx.DiGraph(), 0
    topology.add_nodes_from(cluster.index)
    for a, b, link in cluster.links:
        for u, v, number in ((a, b, channel), (b, a, channel + link.duplex)):
            # of parallel links the one of least latency is used, of equal ones the first
            if not topology.has_edge(u, v) or link.latency < topology.edges[u, v]["latency"]:
                topology.add_edge(u, v, channel=number, latency=link.latency, bandwidth=link.bandwidth)
        channel += 1 + link.duplex
    try:
        path = nx.dijkstra_path(topology, src, dst, weight=cost)
    except nx.NetworkXNoPath:
        return None
    hops = [topology.edges[u, v] for u, v in pairwise(path)]
    latency = 0.0
    for hop in hops:
        latency += hop["latency"]
    return tuple(hop["channel"] for hop in hops), latency, min((hop["bandwidth"] for hop in hops), default=inf)


def require_reference(cluster, pairs=None):
    """Compare the routes of pairs, or of all, and those found one by one on another copy of the cluster."""
    pairs = list(product(range(len(cluster)), repeat=2)) if pairs is None else pairs
    found = cluster.routes(*np.array(pairs, int).reshape(-1, 2).T)
    assert len(found.channel_ptr) == len(pairs) + 1
    assert found.channel_ptr[-1] == len(found.channel)
    alone = replace(cluster)
    for p, (a, b) in enumerate(pairs):
        src, dst = cluster.devices[a].name, cluster.devices[b].name
        channels = tuple(found.channel[found.channel_ptr[p] : found.channel_ptr[p + 1]].tolist())
        expected = reference(cluster, src, dst)
        assert found.known[p] == (expected is not None)
        if expected is None:
            assert (channels, found.latency[p], found.bandwidth[p]) == ((), inf, 0.0)
            with pytest.raises(ClusterError, match=f"no links lead from {src} to {dst}"):
                alone.route(src, dst)
            continue
        assert (channels, found.latency[p], found.bandwidth[p]) == expected
        route = alone.route(src, dst)
        assert (route.channels, route.latency, route.bandwidth) == expected


@pytest.mark.parametrize(("gpu", "link"), [*((gpu, None) for gpu in DEVICES), *(("a40", link) for link in LINKS)])
def test_presets(gpu, link):
    for n, per_node in ((3, 8), (9, 8), (5, 2), (6, 3), (3, 1), (9, 4)):
        require_reference(Cluster.preset(gpu, n, link=link, gpus_per_node=per_node))


@st.composite
def networks(draw):
    """Devices and switches; several links between two ends, few different latencies, some of one direction's width."""
    devices = "abcd"[: draw(st.integers(1, 4))]
    ends = [*devices, *"stuv"[: draw(st.integers(0, 4))]]
    pairs = [(u, v) for u in ends for v in ends if u != v]
    wires = st.builds(
        lambda pair, latency, bandwidth, duplex: (*pair, Link(bandwidth, latency, duplex)),
        st.sampled_from(pairs),
        st.sampled_from([0.0, 0.1, 0.2, 1.0, 1, 2.0]),
        st.sampled_from([1.0, 2.0, 3.0]),
        st.sampled_from([True, True, False]),
    )
    links = draw(st.lists(wires, max_size=14)) if pairs else []
    return Cluster(tuple(replace(A100, name=name) for name in devices), tuple(links))


@settings(deadline=None, max_examples=210)
@given(cluster=networks(), data=st.data())
def test_any_network(cluster, data):
    """All pairs, or some in any order, some of them twice."""
    number = st.integers(0, len(cluster) - 1)
    require_reference(cluster, data.draw(st.none() | st.lists(st.tuples(number, number), max_size=8)))


def test_a_thousand_gpus():
    """128 nodes of 8: within a node over its NVSwitch, to another over the one uplink that its GPUs share.

    1 us + 1 us to and from the NVSwitch; 6 us to the node's port, none to the core and back, 6 us from the other's.
    """
    cluster = Cluster.preset("h100", n_gpus=1024)
    require_reference(cluster, [(0, 0), (0, 7), (7, 8), (1023, 0), (512, 519), (511, 512)])
    near, far = cluster.route("gpu8", "gpu15"), cluster.route("gpu8", "gpu16")
    ends = [[cluster.channels[c][:2] for c in route.channels] for route in (near, far)]
    ways = ["gpu8", "nvlink4@1", "gpu15"], ["gpu8", "network@1", "network", "network@2", "gpu16"]
    assert ends == [list(pairwise(way)) for way in ways]
    assert (near.latency, near.bandwidth) == (2.0, 400 * GB_PER_S)
    assert (far.latency, far.bandwidth) == (12.0, 24 * GB_PER_S)

    src, dst = np.divmod(np.arange(1024 * 1024), 1024)
    rows = np.flatnonzero(src // 8 == 1)
    found = cluster.routes(src[rows], dst[rows])
    assert found.known.all()
    far_away = dst[rows] // 8 != 1
    assert set(found.latency[far_away]) == {12.0}
    assert set(found.latency[~far_away]) == {0.0, 2.0}
    second = found.channel[found.channel_ptr[:-1][far_away] + 1]
    assert {cluster.channels[c][:2] for c in set(second.tolist())} == {("network@1", "network")}


def test_no_pairs():
    found = Cluster.preset("a100", 2).routes([], [])
    assert (found.channel_ptr.tolist(), len(found.channel), len(found.known)) == ([0], 0, 0)


NUMBERS, LENGTHS = "numbers of devices: there are 2", "the same length"
WRONG = [
    ([2], [0], NUMBERS),
    ([0], [-1], NUMBERS),
    ([0.5], [1], NUMBERS),
    (["gpu0"], ["gpu1"], NUMBERS),
    ([0, 1], [0], LENGTHS),
    ([[0]], [[1]], LENGTHS),
    (0, 1, LENGTHS),
]


@pytest.mark.parametrize(("src", "dst", "message"), WRONG)
def test_pairs_that_are_none(src, dst, message):
    with pytest.raises(ClusterError, match=message):
        Cluster.preset("a100", 2).routes(src, dst)


def test_devices_of_one_kind():
    """Equal in all but the name, whatever type the numbers are of; another peak rate is another kind."""
    devices = [replace(A100, name=name) for name in "abcde"]
    devices[1] = replace(devices[1], sms=7)
    devices[3] = replace(devices[3], peak={**A100.peak, "fp16": 1.0})
    devices[4] = replace(devices[4], launch=float(A100.launch), peak=dict(reversed(A100.peak.items())))
    cluster = Cluster(tuple(devices))
    assert cluster.kind.tolist() == [0, 1, 0, 2, 0]
    assert cluster.kinds == (devices[0], devices[1], devices[3])
