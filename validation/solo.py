"""Hold the times of operators alone against those that a device took.

    python -m validation.solo FILE [--fold 0] [--worst 3]

FILE holds rows of operators by name (``solo`` of ``truth.json.gz``): their kernels, times with a cold L2 (``cold_us``)
and one of ten in a captured graph (``warm_us``). Groups of shapes without rows or batch fall into three folds by a
hash of their names; constants were fitted on folds 1 and 2, never on fold 0.
"""

import argparse
import gzip
import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from simsched.model.cluster import Cluster, Device
from simsched.model.graph import DTYPE_NBYTES, Work
from simsched.model.libraries import Launch, choose

EDGE: Final = 0.6
"""A tenth, in us, of the time that a replay of a graph of ten takes around its nodes."""
GAP: Final = 0.2
"""Time in us between two nodes of a chain."""
WEIGHTS_CACHED: Final = 0.6
"""Of L2: parameters of less are found there in the next run."""
PRODUCTS: Final = ("linear", "bmm", "conv", "conv-nhwc", "conv-grouped", "conv-nhwc-grouped")


class Spec(NamedTuple):
    """An operator as its name says: ``family/dtype-layout/sizes``."""

    name: str
    family: str
    dtype: str
    layout: str
    sizes: tuple[int, ...]

    @property
    def kind(self) -> str:
        """Its family, with layout and groups of convolutions."""
        if self.family != "conv":
            return self.family
        return "conv" + ("-nhwc" if self.layout else "") + ("-grouped" if self.sizes[7] > 1 else "")

    @property
    def fold(self) -> int:
        """The fold of its group, 0 to 2."""
        sizes = self.sizes[1:] if self.family in ("linear", "conv") else self.sizes
        return int(hashlib.md5(f"{self.family}/{sizes}".encode()).hexdigest(), 16) % 3


class Row(NamedTuple):
    """An operator, the kernels chosen for it warm and cold, and the logarithms of their times over the measured."""

    spec: Spec
    warm: float
    launches: tuple[Launch, ...]
    warm_error: float | None
    cold_error: float | None
    blocks_error: float | None


def spec_of(name: str) -> Spec:
    """Return the facts in a name."""
    family, dtype, sizes = name.split("/", 2)
    dtype, _, layout = dtype.partition("-")
    return Spec(name, family, dtype, layout, tuple(int(size) for size in re.findall(r"\d+", sizes)))


def works_of(spec: Spec) -> list[Work]:
    """Return the works of an operator."""
    make = {"linear": _linear, "conv": _convolution, "bmm": _bmm, "sdpa": _attention, "lstm": _lstm}.get(spec.family)
    if make is not None:
        return [make(spec)]
    w, d = DTYPE_NBYTES[spec.dtype], spec.sizes
    if spec.family in ("relu", "gelu", "silu", "add", "copy"):
        rule = {"relu": "map", "add": "map", "copy": "copy"}.get(spec.family, "activation")
        n = d[0]
        return [Work("elementwise", rule, n, (2 if spec.family == "add" else 1) * n * w, 0, n * w, rows=n)]
    if spec.family in ("layer_norm", "rms_norm", "softmax"):
        n = d[0] * d[1]
        return [Work("rows", spec.family, 5.0 * n, n * w, 0, n * w, rows=d[0], columns=d[1])]
    if spec.family in ("sum", "argmax"):
        n = d[0] * d[1]
        return [Work("reduction", spec.family, n, n * w, 0, d[0] * w, rows=d[0], columns=d[1])]
    if spec.family in ("embedding", "embedding_bag"):
        n, bag = d[2], d[3] if len(d) > 3 else 1
        read = float(n * bag * d[1] * w)
        return [Work("gather", "plain", 0, n * bag * 8, read, n * d[1] * w, rows=n * bag, columns=d[1], window=bag)]
    return [_image(spec)]


def _linear(spec: Spec) -> Work:
    w, (m, k, n) = DTYPE_NBYTES[spec.dtype], spec.sizes
    return Work("product", "plain", 2.0 * m * n * k, m * k * w, (k + 1) * n * w, m * n * w, 1, m, n, k, bias=True)


