"""Collectives of replayed traces on other links, devices and numbers of ranks, by the formula of docs/model.md."""

import json
import math

import pytest
from kineto_traces import A100, CollectiveTrace, collective

import simsched as ss
from simsched.experiments.whatif import parse_change
from simsched.model.cluster import GpuSheet
from workloads import read_kineto_program
from workloads.formats.kineto.link_effect import effect_of
from workloads.formats.kineto.replay import replay_traced

NCCL = "ncclDevKernel_Generic"
TWO = "[0, 1]"
NVLINK3 = {"bandwidth": 275e3, "start": 41.2, "step": 2.08, "efficiency": 0.626}
NVLINK4 = {"bandwidth": 400e3, "start": 24.9, "step": 0.63, "efficiency": 0.886}


def ring(steps, sent, link, **changes):
    """The time in us of so many steps and bytes that each rank sends; a message has 5 us and all of the bandwidth."""
    link = link | changes
    return link["start"] + steps * link["step"] + sent / (link["bandwidth"] * link["efficiency"])


def replay(tmp_path, kernels, *changes, **options):
    trace = CollectiveTrace(kernels, **options)
    return replay_traced(
        read_kineto_program(trace.write(tmp_path / "trace.json")), [parse_change(text) for text in changes]
    )


def lengths(replayed):
    """The simulated time of each operator in us."""
    return replayed.times[1, :, 1] - replayed.times[1, :, 0]


