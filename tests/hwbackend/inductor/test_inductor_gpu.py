"""The whole backend on a GPU: the choice is never slower than Inductor's CUDA graph, and computes the same.

``pytest -m gpu tests/hwbackend/inductor`` takes below three minutes.
"""

import statistics

import pytest

torch = pytest.importorskip("torch")

from hwbackend.inductor.backend import explain, simsched_backend  # noqa: E402 - the rest is for those who have PyTorch
from validation.inductor.models import Experts, Inception, Towers  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.filterwarnings("default")]

MODELS = {
    "experts": (lambda: Experts(16, 512), (16, 512)),
    "towers": (lambda: Towers(512), (16, 512)),
    "inception": (Inception, (1, 3, 224, 224)),
}


def call_time(run, x):
    """Mean time in us of a call of twenty in a row."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        run(x)
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / 20


@pytest.mark.parametrize("name", MODELS)
def test_the_choice_is_not_slower_than_a_cuda_graph(name, tmp_path, monkeypatch):
    """In turns, medians of fifty; the log has the times of all variants."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module, x = make().eval().cuda(), torch.randn(shape, device="cuda")
    with torch.no_grad():
        graph = torch.compile(module, mode="reduce-overhead")
        for _ in range(4):
            wanted = graph(x).clone()
        ours = torch.compile(module, backend=simsched_backend)
        for _ in range(4):
            got = ours(x).clone()
        (report,) = explain(ours)
        assert report.choice is not None, str(report)
        assert torch.allclose(got, wanted, rtol=1e-3, atol=1e-4)
        assert all(torch.equal(ours(x), got) for _ in range(200))
        rows = [(call_time(graph, x), call_time(ours, x)) for _ in range(50)]
    assert statistics.median(b - a for a, b in rows) <= 0.02 * statistics.median(a for a, _ in rows), str(report)
