"""What collectives take of links, by operation, algorithm and topology, worked by hand; who their neighbours are."""

import re

import pytest
from hand_made import hand_made
from hypothesis import given
from hypothesis import strategies as st

import simsched as ss
from simsched.model.cluster import LINKS
from simsched.model.exchange import exchange, exchange_on
from simsched.model.graph import ALGORITHMS

LINK = ss.Link(100.0, start=2.0, step=1.0, efficiency=0.5)


def cluster(wires, n=4):
    """`n` devices with links ``(a, b, bandwidth)``."""
    devices = hand_made(n).devices
    links = tuple((a, b, ss.Link(bandwidth, start=2.0, step=1.0, efficiency=0.5)) for a, b, bandwidth in wires)
    return ss.Cluster(devices, links)


SWITCH = cluster([(f"gpu{i}", "switch", 100.0) for i in range(4)])
MESH = cluster([(f"gpu{i}", f"gpu{j}", 100.0) for i in range(4) for j in range(i)])
NODES = cluster(
    [*((f"gpu{i}", f"switch{i // 2}", 100.0) for i in range(4)), ("switch0", "hub", 10.0), ("switch1", "hub", 10.0)]
)


@pytest.mark.parametrize(
    ("operation", "algorithm", "us"),
    [
        ("all_reduce", "ring", 2 + 6 + 1500 / 50),  # each rank sends 2 x 3/4 of 1,000 bytes at half of 100 a us
        ("all_reduce", "tree", 2 + 4 + 2000 / 50),
        ("all_reduce", "one_shot", 5 + 1 + 3000 / 50),
        ("all_gather", "ring", 2 + 3 + 750 / 50),
        ("all_gather", "one_shot", 5 + 1 + 750 / 50),
        ("reduce_scatter", "ring", 2 + 3 + 750 / 50),
        ("all_to_all", "direct", 2 + 1 + 750 / 50),
    ],
)
def test_four_ranks_behind_a_switch(operation, algorithm, us):
    asked = ss.Collective(operation, 1000.0, 4, algorithm=algorithm)
    assert exchange(asked, SWITCH.topology, range(4)).time == pytest.approx(us)


def test_a_message():
    """5 us, one step, 1,000 bytes at all of 100 a us."""
    asked = ss.Collective("send_recv", 1000.0, 2)
    assert exchange(asked, SWITCH.topology, (1, 3)).time == pytest.approx(16.0)


def test_rings_use_all_links_of_a_mesh():
    """Three links of each rank: 1,500 bytes at half of 300 a us."""
    asked = ss.Collective("all_reduce", 1000.0, 4, algorithm="ring")
    assert exchange(asked, MESH.topology, range(4)).time == pytest.approx(2 + 6 + 1500 / 150)


def test_a_ring_passes_the_way_between_nodes_once_each_way_and_all_pairs_four_times():
    """The way out of a node has 10 a us. Ring: all of it for each rank; all pairs: of three parts four pass it."""
    ring = ss.Collective("all_reduce", 1000.0, 4, algorithm="ring")
    assert exchange(ring, NODES.topology, range(4)).time == pytest.approx(2 + 6 + 1500 / 5)
    spread = ss.Collective("all_to_all", 1000.0, 4)
    assert exchange(spread, NODES.topology, range(4)).time == pytest.approx(2 + 1 + 750 / (5 * 3 / 4))


def test_switches_that_reduce_do_it():
    """2 us, two steps, and 5/4 of 1,000 bytes at 0.85 of 50 a us; where they do not, it cannot be asked for."""
    asked = ss.Collective("all_reduce", 1000.0, 4, algorithm="nvls")
    reducing = SWITCH.replace_links(reduces=True)
    assert exchange(asked, reducing.topology, range(4)).time == pytest.approx(2 + 2 + 1250 / 0.85 / 50)
    with pytest.raises(ss.SimschedError, match="no switch that reduces joins gpu0, gpu1, gpu2, gpu3: nvls cannot run"):
        exchange(asked, SWITCH.topology, range(4))


