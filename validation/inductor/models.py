"""Ten small networks with branches of all kinds: experts, towers, cells, shortcuts, attention, slices of one tensor."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    """A mixture of experts, all of them computed and weighted."""

    def __init__(self, experts: int = 6, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        weights = torch.softmax(self.gate(x), -1).split(1, 1)
        return sum(weight * expert(x) for weight, expert in zip(weights, self.experts, strict=True))


class Towers(nn.Module):
    """Two towers that meet in a product."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(nn.Linear(width, 48), nn.ReLU(), nn.Linear(48, 24), nn.LayerNorm(24)) for _ in range(2)
        )

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        return (self.left(x) * self.right(-x)).sum(-1)


def _unit(into: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU())


class Inception(nn.Module):
    """Branches of convolutions, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _unit(3, 8, 3)
        self.one = _unit(8, 4, 1)
        self.pool = _unit(8, 4, 1)
        self.three = nn.Sequential(_unit(8, 4, 1), _unit(4, 6, 3))
        self.five = nn.Sequential(_unit(8, 4, 1), _unit(4, 6, 5))

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        x = self.stem(x)
        pooled = self.pool(functional.max_pool2d(x, 3, 1, 1))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1).mean((2, 3))


class Residual(nn.Module):
    """A shortcut with a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _unit(3, 8, 3)
        self.main = _unit(8, 16, 3, 2)
        self.side = nn.Conv2d(8, 16, 1, 2)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        x = self.stem(x)
        return torch.relu(self.main(x) + self.side(x))


class Cell(nn.Module):
    """A cell of sums of pairs, as searched networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (_unit(8, 8, kernel) for kernel in (1, 3, 5, 3))
        self.stem = _unit(3, 8, 3)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        x = self.stem(x)
        first = self.a(x) + self.b(x)
        second = self.c(x) + functional.avg_pool2d(x, 3, 1, 1)
        third = self.d(first) + second
        return torch.cat([first, second, third, functional.max_pool2d(x, 3, 1, 1)], 1)


class Hourglass(nn.Module):
    """Down, up, and a shortcut across, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.top = _unit(3, 8, 3)
        self.low = _unit(8, 12, 3)
        self.out = _unit(20, 4, 3)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        top = self.top(x)
        low = self.low(functional.max_pool2d(top, 2))
        return self.out(torch.cat([top, functional.interpolate(low, scale_factor=2)], 1))


class Attention(nn.Module):
    """A layer of a transformer, written out."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up = nn.Linear(width, 64)
        self.down = nn.Linear(64, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        query, key, value = (f(x).view(2, 8, 4, 8).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-1, -2), -1)
        x = self.norm(x + self.out((weights @ value).transpose(1, 2).reshape(2, 8, 32)))
        return x + self.down(functional.silu(self.up(x)))


class Slices(nn.Module):
    """Branches of element-wise kernels that write slices of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(32, 16 * (i + 1)) for i in range(3))
        self.last = nn.Linear(96 + 1, 8)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        parts = [part(x).tanh() for part in self.parts]
        return self.last(torch.cat([*parts, x.cumsum(1).narrow(1, 31, 1).sin()], 1)), parts[1].sum(0)


class Several(nn.Module):
    """Outputs of all branches, views among them, and an operator with two results."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(32, 32)
        self.right = nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        left = self.left(x).sigmoid()
        right = self.right(x)
        values, places = torch.sort(right, 1)
        return left.t(), values.narrow(1, 0, 4) + left.narrow(1, 0, 4), places, torch.stack([left, values]).amax(0)


class Gated(nn.Module):
    """Gated units side by side, of different widths, with norms."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 24, 40)
        self.up = nn.ModuleList(nn.Linear(32, width) for width in widths)
        self.gate = nn.ModuleList(nn.Linear(32, width) for width in widths)
        self.down = nn.ModuleList(nn.Linear(width, 32) for width in widths)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        parts = zip(self.up, self.gate, self.down, strict=True)
        return self.norm(x + sum(down(up(x) * functional.silu(gate(x))) for up, gate, down in parts))


class Changing(nn.Module):
    """Two buffers that are changed by branches that others read."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(32, 32)
        self.right = nn.Linear(32, 32)
        self.register_buffer("count", torch.zeros(32))
        self.register_buffer("last", torch.zeros(16, 32))

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        left = self.left(x) + self.count
        right = self.right(x) * self.last
        self.count.add_(left.mean(0))
        self.last.mul_(0.5).add_(right.tanh())
        return left @ right.t() + self.count.sum()


class Shared(nn.Module):
    """Products that all read one tensor, of which a sine may take the memory if it is the last to read it."""

    def __init__(self) -> None:
        super().__init__()
        self.stems = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(4))
        self.sides = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        """Return the outputs."""
        rows = []
        for stem, side in zip(self.stems, self.sides, strict=True):
            y = stem(x)
            rows += [side(y), y.sin() @ side.weight]
        return rows


_IMAGE = (2, 3, 12, 12)
_ROWS = (16, 32)
_WORDS = (2, 8, 32)
MODELS: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "experts": (Experts, _ROWS), "towers": (Towers, _ROWS), "inception": (Inception, _IMAGE),
    "residual": (Residual, _IMAGE), "cell": (Cell, _IMAGE), "hourglass": (Hourglass, _IMAGE),
    "attention": (Attention, _WORDS), "slices": (Slices, _ROWS), "several": (Several, _ROWS),
    "gated": (Gated, _ROWS),
}  # fmt: skip
SHARED: Final = {"shared": (Shared, _ROWS)}
"""Often wrong where buffers are reused; the others seldom are."""
CHANGING: Final = {"changing": (Changing, _ROWS)}
"""What writes to its buffers; without a driver PyTorch traces no such write on a fake GPU."""


def network(name: str) -> tuple[nn.Module, Any]:
    """Return a network for inference and an input, the same ones each time."""
    make, shape = (MODELS | SHARED | CHANGING)[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval(), torch.randn(shape)
