"""Kernels that operators launch on a device: given ones stand, libraries choose the others, and programs know them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.base.errors import GraphError, ProgramError
from simsched.model import Kernel, Operator, Work
from simsched.model.cluster import Cluster
from simsched.model.graph.rearranged import with_works
from simsched.model.launches import (
    given_launches,
    has_choices,
    kernels_on,
    launches_beside,
    launches_of,
    launches_on,
    relaunch,
    same_kernels,
    terms_on,
    with_kernels,
)
from simsched.model.libraries import choose

H100, A100, K80 = (Cluster.preset(name).devices[0] for name in ("h100", "a100", "k80"))
GIVEN = (Kernel(100, 128, 40, 1024, share=0.25, efficiency=0.5, chain=77.0), Kernel(3, share=0.75))
# fp16 in 128 channels with several taps: turned round by three more kernels where tensor cores compute it
CONVOLUTION = Work(
    "convolution",
    "strided",
    flops=2.0 * 3136 * 128 * 1152,
    reads=802816.0,
    weights=294912.0,
    writes=802816.0,
    rows=3136,
    columns=128,
    inner=1152,
    window=9,
    elements=401408,
    images=4,
)
COPY = Work("elementwise", "copy", reads=4096.0, writes=4096.0, rows=1024)


def mixed():
    """Works of a convolution and a copy; given kernels; nothing; given kernels beside works."""
    return ss.OpGraph(
        [
            Operator("chosen", flops=5.0, works=(CONVOLUTION, COPY), dtype="fp16"),
            Operator("given", flops=8e6, nbytes=4e6, kernels=GIVEN),
            Operator("unknown", flops=3e6, nbytes=2e6),
            Operator("both", works=(COPY,), kernels=(Kernel(7),)),
        ]
    )


def columns(launches, rows):
    """What some launches are, and their FLOP and bytes from and to DRAM."""
    names = ("blocks", "threads", "registers", "shared_memory", "efficiency", "chain", "flops", "nbytes")
    return [tuple(getattr(launches, name)[row].item() for name in names) for row in rows]


def chosen_on(device, *works):
    """What libraries launch for works in fp16, as `columns` has it."""
    launches = [launch for work in works for launch in choose(work, "fp16", device, weights_cached=True)]
    return [(*row[:4], row.efficiency, row.chain, row.flops, row.traffic) for row in launches]


@pytest.mark.parametrize(("device", "n_chosen"), [(H100, 5), (K80, 2)])
def test_given_kernels_stand_and_libraries_choose_the_others(device, n_chosen):
    """Tensor cores turn the image, the weights and the output of the convolution round: 4 kernels; a K80 has none."""
    launches = kernels_on(mixed(), device)
    assert np.diff(launches.ptr).tolist() == [n_chosen, 2, 1, 1]
    assert launches.op.tolist() == [0] * n_chosen + [1, 1, 2, 3]
    assert launches.kernel.tolist() == [*range(n_chosen), 0, 1, 0, 0]
    assert columns(launches, range(n_chosen)) == chosen_on(device, CONVOLUTION, COPY)
    assert columns(launches, range(n_chosen, n_chosen + 3)) == [
        (100, 128, 40, 1024, 0.5, 77.0, 2e6, 1e6),  # its share of the operator's work
        (3, 256, 32, 0, 1.0, 0.0, 6e6, 3e6),
        (0, 0, 0, 0, 1.0, 0.0, 3e6, 2e6),  # without a shape
    ]
    assert launches.has_shape.tolist() == [True] * (n_chosen + 2) + [False, True]
    assert [len(launches.kernels(i)) for i in range(4)] == [n_chosen, 2, 0, 1]
    assert launches.kernels(1) == GIVEN
    assert launches.kernels(3) == (Kernel(7),)


def test_shares_are_parts_of_the_time_alone():
    launches, terms = kernels_on(mixed(), H100), terms_on(mixed(), H100)
    us = terms.start + np.maximum(np.maximum(terms.chained, terms.compute), terms.memory) + terms.tail
    chosen = slice(0, 5)
    assert launches.share[chosen] == pytest.approx(us[chosen] / us[chosen].sum())
    assert launches.share[5:].tolist() == [0.25, 0.75, 1.0, 1.0]
    assert terms.tensor.tolist() == [False, False, True, *[False] * 6]


def test_one_operator_launches_what_it_does_in_a_graph():
    graph = mixed()
    launches, terms = kernels_on(graph, H100), terms_on(graph, H100)
    alone = [launch for op in graph.operators for launch in launches_of(op, H100)]
    assert [launch[:4] for launch in alone] == [row[:4] for row in columns(launches, range(len(launches)))]
    for name in terms._fields:
        assert getattr(terms, name).tolist() == pytest.approx([getattr(launch, name) for launch in alone])


def test_kernels_are_chosen_once_for_a_device():
    """Whatever it is called, and whatever its host and its links cost."""
    graph = mixed()
    launches = kernels_on(graph, H100)
    other = replace(H100, name="gpu7", model="mine", launch=1e3, gap=0.0, copy_engines=1, connections=1, interleave=1.0)
    assert kernels_on(graph, other) is launches
    assert kernels_on(graph, replace(H100, sms=131)) is not launches
    cluster = Cluster.preset("h100", 4)
    assert launches_on(graph, cluster, np.array([0, 3, 2, 1])) is launches


def test_a_graph_with_other_works_has_other_kernels():
    graph = mixed()
    before = kernels_on(graph, H100)
    larger = with_works(graph, lambda work: replace(work, rows=4 * work.rows))
    assert kernels_on(larger, H100).blocks[0] == before.blocks[0]  # the image is as large
    assert kernels_on(larger, H100).blocks[3] > before.blocks[3]
    assert kernels_on(graph, H100) is before


def test_operators_that_have_no_choice_make_no_difference():
    graph = ss.OpGraph([Operator("given", kernels=GIVEN), Operator("unknown", time=3.0)])
    assert not has_choices(graph)
    assert has_choices(mixed())
    assert with_kernels(graph, H100) is graph
    assert columns(kernels_on(graph, H100), range(3)) == columns(kernels_on(graph, K80), range(3))
    assert same_kernels(graph, Cluster.preset("h100"), Cluster.preset("k80"))


def test_each_operator_launches_the_kernels_of_its_device():
    graph = ss.OpGraph([Operator(name, works=(CONVOLUTION,), dtype="fp16") for name in "abcd"])
    cluster = Cluster([replace(H100, name="new"), replace(K80, name="old"), replace(H100, name="last")], [])
    launches = launches_on(graph, cluster, np.array([0, 1, 2, 1]))
    assert np.diff(launches.ptr).tolist() == [4, 1, 4, 1]
    new, old = chosen_on(H100, CONVOLUTION), chosen_on(K80, CONVOLUTION)
    assert columns(launches, range(10)) == [*new, *old, *new, *old]


def test_clusters_of_which_a_graph_launches_the_same_kernels():
    graph = mixed()
    h100, two = Cluster.preset("h100"), Cluster.preset("h100", 2)
    assert same_kernels(graph, h100, h100.without_overheads())
    assert not same_kernels(graph, h100, Cluster.preset("a100"))
    assert not same_kernels(graph, h100, two)
    assert not same_kernels(graph, h100, h100.replace_devices(bandwidth=1e6))


def test_chosen_kernels_can_be_given():
    """A graph that has them as given ones launches them on every device."""
    graph = with_kernels(mixed(), H100)
    assert [len(op.kernels) for op in graph.operators] == [5, 2, 0, 1]
    assert [op.works for op in graph.operators] == [(), (), (), (COPY,)]
    assert not has_choices(graph)
    shapes = [row[:6] for row in columns(kernels_on(mixed(), H100), range(9))]
    assert [row[:6] for row in columns(kernels_on(graph, K80), range(9))] == shapes


def test_launches_on_no_device_in_particular():
    """One launch without a shape, or as many as are known, for each operator without kernels; they share its work."""
    graph = mixed()
    assert np.diff(given_launches(graph).ptr).tolist() == [1, 2, 1, 1]
    launches = given_launches(graph, np.array([4, 9, 1, 9]))  # given kernels are as many as they are
    assert np.diff(launches.ptr).tolist() == [4, 2, 1, 1]
    assert launches.blocks.tolist() == [0, 0, 0, 0, 100, 3, 0, 7]
    assert launches.share.tolist() == [0.25] * 4 + [0.25, 0.75, 1.0, 1.0]
    assert launches.flops[:4].tolist() == [1.25] * 4


def test_launches_of_copies_of_a_graph_side_by_side():
    launches = kernels_on(mixed(), H100)
    many = launches_beside(launches, 2, 3)
    assert np.diff(many.ptr).tolist() == [5, 2, 1, 1] * 2 + [1, 1, 1]
    assert columns(many, range(9)) == columns(many, range(9, 18)) == columns(launches, range(9))
    assert many.blocks[18:].tolist() == [0, 0, 0]


def test_launches_stand_where_a_graph_differs_in_costs():
    """Chosen ones as they were; given ones as the other graph has them; another number is refused."""
    graph = mixed()
    launches = kernels_on(graph, H100)
    ops = list(graph.operators)
    other = ss.OpGraph([ops[0], replace(ops[1], kernels=GIVEN[::-1]), replace(ops[2], flops=9.0), ops[3]])
    again = relaunch(launches, other)
    assert columns(again, range(5)) == columns(launches, range(5))
    assert again.blocks[5:].tolist() == [3, 100, 0, 7]
    assert again.flops[7] == 9.0
    assert relaunch(launches, ss.OpGraph([*ops[:1], replace(ops[1], kernels=(Kernel(1),)), *ops[2:]])) is None


def test_a_grid_that_cannot_be_names_its_operator():
    graph = ss.OpGraph([Operator("copies", works=(replace(COPY, rows=1 << 42),))])
    for ask in (lambda: kernels_on(graph, H100), lambda: launches_of(graph["copies"], H100)):
        with pytest.raises(GraphError, match=r"^operator 'copies': the work needs 4,294,967,296 blocks of a kernel"):
            ask()


# Files and programs


def chosen(n=3):
    """A chain of convolutions in fp16 in two streams; each launches 4 kernels on an H100 and 1 on a K80."""
    names = [f"conv{i}" for i in range(n)]
    ops = [Operator(name, works=(CONVOLUTION,), dtype="fp16", flops=CONVOLUTION.flops) for name in names]
    graph = ss.OpGraph(ops, [ss.Edge(a, b, 802816.0) for a, b in pairwise(names)])
    return ss.Schedule(graph, [ss.Placement(name, stream=i % 2, group=i % 2) for i, name in enumerate(names)])


def test_files_of_graphs_hold_works_and_no_chosen_kernels(tmp_path):
    graph = mixed()
    before = graph.to_dict()
    kernels_on(graph, H100)
    assert graph.to_dict() == before
    assert [len(row.get("kernels", ())) for row in before["operators"]] == [0, 2, 0, 1]
    assert [len(row.get("works", ())) for row in before["operators"]] == [2, 0, 0, 1]
    graph.save(tmp_path / "graph.json")
    assert ss.OpGraph.load(tmp_path / "graph.json") == graph
    assert not any(op.kernels for op in workloads.load("tiny_inception").operators)


@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
def test_programs_launch_the_kernels_of_the_device_they_are_lowered_for(execution):
    graph = ss.OpGraph(chosen().graph.operators)
    plan = ss.Schedule(graph, [ss.Placement(name, stream=i, group=i) for i, name in enumerate(graph.names)], execution)
    for device, count in ((H100, 4), (K80, 1)):
        cluster = Cluster([device])
        program = plan.lower(cluster)
        rows = [row for thread in program.threads for row in thread if row.do == "launch"]
        assert [(row.op, row.kernel) for row in rows] == [(f"conv{i}", k) for i in range(3) for k in range(count)]
        assert program.launches is kernels_on(plan.graph, device)
        spans = [span.op for span in ss.simulate(program, cluster).spans if span.kind == "kernel"]
        assert sorted(spans) == [f"conv{i}" for i in range(3) for _ in range(count)]


def test_a_program_from_a_file_chooses_the_kernels_of_the_cluster_it_runs_on(tmp_path):
    """Of an H100 where it was lowered for a device that launches as many; it runs as one lowered for it."""
    plan, h100, other = chosen(), Cluster.preset("h100"), Cluster.preset("a100")
    program = plan.lower(other)
    program.save(tmp_path / "program.json")
    read = ss.Program.load(tmp_path / "program.json")
    assert read == program
    assert not read.launches.has_shape.any()
    for cluster in (h100, other):
        own = plan.lower(cluster)
        assert columns(read.on(cluster).launches, range(12)) == columns(own.launches, range(12))
        assert ss.simulate(read, cluster).makespan == ss.simulate(own, cluster).makespan
        ss.simulate(read, cluster).program.check()


def test_a_program_runs_with_the_kernels_of_the_cluster_it_runs_on():
    """Whatever it was lowered for: kernels that a rule chose never stand."""
    plan, h100, a100 = chosen(), Cluster.preset("h100"), Cluster.preset("a100")
    program = plan.lower(a100)
    assert program.on(a100) is program
    there = program.on(h100)
    assert there.launches is kernels_on(plan.graph, H100)
    trace = ss.simulate(program, h100)
    assert trace.makespan == ss.simulate(plan, h100).makespan
    assert trace.program.launches is kernels_on(plan.graph, H100)
    assert ss.simulate_many(program, h100, 3, jitter=0.1, rng=0) == ss.simulate_many(plan, h100, 3, jitter=0.1, rng=0)


def test_given_kernels_of_a_program_stand_on_every_cluster():
    graph = ss.OpGraph([Operator("given", time=9.0, kernels=GIVEN)])
    program = ss.Schedule(graph, [ss.Placement("given")]).lower(Cluster.preset("h100"))
    assert program.on(Cluster.preset("k80")) is program


def test_a_program_of_another_number_of_kernels_is_refused(tmp_path):
    program = chosen().lower(Cluster.preset("h100"))
    program.save(tmp_path / "program.json")
    for each in (program, ss.Program.load(tmp_path / "program.json")):
        with pytest.raises(ProgramError, match=r"^kernels of operator 'conv0': 4 in the program, but 1 on k80: lower"):
            each.on(Cluster.preset("k80"))
        with pytest.raises(ProgramError, match="kernels of operator 'conv0'"):
            ss.simulate(each, Cluster.preset("k80"))


def test_launches_of_a_mixed_cluster_follow_the_placement():
    """conv0 and conv2 on an H100, conv1 on a K80; placed the other way round, a program has other launches."""
    cluster = Cluster(
        [replace(H100, name="gpu0"), replace(K80, name="gpu1")], [("gpu0", "gpu1", ss.Link(bandwidth=1e5))]
    )
    graph = chosen().graph
    for first, expected in ((0, [4, 1, 4]), (1, [1, 4, 1])):
        rows = [ss.Placement(f"conv{i}", f"gpu{(i + first) % 2}") for i in range(3)]
        program = ss.Schedule(graph, rows).lower(cluster)
        assert np.diff(program.launches.ptr).tolist() == expected
        assert program.home.tolist() == [(i + first) % 2 for i in range(3)]
        assert program.on(cluster) is program
        assert len([span for span in ss.simulate(program, cluster).spans if span.kind == "kernel"]) == sum(expected)
