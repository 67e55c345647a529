"""Products of language models on other devices, as microsoft/vidur measured them; nothing was fitted to them.

The files belong to others (MIT, Microsoft) and are not part of the project: `data/profiling/compute` of the repository
at 7d47513 has an ``mlp.csv`` for each device and model. Their names here are ``DEVICE-MODEL.mlp.csv.gz``.
"""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import simsched as ss
from simsched.base.io import read_bytes
from simsched.base.units import GB_PER_S, MS
from simsched.model import operator_times
from validation.h100.figures import Case, Figure, Section, bias, largest_error, mean_error, number
from workloads.models.network import Network

DTYPE: Final = "fp16"
FEW_TOKENS: Final = 32
_MEDIAN: Final = "time_stats.{}.median"
Row = Mapping[str, str]


def cluster(device: str) -> ss.Cluster:
    """Return the preset of a device; their A100 has 80 GB, at 2,039 GB/s."""
    preset = ss.Cluster.preset(device)
    if device != "a100":
        return preset
    return replace(preset, devices=tuple(replace(each, bandwidth=2039 * GB_PER_S) for each in preset.devices))


def products(row: Row) -> Iterator[tuple[str, int, int]]:
    """Yield the products of a row: name, inputs and outputs of each on one of its devices.

    >>> row = {"n_embd": "4096", "n_expanded_embd": "11008", "n_head": "32", "n_kv_head": "8", "use_gated_mlp": "True",
    ...        "num_tensor_parallel_workers": "2"}
    >>> list(products(row))[:3]
    [('attn_pre_proj', 4096, 3072), ('attn_post_proj', 2048, 4096), ('mlp_up_proj', 4096, 11008)]
    """
    width = int(row["n_embd"])
    hidden = int(row["n_expanded_embd"])
    heads = int(row["n_head"])
    key_heads = int(row["n_kv_head"])
    shares = int(row["num_tensor_parallel_workers"])
    up = (2 if row["use_gated_mlp"] == "True" else 1) * hidden
    yield "attn_pre_proj", width, (heads + 2 * key_heads) * (width // heads) // shares
    yield "attn_post_proj", width // shares, width
    yield "mlp_up_proj", width, up // shares
    yield "mlp_down_proj", hidden // shares, width


def cases(path: Path) -> list[Case]:
    """Return the products of a file; names end in the number of tokens."""
    device, _, model = path.name.removesuffix(".mlp.csv.gz").partition("-")
    text = gzip.decompress(read_bytes(path)).decode()
    net = Network(model, dtype=DTYPE)
    measured: dict[str, float] = {}
    for i, row in enumerate(csv.DictReader(io.StringIO(text))):
        tokens = int(row["num_tokens"])
        for name, inputs, outputs in products(row):
            key = f"{model} {i} {name} {inputs}x{outputs} {tokens}"
            net.linear(key, net.input(tokens, inputs), outputs, bias=False)
            measured[key] = float(row[_MEDIAN.format(name)]) * MS
    graph = net.graph()
    times = operator_times(graph, cluster(device).devices[0])
    return [Case(name, float(time), measured[name]) for name, time in zip(graph.names, times, strict=True)]


def vidur_section(folder: Path) -> Section:
    """Return how well products are predicted, by device."""
    figures = []
    table = []
    for device in ("a100", "h100"):
        files = sorted(folder.glob(f"{device}-*.mlp.csv.gz"))
        known = [case for path in files for case in cases(path)]
        few = [case for case in known if int(case.name.split()[-1]) <= FEW_TOKENS]
        figures.append(Figure(f"fp16 linears of language models, {device}: mean abs ln", mean_error(known), most=0.12))
        figures.append(Figure(f"fp16 linears of language models, {device}: bias", bias(known)))
        rows = {"all": known, f"up to {FEW_TOKENS} tokens": few}
        for name, group in rows.items():
            table.append(
                (device, name, len(group), *map(number, (mean_error(group), bias(group), largest_error(group))))
            )
    return Section(
        "Products of language models", figures, ("device", "rows", "n", "mean abs ln", "bias", "largest"), table
    )
