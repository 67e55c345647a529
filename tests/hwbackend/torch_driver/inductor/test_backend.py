"""The backend of `torch.compile`: which variants are tried, what is returned, options, and what it says of it."""

import json
import logging
from dataclasses import replace
from functools import cache, partial
from itertools import cycle

import pytest

torch = pytest.importorskip("torch")

import hwbackend.torch.inductor.backend as backend  # noqa: E402 - the rest is for those who have PyTorch
import simsched as ss  # noqa: E402
from hwbackend.torch.inductor import doors  # noqa: E402
from hwbackend.torch.inductor.backend import compile_fastest, explain, simsched_backend, why_plain  # noqa: E402
from hwbackend.torch.inductor.choice import KeptPlan  # noqa: E402
from hwbackend.torch.inductor.measure import Measure  # noqa: E402
from hwbackend.torch.inductor.options import CompileOptions  # noqa: E402
from hwbackend.torch.inductor.plan import Allocation, FusedKernel  # noqa: E402
from simsched.base.errors import BackendError, ScheduleError  # noqa: E402
from simsched.calibration import Calibration  # noqa: E402
from simsched.model import OpGraph  # noqa: E402
from simsched.model.profile import MeasuredKernel, MeasuredOperator  # noqa: E402
from validation.inductor.models import network  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

TWO = [FusedKernel("a", (), (0,), time=9.0), FusedKernel("b", (), (1,))]
H100 = ss.Cluster.preset("h100")
MEMORY = [Allocation(("buf0",), 4e3), Allocation(("buf1",), 4e3)]


patient = partial(CompileOptions, budget_s=60.0)  # rounds are short, and machines may be busy


class Timed(Measure):
    """A device whose calls take given times in us by variant; others take 100."""

    def __init__(self, inputs, **times):
        super().__init__(inputs)
        self.times = {name.replace("_and_", "+"): time for name, time in times.items()}
        self.names = []

    def warm(self, run):
        """Nothing is captured."""

    def time(self, name, run):
        if name not in self.names:
            run(*self._inputs)
        self.names.append(name)
        return self.times.get(name, 100.0)

    def profile(self, run, functions):
        assert functions == {"a": ["triton_a"], "b": []}
        shapes = {"a": (ss.Kernel(8), ss.Kernel(9)), "b": ()}
        rows = []
        for name in functions:
            launched = tuple(MeasuredKernel("f", (2.5,), launch) for launch in shapes[name])
            rows.append(MeasuredOperator(name, (5.0,), launched))
        return ss.Profile(tuple(rows))

    def target(self):
        return ss.Cluster.preset("h100")

    def free_memory(self):
        return 1e9

    def identity(self):
        return ("a device", "a version")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Choices are remembered for one test; dynamo forgets what it compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch._dynamo.reset()


@pytest.fixture
def compiled(monkeypatch):
    """Settings of what was compiled: instead of Inductor the graph runs, and a plan of two kernels is made."""
    settings = []

    def compile_inductor(graph, inputs, patches=None):
        settings.append(dict(patches or {}))
        if "_post_fusion_custom_pass" in settings[-1]:
            settings[-1].pop("_post_fusion_custom_pass")
        return lambda *args: graph(*args)

    def ordered_pass(plan, report):
        report(plan(TWO, MEMORY), TWO)

    def marked_pass(report):
        report(TWO, {"a": ["triton_a"], "b": []})

    monkeypatch.setattr(doors, "compile_inductor", compile_inductor)
    monkeypatch.setattr(doors, "marked_pass", marked_pass)
    monkeypatch.setattr(doors, "ordered_pass", ordered_pass)
    return settings


def graph_of(module, *inputs):
    """The graph and inputs that dynamo hands over."""
    rows = []

    def keep(graph, examples):
        rows.append((graph, list(examples)))
        return graph.forward

    with torch.no_grad():
        torch.compile(module, backend=keep)(*inputs)
    return rows[0]


@cache
def captured(name):
    """The graph and inputs of a network, which tests leave as they are."""
    return graph_of(*network(name))


VARIANTS = ("plain", "graph", "graph+channels_last", "graph+freezing", "graph+streams")


