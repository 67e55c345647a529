"""What to deploy: worked by hand on operators of given times, and held against direct simulations."""

import re

import pytest
from small import chain, made, operators, placements

import simsched as ss
from simsched.base.errors import WhatIfError
from simsched.experiments.whatif.throughput import requests_per_s

FREE = ss.Cluster.preset("a100").without_overheads()
TWO = ss.Cluster.preset("a100", 2)


def by_name(advice):
    return {row.name: row for row in advice.rows}


def test_three_side_by_side():
    """Three of 100 us that load 30 % each: 300 us on one stream, 100 us on three; requests follow, up to the peak.

    Three requests of one stream at a time load 90 %, so that 8 in flight end 3.33 every 100 us / 3.
    """
    found = ss.advise(made(operators("a=100 b=100 c=100", utilization=0.3)), FREE)
    rows = by_name(found)
    assert [(row.latency_us, row.speedup) for row in found.rows[1:3]] == [(300.0, 1.0), (300.0, 1.0)]
    assert (found.rows[0].name, found.rows[0].latency_us) == ("eager", 319.0)  # 19 us for the first launch
    assert rows["streams"].latency_us == pytest.approx(100.0)
    assert rows["streams"].speedup == pytest.approx(3.0)
    assert rows["streams"].speedup_low > 1.3  # 3 to the power 0.8, less 1.65 deviations of hypot(0.11, 0.3 ln 3)
    assert rows["one stream"].requests_per_s[:2] == pytest.approx((1e6 / 300, 2e6 / 300))
    assert max(rows["one stream"].requests_per_s) < 1e6 / 90 * 1.01  # all SMs are busy then
    assert found.best in ("streams", "streams captured")
    assert found.plan.n_streams == 3
    assert found.verdict[0].startswith("Streams pay")


def test_a_chain_needs_one_stream():
    """Nothing is faster than one operator after the other; a chain is not worth a second GPU, a copy on each is."""
    found = ss.advise(chain(*[100.0] * 4, utilization=0.9), TWO, source="m.onnx", options="--gpu a100 --gpus 2")
    rows = by_name(found)
    assert found.best == "one stream captured"
    assert "is enough" in found.verdict[0]
    assert rows["split over 2 GPUs"].reason is not None
    alone, copies = rows["one stream captured"].requests_per_s, rows["replicas on 2 GPUs"].requests_per_s
    assert copies[1:] == pytest.approx([2 * each for each in alone[:3]], rel=0.02)
    assert found.commands["keep the schedule"] == "simsched advise m.onnx --gpu a100 --gpus 2 --plan plan.json"
    assert 'mode="reduce-overhead"' in found.commands["run it in PyTorch"]
    assert "run exactly it" not in found.commands
    assert found.commands["measure it"] == "simsched replay plan.json --backend cupy"


def test_streams_of_a_pytorch_model_are_run_by_its_commands():
    """Three operators beside each other: torch.compile by scheduler and streams, or the plan itself."""
    graph = made(operators("a=100 b=100 c=100", utilization=0.3))
    found = ss.advise(graph, FREE, ["nimble"], source="model.py:make", backend="torch")
    ours = 'torch.compile(model, backend="simsched", options={"scheduler": "nimble", "streams": 3})'
    assert found.commands["run it in PyTorch"] == ours
    assert 'apply(model, inputs, simsched.Schedule.load("plan.json"))' in found.commands["run exactly it"]
    assert found.commands["measure the GPU"] == "simsched profile model.py:make --backend torch -o profile.json"
    program = ss.advise(graph, FREE, ["nimble"], source="m.pt2,trust=true", backend="torch")
    assert "apply(torch.export.load('m.pt2'), inputs," in program.commands["run exactly it"]


def test_more_streams_than_torch_compile_takes_are_remarked_upon():
    found = ss.advise(made(operators("a=9 b=9 c=9 d=9 e=9 f=9 g=9 h=9 i=9 j=9", utilization=0.1)), FREE, ["nimble"])
    assert "on 10 streams (torch.compile takes 8 at most, and gains less) is" in found.verdict[0]
    assert '"streams": 8' in found.commands["run it in PyTorch"]


