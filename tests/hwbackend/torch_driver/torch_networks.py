"""Small networks of PyTorch: a block of branches, a block with a shortcut, a layer of a transformer."""

import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

torch.set_num_threads(1)  # tensors are small: on a busy machine threads only wait for each other


def unit(into, out, kernel):
    conv = nn.Conv2d(into, out, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches that are joined."""

    def __init__(self):
        super().__init__()
        self.stem, self.one, self.pool = unit(3, 8, 3), unit(8, 4, 1), unit(8, 4, 1)
        self.three, self.five = (nn.Sequential(unit(8, 4, 1), unit(4, 6, kernel)) for kernel in (3, 5))
        self.head = nn.Linear(20, 10)

    def forward(self, x):
        x = self.stem(x)
        pooled = self.pool(functional.max_pool2d(x, 3, 1, 1))
        x = torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Residual(nn.Module):
    """Two blocks, the second with a convolution in its shortcut."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = (nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8, 8))
        self.c, self.d = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.shortcut, self.norm = nn.Conv2d(8, 16, 1, stride=2), nn.BatchNorm2d(16)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        y = self.b(torch.relu(self.a(x)))
        y += x
        x = torch.relu(y)
        return torch.relu(self.norm(self.d(torch.relu(self.c(x)))) + self.shortcut(x))


class Transformer(nn.Module):
    """Attention written out, and a layer of two products."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 32)
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])

    def forward(self, x):
        query, key, value = (f(x).view(2, 8, 4, 8).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5, -1)
        x = self.norms[0](x + self.out((weights @ value).transpose(1, 2).reshape(2, 8, 32)))
        return self.norms[1](x + self.second(functional.gelu(self.first(x))))


NETWORKS = {
    "inception": (Inception, (2, 3, 12, 12)),
    "residual": (Residual, (1, 3, 12, 12)),
    "transformer": (Transformer, (2, 8, 32)),
}
each_network = pytest.mark.parametrize("name", NETWORKS)


def agree(got, wanted):
    """Whether values are equal but for rounding: differences are relative to the largest value."""
    return (got - wanted).detach().abs().max() <= 1e-5 * wanted.detach().abs().max()


def computes(run, module, *inputs):
    """Whether something computes what a module does."""
    with torch.no_grad():
        return all(agree(run(x), module(x)) for x in inputs)


def network(name):
    """A network in inference whose normalisations are no identities, and an input."""
    make, shape = NETWORKS[name]
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.copy_(torch.randn(part.num_features, generator=generator))
            part.running_var.copy_(torch.rand(part.num_features, generator=generator) + 0.5)
    return module, torch.randn(shape, generator=generator)