@pytest.mark.parametrize("winner", VARIANTS)
def test_each_variant_can_win(winner, compiled):
    """The fastest is returned: its own callable, with the settings of its name."""
    gm, inputs = captured("inception")
    measure = Timed(inputs, **{winner.replace("+", "_and_"): 50.0})
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(freezing=True), measure)
    assert report.chosen == winner
    assert report.failures == {}
    last = f"{winner}+streams" if winner in VARIANTS[1:4] else "graph+streams"
    assert list(dict.fromkeys(measure.names)) == [*VARIANTS[:4], last]
    assert compiled[0] == {}
    assert all(settings.get("triton.cudagraphs") for settings in compiled[1:4])
    assert [bool(settings.get("freezing")) for settings in compiled[1:4]] == [False, False, True]
    assert all(settings["inplace_buffers"] is False for settings in compiled[4:])
    assert [settings.get("triton.cudagraphs", False) for settings in compiled[4:]] == [False, True]


def test_noise_decides_for_plain(compiled):
    """The graph takes 57 and 137 us in turns, plain 100: its median gain, 3, is within three standard errors, 15.8."""
    gm, inputs = captured("gated")
    measure = Timed(inputs)
    turns = cycle((57.0, 137.0))
    steady = measure.time
    measure.time = lambda name, run: next(turns) if name == "graph" else steady(name, run)
    with torch.no_grad():
        run, report = compile_fastest(gm, inputs, patient(), measure)
        assert report.chosen == "plain"
        assert report.choice.times == {"plain": 100.0, "graph": 97.0, "graph+streams": 100.0}
        assert torch.equal(run(*inputs)[0], gm(*inputs)[0])


def test_a_calibration_of_another_device_is_an_error(compiled):
    """The device is an H100."""
    gm, inputs = captured("gated")
    with pytest.raises(ScheduleError, match="calibration is of a100, but the model runs on h100"):
        compile_fastest(gm, inputs, patient(calibration=ss.Cluster.preset("a100")), Timed(inputs))
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(calibration=ss.Cluster.preset("h100")), Timed(inputs))
    assert report.failures == {}


def rewriting(graph, cluster, cost):
    """A schedule of the same operators by other names."""
    renamed = OpGraph([replace(op, name=f"{op.name}'") for op in graph.operators], [], graph.name)
    return ss.schedule(renamed, cluster, "sequential")


def test_a_scheduler_that_rewrites_is_not_tried(compiled):
    """Whether a function rewrites is known once it is called; the variants without streams are measured anyway."""
    gm, inputs = captured("gated")
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(scheduler=rewriting), Timed(inputs, graph=50.0))
    assert report.chosen == "graph"
    (reason,) = report.failures.values()
    assert "returned a schedule of another graph: operator 'a' is missing" in reason


def test_a_choice_under_a_function_is_not_remembered(compiled, tmp_path):
    """The function may be another one in the next process."""

    def own(graph, cluster, cost):
        return ss.schedule(graph, cluster, "nimble")

    gm, inputs = captured("gated")
    with torch.no_grad():
        for _ in range(2):
            _, report = compile_fastest(gm, inputs, patient(scheduler=own), Timed(inputs, graph=50.0))
            assert (report.chosen, report.remembered) == ("graph", False)
    assert not list(tmp_path.iterdir())


def test_what_a_choice_depends_on(compiled, monkeypatch):
    """A calibration by its numbers, streams, the device and versions: with any other one it is measured again."""
    gm, inputs = captured("gated")
    slower = replace(H100, devices=(replace(H100.devices[0], launch=9.0),))
    calibrations = [Calibration(cluster, cluster, None, {}, {}, ()) for cluster in (H100, slower)]
    assert repr(calibrations[0]) == repr(calibrations[1])
    remembered = []

    def decide(**options):
        with torch.no_grad():
            remembered.append(compile_fastest(gm, inputs, patient(**options), Timed(inputs, graph=50.0))[1].remembered)

    for options in ({"calibration": calibrations[0]}, {"calibration": calibrations[1]}, {}, {"streams": 3}):
        decide(**options)
        decide(**options)
    assert remembered == [False, True] * 4
    for identity in (("another device", "a version"), ("a device", "another version")):
        monkeypatch.setattr(Timed, "identity", lambda _, identity=identity: identity)
        decide()
        decide()
    assert remembered[8:] == [False, True] * 2


