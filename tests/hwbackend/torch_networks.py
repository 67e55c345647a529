"""Small networks of PyTorch: a block of branches, a block with a shortcut, a layer of a transformer."""

import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

torch.set_num_threads(1)  # tensors are small: on a busy machine threads only wait for each other


class Inception(nn.Module):
    """Four branches that are joined."""

    def __init__(self):
        super().__init__()
        self.stem = self.unit(3, 8, 3)
        self.one = self.unit(8, 4, 1)
        self.three = nn.Sequential(self.unit(8, 4, 1), self.unit(4, 6, 3))
        self.five = nn.Sequential(self.unit(8, 4, 1), self.unit(4, 6, 5))
        self.pool = self.unit(8, 4, 1)
        self.head = nn.Linear(20, 10)

    @staticmethod
    def unit(into, out, kernel):
        conv = nn.Conv2d(into, out, kernel, padding=kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    def forward(self, x):
        x = self.stem(x)
        pooled = self.pool(functional.max_pool2d(x, 3, 1, 1))
        x = torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Residual(nn.Module):
    """Two blocks, the second with a convolution in its shortcut."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.c, self.d = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.shortcut = nn.Conv2d(8, 16, 1, stride=2)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        y = self.b(torch.relu(self.a(x)))
        y += x
        x = torch.relu(y)
        return torch.relu(self.norm(self.d(torch.relu(self.c(x)))) + self.shortcut(x))


class Transformer(nn.Module):
    """Attention written out, and a layer of two products."""

    def __init__(self, features=32, heads=4):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(features, features) for _ in range(4))
        self.first, self.second = nn.Linear(features, 2 * features), nn.Linear(2 * features, features)
        self.norms = nn.ModuleList([nn.LayerNorm(features), nn.LayerNorm(features)])

    def split(self, x):
        return x.view(2, 8, self.heads, 8).transpose(1, 2)

    def forward(self, x):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5, -1)
        x = self.norms[0](x + self.out((weights @ value).transpose(1, 2).reshape(2, 8, 32)))
        return self.norms[1](x + self.second(functional.gelu(self.first(x))))


NETWORKS = {"inception": (Inception, (2, 3, 12, 12)), "residual": (Residual, (1, 3, 12, 12)),
            "transformer": (Transformer, (2, 8, 32))}  # fmt: skip


each_network = pytest.mark.parametrize("name", NETWORKS)


def error(got, wanted):
    """Largest difference, relative to the largest value."""
    return float((got - wanted).detach().abs().max() / wanted.detach().abs().max())


def network(name, seed=0):
    """A network in inference whose normalisations are no identities, and an input."""
    make, shape = NETWORKS[name]
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.copy_(torch.randn(part.num_features, generator=generator))
            part.running_var.copy_(torch.rand(part.num_features, generator=generator) + 0.5)
    return module, torch.randn(shape, generator=generator)
