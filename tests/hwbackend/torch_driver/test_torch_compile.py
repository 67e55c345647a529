"""`torch.compile` with our backend: equal outputs whatever was chosen, and the prediction in the log."""

import logging
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch_networks import agree, computes, each_network, network  # noqa: E402 - the rest is for those who have PyTorch

import hwbackend.torch.compile as backend  # noqa: E402
import simsched as ss  # noqa: E402
from hwbackend.torch.compile import simsched_backend  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

A100 = ss.Cluster.preset("a100")


@pytest.fixture(autouse=True)
def log(caplog):
    """What the backend says; dynamo forgets what it compiled for the test before."""
    torch._dynamo.reset()
    name = "hwbackend.torch.compile"
    only_ours = logging.Filter(name)
    caplog.handler.addFilter(only_ours)
    with caplog.at_level(logging.INFO, name):
        yield caplog
    caplog.handler.removeFilter(only_ours)  # tests share the handler


def warnings(log):
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


def compiled(module, **options):
    return torch.compile(module, backend=simsched_backend, options=options or None)


def said(log, module, *inputs, **options):
    """What the backend says of a compiled module whose outputs are the module's own."""
    assert computes(compiled(module, **options), module, *inputs)
    return log.messages


@each_network
def test_outputs_are_equal_under_a_schedule(name, log):
    module, x = network(name)
    (line,) = said(log, module, x, -x, scheduler="opara", always=True)
    assert "us by opara on" in line
    assert line.endswith("runs under the schedule; not compared with Inductor")


@pytest.mark.parametrize("name", ["inception", "transformer"])
def test_what_gains_is_run_and_what_does_not_is_not(name, log, monkeypatch):
    """One core, which runs a block at a time, gains nothing; branches gain on an A100, and run if that is enough."""
    chosen, usual = [], backend.scheduled
    monkeypatch.setattr(backend, "scheduled", lambda *args: chosen.append(args) or usual(*args))
    module, x = network(name)
    (line,) = said(log, module, x)
    assert "(1.000 times as fast, 0.77-1.30 with 90 %); runs as it is; not compared with Inductor" in line
    assert chosen == []
    torch._dynamo.reset()
    assert "runs under the schedule" in said(log, module, x, calibration=A100, least_gain=1.0, always=True)[1]
    assert len(chosen) == 1


def test_the_prediction_is_the_simulator_s(log, tmp_path):
    """The schedule against one stream, both as captured graphs; the calibration is read from a file."""
    A100.save(tmp_path / "cluster.json")
    (line,) = said(log, *network("inception"), calibration=str(tmp_path / "cluster.json"))
    scheduled, sequential = (float(line.split(before)[1].split(" us")[0]) for before in ("predicted ", "against "))
    assert 0 < scheduled < sequential
    assert float(line.split("(")[1].split(" times")[0]) == pytest.approx(sequential / scheduled, rel=0.01)


def test_it_is_found_by_name_and_options_can_be_bound(log):
    if "simsched" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(simsched_backend, name="simsched")
    module, x = network("residual")
    for usual in ("simsched", partial(simsched_backend, scheduler="heft", always=True)):
        torch._dynamo.reset()
        assert computes(torch.compile(module, backend=usual), module, x)
    assert "us by heft on" in log.messages[1]


def test_gradients_are_those_of_the_module(log):
    module, x = network("inception")
    run = compiled(module, always=True)
    run(x).square().sum().backward()
    found = {p: p.grad.clone() for p in module.parameters()}
    module.zero_grad()
    module(x).square().sum().backward()
    assert found
    assert all(agree(got, p.grad) for p, got in found.items())
    assert "autograd has to look into it" in log.messages[0]


def test_what_changes_how_others_run_keeps_its_place(log):
    """Products inside autocast are in bfloat16, those behind it are not; no edge says which is which."""

    class Casting(torch.nn.Module):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = x @ x
            return y.float() + x @ x

    x = torch.randn(8, 8)
    with torch.no_grad():
        assert torch.equal(compiled(Casting(), always=True)(x), Casting()(x))
    (warning,) = warnings(log)
    assert "changes how others run" in warning


def test_other_sizes_are_other_graphs(log):
    """Dynamo specialises at first, then hands over a graph of any size, which runs as it is."""
    first, *others = said(log, network("residual")[0], *(torch.randn(1, 3, n, n) for n in (8, 12, 16)), always=True)
    assert "runs under the schedule" in first
    assert any("sizes are not fixed" in line for line in others)


def test_what_launches_nothing_runs_as_it_is(log):
    """Dynamo hands over such graphs between others; they are no reason for a warning."""
    (line,) = said(log, lambda x: x.t(), torch.randn(3, 4), always=True)
    assert line.endswith("runs as it is: it launches nothing")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "nobody"}, "unknown scheduler 'nobody'"),
        ({"calibration": "nothing.json"}, "nothing.json"),
        ({"calibration": ss.Cluster.preset("a100", 2), "scheduler": "round-robin", "always": True}, "on one device"),
    ],
)
def test_what_fails_runs_as_it_is(options, message, log):
    said(log, *network("residual"), **options)
    (warning,) = warnings(log)
    assert message in warning
    assert "could not be scheduled, so it runs as it is" in warning


def test_an_unknown_option_is_an_error():
    module, x = network("residual")
    with torch.no_grad(), pytest.raises(Exception, match="unknown option 'fast'; known are: scheduler"):
        compiled(module, fast=True)(x)


@pytest.mark.parametrize(
    ("gain", "low", "runs"), [(1.2, 1.01, True), (1.2, 0.99, False), (1.04, 1.01, False), (1.2, None, True)]
)
def test_only_a_certain_gain_of_5_percent_is_run(gain, low, runs, log, monkeypatch):
    """Else the module's own forward is returned: a call costs nothing."""
    monkeypatch.setattr(backend, "predict", lambda *_: backend.Prediction(100.0, 100.0 * gain, low, low and 2.0))
    (line,) = said(log, *network("inception"))
    assert ("runs under the schedule" in line) == runs


def test_what_fails_later_is_said_once(log, monkeypatch):
    module, x = network("residual")

    def fail(self):
        raise ValueError("broken")

    with torch.no_grad():
        run = compiled(module, always=True)
        wanted = run(x)
        monkeypatch.setattr("hwbackend.torch.hosts.CpuHost.run", fail)
        for _ in range(3):
            assert agree(run(x), wanted)
    name = log.messages[0].split(":")[0]
    assert warnings(log) == [f"{name}: failed under its schedule, so it runs as it is: broken"]
