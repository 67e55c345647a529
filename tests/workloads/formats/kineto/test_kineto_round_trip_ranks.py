"""Ranks that are simulated, written as a trace each, and read together: waiting for peers moves with a change.

Each rank computes on stream 0 and reduces on stream 1, eight times. The kernel of a reduction is recorded from the
arrival of its rank; the truth of a change is the simulation of all ranks with it.
"""

import json

import numpy as np
import pytest
from kineto_traces import A100
from test_kineto_round_trip import HOST, KERNEL, event, kernel, spans_of

import simsched as ss
from simsched.cli.run import run
from simsched.experiments.whatif import parse_change
from simsched.model.graph.rearranged import with_times
from simsched.model.program import LAUNCH
from simsched.simulator import simulate
from workloads import read_kineto_program
from workloads.formats.kineto.replay import replay_traced

LAYERS = 8
GROUP = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "all"}


class Ranks:
    """Ranks with random times, the traces of their run, and the truth of a change."""

    def __init__(self, seed, folder):
        rng = np.random.default_rng(seed)
        self.n = 2 + seed % 2
        ops, edges, places = [], [], []
        for rank in range(self.n):
            for layer in range(LAYERS):
                compute, reduce = f"{rank}.c{layer}", f"{rank}.r{layer}"
                time = float(rng.uniform(20, 150))
                together = ss.Collective("all_reduce", bytes=1e6, ranks=self.n, group=f"g{layer}")
                few = (ss.Kernel(4, 128, 16),)
                ops.append(ss.Operator(compute, "kernel", time=time, kernels=few))
                ops.append(ss.Operator(reduce, "collective", time=40.0 + 10 * layer, kernels=few, collective=together))
                edges.append(ss.Edge(compute, reduce))
                if layer and seed % 3:  # else nothing is computed from what is reduced
                    edges.append(ss.Edge(f"{rank}.r{layer - 1}", compute))
                places += [ss.Placement(compute, device=f"gpu{rank}"), ss.Placement(reduce, f"gpu{rank}", 1)]
        self.graph = ss.OpGraph(ops, edges)
        cluster = ss.Cluster.preset("a100", n_gpus=self.n).replace_devices(contention=False)
        self.program = ss.Schedule(self.graph, places, execution="events").lower(cluster)
        self.trace = simulate(self.program, cluster)
        self.factor = np.where(rng.random(len(ops)) < 0.5, 0.25, 1.0)
        self.factor[1::2] = 1.0  # reductions take what they took
        times = np.array(self.graph.time) * self.factor
        self.truth = simulate(self.program.over(with_times(self.graph, times)), cluster).makespan
        self.paths = [self.write(rank, folder / f"rank{rank}.json") for rank in range(self.n)]

    def write(self, rank, path):
        """Write the trace of a rank, by a clock of its own."""
        program = self.program
        spans = spans_of(self.trace, KERNEL)
        recorded = {}
        events = []
        at = {}  # end of the last kernel of each stream
        for row, span in sorted(spans_of(self.trace, HOST).items()):
            if int(program.device[row]) != rank:
                continue
            stream, argument = int(program.stream[row]), int(program.argument[row])
            name = ("cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent")[program.action[row]]
            events.append(event("cuda_runtime", name, span, 1, correlation=row + 1))
            if program.action[row] == LAUNCH:
                start, end = spans[argument]
                if stream == 1:
                    start = min(start, 1.0 + max(at.get(0, 0.0), at.get(1, 0.0), span[0] + 7.0))  # its arrival
                one = kernel(argument, (start, end), stream, row + 1)
                if stream == 1:
                    one["name"] = f"ncclDevKernel_AllReduce_k{argument}_"
                    one["args"] |= GROUP
                events.append(one)
                at[stream] = end
            elif name == "cudaEventRecord":
                recorded[argument] = row + 1, stream
            else:
                record, source = recorded[argument]
                ids = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": record, "correlation": row + 1}
                events.append(event("cuda_sync", "Stream Wait Event", span, stream, device=0, **ids))
        for one in events:
            one["ts"] += 1000.0 * rank
        path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": events}), encoding="utf-8")
        return path


@pytest.mark.parametrize("seed", range(6))
def test_waiting_moves_with_a_change(seed, tmp_path):
    ranks = Ranks(seed, tmp_path)
    program = read_kineto_program(ranks.paths)
    replay = replay_traced(program, [parse_change("contention=false")])
    assert abs(replay.error) < 0.02
    assert program.of_trace.n_met == ranks.n * LAYERS
    assert program.of_trace.transfer_us == pytest.approx(ranks.n * sum(40.0 + 10 * k for k in range(LAYERS)), rel=0.02)
    times = np.array(program.graph.time)
    for i, name in enumerate(program.graph.names):
        _, _, number = name.partition("/k")
        if number:
            times[i] *= ranks.factor[int(number.partition("_")[0])]
    changed = simulate(program.over(with_times(program.graph, times)), program.cluster)
    assert changed.makespan == pytest.approx(ranks.truth, rel=0.04)


def test_commands_on_several_ranks(tmp_path, capsys, monkeypatch):
    """What runs them as they ran works; to schedule them anew is refused."""
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("ranks.zip", "w") as archive:
        for path in Ranks(1, tmp_path).paths:
            archive.write(path, path.name)
    for line in ("explain", "simulate", "throughput", "whatif", "show"):
        assert run([line, "ranks.zip"]) == 0
        assert "transfer" in capsys.readouterr().out
    for line in ("compare ranks.zip", "advise ranks.zip", "overlap ranks.zip", "explain ranks.zip --scheduler heft"):
        assert run(line.split()) == 2
        assert "holds 3 ranks, which cannot be scheduled anew; give the trace of one" in capsys.readouterr().err
