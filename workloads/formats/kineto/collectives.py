"""Collectives of a torch.profiler trace: their kernels, and the collectives of several ranks that belong together."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.model import Collective, Floats, Ints
from workloads.formats.kineto.exchange_data import NAME, NOT_STATED, ExchangeData, common_exchange

COLLECTIVES: Final[Mapping[str, str]] = {
    "NCCL, RCCL": "nccl|rccl",
    "DeepEP": "deep_?ep",
    "NVSHMEM, ROC_SHMEM": "nvshmem|roc_?shmem",
    "MSCCL, MSCCL++": "msccl",
    "vLLM, SGLang, AITER": "cross_device_reduce|quick_?reduce|allreduce_prototype|custom_?all_?reduce",
    "TensorRT-LLM, flashinfer": "(one|two)_?shot_?(all_?)?reduce|all_?reduce_fusion|mnnvl|lamport|moe_?all_?to_?all|"
    "moe_?all_?reduce",
    "Transformer Engine": "userbuffers",
    "PyTorch symmetric memory": "multimem_|symm(etric)?_mem|(one|two)_shot_all_reduce",
    "by what they do": "(?<![a-z])(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv)",
}
"""Library of collectives -> pattern in the names of its kernels, without their types and in any case."""
CATEGORIES: Final = ("nccl", "collective", "collective_comm", "communication")
"""Categories of events that are collectives, whatever their names."""
GROUP = "Process Group Name"
SEQUENCE = "Seq"
"""Arguments of a kernel that only collectives have."""

_named: Final = re.compile("|".join(COLLECTIVES.values()), re.IGNORECASE).search
_NCCL: Final = re.compile(r"(nccl|rccl)(?!sym)\w*kernel", re.IGNORECASE)


def is_collective(name: str, args: Mapping[str, Any] | None = None) -> bool:
    """Return whether a kernel is a collective, by its arguments or by its name.

    >>> is_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"), is_collective("BlockAllReduce<4>")
    (True, False)
    >>> is_collective("void vllm::cross_device_reduce_1stage<half, 8>(int)"), is_collective("gemm<AllReduce>")
    (True, False)
    """
    return (args is not None and (NAME in args or GROUP in args)) or (
        bool(name) and _named(short_name(name)) is not None
    )


def is_of_nccl(name: str) -> bool:
    """Return whether a kernel is one of NCCL or RCCL in which ranks send in steps; symmetric ones read their peers.

    >>> is_of_nccl("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"), is_of_nccl("ncclSymkDevKernel_AllReduce")
    (True, False)
    """
    return _NCCL.match(short_name(name)) is not None


def short_name(name: str) -> str:
    """Return the name of a kernel without its types.

    >>> short_name("void at::native::(anonymous namespace)::CatArray<float, 4>(float*)"), short_name("volta_sgemm_tn")
    ('at::native::CatArray', 'volta_sgemm_tn')
    """
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", bare, maxsplit=1)[0].strip() or name


class RankCollective(NamedTuple):
    """A collective of a rank.

    Parameters
    ----------
    op
        Its operator.
    communicator, sequence
        Its communicator, and its number there (-1: in order).
    time
        Its measured time in us, with the waiting for peers.
    data
        The data that it exchanges, or why that is not known.
    is_of_nccl
        Whether a kernel of NCCL or RCCL does it, which have no ``"one_shot"`` algorithm.
    """

    op: int
    communicator: tuple[str, ...]
    sequence: int
    time: float
    data: ExchangeData = ExchangeData(None, NOT_STATED)
    is_of_nccl: bool = False

    @property
    def exchange(self) -> Collective | None:
        """Operation, bytes and ranks; None if they are not known."""
        return self.data.collective


class JointCollective(NamedTuple):
    """A collective of several ranks.

    Parameters
    ----------
    members
        The ranks in it, and the operator of each.
    transfer
        Time of the transfer in us.
    data
        The exchange on which all of its ranks agree.
    """

    members: tuple[tuple[int, int], ...]
    transfer: float
    data: ExchangeData = ExchangeData(None, NOT_STATED)


def meetings_of(ranks: Sequence[Sequence[RankCollective]]) -> list[JointCollective]:
    """Return the collectives that several ranks took part in.

    Parameters
    ----------
    ranks
        Collectives of each rank in the order in which they started.

    Notes
    -----
    Collectives of one communicator with the same sequence number belong together; without sequence numbers the k-th
    ones of all ranks do, if all ranks that use the communicator have as many. A transfer takes the least time over the
    ranks: the last rank to come does not wait.
    """
    by_communicator: dict[tuple[str, ...], dict[int, list[RankCollective]]] = defaultdict(lambda: defaultdict(list))
    for rank, rows in enumerate(ranks):
        for row in rows:
            by_communicator[row.communicator][rank].append(row)
    meetings = []
    for users in by_communicator.values():
        if len(users) < 2:
            continue
        numbered = all(row.sequence >= 0 for rows in users.values() for row in rows)
        if not numbered and len({len(rows) for rows in users.values()}) > 1:
            continue
        together: dict[tuple[int, int], list[tuple[int, RankCollective]]] = defaultdict(list)
        for rank, rows in users.items():
            times: dict[int, int] = defaultdict(int)
            for k, row in enumerate(rows):
                number = row.sequence if numbered else k
                together[number, times[number]].append((rank, row))
                times[number] += 1
        for same in together.values():
            if len(same) > 1:
                members = tuple((rank, row.op) for rank, row in same)
                transfer = min(row.time for _, row in same)
                meetings.append(JointCollective(members, transfer, common_exchange([row.data for _, row in same])))
    return meetings


def clock_shifts(ranks: Sequence[Sequence[RankCollective]], ends: Sequence[Floats]) -> Floats:
    """Return by how many us the clock of each rank is ahead of the clock of the first, shape (n_ranks,).

    A collective ends on all ranks at once: the shift is the median over the collectives that a rank shares with the
    first. A rank that shares none has 0.
    """
    shifts = np.zeros(len(ranks))
    apart: dict[int, list[float]] = defaultdict(list)
    for meeting in meetings_of(ranks):
        rows = dict(meeting.members)
        if 0 in rows:
            for rank, op in meeting.members:
                apart[rank].append(float(ends[rank][op] - ends[0][rows[0]]))
    for rank, differences in apart.items():
        shifts[rank] = np.median(differences)
    return shifts


def communicators(names: Sequence[str], group: Ints, groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the communicator of each collective: its group, or where the trace names none the kernel's name."""
    return [groups[g] if g > 0 else ("", name) for name, g in zip(names, group.tolist(), strict=True)]