def test_a_plan_of_more_streams_than_allowed_is_not_taken(compiled, tmp_path):
    gm, inputs = captured("gated")
    with torch.no_grad():
        compile_fastest(gm, inputs, patient(streams=2), Timed(inputs, graph_and_streams=50.0))
        (path,) = (tmp_path / "simsched" / "torch-compile").iterdir()
        data = json.loads(path.read_text())
        data["plan"]["streams"] = [5, 6, 7][: len(data["plan"]["streams"])]
        path.write_text(json.dumps(data))
        assert compile_fastest(gm, inputs, patient(streams=2), Timed(inputs))[1].remembered  # numbers do not matter
        data["plan"] |= {"kernels": ["a", "b", "c"], "streams": [0, 1, 2]}
        path.write_text(json.dumps(data))
        _, report = compile_fastest(gm, inputs, patient(streams=2), Timed(inputs))
    assert not report.remembered


def test_streams_go_on_top_of_the_best_layout(compiled):
    gm, inputs = captured("inception")
    measure = Timed(inputs, **{"graph+channels_last": 60.0, "graph+channels_last+streams": 40.0})
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(), measure)
    assert report.chosen == "graph+channels_last+streams"
    assert (report.kernels, report.streams, report.waits) == (2, 2, 0)
    assert compiled[-1]["force_layout_optimization"]
    assert "2 kernels on 2 streams with 0 waits, intermediate values of 8000 bytes" in str(report)
    assert "plain 100.0 us, graph 100.0 us, graph+channels_last 60.0 us" in str(report)


def test_a_choice_is_remembered_and_only_its_variant_compiled(compiled):
    gm, inputs = captured("gated")
    with torch.no_grad():
        compile_fastest(gm, inputs, patient(), Timed(inputs, graph=50.0))
        before = len(compiled)
        measure = Timed(inputs)
        _, report = compile_fastest(gm, inputs, patient(), measure)
        assert (report.chosen, report.remembered, measure.names) == ("graph", True, [])
        assert len(compiled) == before + 2  # plain Inductor, and the graph
        _, report = compile_fastest(gm, inputs, patient(streams=2), Timed(inputs))
        assert not report.remembered


def test_kernels_have_measured_times_or_the_report_says_why_not(compiled, monkeypatch):
    """Of the two kernels one has an estimate of Inductor and one has none."""
    gm, inputs = captured("gated")
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(), Timed(inputs))
    assert report.timed == {"measured": 2}
    assert str(report).endswith("; times of kernels: 2 measured")

    def fail(_measure, _run, _functions):
        raise BackendError("of 2 launches no kernel was recorded")

    monkeypatch.setattr(Timed, "profile", fail)
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(streams=2), Timed(inputs))
    assert report.timed == {"estimated": 1, "model": 1}
    expected = "times of kernels: 1 estimated, 1 model (not measured: of 2 launches no kernel was recorded)"
    assert str(report).endswith(expected)


def test_other_kernels_than_those_profiled_have_no_measured_times(compiled, monkeypatch):
    others = [FusedKernel("a", (), (0,), time=9.0, elements=1), TWO[1]]
    monkeypatch.setattr(doors, "marked_pass", lambda report: report(others, {"a": ["triton_a"], "b": []}))
    gm, inputs = captured("gated")
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(), Timed(inputs))
    assert "(not measured: Inductor made other kernels when it was profiled)" in str(report)


def test_streams_have_to_beat_the_time_from_before_the_profile(compiled):
    """Plain takes 100 us, and 200 after the profiler was on; streams with 150 gain on the second, not on the first."""

    class Slowed(Timed):
        profiled = False

        def profile(self, run, functions):
            self.profiled = True
            return super().profile(run, functions)

        def time(self, name, run):
            time = super().time(name, run)
            return 200.0 if self.profiled and name == "plain" else time

    gm, inputs = captured("gated")
    measure = Slowed(inputs, graph_and_streams=150.0, graph=300.0)
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(), measure)
    assert report.chosen == "plain"
    assert report.choice.times["plain"] == 100.0


