"""Small models against a run on the CPU: FLOP of PyTorch's counter, and bytes of tensors that its operators touch."""

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from test_torch_writes import One, Two  # noqa: E402 - the rest is for those who have PyTorch

from validation.models import by_export, by_layers, counted_flops, product_flops, touched_bytes  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def experts(m, x):
    weights = F.softmax(m.gate(x), -1)
    total = torch.zeros_like(x)
    for i, expert in enumerate(m.experts):
        total = total + weights[:, i : i + 1] * expert(x)
    return total


def decoder(m, x):
    q, k, v = (part.view(1, 1, 4, 16).transpose(1, 2) for part in m.qkv(x).split(64, -1))
    m.keys.index_copy_(2, m.at, k)
    m.values.index_copy_(2, m.at, v)
    return m.out(F.scaled_dot_product_attention(q, m.keys, m.values).transpose(1, 2).reshape(1, 1, 64))


def unet(m, x):
    wide = F.relu(m.a(x), inplace=True)
    deep = F.relu(m.b(F.avg_pool2d(wide, 2)))
    return m.out(torch.cat([m.up(deep), wide], 1))


def scan(m, x):
    state = torch.zeros(2, 16)
    states = []
    for step in range(4):
        state = m.decay.sigmoid() * state + m.inp(x[:, step])
        states.append(state)
    return torch.stack(states, 1)


def windows(m, x):
    shifted = torch.roll(x, (-2, -2), (1, 2)).view(2, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 16)
    q, k, v = m.qkv(shifted).view(-1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    return ((q * 8**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v


def messages(m, x, edges):
    sent = m.send(x)[edges[0]]
    total = torch.zeros_like(x).index_add_(0, edges[1], sent)
    return F.relu(m.keep(x) + total)


def detections(m, x):
    scores, kept = m.score(x).flatten(1).topk(5, 1)
    boxes = m.box(x).flatten(2).transpose(1, 2).gather(1, kept[..., None].expand(-1, -1, 4))
    return scores, boxes


def residual(m, x):
    y = m.relu(m.norm(m.conv(x)))
    y = m.conv(y)
    y += x
    return m.relu(y)


def regions(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.b(F.relu(m.a(x)))
    return F.layer_norm(y.float(), (16,))


def towers(m, x):
    return torch.cat([bag(x[:, i]) for i, bag in enumerate(m.bags)], 1)


GROUPED = {"relu": nn.ReLU(inplace=True), "norm": nn.BatchNorm2d(8), "conv": nn.Conv2d(8, 8, 3, padding=1, bias=False)}
UNET = {
    "a": nn.Conv2d(3, 8, 3, padding=1),
    "b": nn.Conv2d(8, 16, 3, padding=1),
    "up": nn.ConvTranspose2d(16, 8, 2, stride=2),
    "out": nn.Conv2d(16, 1, 1),
}
DECODER = {
    "qkv": nn.Linear(64, 192),
    "out": nn.Linear(64, 64),
    "keys": torch.zeros(1, 4, 32, 16),
    "values": torch.zeros(1, 4, 32, 16),
    "at": torch.tensor([7]),
}
MODELS = {
    "experts": (
        One(
            experts,
            gate=nn.Linear(32, 4),
            experts=nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)),
        ),
        torch.randn(16, 32),
    ),
    "decoder with a cache": (One(decoder, **DECODER), torch.randn(1, 1, 64)),
    "U-Net": (One(unet, **UNET), torch.randn(1, 3, 16, 16)),
    "in place": (One(residual, **GROUPED), torch.randn(2, 8, 8, 8)),
    "autocast": (One(regions, a=nn.Linear(16, 32), b=nn.Linear(32, 16)), torch.randn(64, 16)),
    "scan": (One(scan, decay=torch.randn(16), inp=nn.Linear(8, 16)), torch.randn(2, 4, 8)),
    "windows": (One(windows, qkv=nn.Linear(16, 48)), torch.randn(2, 8, 8, 16)),
    "messages": (
        Two(messages, send=nn.Linear(16, 16), keep=nn.Linear(16, 16)),
        torch.randn(50, 16),
        torch.randint(0, 50, (2, 40)),
    ),
    "detections": (One(detections, score=nn.Conv2d(8, 1, 1), box=nn.Conv2d(8, 4, 1)), torch.randn(2, 8, 8, 8)),
    "26 bags": (
        One(towers, bags=nn.ModuleList(nn.EmbeddingBag(100, 16, mode="sum") for _ in range(26))),
        torch.randint(0, 100, (8, 26, 5)),
    ),
    "scattered rows": (One(lambda m, x: m.a(x.transpose(1, 2)), a=nn.Linear(8, 16)), torch.randn(4, 8, 32)),
    "Fourier": (One(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * 2.0, n=32)), torch.randn(16, 32)),
}


@pytest.mark.parametrize("read", [by_layers, by_export])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_counts_what_a_run_touches(name, read):
    """FLOP of products are the same, and bytes by at most 5 %."""
    module, *inputs = MODELS[name]
    module.eval()
    graph = read(module, inputs)
    assert product_flops(graph) == counted_flops(module, inputs)
    assert graph.nbytes.sum() == pytest.approx(touched_bytes(module, inputs), rel=0.05)
