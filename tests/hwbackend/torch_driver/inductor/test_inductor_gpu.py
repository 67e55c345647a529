"""The whole backend on a GPU: the choice is never slower than Inductor's CUDA graph, and computes the same.

``pytest -m gpu tests/hwbackend/torch_driver/inductor`` takes below three minutes.
"""

import statistics

import pytest

torch = pytest.importorskip("torch")

from gpus import require_gpu  # noqa: E402 - the rest is for those who have PyTorch

from hwbackend.torch.inductor.backend import explain, simsched_backend  # noqa: E402
from validation.inductor.models import Experts, Inception, Towers  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.filterwarnings("default")]

MODELS = {
    "experts": (lambda: Experts(16, 512), (16, 512)),
    "towers": (lambda: Towers(512), (16, 512)),
    "inception": (Inception, (1, 3, 224, 224)),
}


@pytest.fixture(autouse=True, scope="module")
def _gpu():
    def is_usable():
        return torch.cuda.is_available(), f"PyTorch {torch.__version__} finds no CUDA device"

    require_gpu("torch", is_usable, lambda: torch.version.cuda is not None)


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
    """In fp16, in turns, medians of fifty; the report has the times of all variants.

    Outputs are those of Inductor within what fp16 resolves, and the same in 200 calls: streams that race would differ.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module, x = make().eval().cuda().half(), torch.randn(shape, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        graph = torch.compile(module, mode="reduce-overhead")
        for _ in range(4):
            wanted = graph(x).clone()
        ours = torch.compile(module, backend=simsched_backend)
        for _ in range(4):
            got = ours(x).clone()
        (report,) = explain(ours)
        assert report.choice is not None, str(report)
        assert {"plain", "graph"} <= set(report.choice.times), str(report)
        assert torch.allclose(got, wanted, rtol=2e-2, atol=2e-2)
        assert all(torch.equal(ours(x), got) for _ in range(200))
        rows = [(call_time(graph, x), call_time(ours, x)) for _ in range(50)]
    assert statistics.median(b - a for a, b in rows) <= 0.02 * statistics.median(a for a, _ in rows), str(report)


def test_kernels_of_streams_are_timed_by_the_profiler(tmp_path, monkeypatch):
    """All of them, or the report says why the profile is not exact."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    module, x = Experts(8, 128).eval().cuda(), torch.randn(16, 128, device="cuda")
    with torch.no_grad():
        ours = torch.compile(module, backend=simsched_backend)
        ours(x)
        (report,) = explain(ours)
    assert report.failures == {}, str(report)
    assert report.timed == {"measured": report.kernels}, str(report)
    assert report.streams > 1, str(report)
