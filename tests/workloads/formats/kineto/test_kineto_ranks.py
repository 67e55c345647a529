"""Ranks of distributed programs, put together: by hand, times in us."""

import json
import tarfile
import zipfile

import pytest
from kineto_traces import A100, CPU, KinetoTrace

from simsched.base.errors import FormatError
from simsched.experiments.whatif import parse_change
from workloads import read_kineto_program
from workloads.formats import format_of
from workloads.formats.kineto import read_kineto
from workloads.formats.kineto.collectives import RankCollective, is_collective, is_of_nccl, meetings_of
from workloads.formats.kineto.replay import replay_traced
from workloads.formats.kineto.text import read_traces

GROUP = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}


class Rank(KinetoTrace):
    """A rank that computes for some time, reduces with the others until 283, and computes again for 20 us."""

    def __init__(self, computes, *, device=0, pid=CPU, clock=0.0, args=GROUP):
        super().__init__(devices=(A100 | {"id": device},))
        self.pid, self.clock, self.device = pid, clock, device
        for name, start, length, more in (
            ("gemm", 3.0, computes, {}),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5.0 + computes, 278.0 - computes, args),
            ("add", 285.0, 20.0, {}),
        ):
            call = self.call("cudaLaunchKernel", 2.0 * self._n_calls - 200.0, 1.0)
            self.kernel(call, start, length, name, grid=(8, 1, 1), **more)

    def event(self, cat, name, start, dur, pid, tid, args, ph="X"):
        on_host = pid == CPU
        args = args if on_host else args | {"device": self.device}
        pid = self.pid if on_host else self.device
        super().event(cat, name, start + self.clock, dur, pid, self.pid if on_host else tid, args, ph)

    def flow(self, *_):
        """Nothing reads these."""


def both(tmp_path, **second):
    paths = [Rank(100.0).write(tmp_path / "rank0.json"), Rank(200.0, **second).write(tmp_path / "rank1.json")]
    return read_kineto_program(paths)


@pytest.mark.parametrize("clock", [0.0, 40.0, 5e5])
def test_transfer_is_the_least_over_ranks(tmp_path, clock):
    """The reduction takes 178 us on the first rank and 78 on the second, which comes last: 100 us are waiting.

    The clock of the second rank does not matter: a collective ends on both at once.
    """
    program = both(tmp_path, clock=clock)
    of = program.of_trace
    assert (of.ranks, of.n_met, of.transfer_us, of.waiting_us) == pytest.approx((2, 2, 156.0, 100.0), abs=0.01)
    assert [device.name for device in program.cluster.devices] == ["rank0.gpu0", "rank1.gpu0"]
    assert replay_traced(program).error == pytest.approx(0.0, abs=0.02)
    assert "of 2: transfer 156.0 us, waiting 100.0 us" in program.lines()[-1]


def test_waiting_moves_with_what_ifs(tmp_path):
    """If the rank that comes last computes in 100 us, too, nobody waits, and all are over 100 us sooner."""
    program = both(tmp_path)
    quick = replay_traced(program, [parse_change("operator.rank1/gemm#0.speed=2")])
    usual = replay_traced(program)
    assert usual.simulated_us - quick.simulated_us == pytest.approx(100.0, abs=1.0)
    other = replay_traced(program, [parse_change("operator.rank0/gemm#0.speed=2")])
    assert other.simulated_us == pytest.approx(usual.simulated_us, abs=0.1)
    fast = replay_traced(program, [parse_change("operators.collective.speed=2")])
    assert usual.simulated_us - fast.simulated_us == pytest.approx(39.0, abs=1.0)


def test_one_rank_cannot_tell(tmp_path):
    program = read_kineto_program(Rank(100.0).write(tmp_path / "rank0.json"))
    assert "cannot be told apart" in program.lines()[-1]
    assert program.graph.operators[1].time == pytest.approx(178.0)