def test_a_number_format_is_named_where_it_is_known():
    """Operators of a trace have times alone; what is computed without a time is in fp32 unless it says otherwise."""
    half = ss.OpGraph([ss.Operator("a", "relu", dtype="fp16", nbytes=1e6), ss.Operator("b", time=5.0)])
    plain = ss.OpGraph([ss.Operator("a", "relu", nbytes=1e6)])
    formats = [ss.advise(graph, FREE, ["sequential"]).assumed["number format"] for graph in (half, plain)]
    assert formats == ["fp16 and not stated (times are given)", "fp32"]


def test_where_a_graph_is_slow_to_launch_one_launched_stream_is_advised():
    """A chain whose nodes are issued late in a captured graph: launching wins, and no sentence speaks of streams."""
    slow = ss.Cluster.preset("a100").replace_devices(graph_launch=1000.0)
    found = ss.advise(chain(*[100.0] * 4, utilization=0.9), slow, ["lios"])
    assert found.best == "one stream"
    assert re.match(r"Launching (may beat|beats) capture: one stream, launched, is .* as fast as one", found.verdict[0])
    assert found.commands["run it in PyTorch"] == "torch.compile(model)"


def test_two_full_branches_are_worth_two_gpus():
    """Two operators that fill a GPU each: beside each other on one they gain nothing, on two they take half."""
    found = ss.advise(made(operators("a=1000 b=1000", utilization=1.0)), TWO.without_overheads())
    rows = by_name(found)
    assert rows["streams"].latency_us == pytest.approx(2000.0, rel=0.02)
    assert rows["split over 2 GPUs"].latency_us == pytest.approx(1000.0)
    assert "Splitting a request over 2 GPUs pays: 2.00 times" in found.verdict[1]


def test_replicas_are_two_copies_simulated_together():
    """A graph of two copies, one on each GPU, takes what one takes alone; and serves what replicas are said to."""
    found = by_name(ss.advise(chain(100.0, 100.0, utilization=0.3), TWO, ["sequential"]))
    both = made(operators("a=100 b=100 c=100 d=100", utilization=0.3), "ab cd")
    plan = ss.Schedule(both, placements("a b c@1 d@1"))
    assert ss.simulate(plan, TWO).makespan == pytest.approx(found["one stream"].latency_us)
    # one request of the two copies is two of the model
    served = found["replicas on 2 GPUs"].requests_per_s[1]
    assert served == pytest.approx(2 * ss.throughput(plan, TWO, 1).requests_per_s, rel=0.03)


@pytest.mark.parametrize("in_flight", [1, 2, 4, 8])
@pytest.mark.parametrize("scheduler", ["sequential", "greedy", "opara"])
def test_throughputs_are_those_of_the_long_run(scheduler, in_flight):
    """What is found of some requests is within 5 % of what settles."""
    cluster = ss.Cluster.preset("a100")
    rows = operators("a=40 b=40 c=40", utilization=0.3) + operators("z=30", utilization=0.8)
    plan = ss.schedule(made(rows), cluster, scheduler)
    settled = ss.throughput(plan, cluster, in_flight).requests_per_s
    assert requests_per_s(plan, cluster, in_flight) == pytest.approx(settled, rel=0.05)


def test_what_a_file_does_not_hold():
    found = ss.advise(chain(100.0, 100.0), FREE)
    back = ss.Advice.from_dict(found.to_dict())
    assert (back.rows, back.verdict, str(back)) == (found.rows, found.verdict, str(found))
    with pytest.raises(WhatIfError, match="read from a file has no schedules"):
        _ = back.plan


@pytest.mark.parametrize(("unknown_us", "withheld"), [(1.0, False), (30.0, True)])
def test_no_advice_where_much_of_the_time_is_a_guess(unknown_us, withheld):
    """Of 100 us and more 1 or 30 are of a kind that nobody knows; a file of the graph keeps that."""
    ops = [ss.Operator(name, time=50.0, utilization=0.3) for name in "ab"]
    odd = ss.Operator("odd", time=unknown_us, attributes={"unknown": "acme.Odd"})
    graph = ss.OpGraph.from_dict(ss.OpGraph([*ops, odd]).to_dict())
    found = ss.advise(graph, ss.Cluster.preset("a100"), ["lios"])
    assert any("of 1 operators of unknown kinds: acme.Odd" in sentence for sentence in found.verdict)
    assert found.verdict[0].startswith("No advice: ") is withheld
    assert (found.best == "one stream captured") is withheld