def reduced(nbytes, size=8, **more):
    return NCCL, 900.0, collective(n_in=nbytes // 4, size=size, **more)


def test_links_of_twice_the_bandwidth(tmp_path):
    """A ring of eight sends 2 x 7/8 of 64 MiB in 14 steps; the measured 900 us change as the formula does."""
    n = 2**26
    sent = 2 * 7 / 8 * n
    faster = ring(14, sent, NVLINK3, bandwidth=550e3) / ring(14, sent, NVLINK3)
    replayed = replay(tmp_path, [("gemm", 50.0, {}), reduced(n)], "link.bandwidth*=2")
    assert lengths(replayed) == pytest.approx([50.0, 900.0 * faster])
    assert replayed.link_effect.line == (
        f"900.0 us of 1 collective become {900 * faster:.1f} us, in proportion to the model"
    )
    absolute = replay(tmp_path, [("gemm", 50.0, {}), reduced(n)], "link.bandwidth=550GB/s")
    assert lengths(absolute) == pytest.approx(lengths(replayed))


@pytest.mark.parametrize(
    ("name", "n_in", "n_out", "steps", "sent"),
    [
        ("_allgather_base", 2**20, 2**23, 7, 7 / 8 * 2**25),
        ("_reduce_scatter_base", 2**23, 2**20, 7, 7 / 8 * 2**25),
        ("all_to_all", 2**23, 2**23, 1, 7 / 8 * 2**25),
    ],
)
def test_each_operation_follows_its_links(tmp_path, name, n_in, n_out, steps, sent):
    """Steps and bytes of eight ranks that exchange 32 MiB in all."""
    kernels = [(NCCL, 300.0, collective(name, n_in, n_out))]
    before = ring(steps, sent, NVLINK3)
    for change, after in (
        ("link.bandwidth*=0.5", ring(steps, sent, NVLINK3, bandwidth=137.5e3)),
        ("link.start=80", ring(steps, sent, NVLINK3, start=80.0)),
        ("link.step*=10", ring(steps, sent, NVLINK3, step=20.8)),
        ("link.latency=50us", before),
    ):
        assert lengths(replay(tmp_path, kernels, change)) == pytest.approx([300.0 * after / before])


def test_messages(tmp_path):
    """5 us, a step, and 1 MiB at all of the bandwidth."""
    message = (NCCL, 20.0, collective("send", 2**18))
    slower = replay(tmp_path, [message], "link.bandwidth*=0.1")
    ratio = (5 + 2.08 + 2**20 / 27.5e3) / (5 + 2.08 + 2**20 / 275e3)
    assert lengths(slower) == pytest.approx([20.0 * ratio])


def test_small_all_reduces_of_nccl_and_of_others(tmp_path):
    """NCCL takes a tree of 2 x 3 steps; a kernel that reads its peers takes one step and begins after 5 us."""
    n = 4096
    kernels = [(name, 60.0, collective(n_in=n // 4)) for name in (NCCL, "vllm::cross_device_reduce_1stage")]
    replayed = replay(tmp_path, kernels, "link.step=20")
    tree = [ring(6, 2 * n, NVLINK3, **more) for more in ({"step": 20.0}, {})]
    one_shot = [ring(1, 7 * n, NVLINK3, start=5.0, **more) for more in ({"step": 20.0}, {})]
    assert lengths(replayed) == pytest.approx([60.0 * tree[0] / tree[1], 60.0 * one_shot[0] / one_shot[1]])


def test_another_device(tmp_path):
    """Switches of an H200 reduce: each rank sends 9/8 of 64 MiB at 0.85 of the efficiency. Both limits agree on it.

    The product scales by the ratio of DRAM rates or of FP32 rates, which alone tells the limits apart.
    """
    n = 2**26
    ratio = ring(2, 9 / 8 / 0.85 * n, NVLINK4) / ring(14, 2 * 7 / 8 * n, NVLINK3)
    both = replay(tmp_path, [("gemm", 50.0, {}), reduced(n)], "device=h200")
    h200, a100 = (ss.Cluster.preset(name).devices[0] for name in ("h200", "a100"))
    scales = sorted([a100.bandwidth / h200.bandwidth, a100.peak["fp32"] / h200.peak["fp32"]])
    assert lengths(both) == pytest.approx([50.0 * scales[0], 900.0 * ratio])
    assert both.other_us - both.simulated_us == pytest.approx(50.0 * (scales[1] - scales[0]))


def test_a_device_of_a_file_has_its_links(tmp_path):
    path = tmp_path / "mine.json"
    sheet = GpuSheet.of("a100").to_dict()
    path.write_text(json.dumps(sheet | {"name": "mine", "link": "nvlink4"}), encoding="utf-8")
    n = 2**26
    ratio = ring(2, 9 / 8 / 0.85 * n, NVLINK4) / ring(14, 2 * 7 / 8 * n, NVLINK3)
    assert lengths(replay(tmp_path, [reduced(n)], f"device={path}")) == pytest.approx([900.0 * ratio])


def test_ranks(tmp_path):
    """Four ranks send 2 x 3/4 of the bytes in 6 steps. A message has two ranks, and a broadcast no model."""
    n = 2**26
    kernels = [
        reduced(n),
        (NCCL, 20.0, collective("recv", 2**18)),
        (NCCL, 30.0, collective("broadcast")),
        (NCCL, 40.0, collective("broadcast")),
    ]
    replayed = replay(tmp_path, kernels, "ranks=4")
    ratio = ring(6, 2 * 3 / 4 * n, NVLINK3) / ring(14, 2 * 7 / 8 * n, NVLINK3)
    assert lengths(replayed) == pytest.approx([900.0 * ratio, 20.0, 30.0, 40.0])
    assert replayed.link_effect.unchanged == {"send_recv has two ranks": 1, "broadcast has no model": 2}
    assert replayed.link_effect.line.endswith(
        "; 3 of 4 collectives keep their times: broadcast has no model (2), send_recv has two ranks (1)"
    )
    assert replayed.to_dict()["link_effect"] == {
        "collectives": 4,
        "measured_us": 900.0,
        "simulated_us": pytest.approx(900.0 * ratio),
        "unchanged": replayed.link_effect.unchanged,
    }


def test_ranks_on_two_nodes(tmp_path):
    """Sixteen ranks pass the network of 24 GB/s: 30 steps of 2.08 us, but of 8 us between the nodes, where 2 pass."""
    n = 2**26
    replayed = replay(tmp_path, [reduced(n)], "ranks=16")
    step = (14 * 2.08 + 2 * 8.0) / 16
    steps = {"ring": 30, "tree": 2 * math.ceil(math.log2(16))}
    sent = {"ring": 2 * 15 / 16 * n, "tree": 2 * n}
    network = {"bandwidth": 24e3, "start": 41.2, "step": step, "efficiency": 0.8}
    after = min(ring(steps[name], sent[name], network) for name in steps)
    assert lengths(replayed) == pytest.approx([900.0 * after / ring(14, 2 * 7 / 8 * n, NVLINK3)])


def test_changes_together_and_ranks_as_given_last(tmp_path):
    n = 2**26
    replayed = replay(
        tmp_path, [reduced(n)], "ranks=2", "link.bandwidth*=4", "ranks=4", "operators.collective.speed*=3"
    )
    ratio = ring(6, 2 * 3 / 4 * n, NVLINK3, bandwidth=1100e3) / ring(14, 2 * 7 / 8 * n, NVLINK3)
    assert lengths(replayed) == pytest.approx([300.0 * ratio])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (collective("broadcast"), "broadcast has no model"),
        (collective(size=16), "ranks 0 to 15 lie on several nodes of 8, which have no model"),
        (
            collective(size=2, **{"Process Group Ranks": "[0, 8]"}),
            "ranks 0 to 8 lie on several nodes of 8, which have no model",
        ),
        (collective(n_in=-4), "'In msg nelems' is '-4', not a number"),
        ({}, "the trace does not say what is exchanged"),
    ],
)
@pytest.mark.parametrize("change", ["link.bandwidth*=2", "ranks=4"])
def test_changes_that_nothing_follows(tmp_path, args, why, change):
    """They are refused; another device is not, and collectives keep their times there."""
    kernels = [("ncclKernel_AllReduce", 10.0, args), ("gemm", 5.0, {})]
    parameter = change.split("*")[0].split("=")[0]
    message = f"a replayed trace has no '{parameter}' that could be changed: none of 1 collective can follow: {why}"
    with pytest.raises(ss.SimschedError) as error:
        replay(tmp_path, kernels, change)
    assert str(error.value).endswith(message)
    other = replay(tmp_path, kernels, "device=h200")
    assert lengths(other)[0] == pytest.approx(10.0)
    if args:
        assert other.link_effect.line == f"1 of 1 collective keep their times: {why}"
    else:
        assert (other.link_effect, set(other.to_dict()) & {"collectives", "link_effect"}) == (None, set())


def test_no_collective_and_values_out_of_range(tmp_path):
    with pytest.raises(ss.SimschedError, match="'ranks' that could be changed: it has no collective"):
        replay(tmp_path, [("gemm", 5.0, {})], "ranks=4")
    with pytest.raises(ss.SimschedError, match="ranks=4096: give at most 1024 ranks"):
        replay(tmp_path, [reduced(4000)], "ranks=4096")
    for change in ("link.bandwidth*=0", "link.efficiency*=2"):
        with pytest.raises(ss.SimschedError, match=r"link: (bandwidth|efficiency) must be "):
            replay(tmp_path, [reduced(4000)], change)


def test_links_of_an_unknown_product(tmp_path):
    devices = (A100 | {"name": "NVIDIA Nonesuch 9"},)
    with pytest.raises(ss.SimschedError, match="follow: the links of 'NVIDIA Nonesuch 9' are not known"):
        replay(tmp_path, [reduced(4000)], "link.bandwidth*=2", devices=devices)


def test_no_change_is_no_change(tmp_path):
    """The device that ran, links as they are, as many ranks: the times stay to the last bit."""
    kernels = [reduced(4000), reduced(2**26)]
    usual = lengths(replay(tmp_path, kernels))
    for change in ("link.bandwidth*=1", "ranks=8", "device=a100"):
        assert lengths(replay(tmp_path, kernels, change)).tolist() == usual.tolist()


def test_ranks_of_one_replay_follow_once(tmp_path):
    """The transfer takes the least time of the two ranks, and that changes on both as the formula does."""
    n = 2**26
    paths = []
    for rank, length in enumerate((900.0, 700.0)):
        args = collective(n_in=n // 4, size=2, Seq=1, **{"Process Group Ranks": TWO})
        trace = CollectiveTrace([("gemm", 1000.0 - length, {}), (NCCL, length, args)], devices=(A100 | {"id": 0},))
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    program = read_kineto_program(paths)
    assert [one.exchange for one in program.of_trace.collectives] == [ss.Collective("all_reduce", n, 2)] * 2
    replayed = replay_traced(program, [parse_change("link.bandwidth*=2")])
    ratio = ring(2, n, NVLINK3, bandwidth=550e3) / ring(2, n, NVLINK3)
    moved = [lengths(replayed)[program.graph.index[f"rank{rank}/{NCCL}#0"]] for rank in (0, 1)]
    assert moved == pytest.approx([700.0 * ratio] * 2)
    usual = replay_traced(program)
    assert usual.simulated_us - replayed.simulated_us == pytest.approx(700.0 * (1 - ratio))


@pytest.mark.parametrize("options", [{"host": "captured"}, {"host": "none"}, {"streams": "one"}])
@pytest.mark.parametrize("changes", [(), ("contention=true",), ("device=h200",)])
def test_other_hosts_streams_and_contention(tmp_path, options, changes):
    """The all-reduce takes as long as with the links alone, whatever else is different."""
    path = CollectiveTrace([("gemm", 5.0, {}), reduced(2**26)]).write(tmp_path / "trace.json")
    program = read_kineto_program(path)
    changes = [parse_change(text) for text in (*changes, "link.bandwidth*=0.5")]
    usual = lengths(replay_traced(program, [change for change in changes if change.parameter != "contention"]))
    assert lengths(replay_traced(program, changes, **options))[1] == pytest.approx(usual[1])


def test_ratios_are_one_elsewhere(tmp_path):
    program = read_kineto_program(CollectiveTrace([("gemm", 5.0, {}), reduced(2**26)]).write(tmp_path / "t.json"))
    changes = [parse_change("link.bandwidth*=2"), parse_change("launch*=0.5")]
    effect = effect_of(program.of_trace.collectives, program.graph.time, program.cluster.devices[0], changes)
    assert effect.ratios[0] == 1.0
    assert effect.ratios[1] < 1.0
