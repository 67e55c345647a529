"""Promises of chosen kernels for all works and devices: they fit, and times never fall with size or with age."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simsched.model.cluster import DEVICES, Cluster, occupancy
from simsched.model.graph import DTYPE_NBYTES, Kernel, Work
from simsched.model.graph.operator import FAMILIES
from simsched.model.libraries import choose

NEWEST_FIRST = [Cluster.preset(name).devices[0] for name in ("h100", "a100", "v100", "k80")]
LIMIT = 1 + 1e-9


def sizes(most):
    """Sizes from 1 to 2^most, small and large ones alike."""
    return st.floats(0, most).map(lambda power: round(2**power))


class Sizes:
    """The sizes of a work, and the work that they make in a number format."""

    def __init__(self, family, rule="plain", bias=False, **values):
        self.family, self.rule, self.bias, self.values = family, rule, bias, values

    def doubled(self, *names):
        return Sizes(self.family, self.rule, self.bias, **self.values | {name: 2 * self.values[name] for name in names})

    def __repr__(self):
        return f"{self.family} {self.rule} {self.bias} {self.values}"

    def work(self, dtype):
        w, v = DTYPE_NBYTES[dtype], self.values
        b, r, c, k, win = (v.get(name, 1) for name in ("batch", "rows", "columns", "inner", "window"))
        moved = {  # reads, weights and writes, in numbers
            "product": (b * r * k, b * k * c, b * r * c),
            "convolution": (v.get("elements", 0), b * k * c, b * r * c),
            "elementwise": (r, 0, r),
            "batch_norm": (b * r * c, 2 * c, b * r * c),
            "rows": (r * c, 0, r * c),
            "reduction": (r * c, 0, r),
            "gather": (0, r * c, r * c / win),
            "attention": (b * (r + 2 * c) * k, 0, b * r * k),
            "recurrence": (b * r * k, win * c * (c + k), b * r * c),
        }[self.family]
        reads, weights, writes = (float(n * w) for n in moved)
        return Work(self.family, self.rule, 2.0 * b * r * c * k, reads, weights, writes, bias=self.bias, **v)


@st.composite
def scaled(draw):
    """Sizes of a work, and groups of names of sizes that may be doubled."""
    family = draw(st.sampled_from(FAMILIES))
    of = lambda **most: {name: draw(sizes(power)) for name, power in most.items()}  # noqa: E731
    bias = draw(st.booleans())
    if family == "product":
        rule = draw(st.sampled_from(["plain", "engine"]))
        return Sizes(family, rule, bias, **of(batch=6, rows=13, columns=14, inner=14)), [
            ("batch",),
            ("rows",),
            ("columns",),
            ("inner",),
        ]
    if family == "convolution":
        rule = draw(st.sampled_from(["plain", "strided", "channels_last"]))
        taps = 1 if rule == "plain" else draw(st.sampled_from([1, 9, 25, 49]))
        images, groups, channels, pixels = draw(sizes(6)), draw(st.just(1) | sizes(9)), draw(sizes(10)), draw(sizes(13))
        found = Sizes(
            family,
            rule,
            bias,
            batch=groups,
            rows=images * pixels,
            columns=draw(sizes(10)),
            inner=channels * taps,
            window=taps,
            elements=images * pixels * groups * channels,
            images=images,
        )
        return found, [("rows", "images", "elements"), ("columns",)]
    if family == "elementwise":
        rules = ["map", "activation", "channels", "pool", "upsample", "permute", "copy", "unknown"]
        return Sizes(family, draw(st.sampled_from(rules)), **of(rows=27, window=5)), [("rows",), ("window",)]
    if family in ("rows", "reduction"):
        rules = {"rows": ["layer_norm", "rms_norm", "softmax"], "reduction": ["sum", "argmax"]}[family]
        return Sizes(family, draw(st.sampled_from(rules)), **of(rows=15, columns=17)), [("rows",), ("columns",)]
    if family == "gather":
        window = draw(st.sampled_from([1, 5]))
        return Sizes(family, rows=draw(sizes(16)) * window, columns=draw(sizes(12)), window=window), [
            ("rows",),
            ("columns",),
        ]
    most = {
        "batch_norm": {"batch": 6, "rows": 14, "columns": 11},
        "attention": {"batch": 9, "rows": 12, "columns": 13, "inner": 7},
        "recurrence": {"batch": 6, "rows": 8, "columns": 10, "inner": 10, "window": 2},
    }[family]
    rule = draw(st.sampled_from(["plain", "divided"])) if family == "attention" else "plain"
    return Sizes(family, rule, **of(**most)), [(name,) for name in most if name not in ("inner", "window")]


def time(work, dtype, device, cached):
    return sum(launch.time for launch in choose(work, dtype, device, weights_cached=cached))


dtypes = st.sampled_from(sorted(DTYPE_NBYTES))
presets = st.sampled_from(sorted(DEVICES)).map(lambda name: Cluster.preset(name).devices[0])


@settings(max_examples=300)
@given(scaled(), dtypes, presets, st.booleans())
def test_no_work_is_faster_than_a_smaller_one(work, dtype, device, cached):
    less, ways = work
    for names in ways:
        assert time(less.work(dtype), dtype, device, cached) <= LIMIT * time(
            less.doubled(*names).work(dtype), dtype, device, cached
        )


@settings(max_examples=300)
@given(scaled(), dtypes, st.booleans())
def test_newer_devices_are_no_slower(work, dtype, cached):
    """On every number format that both have."""
    found = [device for device in NEWEST_FIRST if dtype in device.peak]
    times = [time(work[0].work(dtype), dtype, device, cached) for device in found]
    assert all(newer <= LIMIT * older for newer, older in pairwise(times))


@st.composite
def devices(draw):
    """Devices of any limits that hold a warp."""
    reserved = draw(st.sampled_from([0, 1024]))
    among = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    return replace(
        NEWEST_FIRST[0],
        sms=among(1, 2, 7, 132, 1000),
        threads_per_sm=among(32, 64, 1024, 2048),
        blocks_per_sm=among(1, 2, 32),
        registers_per_sm=among(4096, 16384, 65536),
        shared_memory_per_sm=max(reserved, among(0, 1024, 16384, 233472)),
        shared_memory_reserved=reserved,
        shared_memory_per_block=among(0, 1024, 49152, 232448),
        l2=among(0, 1e6, 5e7),
        clock=among(10, 1980),
        bandwidth=among(1, 3e6),
        capability=among("", "3.7", "7.0", "9.0", "12.1"),
        peak=among({"fp32": 1.0}, dict(NEWEST_FIRST[0].peak)),
    )


@settings(max_examples=300)
@given(scaled(), dtypes, devices(), st.booleans())
def test_kernels_fit_on_every_device(work, dtype, device, cached):
    launches = choose(work[0].work(dtype), dtype, device, weights_cached=cached)
    assert launches
    for launch in launches:
        assert occupancy(device, Kernel(launch.blocks, launch.threads, launch.registers, launch.shared_memory)).blocks
        assert 0 < launch.efficiency <= 1
        assert min(launch.chain, launch.flops, launch.traffic, launch.chained, launch.compute, launch.memory) >= 0
        assert 0 < launch.time < float("inf")


@settings(max_examples=100)
@given(scaled(), dtypes, presets)
def test_parameters_in_l2_cost_no_more(work, dtype, device):
    assume(work[0].work(dtype).weights)
    made = work[0].work(dtype)
    assert time(made, dtype, device, True) <= LIMIT * time(made, dtype, device, False)
    assert time(made, dtype, device, 0.5) <= LIMIT * time(made, dtype, device, False)