@pytest.mark.parametrize("device", [0, 1])
def test_processes_of_one_file_have_ids_of_their_own(tmp_path, device):
    """Both ranks use the same correlation ids; each kernel is joined with the call of its own process."""
    first, second = Rank(100.0), Rank(200.0, pid=99, device=device)
    first.header["deviceProperties"] += [A100 | {"id": 1}]
    first.events += second.events
    path = first.write(tmp_path / "merged.json")
    program = read_kineto_program(path)
    assert (program.of_trace.ranks, program.n_lost) == (2, 0)
    assert program.of_trace.waiting_us == pytest.approx(100.0, abs=0.01)
    if device:
        assert len(read_kineto(path, device=1)) == 3
    with pytest.raises(FormatError, match="choose one with device="):
        read_kineto(path)


def test_archives_and_lists_of_events(tmp_path):
    rank = Rank(100.0)
    events = tmp_path / "events.json"
    events.write_text(json.dumps(json.loads(rank.text())["traceEvents"]), encoding="utf-8")
    assert format_of(events) == "kineto"
    program = read_kineto_program(events)
    assert (len(program.graph), program.of_trace.is_stated) == (3, False)
    rank.write(tmp_path / "one.json")
    Rank(200.0).write(tmp_path / "two.json")
    with zipfile.ZipFile(tmp_path / "ranks.zip", "w") as archive:
        archive.write(tmp_path / "one.json", "one.json")
        archive.writestr("README", "nothing")
    with tarfile.open(tmp_path / "ranks.tar.gz", "w:gz") as tar:
        for name in ("one.json", "two.json"):
            tar.add(tmp_path / name, name)
    assert [name for name, _ in read_traces(tmp_path / "ranks.zip")] == [f"{tmp_path}/ranks.zip/one.json"]
    assert read_kineto_program(tmp_path / "ranks.tar.gz").of_trace.ranks == 2
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("README", "nothing")
    with pytest.raises(FormatError, match=r"none\.zip: the archive holds no trace"):
        read_traces(tmp_path / "none.zip")
    (tmp_path / "torn.zip").write_bytes((tmp_path / "ranks.zip").read_bytes()[:100])
    with pytest.raises(FormatError, match=r"torn\.zip: the archive is damaged"):
        read_traces(tmp_path / "torn.zip")


def test_matching():
    """With sequence numbers these decide; without, the order, if ranks have as many."""
    one = [RankCollective(0, ("0", ""), 5, 10.0), RankCollective(1, ("0", ""), 6, 30.0)]
    two = [RankCollective(0, ("0", ""), 6, 20.0)]
    assert [(m.members, m.transfer) for m in meetings_of([one, two])] == [(((0, 1), (1, 0)), 20.0)]
    bare = [[row._replace(sequence=-1) for row in rank] for rank in (one, two)]
    assert meetings_of(bare) == []
    assert [m.transfer for m in meetings_of([bare[0], bare[0]])] == [10.0, 30.0]


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
        "void rccl::kernel<1>(int)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int4*)",
        "nvshmemi_transfer_rma_warp",
        "void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*)",
        "void sglang::cross_device_reduce_1stage<half, 8>(int)",
        "void mscclpp::allreduce7<half>(half*)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
        "void at::native::multimem_all_reduce_kernel<float>(float*)",
    ],
)
def test_names_of_collectives(name):
    assert is_collective(name)


@pytest.mark.parametrize(
    "name",
    [
        "void oneflow::BlockAllReduceKernel<float>(float*)",
        "void at::native::reduce_kernel<512, 1>(int)",
        "void cutlass::Kernel<ncclTile>(int)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void (anonymous namespace)::softmax_warpAllReduce<4>(int)",
    ],
)
def test_names_of_others(name):
    assert not is_collective(name)
    assert is_collective(name, {"Collective name": "allreduce"})


@pytest.mark.parametrize(
    ("name", "is_of"),
    [
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", True),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", True),
        ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R(ncclSymkDevWorkArgs)", False),
        ("void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*)", False),
    ],
)
def test_kernels_of_nccl_send_in_steps(name, is_of):
    assert is_of_nccl(name) == is_of
