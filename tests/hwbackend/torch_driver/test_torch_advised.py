"""Advice of twelve small models can be carried out: `apply` runs the plan, and it computes the same."""

import pytest

torch = pytest.importorskip("torch")

from torch_networks import NETWORKS, computes, network  # noqa: E402 - the rest is for those who have PyTorch

import simsched as ss  # noqa: E402
from hwbackend.torch.apply import apply  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_module  # noqa: E402

nn, F = torch.nn, torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning", "default::DeprecationWarning")]

SCHEDULERS = ["sequential", "greedy", "lios", "heft", "nimble", "opara", "ios", "autograph"]


class Experts(nn.Module):
    """A mixture of four experts, each weighted."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        return sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Towers(nn.Module):
    """Two towers, and the product of what they say."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(2))

    def forward(self, x):
        return (self.left(x) * self.right(x)).sum(-1)


class Unet(nn.Module):
    """Down, up, and the input beside."""

    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(11, 3, 3, 1, 1)

    def forward(self, x):
        y = F.relu(self.middle(F.relu(self.down(x))))
        return self.out(torch.cat([x, self.up(y)], 1))


class Recurrent(nn.Module):
    """An LSTM and its classifier."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Dense(nn.Module):
    """Each layer reads all before it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3))

    def forward(self, x):
        known = [x]
        for layer in self.layers:
            known.append(F.relu(layer(torch.cat(known, 1))))
        return torch.cat(known, 1)


class Shuffle(nn.Module):
    """Two halves of the channels, one of them through a depthwise convolution, mixed."""

    def __init__(self):
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        left, right = self.stem(x).chunk(2, 1)
        y = torch.cat([left, self.branch(right)], 1)
        return y.view(1, 2, 4, *y.shape[2:]).transpose(1, 2).flatten(1, 2)


class Excite(nn.Module):
    """A block whose channels are weighted by what it pools."""

    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        y = F.hardswish(self.conv(x))
        return y * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))


class Fire(nn.Module):
    """Squeezed, then two convolutions side by side, the first written over."""

    def __init__(self):
        super().__init__()
        self.squeeze = nn.Conv2d(3, 4, 1)
        self.one, self.three = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1)

    def forward(self, x):
        y = self.squeeze(x).relu_()
        return torch.cat([self.one(y).relu_(), self.three(y).relu_()], 1)


def encoder():
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)


IMAGE = (1, 3, 16, 16)
OWN = {
    "experts": (Experts, (4, 32)),
    "towers": (Towers, (4, 32)),
    "unet": (Unet, IMAGE),
    "recurrent": (Recurrent, (2, 5, 16)),
    "dense": (Dense, IMAGE),
    "shuffle": (Shuffle, IMAGE),
    "excite": (Excite, IMAGE),
    "fire": (Fire, IMAGE),
    "encoder": (encoder, (2, 8, 32)),
}


def model(name):
    """Return a network in inference, and its input."""
    if name in NETWORKS:
        return network(name)
    make, shape = OWN[name]
    torch.manual_seed(0)
    return make().eval(), torch.randn(shape)


@pytest.mark.parametrize("gpu", ["h100", "t4"])
@pytest.mark.parametrize("name", [*NETWORKS, *OWN])
def test_advice_is_carried_out(name, gpu, tmp_path):
    """From the file that the plan was kept in, too; autograph may be quicker, but its plans rewrite the graph."""
    module, x = model(name)
    advice = ss.advise(from_module(module, x), ss.Cluster.preset(gpu), SCHEDULERS)
    advice.plan.save(str(tmp_path / "plan.json"))
    run = apply(module, x, ss.Schedule.load(str(tmp_path / "plan.json")))
    assert computes(run, module, x, 2 * x)


@pytest.mark.parametrize("name", [*NETWORKS, *OWN])
def test_advice_on_an_exported_program_is_carried_out(name):
    """Its operators bear other names than the module's: the plan runs with the program."""
    module, x = model(name)
    program = torch.export.export(module, (x,))
    plan = ss.schedule(from_exported(program), ss.Cluster.preset("h100"), "nimble")
    assert computes(apply(program, x, plan), module, x, 2 * x)


def test_there_are_twelve():
    assert len({**NETWORKS, **OWN}) == 12