def test_a_plan_is_kept_with_the_choice(compiled, monkeypatch):
    """Another process runs the streams that were measured, without a profile and without a scheduler."""
    gm, inputs = captured("gated")
    with torch.no_grad():
        _, first = compile_fastest(gm, inputs, patient(), Timed(inputs, graph_and_streams=50.0))
        assert first.choice.plan == KeptPlan(("a", "b"), (0, 1), {"measured": 2})
        monkeypatch.delattr(Timed, "profile")
        monkeypatch.delattr(Timed, "target")
        _, second = compile_fastest(gm, inputs, patient(), Timed(inputs))
    assert (second.remembered, second.choice, second.timed) == (True, first.choice, first.timed)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "another"},
        {"name": "graph"},
        {"name": "graph+freezing+streams"},
        {"plan": None},
        {"plan": {"kernels": ["a", "c"], "streams": [0, 1], "timed": {}}},
        {"plan": {"kernels": ["a", "b"], "streams": [0], "timed": {}}},
        {"plan": {"kernels": ["a", "b"], "streams": [0, "x"], "timed": {}}},
        {"times": {"plain": "x"}},
        {"times": [1.0]},
    ],
)
def test_a_choice_that_does_not_fit_is_measured_again(change, compiled, tmp_path):
    gm, inputs = captured("gated")
    with torch.no_grad():
        compile_fastest(gm, inputs, patient(), Timed(inputs, graph_and_streams=50.0))
        (path,) = (tmp_path / "simsched" / "torch-compile").iterdir()
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        _, report = compile_fastest(gm, inputs, patient(), Timed(inputs, graph=50.0))
    assert (report.remembered, report.chosen) == (False, "graph")
    assert str(report)


def test_a_plan_that_needs_too_much_memory_is_refused(compiled):
    """Two buffers of 4 kB live at a time."""
    gm, inputs = captured("gated")
    with torch.no_grad():
        _, report = compile_fastest(gm, inputs, patient(memory_limit=7999.0), Timed(inputs))
    assert report.chosen == "plain"
    assert "need 8000 bytes on streams, more than 7999; raise memory_limit" in report.failures["graph+streams"]


def test_half_of_the_free_memory_is_the_limit(compiled, monkeypatch):
    """Two buffers of 4 kB: 16 kB have to be free; where they are not, the choice is not remembered."""
    gm, inputs = captured("gated")
    for free, fails in ((15_999.0, True), (16_000.0, False)):
        monkeypatch.setattr(Timed, "free_memory", lambda _, free=free: free)
        with torch.no_grad():
            _, report = compile_fastest(gm, inputs, patient(), Timed(inputs))
        assert bool(report.failures) == fails
        assert report.peak == (0.0 if fails else 8000.0)


@pytest.mark.parametrize("failing", ["compile_inductor", "find_mutated_inputs"])
def test_what_fails_leaves_plain_inductor(failing, compiled, monkeypatch):
    gm, inputs = captured("gated")
    usual = doors.compile_inductor

    def fail(graph, values, patches=None):
        if failing == "find_mutated_inputs" or patches:
            raise RuntimeError("broken\nin detail")
        return usual(graph, values, patches)

    monkeypatch.setattr(doors, failing, fail)
    with torch.no_grad():
        run, report = compile_fastest(gm, inputs, patient(), Timed(inputs))
        assert report.chosen == "plain"
        assert "broken" in str(report)
        assert "in detail" not in str(report)
        assert torch.equal(run(*inputs)[0], gm(*inputs)[0])


def test_measuring_leaves_buffers_and_random_numbers_alone(compiled):
    """Every call adds to the buffers; after the choice they are what they were."""
    module, x = network("changing")
    gm, inputs = graph_of(module, x)
    before = [value.clone() for value in inputs]
    state = torch.get_rng_state()
    with torch.no_grad():
        compile_fastest(gm, inputs, patient(), Timed(inputs))
    assert all(map(torch.equal, inputs, before))
    assert torch.equal(torch.get_rng_state(), state)
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    assert sorted(names[i].split("buffers_")[1] for i in doors.find_mutated_inputs(gm, inputs)) == ["count_", "last_"]


def test_measuring_leaves_inputs_of_inference_mode_alone(compiled):
    """Dynamo compiles outside of it, where nobody may write to such tensors; kernels do, and so does who restores."""
    rows = []

    def keep(graph, examples):
        rows.append((graph, examples))

        def run(*inputs):
            with torch.inference_mode():
                return graph(*inputs)

        _, report = compile_fastest(graph, examples, patient(), Unchecked(examples))
        rows.append(report)
        return run

    class Unchecked(Timed):
        """Kernels of a device ask no mode."""

        def time(self, name, run):
            with torch.inference_mode():
                return super().time(name, run)

    with torch.inference_mode():
        x = torch.ones(3)
        y = torch.compile(lambda x: x.mul_(2) + 1, backend=keep)(x)
    assert rows[1].choice is not None, rows[1]
    assert x.tolist() == [2.0] * 3
    assert y.tolist() == [3.0] * 3


