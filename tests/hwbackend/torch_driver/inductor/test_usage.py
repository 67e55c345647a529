"""Compiled modules in the ways in which users call, copy and keep them: outputs are right, and each can be explained.

Inductor itself is left out where a test says nothing of it: the graphs of dynamo then run as they are.
"""

import copy
import io
import pickle
from threading import Thread

import pytest

torch = pytest.importorskip("torch")

from hwbackend.torch.inductor import doors  # noqa: E402 - the rest is for those who have PyTorch
from hwbackend.torch.inductor.backend import explain, simsched_backend  # noqa: E402
from simsched.base.errors import BackendError  # noqa: E402
from validation.inductor.models import network  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

CPU = "not measured: CUDA graphs and streams need a CUDA device"
SIZES = "not measured: its sizes are not fixed"
GRADIENTS = (
    "not measured: it has gradients, whose graph is not there yet (run it in torch.no_grad() to have it measured)"
)


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    """Graphs of dynamo run as they are; dynamo forgets what it compiled."""
    torch._dynamo.reset()
    monkeypatch.setattr(doors, "compile_inductor", lambda graph, _inputs, _patches=None: graph.forward)


@pytest.fixture
def inductor(graphs, monkeypatch):
    """Inductor compiles them."""
    monkeypatch.undo()


def compiled(module, **options):
    return torch.compile(module, backend=simsched_backend, **options)


def reasons(run):
    return [report.reason for report in explain(run)]


def agree(got, wanted):
    return torch.allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inductor_computes_the_same(mode):
    """In one graph, as `fullgraph` asks."""
    module, x = network("towers")
    run = compiled(module, fullgraph=True)
    with mode():
        assert agree(run(x), module(x))
    assert reasons(run) == [CPU]


@pytest.mark.usefixtures("inductor")
def test_inductor_trains():
    """Three steps: the loss falls as without compilation."""
    losses = []
    for wrap in (compiled, lambda module: module):
        module, x = network("towers")
        run = wrap(module.train())
        optimizer = torch.optim.SGD(module.parameters(), 1e-5)
        for _ in range(3):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4)
    assert losses[0] > losses[2]


@pytest.mark.parametrize(("dynamic", "wanted"), [(True, [SIZES]), (None, [CPU, SIZES]), (False, [CPU])])
def test_sizes_that_change(dynamic, wanted):
    """Dynamo compiles the second size for all, if it may."""
    module, x = network("gated")
    run = compiled(module, dynamic=dynamic)
    with torch.no_grad():
        for rows in (16, 5, 7):
            assert agree(run(x[:rows]), module(x[:rows]))
    assert list(dict.fromkeys(reasons(run))) == wanted


def test_switches_between_training_and_inference():
    """Each makes a graph of its own, and going back uses the first one again."""
    module, x = network("inception")
    run = compiled(module)
    with torch.no_grad():
        before = run(x)
    run.train()
    run(x).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    run.eval()
    with torch.no_grad():
        assert agree(run(x), module(x))
        assert not torch.equal(run(x), before)  # training changed the averages of batch norm
    assert reasons(run) == [CPU, GRADIENTS]


def test_gradients_after_none():
    module, x = network("gated")
    run = compiled(module)
    with torch.no_grad():
        run(x)
    run(x).sum().backward()
    assert reasons(run) == [CPU, GRADIENTS]


def test_autocast():
    module, x = network("gated")
    run = compiled(module)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(run(x), module(x))
    assert reasons(run) == [CPU]


def saved(run):
    file = io.BytesIO()
    torch.save(run, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("kept", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run)), saved])
@pytest.mark.parametrize("is_called", [False, True])
def test_copies_of_a_compiled_module(kept, is_called):
    """They compile for themselves, with the same options; before they are called there is nothing to explain."""
    module, x = network("gated")
    run = compiled(module, options={"streams": 2})
    with torch.no_grad():
        if is_called:
            run(x)
        torch._dynamo.reset()
        own = kept(run)
        assert agree(own(x), module(x))
        own._orig_mod.norm.weight.mul_(2.0)
        assert not agree(own(x), module(x))
    assert set(reasons(own)) == {CPU}


def test_a_module_that_compiles_itself_is_kept_uncompiled():
    module, x = network("gated")
    module.compile(backend=simsched_backend)
    with torch.no_grad():
        wanted = module(x)
        assert agree(pickle.loads(pickle.dumps(module))(x), wanted)
    assert reasons(module) == [CPU]


def test_other_options_compile_again():
    module, x = network("gated")
    runs = [compiled(module, options=options) for options in (None, {"streams": 2}, {"scheduler": "opara"})]
    with torch.no_grad():
        for run in runs:
            assert agree(run(x), module(x))
    assert len({explain(run)[0].name for run in runs}) == 3


def test_a_reset_of_dynamo_compiles_again():
    module, x = network("gated")
    run = compiled(module)
    with torch.no_grad():
        run(x)
        torch._dynamo.reset()
        assert agree(run(x), module(x))
    assert reasons(run) == [CPU, CPU]


def test_threads():
    """Four call it for the first time at once."""
    module, x = network("gated")
    run = compiled(module)
    outputs = {}

    def call(i):
        with torch.no_grad():
            outputs[i] = run(x + i)

    threads = [Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        assert all(agree(outputs[i], module(x + i)) for i in range(4))
    assert set(reasons(run)) == {CPU}


def test_functions_methods_and_numbers():
    """A method can be explained by its class and bound; a number becomes a size where it changes."""

    class Scale:
        @torch.compile(backend=simsched_backend)
        def apply(self, x):
            return x * 3

    x = torch.ones(3)
    assert agree(Scale().apply(x), 3 * x)
    assert reasons(Scale.apply) == reasons(Scale().apply) == [CPU]
    times = compiled(lambda x, n: x * n)
    assert all(agree(times(x, n), n * x) for n in (2, 3, 4))
    assert reasons(times) == [CPU, SIZES]
    nothing = compiled(lambda: torch.ones(3) + 1)
    assert agree(nothing(), 2 * x)
    assert reasons(nothing) == ["not measured: it has no inputs"]


def test_parts_that_share_their_code():
    """Dynamo compiles the experts once, as they are alike: the first has the report, and the others say so."""
    module, x = network("experts")
    with torch.no_grad():
        wanted = module(x)
        for i, expert in enumerate(module.experts):
            module.experts[i] = compiled(expert)
        assert agree(module(x), wanted)
    assert reasons(module.experts[0]) == [CPU]
    with pytest.raises(BackendError, match="the first that was called has all reports"):
        explain(module.experts[1])


@pytest.mark.parametrize("other", [None, 3, torch.nn.Linear(2, 2), torch.sin])
def test_what_was_not_compiled_cannot_be_explained(other):
    with pytest.raises(BackendError, match="nothing to explain"):
        explain(other)
