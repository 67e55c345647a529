"""Collectives of a trace by operation: bytes, measured times and rates beside the model's, worked by hand."""

import json
from collections import Counter

import pytest
from kineto_traces import A100, CollectiveTrace, collective

from simsched.cli.run import run
from workloads import read_kineto_program
from workloads.formats.kineto.facts import facts_of
from workloads.formats.kineto.rates import counts_of

NCCL = "ncclDevKernel_Generic"
MIB = 2**20


def ring(n, nbytes):
    """The time in us of an all-reduce between n ranks over NVLink of an A100, from docs/model.md."""
    return 41.2 + 2 * (n - 1) * 2.08 + 2 * (n - 1) / n * nbytes / (275e3 * 0.626)


@pytest.fixture
def program(tmp_path):
    """The program of a trace of some kernels."""
    return lambda kernels, **options: read_kineto_program(
        CollectiveTrace(kernels, **options).write(tmp_path / "trace.json")
    )


def test_rates_beside_the_model(program):
    """64 MiB of fp32 in 1,000 us and 32 MiB of bf16 in 5,000 us: the second exceeds the model by more."""
    kernels = [
        (NCCL, 1000.0, collective(n_in=16 * MIB)),
        ("gemm", 50.0, {}),
        (NCCL, 5000.0, collective(n_in=16 * MIB, dtype="BFloat16")),
        (NCCL, 100.0, collective("_allgather_base", MIB, 4 * MIB, "Half", 4)),
    ]
    traced = program(kernels)
    reduced, gathered = traced.rates.operations
    first, second = ring(8, 64 * MIB), ring(8, 32 * MIB)
    assert (reduced.operation, reduced.ranks, reduced.nbytes, reduced.measured_us) == (
        "all_reduce",
        8,
        96 * MIB,
        6000.0,
    )
    assert reduced.model_us == pytest.approx(first + second)
    assert [one.model_us for one in reduced.collectives] == pytest.approx([first, second])
    assert reduced.slowest.op == f"{NCCL}#1"
    assert reduced.line() == (
        f"all_reduce: 2 between 8 ranks, 96.0 MiB in 6000.0 us (16.8 GB/s); by the model {first + second:.1f} us "
        f"({96 * MIB / (first + second) / 1e3:.3g} GB/s); furthest above it {NCCL}#1: 32.0 MiB in 5000.0 us instead of "
        f"{second:.1f} us"
    )
    assert (gathered.operation, gathered.ranks, gathered.nbytes) == ("all_gather", 4, 8 * MIB)
    assert gathered.model_us == pytest.approx(41.2 + 3 * 2.08 + 3 / 4 * 8 * MIB / (275e3 * 0.626))
    assert traced.lines()[:2] == [reduced.line(), gathered.line()]


def test_ranks_apart_and_nodes_apart(program):
    """Operations of other numbers of ranks are rows of their own; several nodes have no model."""
    kernels = [(NCCL, 100.0, collective(n_in=MIB, size=size)) for size in (4, 8, 16, 4)]
    kernels.append((NCCL, 100.0, collective(n_in=MIB, size=4, **{"Process Group Ranks": "[0, 8, 16, 24]"})))
    rows = program(kernels).rates.operations
    assert [(row.ranks, len(row.collectives), row.no_model) for row in rows] == [
        (4, 2, ""),
        (8, 1, ""),
        (16, 1, "ranks 0 to 15 lie on several nodes of 8, which have no model"),
        (4, 1, "ranks 0 to 24 lie on several nodes of 8, which have no model"),
    ]
    assert rows[2].line() == (
        "all_reduce: 1 between 16 ranks, 4.0 MiB in 100.0 us (41.9 GB/s); ranks 0 to 15 lie on several nodes of 8, "
        "which have no model"
    )
    assert rows[2].to_dict() == {
        "operation": "all_reduce",
        "ranks": 16,
        "collectives": 1,
        "nbytes": 4 * MIB,
        "measured_us": 100.0,
        "rate": 4 * MIB / 100,
        "model_us": None,
        "model_rate": None,
        "slowest": None,
        "no_model": "ranks 0 to 15 lie on several nodes of 8, which have no model",
    }


def test_unknown_ones_are_counted(program):
    kernels = [
        (NCCL, 10.0, args) for args in (collective("broadcast"), collective(dtype="Foo"), {}, collective("gather"))
    ]
    kernels += [(NCCL, 10.0, collective("broadcast"))]
    traced = program(kernels)
    assert traced.rates.operations == ()
    assert traced.lines()[-1].endswith(
        "; of 5 the exchange is not known: broadcast has no model (2), 'dtype' is 'Foo', whose size is not known (1), "
        "the trace does not say what is exchanged (1), gather has no model (1)"
    )


def test_traces_without_arguments_have_no_more_lines(program):
    traced = program([(NCCL, 10.0, {}), ("gemm", 10.0, {})])
    assert not traced.rates.are_stated
    assert traced.lines() == [
        "collectives: 1, 10.0 us in all: transfer and waiting for peers cannot be told apart; give traces of the other "
        "ranks too"
    ]


def test_a_collective_of_no_time_has_no_rate(program):
    (row,) = program([(NCCL, 0.0, collective(n_in=MIB)), ("gemm", 10.0, {})]).rates.operations
    assert row.to_dict()["rate"] is None
    assert row.line().startswith("all_reduce: 1 between 8 ranks, 4.0 MiB in 0.0 us; by the model ")


def test_ranks_of_one_replay_tell_the_transfer(tmp_path):
    """A rank that comes 200 us early waits; the transfer of 64 MiB takes 700 us on both."""
    paths = []
    for rank, length in enumerate((900.0, 700.0)):
        args = collective(n_in=16 * MIB, size=2, Seq=1, **{"Process Group Ranks": "[0, 1]"})
        trace = CollectiveTrace([("gemm", 1000.0 - length, {}), (NCCL, length, args)], devices=(A100 | {"id": 0},))
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    (row,) = read_kineto_program(paths).rates.operations
    assert (len(row.collectives), row.measured_us, row.nbytes) == (2, pytest.approx(1400.0), 128 * MIB)
    assert row.model_us == pytest.approx(2 * ring(2, 64 * MIB))


def test_commands_and_facts_have_them(program, tmp_path, capsys):
    traced = program([(NCCL, 100.0, collective(n_in=MIB)), (NCCL, 10.0, collective("barrier", 0))])
    row = traced.rates.operations[0]
    assert row.line() in facts_of(traced).lines
    path = str(tmp_path / "trace.json")
    assert run(["replay-trace", path, "--set", "link.bandwidth*=2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "all_reduce 1 between 8 ranks, 4.0 MiB in 100.0 us (41.9 GB/s); by the model" in out
    assert "links 100.0 us of 1 collective become" in out
    assert "1 of 2 collectives keep their times: barrier has no model" in out
    assert run(["replay-trace", path, "--set", "ranks=4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["collectives"] == {"known": [row.to_dict()], "unknown": {"barrier has no model": 1}}
    assert document["link_effect"]["unchanged"] == {"barrier has no model": 1}
    assert run(["replay-trace", path, "--json"]) == 0
    assert "link_effect" not in json.loads(capsys.readouterr().out)


def test_many_reasons_are_told_together():
    reasons = Counter({f"reason {k}": 9 - k for k in range(8)})
    assert counts_of(reasons).endswith("reason 4 (5), other reasons (9)")
