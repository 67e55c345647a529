"""Commands that ask: what if, sweep, sensitivity, explain, breakeven, robust, throughput; and `compare -o`."""

import json
from functools import partial
from pathlib import Path

import pytest

import simsched as ss
import workloads
from simsched.experiments.comparison import Comparison
from simsched.experiments.documents import DOCUMENTS

CHAIN = ss.OpGraph(
    [ss.Operator("a", "conv", time=30.0), ss.Operator("b", time=10.0), ss.Operator("c", time=2.0)],
    [ss.Edge("a", "b"), ss.Edge("b", "c")],
    "chain",
)
FORK = ss.OpGraph([ss.Operator("a", time=50.0), ss.Operator("b", time=50.0)], name="fork")
A100 = ss.Cluster.preset("a100")
FREE = A100.without_overheads()
PLAN = ss.schedule(CHAIN, FREE, "sequential")
TINY = partial(workloads.load, "tiny_inception", image_size=16)


@pytest.fixture(scope="module")
def files(files):
    for name, each in {"chain": CHAIN, "fork": FORK, "plan": PLAN, "free": FREE}.items():
        each.save(str(files / f"{name}.json"))
    return files


def of(graph, *given, **options):
    return ss.what_if(graph, FREE, *given, **options)


def rebuilt(graph, sweep=None):
    asked = ss.what_if(graph, A100, load=TINY)
    return asked.rebuild(batch=2).answer() if sweep is None else asked.overhead(0).sweep("rebuild.batch", sweep)


def robust(names, **options):
    return ss.robust({name: ss.schedule(FORK, FREE, name) for name in names}, FREE, **options)


ROUND_ROBIN = {"scheduler": "round-robin", "options": {"streams": 1}}
SAME = {
    "whatif chain.json --cluster free.json --set operators.conv.speed*=2": lambda: (
        of(CHAIN).operators(kind="conv", speed=2.0).answer()
    ),
    "whatif chain.json --cluster free.json --set operators.speed*=2 --set fuse=a,b --set remove=c": lambda: (
        of(CHAIN).operators(speed=2.0).fuse(["a", "b"]).remove("c").answer()
    ),
    "whatif chain.json --set overhead.launch=0": lambda: (
        ss.what_if(CHAIN, A100).overhead(launch=ss.absolute(0.0)).answer()
    ),
    "whatif plan.json --cluster free.json --set device=h100": lambda: of(PLAN).device("h100").answer(),
    "whatif fork.json --cluster free.json --scheduler round-robin --option streams=1 --set gpus=2": lambda: (
        of(FORK, **ROUND_ROBIN).gpus(2).answer()
    ),
    (
        "whatif fork.json --cluster free.json --scheduler round-robin --option streams=1 --set gpus=2 --reschedule"
    ): lambda: of(FORK, True, **ROUND_ROBIN).gpus(2).answer(),
    "whatif tiny_inception,image_size=16 --set rebuild.batch=2": lambda: rebuilt(TINY()),
    "sweep chain.json operators.speed 0.5,1,4 --cluster free.json --plot r.svg": lambda: of(CHAIN).sweep(
        "operators.speed", [0.5, 1.0, 4.0]
    ),
    # a bare number is a factor, = or a unit a value
    "sweep chain.json overhead.launch 2,=12,12us": lambda: ss.what_if(CHAIN, A100).sweep(
        "overhead.launch", [2.0, ss.absolute(12.0), ss.absolute(12.0)]
    ),
    "sweep fork.json gpus 1,2 device a100,v100 --reschedule --scheduler round-robin": lambda: ss.what_if(
        FORK, A100, True, scheduler="round-robin"
    ).sweep("gpus", [1, 2], "device", ["a100", "v100"]),
    "sweep tiny_inception,image_size=16 rebuild.batch 1,4 --set overhead=0": lambda: rebuilt(TINY(), [1, 4]),
    "sensitivity chain.json --cluster free.json --per-operator": lambda: of(CHAIN).sensitivity(per_operator=True),
    "sensitivity plan.json --cluster free.json --tornado r.svg": lambda: of(PLAN).sensitivity(),
    "explain plan.json --cluster free.json": lambda: ss.explain(PLAN, FREE),
    "breakeven fork.json overhead.launch sequential round-robin --plot r.svg": lambda: ss.breakeven(
        "overhead.launch", "sequential", "round-robin", A100, graph=FORK
    ),
    "breakeven chain.json overhead.launch plan.json lios": lambda: ss.breakeven(
        "overhead.launch", PLAN, "lios", A100, graph=CHAIN
    ),
    (
        "robust fork.json --cluster free.json --schedulers sequential,round-robin --samples 20 --jitter 0.1 --seed 3"
    ): lambda: robust(("sequential", "round-robin"), jitter=0.1, samples=20, rng=3),
    "robust fork.json --cluster free.json --schedulers lios --samples 20 --box r.svg": lambda: robust(
        ("lios",), jitter=0.02, samples=20, rng=0
    ),
    "throughput plan.json --cluster free.json": lambda: ss.throughput(PLAN, FREE),
    "throughput chain.json --cluster free.json --in-flight 2 --scheduler sequential": lambda: ss.throughput(
        PLAN, FREE, 2
    ),
}


@pytest.mark.parametrize("line", SAME)
def test_what_the_library_says(said, line):
    """In a file, as JSON without the schedules and clusters of an answer, as a table or in words, as a picture."""
    expected = SAME[line]()
    data = json.loads(json.dumps(expected.to_dict()))
    printed = json.loads(said(f"{line} -o r.json --json"))
    assert DOCUMENTS[data["format"]].load("r.json").to_dict() == data
    assert printed == {key: value for key, value in data.items() if key not in ("before", "kept", "after")}
    text = " ".join(said(f"{line} -o r.json").split())
    assert text.endswith("written to r.json" + " picture written to r.svg" * ("r.svg" in line))
    assert "r.svg" not in line or Path("r.svg").read_bytes().startswith(b"<?xml")
    title = str(expected) if line.startswith("explain") else str(expected.table().title)
    assert " ".join(title.split()) in text


def test_an_answer_ends_with_shares(said):
    """Without overheads all of 42 and of 27 us is spent computing."""
    out = said("whatif plan.json --cluster free.json --set operators.conv.speed*=2")
    assert out.splitlines()[-2:] == ["before  compute 100.0 %", "after   compute 100.0 %"]


def test_robust_names_who_refused(said):
    out = said("robust fork.json --cluster free.json --schedulers sequential,autograph --samples 2")
    assert "autograph: no schedule: autograph: " in out


def test_a_comparison_in_a_file(said):
    """What --json prints is rows alone. The file has the schedules too, and is read back as it was."""
    line = "compare fork.json --schedulers sequential,round-robin --samples 3 -o c.json"
    assert said(line).endswith("comparison written to c.json\n")
    printed = json.loads(said(f"{line} --json"))
    found = Comparison.load("c.json")
    assert found.summary() == printed
    assert [row["makespan_us"] for row in printed["rows"]] == [trace.makespan for trace in found.traces.values()]
