"""Gains of the backend, with times that are given: what is printed, and what counts as slower."""

import pytest

torch = pytest.importorskip("torch")

from hwbackend.torch.inductor import doors  # noqa: E402 - the rest is for those who have PyTorch
from validation.inductor.gains import compare_gains  # noqa: E402
from validation.inductor.models import Towers  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize(("ours", "holds"), [(40.0, True), (51.0, True), (51.1, False)])
def test_it_may_be_two_percent_slower_than_the_graph(ours, holds, monkeypatch):
    """Inductor's graph takes 50 us, plain Inductor 100."""
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, **options: usual(module, backend="eager"))
    monkeypatch.setattr("validation.inductor.gains.explain", lambda _: [type("Report", (), {"chosen": "graph"})])
    monkeypatch.setattr("validation.inductor.gains.BATCHES", (4,))
    monkeypatch.setattr(doors, "compile_inductor", lambda graph, _inputs, _patches=None: graph.forward)
    times = {"plain": 100.0, "graph": 50.0, "ours": ours}
    networks = {"towers": (Towers, (32,)), "another": (lambda: __import__("no_such_package"), (3,))}
    lines = list(compare_gains(1, lambda: True, networks, lambda way, _: times[way], ("cpu", torch.float32)))
    text = (
        f"towers, batch 4: plain 100.0, graph 50.0, ours {ours:.1f} us (graph; {50.0 / ours:.2f} x the graph's speed)"
    )
    assert lines[0] == (f"{text}, error 0.0e+00, 0 of 50 calls differ", holds)
    assert lines[1] == ("another, batch 4: not run: No module named 'no_such_package'", True)