def _bmm(spec: Spec) -> Work:
    w, (b, m, k, n) = DTYPE_NBYTES[spec.dtype], spec.sizes
    return Work("product", "plain", 2.0 * b * m * n * k, b * (m + n) * k * w, 0, b * m * n * w, b, m, n, k)


def _attention(spec: Spec) -> Work:
    w, (b, heads, queries, keys, features) = DTYPE_NBYTES[spec.dtype], spec.sizes
    h = b * heads
    return Work(
        "attention",
        "plain",
        4.0 * h * queries * keys * features,
        h * (queries + 2 * keys) * features * w,
        0,
        h * queries * features * w,
        h,
        queries,
        keys,
        features,
    )


def _lstm(spec: Spec) -> Work:
    w, (steps, units) = DTYPE_NBYTES[spec.dtype], spec.sizes
    return Work(
        "recurrence",
        "plain",
        16.0 * steps * units * units,
        steps * units * w,
        8.0 * units * (units + 1) * w,
        steps * units * w,
        1,
        steps,
        units,
        units,
        4,
        bias=True,
    )


def _convolution(spec: Spec) -> Work:
    w, (b, ci, size, co, k, stride, pad, groups) = DTYPE_NBYTES[spec.dtype], spec.sizes
    out = (size + 2 * pad - k) // stride + 1
    rows, inner = b * out * out, ci // groups * k * k
    rule = "channels_last" if spec.layout else "plain" if stride == 1 and pad == 0 else "strided"
    return Work(
        "convolution",
        rule,
        2.0 * rows * co * inner,
        b * ci * size * size * w,
        co * inner * w,
        rows * co * w,
        groups,
        rows,
        co // groups,
        inner,
        k * k,
        b * ci * size * size,
        b,
    )


