"""The block scheduler of the surrogate on small devices, by hand; larger ones are in `test_synthetic_frozen`."""

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbackend.surrogate.sms import Sms
from simsched import Cluster
from simsched.base.jit.pieces import running


@dataclass(frozen=True)
class Asked:
    """A kernel: when it arrives, its blocks, and what each takes."""

    blocks: int
    compute: float = 10.0
    memory: float = 0.0
    issue: float = 0.1
    dram: float = 0.0
    warps: int = 1
    registers: int = 0
    shared: int = 0
    priority: int = 0
    arrival: float = 0.0
    device: int = 0


def sms_of(
    kernels, *, sms=2, warps=4, blocks=8, registers=1000, shared=1000, resident=128, interference=0.0, devices=1
):
    device = replace(
        Cluster.preset("a100").devices[0],
        sms=sms, threads_per_sm=32 * warps, blocks_per_sm=blocks, registers_per_sm=registers,
        shared_memory_per_sm=shared, resident_kernels=resident,
    )  # fmt: skip
    names = ("device", "priority", "warps", "registers", "shared", "issue", "dram")
    columns = {name: [getattr(kernel, name) for kernel in kernels] for name in names}
    return Sms([device] * devices, columns, np.array([kernel.blocks for kernel in kernels]), interference)


def spans_of(kernels, jitter=(1.0,), **limits):
    """Return start and end of each kernel."""
    found = sms_of(kernels, **limits)
    found.clear(np.array(jitter, np.float64))
    rows = sorted(range(len(kernels)), key=lambda row: kernels[row].arrival)
    ended = 0
    for row in [*rows, None]:
        until = inf if row is None else kernels[row].arrival
        while ended < len(kernels):
            _, rows_ended = found.advance(until)
            if not rows_ended:
                break
            ended += len(rows_ended)
        if row is not None:
            found.arrive(row, until, kernels[row].compute, kernels[row].memory)
    return found.spans


STREAM = Asked(2, compute=0.0, memory=10.0, dram=0.8, issue=0.0)
ROOMY = {"warps": 64, "blocks": 32, "registers": 1000, "shared": 1000}
LIMITS = {"warps": 4, "blocks": 2, "registers": 20, "shared": 200}
SIX = [Asked(6, warps=2, registers=10, shared=100)]  # two of whose blocks fit on an SM: two waves on two SMs
HELD = [Asked(1, warps=2, compute=20.0), Asked(1, warps=2), Asked(1, warps=3, arrival=1.0), Asked(1, arrival=2.0)]


@pytest.mark.parametrize(
    ("kernels", "limits", "spans"),
    [
        # on the SM with most room: 3 warps on each of two SMs of 4, beside which none of 2 fits before 10
        ([Asked(2, warps=3), Asked(1, warps=2, arrival=1.0)], {}, [[0, 10], [10, 20]]),
        ([Asked(5, warps=2)], {}, [[0, 20]]),  # waves of four, then one
        *((SIX, ROOMY | {limit: n}, [[0, 20]]) for limit, n in LIMITS.items()),
        (SIX, ROOMY, [[0, 10]]),
        # an SM holds one block: the first kernel takes 0-10, 0-10 and 10-20 before the other SM has room
        ([Asked(3), Asked(2, compute=5.0)], {"warps": 1}, [[0, 20], [10, 20]]),
        # a lower number that arrives later has the SM that is free first
        ([Asked(4), Asked(1, compute=5.0, priority=-1, arrival=1.0)], {"warps": 1}, [[0, 25], [10, 15]]),
        ([Asked(1)] * 3, {"resident": 2}, [[0, 10], [0, 10], [10, 20]]),
        # the third, of 3 warps, fits nowhere at first, and is not forgotten
        (HELD, {"resident": 2}, [[0, 20], [0, 10], [10, 20], [20, 30]]),
        ([Asked(3, issue=0.5)], {"sms": 1}, [[0, 15]]),  # 1.5 of the issue slots that there are
        # the blocks of 0.8 go to an SM each; a third beside the first, 1.6, does not slow the second
        ([Asked(1, issue=0.8), Asked(1, issue=0.8), Asked(1, issue=0.8, compute=5.0)], {}, [[0, 13], [0, 10], [0, 8]]),
        # blocks of other kernels interfere where something is short
        ([Asked(2, issue=0.6)], {"sms": 1, "interference": 0.04}, [[0, 12]]),
        ([Asked(1, issue=0.6)] * 2, {"sms": 1, "interference": 0.04}, [[0, 12.48]] * 2),
        ([Asked(1, issue=0.5)] * 2, {"sms": 1, "interference": 0.04}, [[0, 10]] * 2),
        # DRAM is shared over the whole device: asked for 1.6 times; with 10 of computing 0.8 x 8/10 twice, 8 x 1.28
        ([STREAM], {}, [[0, 16]]),
        ([replace(STREAM, compute=10.0, memory=8.0)], {}, [[0, 10.24]]),
        ([STREAM, replace(STREAM, device=1)], {"devices": 2}, [[0, 16]] * 2),  # another device has its own
        # blocks vary: 0.9, 1.1, 1.0 and 0.9 (again) of 10 us, one after the other
        ([Asked(4)], {"jitter": [0.9, 1.1, 1.0], "sms": 1, "warps": 1}, [[0, 39]]),
    ],
)
def test_blocks_by_hand(kernels, limits, spans):
    """Two SMs of 4 warps and blocks of 10 us, unless said otherwise; start and end of each kernel."""
    np.testing.assert_allclose(spans_of(kernels, **limits), np.array(spans, np.float64), rtol=1e-6)


def test_copies_ask_for_dram_until_they_say_otherwise():
    """The kernel asks for all of DRAM; copies for as much from 4 to 8: 4 us done at 4, 6 at 8, and the rest by 12."""
    sms = sms_of([Asked(1, compute=0.0, memory=10.0, dram=1.0)])
    sms.clear(np.ones(1))
    sms.arrive(0, 0.0, 0.0, 10.0)
    for now, part in ((4.0, 1.0), (8.0, 0.0)):
        assert sms.advance(now) == (now, [])
        sms.copied(0, now, part)
    assert sms.advance(inf) == (pytest.approx(12.0), [0])


asked = st.builds(
    Asked, blocks=st.integers(1, 12), compute=st.floats(1.0, 20.0), memory=st.floats(0.0, 20.0),
    issue=st.floats(0.0, 1.0), warps=st.integers(1, 4), registers=st.integers(0, 400), shared=st.integers(0, 400),
    priority=st.integers(-1, 1), arrival=st.floats(0.0, 50.0),
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(kernels=st.lists(asked, min_size=1, max_size=4), seed=st.integers(0, 2**16), n_sms=st.integers(1, 4))
def test_as_python_and_as_machine_code_it_is_the_same(kernels, seed, n_sms):
    """To the last bit; on two devices, whose DRAM is short."""
    kernels = [replace(kernel, dram=0.3, device=i % 2) for i, kernel in enumerate(kernels)]
    jitter, found = np.random.default_rng(seed).uniform(0.8, 1.2, 997), []
    for how in ("0", "O0", "O3"):
        with running(how):
            found.append(spans_of(kernels, jitter, sms=n_sms, resident=2, interference=0.04, devices=2).tolist())
    assert found[0] == found[1] == found[2]