def declined(module, *inputs, grad=False):
    """Why the backend leaves a graph to plain Inductor."""
    rows = []

    def keep(graph, examples):
        rows.append(why_plain(graph, examples, patient()))
        return graph.forward

    with torch.set_grad_enabled(grad):
        torch.compile(module, backend=keep)(*inputs)
    return rows


def test_what_cannot_be_measured_is_left_to_inductor():
    """Training, sizes that change, random numbers; each part of a broken graph is looked at on its own."""
    module, x = network("gated")
    assert declined(module, x) == ["CUDA graphs and streams need a CUDA device"]
    assert "it has gradients" in declined(module, x, grad=True)[0]
    torch._dynamo.reset()

    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    assert len(declined(broken, x)) == 2
    torch._dynamo.reset()
    run = torch.compile(lambda x: x + 1, backend=lambda graph, values: rows.append(
        why_plain(graph, values, patient())) or graph.forward, dynamic=True)  # fmt: skip
    rows = []
    run(x)
    assert rows == ["its sizes are not fixed"]


def test_random_numbers_and_several_devices_are_left_to_inductor(monkeypatch):
    class Where:
        """A tensor's device as far as it is asked for."""

        type = "cuda"

    module, x = network("towers")
    gm, inputs = graph_of(torch.nn.Sequential(module, torch.nn.Dropout()).train(), x)
    monkeypatch.setattr(backend, "require_torch", lambda: torch)
    assert why_plain(gm, [x, x.to("meta")], patient()) == "it is on 2 devices"
    with torch.no_grad():
        monkeypatch.setattr(torch.Tensor, "device", property(lambda _: Where), raising=False)
        reason = why_plain(gm, inputs, patient())
    assert "draws random numbers" in reason


def test_a_version_that_is_not_known_is_left_to_inductor(monkeypatch):
    doors.require_known("2.13.0+cpu")
    for version in ("2.9.1", "2.16.0", "3.0"):
        with pytest.raises(BackendError, match=r"streams need 2\.10 to 2\.15"):
            doors.require_known(version)
    monkeypatch.setattr(torch, "__version__", "2.16.0")
    module, x = network("towers")
    run = torch.compile(module, backend=simsched_backend)
    with torch.no_grad():
        run(x)
    assert "PyTorch 2.16.0 is not known here" in explain(run)[0].reason


def test_it_is_found_by_name_and_says_what_it_did(caplog, compiled):
    """The log has the line that `explain` has; a function can be explained, too."""
    if "simsched" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(simsched_backend, name="simsched")
    module, x = network("towers")
    with caplog.at_level(logging.INFO, "hwbackend.torch.inductor"), torch.no_grad():
        runs = [torch.compile(module, backend=usual) for usual in ("simsched", partial(simsched_backend, streams=2))]
        runs.append(torch.compile(lambda x: x.sin() + 1, backend=simsched_backend))
        for run in runs:
            torch._dynamo.reset()
            run(x)
            (report,) = explain(run)
            assert str(report) in caplog.messages
        module.compile(backend="simsched")
        module(x)
        assert len(explain(module)) == 1
    with pytest.raises(BackendError, match="call it first"):
        explain(torch.compile(network("towers")[0]))


@pytest.mark.parametrize("mode", ["max-autotune", "default", "reduce-overhead"])
def test_modes_are_those_of_inductor_without_its_graphs(mode, compiled):
    gm, inputs = captured("towers")
    simsched_backend(gm, inputs, mode=mode)
    assert compiled[0].get("max_autotune", False) == (mode == "max-autotune")
    assert "triton.cudagraphs" not in compiled[0]


@pytest.mark.parametrize("option", [{"fast": True}, {"streams": 9}])
def test_a_wrong_option_is_an_error(option):
    module, x = network("towers")
    with torch.no_grad(), pytest.raises(Exception, match=r"unknown option 'fast'|whole number from 1 to 8, not 9"):
        torch.compile(module, backend=simsched_backend, options=option)(x)


def test_what_is_returned_where_it_declines_is_inductor_s_own(monkeypatch):
    """The same object: a call costs what a call of Inductor costs."""
    own = []

    def compile_inductor(graph, inputs, patches=None):
        own.append(graph.forward)
        return own[-1]

    monkeypatch.setattr(doors, "compile_inductor", compile_inductor)
    gm, inputs = captured("towers")
    assert simsched_backend(gm, inputs) is own[0]
