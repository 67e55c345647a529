"""Answers of the release before, to the last bit: record it there, compare here, after each step of a refactoring.

    python -m validation.corpus record FILE       # in a checkout of the release
    python -m validation.corpus compare FILE      # in the tree that is being changed

Every scheduler on 41 graphs and 1, 2 and 4 devices, and the answers of each question of the command line as JSON. What
a processor computes may differ in the last bit from what another does, so both commands run on one machine.
"""

import json
import sys
from collections.abc import Iterator
from hashlib import blake2b
from shlex import split
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.base.io import dump_json, read_json, read_text, write_file
from workloads import from_spec

GRAPHS = (
    *(f"random:layered,n_ops={8 + 4 * i},n_layers={3 + i},seed={i}" for i in range(12)),
    *(f"random:layered,n_ops=60,n_layers=6,comm_ratio={0.2 * i + 0.1},seed={i}" for i in range(6)),
    *(f"random:{kind},n_ops=40,seed={i}" for kind in ("erdos-renyi", "watts-strogatz", "fork-join") for i in (1, 2)),
    *(f"random:{kind},n_ops=40,seed=3" for kind in ("series-parallel", "in-tree", "out-tree")),
    "random:wavefront,rows=5,columns=6",
    "random:cholesky,tiles=5",
    "random:lu,tiles=4",
    "random:fft,points=8",
    "random:inception-like,n_blocks=3",
    "random:transformer-like,n_layers=1,heads=4",
    "tiny_inception",
    "tiny_resnet",
    "tiny_transformer",
    "squeezenet",
    "inception_v3",
    "googlenet,granularity=operator",
    "resnet50,batch=8,dtype=fp16",
    "bert_base",
)
QUICK: dict[str, Any] = {
    "search": {"evaluations": 300},
    "autograph": {"budget": 30, "rounds": 1},
    "ios": {"max_transitions": 20_000, "max_stages": 2_000},
}
ON = "--gpu a100 --scheduler opara --json"
LAYERED = "random:layered,n_ops=40,n_layers=5"
STUDY = """
name = "corpus"
schedulers = ["sequential", "lios", "heft", "hios-lp"]
seeds = 3
[[workload]]
kind = "layered"
n_ops = 40
n_layers = 5
[cluster]
gpu = "a40"
gpus = [1, 2]
"""
_LEFT_OUT = ("created", "seconds", "provenance", "commit", "date", "digest", "key")  # that say when and where
QUESTIONS = {
    "compare": "compare inception_v3 --gpu a100 --schedulers fast --json",
    "compare, drawn": f"compare {LAYERED} --gpu a40 --gpus 2 --jitter 0.1 --samples 50 --json",
    "whatif": f"whatif squeezenet {ON} --set overhead.launch*=0.5 --set operators.conv.speed*=1.3 --reschedule",
    "sweep": f"sweep squeezenet overhead.launch 0.5,1,2 {ON}",
    "sensitivity": f"sensitivity squeezenet {ON}",
    "explain": f"explain squeezenet {ON}",
    "breakeven": "breakeven squeezenet overhead.launch sequential opara --gpu a100 --json",
    "robust": f"robust {LAYERED} --gpu a100 --schedulers sequential,heft,opara --json",
    "throughput": f"throughput squeezenet --in-flight 3 {ON}",
    "simulate": f"simulate inception_v3 {ON}",
    "show": "show inception_v3 --gpu a100 --json",
    "validate": f"validate {LAYERED} --backend synthetic --rounds 2 --training 3 --held-out 3 --json",
}


def cases() -> Iterator[tuple[str, str]]:
    """Name and answer of each case, one after the other."""
    for spec in GRAPHS:
        graph = from_spec(spec)
        for n in (1, 2, 4):
            cluster = ss.Cluster.preset("a40", n)
            for name in ss.SCHEDULERS:
                answer = repr(_plan(graph, cluster, name)).encode()
                yield f"{spec} on {n}: {name}", blake2b(answer, digest_size=8).hexdigest()
    for name, command in QUESTIONS.items():
        yield name, _printed(command)
    with TemporaryDirectory() as folder:
        write_file(f"{folder}/study.toml", STUDY)
        _printed(f"study run {folder}/study.toml --output {folder}/rows --serial")
        rows = [json.loads(line) for line in read_text(f"{folder}/rows/rows.jsonl").splitlines()]
        yield "study", dump_json(_without({"rows": rows}))


def _plan(graph: ss.OpGraph, cluster: ss.Cluster, name: str) -> Any:
    """Everything that a scheduler and the simulator say of a graph."""
    try:
        plan = ss.schedule(graph, cluster, name, **QUICK.get(name, {}))
    except SimschedError as error:
        return str(error)
    placements = [(p.op, p.device, p.stream, p.stage, p.group, p.priority) for p in plan.placements]
    trace = ss.simulate(plan, cluster)
    spans = [(s.op, s.start, s.end) for s in trace.spans]
    return placements, plan.estimate, plan.execution, trace.makespan, spans, ss.lower_bound(plan.graph, cluster)


def _printed(command: str) -> str:
    """Return the output of the command line; of JSON the values, without the fields of time and place."""
    result = run([sys.executable, "-m", "simsched", *split(command)], capture_output=True, text=True, check=False)
    try:
        return dump_json(_without(json.loads(result.stdout)))
    except ValueError:
        return f"{result.returncode}: {result.stdout}{result.stderr}"


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without(v) for k, v in sorted(value.items()) if not k.endswith("_s") and k not in _LEFT_OUT}
    return [_without(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Record, or compare and print the differences."""
    verb, file = sys.argv[1:]
    found = dict(cases())
    if verb == "record":
        write_file(file, dump_json(found))
        print(f"{len(found)} cases recorded")
        return
    known = read_json(file)
    differ = [name for name in known if known[name] != found.get(name)]
    print(*differ, f"{len(known)} cases, {len(differ)} differ", sep="\n")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