def _image(spec: Spec) -> Work:
    w, (b, c, size) = DTYPE_NBYTES[spec.dtype], spec.sizes[-3:]
    n = b * c * size * size
    if spec.family == "batch_norm":
        return Work("batch_norm", "plain", 2.0 * n, n * w, 2 * c * w, n * w, b, size * size, c)
    if spec.family == "global_pool":
        return Work("reduction", "sum", n, n * w, 0, b * c * w, rows=b * c, columns=size * size)
    if spec.family in ("max_pool3s2", "avg_pool3s1"):
        out = b * c * (size if spec.family == "avg_pool3s1" else (size - 3) // 2 + 1) ** 2
        return Work("elementwise", "pool", 9.0 * out, n * w, 0, out * w, rows=out, window=9)
    out, rule = {"cat2": (2 * n, "copy"), "permute": (n, "permute"), "upsample2": (4 * n, "upsample")}[spec.family]
    return Work("elementwise", rule, 0, (2 if rule == "copy" else 1) * n * w, 0, out * w, rows=out)


def launches_of(spec: Spec, device: Device, cold: bool) -> tuple[Launch, ...]:
    """Return the kernels chosen for an operator that runs over and over, or with a cold L2."""
    works = works_of(spec)
    cached = sum(work.weights for work in works) < WEIGHTS_CACHED * device.l2
    return tuple(
        launch
        for work in works
        for launch in choose(work, spec.dtype, device, weights_cached=cached and not cold, cold=cold)
    )


def rows_of(solo: Mapping[str, Any], device: Device, folds: Iterable[int] = (0, 1, 2)) -> Iterator[Row]:
    """Yield a row for each operator of some folds that was measured."""
    wanted = set(folds)
    for name, measured in solo.items():
        spec = spec_of(name)
        if "error" in measured or spec.fold not in wanted:
            continue
        if (spec.family, spec.dtype) == (
            "batch_norm",
            "fp32",
        ):  # without parameters: not the kernel that networks launch
            continue
        launches, colder = launches_of(spec, device, False), launches_of(spec, device, True)
        warm, cold = (sum(launch.time for launch in some) for some in (launches, colder))
        kernels = measured.get("kernels", ())
        warm_us = measured["warm_us"][1] if len(measured.get("warm_us", ())) == 4 else None
        cold_us = statistics.median(measured["cold_us"]) if measured.get("cold_us") else None
        if spec.family == "batch_norm" and kernels:  # the call made its own statistics: keep the operator's kernels
            own = sum(kernel["us"][0] for kernel in kernels[-len(launches) :])
            warm_us = warm_us and own + EDGE + GAP * len(launches)
            cold_us = cold_us and own
        grid = sum(math.prod(kernel["grid"]) for kernel in kernels if kernel["grid"])
        blocks = sum(launch.blocks for launch in launches)
        yield Row(
            spec,
            warm,
            launches,
            math.log((warm + EDGE + GAP * len(launches)) / warm_us) if warm_us else None,
            math.log(cold / cold_us) if cold_us else None,
            math.log(blocks / grid) if grid else None,
        )


class Errors(NamedTuple):
    """Mean absolute error, mean error and 90th percentile of absolute errors of logarithms."""

    mean: float
    bias: float
    p90: float


def errors(values: Iterable[float | None]) -> Errors:
    """Return the errors of those that were measured."""
    known = [value for value in values if value is not None]
    if not known:
        return Errors(math.nan, math.nan, math.nan)
    sizes = sorted(map(abs, known))
    return Errors(statistics.fmean(sizes), statistics.fmean(known), sizes[int(len(sizes) * 0.9)])


def table(rows: list[Row], worst: int) -> str:
    """Return errors by family and format as text."""
    families: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        part = "products" if row.spec.kind in PRODUCTS else "others"
        for key in ((row.spec.kind, row.spec.dtype), (f"~{part}", "all"), ("~~all", "all")):
            families.setdefault(key, []).append(row)
    lines = [f"{'family':18s} {'dtype':5s} {'n':>5s} {'warm':>6s} {'bias':>6s} {'p90':>5s} {'cold':>6s} {'bias':>6s}"]
    for (family, dtype), some in sorted(families.items()):
        warm, cold = errors(row.warm_error for row in some), errors(row.cold_error for row in some)
        top = sorted(some, key=lambda row: -abs(row.warm_error or 0.0))[:worst]
        lines.append(
            f"{family.strip('~'):18s} {dtype:5s} {len(some):5d} {warm.mean:6.3f} {warm.bias:+6.2f} {warm.p90:5.2f} "
            f"{cold.mean:6.3f} {cold.bias:+6.2f}  "
            + "; ".join(f"{row.spec.name.split('/', 2)[2]} {row.warm_error or 0:+.2f}" for row in top)
        )
    blocks = errors(row.blocks_error for row in rows if row.spec.kind in PRODUCTS)
    lines.append(f"blocks of products: {blocks.mean:.2f} ({blocks.bias:+.2f})")
    return "\n".join(lines)


def faster_steps(rows: list[Row]) -> tuple[int, int]:
    """Return how many steps to twice, 4 or 16 times the rows or batch take less time, and how many there are."""
    times = {(row.spec.kind, row.spec.dtype, row.spec.sizes): row.warm for row in rows}
    faster = total = 0
    for (kind, dtype, sizes), time in times.items():
        at = 2 if kind == "embedding" else 0
        if kind not in (*PRODUCTS, "embedding", "sdpa"):
            continue
        for factor in (2, 4, 16):
            more = times.get((kind, dtype, (*sizes[:at], factor * sizes[at], *sizes[at + 1 :])))
            if more is not None:
                total += 1
                faster += time > 1.02 * more
    return faster, total


def main() -> None:
    """Print the tables of fitted folds and of the one kept back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--preset", default="h100")
    parser.add_argument("--fold", type=int, choices=(0, 1, 2), help="this fold alone")
    parser.add_argument("--only", default="", help="operators whose names start so")
    parser.add_argument("--worst", type=int, default=0)
    arguments = parser.parse_args()
    with gzip.open(arguments.file) as file:
        document = json.load(file)
    solo = {name: row for name, row in document.get("solo", document).items() if name.startswith(arguments.only)}
    device = Cluster.preset(arguments.preset).devices[0]
    every = []
    folds = ((1, 2), (0,)) if arguments.fold is None else ((arguments.fold,),)
    for some in folds:
        rows = list(rows_of(solo, device, some))
        every += rows
        print(f"== {'fold 0: never fitted' if some == (0,) else f'folds {some}'}\n{table(rows, arguments.worst)}\n")
    print("steps to more rows that are faster: {} of {}".format(*faster_steps(every)))


if __name__ == "__main__":
    main()
