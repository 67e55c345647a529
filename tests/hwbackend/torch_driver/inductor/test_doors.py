"""What Inductor generates under plans of ours: the same kernels, no races, and the same values in other orders.

Wrappers for a GPU that is not there need Triton; ``python -m validation.inductor`` draws more of everything.
"""

import json
import re

import pytest

torch = pytest.importorskip("torch")

from hwbackend.torch.inductor.doors import ORDERED, compile_inductor, marked_pass  # noqa: E402 - the rest needs PyTorch
from hwbackend.torch.inductor.profiled import Marks  # noqa: E402
from hwbackend.torch.traces import record_trace  # noqa: E402
from validation.inductor.campaigns import compare_kernels, count_races  # noqa: E402
from validation.inductor.drawn import BROKEN, drawn_wrapper, ordered  # noqa: E402
from validation.inductor.fake_gpu import wrapper_of  # noqa: E402
from validation.inductor.models import network  # noqa: E402
from validation.inductor.races import races  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]
torch.set_num_threads(1)


@pytest.fixture
def triton():
    pytest.importorskip("triton")


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("campaign", [compare_kernels, count_races])
def test_wrappers_have_inductor_s_kernels_and_no_races(campaign, monkeypatch):
    """Two models of ten, one plan each; every broken variant is caught wherever it can go wrong."""
    monkeypatch.setattr("validation.inductor.campaigns.MODELS", dict.fromkeys(("towers", "slices")))
    lines = list(campaign(1, lambda: True))
    assert all(holds for _, holds in lines), lines
    assert len(lines) == (2 if campaign is compare_kernels else 2 + len(BROKEN))


@pytest.mark.usefixtures("triton")
def test_a_plan_of_one_stream_writes_no_streams():
    module, x = network("towers")
    assert "fork" not in drawn_wrapper(module, [x], 0, streams=1)


@pytest.mark.usefixtures("triton")
def test_a_wrapper_for_a_profile_annotates_each_kernel():
    """In Inductor's order, by name, with what Triton calls in it; the last annotation ends with the wrapper."""
    module, x = network("several")
    rows = []

    def compile_graph(graph, inputs):
        after_fusion = marked_pass(lambda kernels, functions: rows.append((kernels, functions)))
        return compile_inductor(graph, inputs, {**ORDERED, "_post_fusion_custom_pass": after_fusion})

    text = wrapper_of(compile_graph, module, x)
    ((kernels, functions),) = rows
    launching = [kernel.name for kernel in kernels if kernel.launches]
    assert re.findall(r"marks\.on\('(\w+)'\)", text) == launching == list(functions)
    assert [name for name, called in functions.items() if not called] == [k.name for k in kernels if k.kind == "extern"]
    parts = re.split(r"marks\.on\('\w+'\)", text.split("marks.close()")[0])[1:]
    assert [re.findall(r"(triton_\w+)\.run", part) for part in parts] == list(functions.values())


def test_annotations_are_in_the_trace_one_at_a_time(tmp_path):
    """The first ends where the second begins."""
    marks = Marks()

    def run():
        marks.on("op0")
        torch.ones(2).sin()
        marks.on("op1")
        marks.close()

    record_trace(torch, run, 2, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if e.get("name") in ("op0", "op1"))
    assert [name for _, _, name in rows] == ["op0", "op1"] * 2
    assert all(rows[i][1] <= rows[i + 1][0] for i in range(3))


@pytest.mark.parametrize("kind", ["inference", "training", "dynamic"])
def test_kernels_compute_the_same_in_another_order(kind):
    """C++ kernels through the same hooks, forward and backward, with sizes that are fixed and that are not."""
    module, x = network("gated")

    def values(run):
        module.zero_grad()
        with torch.set_grad_enabled(kind == "training"):
            out = run(x)
        if kind != "training":
            return [out]
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in module.parameters())]

    options = {"dynamic": True} if kind == "dynamic" else {}
    torch._dynamo.reset()
    wanted = values(torch.compile(module, **options))
    plans = []
    torch._dynamo.reset()
    got = values(ordered(module, 1, plans, **options))
    assert len(plans) == (2 if kind == "training" else 1)
    assert all(plan.order != tuple(sorted(plan.order)) for plan in plans[:1])
    assert all(map(torch.equal, got, wanted))


def test_buffers_that_are_written_to_are_the_same_in_another_order():
    def run(compiled):
        torch._dynamo.reset()
        module, x = network("changing")
        with torch.no_grad():
            out = compiled(module)(x)
        return [out, *(value.clone() for value in module.buffers())]

    wanted = run(torch.compile)
    assert all(map(torch.equal, run(lambda module: ordered(module, 2, [])), wanted))


def test_several_graphs_of_one_function_are_ordered_each():
    """A break makes two graphs, each with a plan of its own."""

    def broken(x):
        y = x.sin().sum(0), x.cos().sum(1)
        torch._dynamo.graph_break()
        return y[0].exp(), y[1].tanh()

    x = torch.arange(12.0).view(3, 4)
    torch._dynamo.reset()
    wanted = torch.compile(broken)(x)
    torch._dynamo.reset()
    plans = []
    assert all(map(torch.equal, ordered(broken, 3, plans)(x), wanted))
    assert len(plans) == 2


WRAPPER = """
def triton_poi_a_0(in_ptr0, out_ptr0, xnumel):
    pass
'''
def call(args):
    arg0_1, = args
    streams = fork(2, 0)
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
        raw_stream0 = get_raw_stream(0)
        triton_poi_a_0.run(arg0_1, buf0, 4, stream=raw_stream0)
{first}
        streams.on(1)
{second}
        buf1 = empty_strided_cuda((4, ), (1, ), torch.float32)
        raw_stream0 = get_raw_stream(0)
        triton_poi_a_0.run(buf0, buf1, 4, stream=raw_stream0)
{third}
        streams.on(0)
        buf2 = empty_strided_cuda((4, ), (1, ), torch.float32)
        raw_stream0 = get_raw_stream(0)
        triton_poi_a_0.run(arg0_1, buf2, 4, stream=raw_stream0)
        streams.join()
    return (buf1, buf2)
"""


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        (("event0 = streams.record(0)", "streams.wait(1, event0)", ""), 0),
        (("", "", ""), 1),  # the second kernel reads what the first may still write
        (("event0 = streams.record(0)", "streams.wait(1, event0)", "del buf0"), 1),  # buf2 may get its memory
    ],
)
def test_the_checker_sees_reads_too_early_and_memory_freed_too_early(steps, count):
    """By hand; in the third one the last kernel writes to memory that the kernel on stream 1 may still read."""
    first, second, third = (f"        {step}" if step else "" for step in steps)
    text = WRAPPER.replace("'''", "").format(first=first, second=second, third=third)
    assert len(races(text)) == count


def test_a_launch_on_a_stream_fetched_too_early_is_where_it_was_fetched():
    """The raw stream of a launch is the one that was current when it was fetched, not the current one."""
    text = WRAPPER.replace("'''", "").format(
        first="        event0 = streams.record(0)", second="        streams.wait(1, event0)", third=""
    )
    stale = text.replace(
        "        raw_stream0 = get_raw_stream(0)\n        triton_poi_a_0.run(buf0", "        triton_poi_a_0.run(buf0"
    )
    assert stale != text
    assert not races(stale)  # all on stream 0, in order


def test_wrapper_of_needs_one_graph():
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    with pytest.raises(ValueError, match="unpack"):
        wrapper_of(lambda graph, inputs: graph, broken, torch.ones(2))