@given(
    operation=st.sampled_from(list(ALGORITHMS)),
    nbytes=st.floats(1.0, 1e9),
    link=st.sampled_from(list(LINKS)),
    n=st.integers(2, 16),
)
def test_the_quickest_is_taken_and_more_bytes_take_longer(operation, nbytes, link, n):
    ranks = 2 if operation == "send_recv" else n
    topology = ss.Cluster.preset("h100", 16, link=link).topology
    times = {}
    for algorithm in ALGORITHMS[operation]:
        if algorithm != "nvls":
            asked = ss.Collective(operation, nbytes, ranks, algorithm=algorithm)
            times[algorithm] = exchange(asked, topology, range(ranks)).time
    free = exchange(ss.Collective(operation, nbytes, ranks), topology, range(ranks))
    assert free.time <= min(times.values())
    assert free.algorithm == "nvls" or free.time == times[free.algorithm]
    assert exchange(ss.Collective(operation, 2 * nbytes, ranks), topology, range(ranks)).time > free.time


# Neighbours --------------------------------------------------------------------------------------


def test_ranks_are_devices_one_after_the_other():
    """Pairs within a node have 100 a us, gpu1 and gpu2 only 10; three ranks of gpu3 are the last three."""
    pair, three = ss.Collective("send_recv", 1000.0, 2), ss.Collective("all_gather", 1000.0, 3, algorithm="ring")
    assert exchange_on(pair, NODES["gpu3"]).time == exchange(pair, NODES.topology, (2, 3)).time
    assert exchange_on(three, NODES["gpu3"]).time == exchange(three, NODES.topology, (1, 2, 3)).time


def test_a_device_by_itself_has_the_neighbours_of_its_node():
    asked = ss.Collective("all_reduce", 1e7, 8)
    alone, eight = (ss.Cluster.preset("h100", n) for n in (1, 8))
    assert exchange_on(asked, alone.devices[0]).time == exchange_on(asked, eight.devices[0]).time
    faster = alone.replace_links(bandwidth=2 * 400e3)
    assert exchange_on(asked, faster.devices[0]).time < exchange_on(asked, alone.devices[0]).time
    assert ss.Cluster.from_dict(alone.to_dict()) == alone


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ss.Cluster.preset("h100", 2), "all_reduce of 4 ranks, but gpu0 has 1 neighbours: give the cluster 4 devices"),
        (ss.Cluster(hand_made(4).devices), "no links lead from gpu0 to gpu1; a collective needs some: add them"),
    ],
)
def test_what_has_no_neighbours_is_refused(found, message):
    with pytest.raises(ss.SimschedError, match=re.escape(message)):
        ss.roofline(ss.Operator("a", collective=ss.Collective("all_reduce", 1e3, 4)), found.devices[0])


def test_a_time_that_is_known_needs_no_links():
    op = ss.Operator("a", time=7.0, collective=ss.Collective("all_reduce", 1e3, 4))
    plan = ss.Schedule(ss.OpGraph([op]), [ss.Placement("a")])
    assert ss.simulate(plan, ss.Cluster(hand_made(2).devices)).makespan == pytest.approx(7.0)


def test_files_of_clusters_keep_what_collectives_reach():
    link = ss.Link(100.0, 1.0, start=3.0, step=0.5, efficiency=0.25, reduces=True)
    wired = ss.Cluster(hand_made(2).devices, (("gpu0", "gpu1", link),))
    assert ss.Cluster.from_dict(wired.to_dict()).links == wired.links
    assert "topology" not in str(wired.to_dict())


@given(nbytes=st.sampled_from([1.0, 40_000.0, 1e6, 1e9]), gpu=st.sampled_from(["v100", "a100", "h100", "t4", "k80"]))
def test_a_collective_has_a_kernel_on_every_device(nbytes, gpu):
    """A block for each 32 KiB, from one to as many as NCCL has channels; it fits."""
    graph = ss.OpGraph([ss.Operator("a", collective=ss.Collective("all_reduce", nbytes, 2))])
    found = ss.Cluster.preset(gpu, 2).without_overheads()
    program = ss.schedule(graph, found, "sequential").lower(found)
    most = {"v100": 12, "t4": 12, "k80": 2}.get(gpu, 24)
    assert program.launches.blocks.tolist() == [min(most, max(1, int(nbytes) // 32768))]
    assert ss.simulate(program, found).makespan == pytest.approx(ss.roofline(graph["a"], found.devices[0]))
