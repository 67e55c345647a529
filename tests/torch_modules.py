"""Small modules of PyTorch that several importers read."""

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


def torchvision_models():
    """The networks of torchvision, if there is one for this release of PyTorch."""
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # the latter where it was built for another
        pytest.skip(f"torchvision cannot be imported: {error}")
    return torchvision.models


class Forward(nn.Module):
    """A module that calls a function on itself."""

    def __init__(self, forward, **layers):
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self._forward(self, x)


class Inception(nn.Module):
    """Three branches of an Inception block on 8 channels, and their concatenation."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(8, 16, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.three = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True)

    def forward(self, x):
        return torch.cat([F.relu(self.norm(self.one(x)), inplace=True), torch.relu(self.three(x)), self.pool(x)], 1)


class Residual(nn.Module):
    """A basic block of ResNet on 8 channels, and its classifier."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout()
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)) + x)
        return self.fc(self.drop(torch.flatten(self.pool(x), 1)))
