"""The arguments that PyTorch writes into events of collectives, worked by hand: bytes, ranks, and contradictions."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simsched as ss
from workloads.formats.kineto.exchange_data import (
    ARGUMENTS,
    NOT_STATED,
    ExchangeData,
    Members,
    arguments_of,
    common_exchange,
    exchange_of,
)

EIGHT = "[0, 1, 2, 3, 4, 5, 6, 7]"


def arguments(name="allreduce", n_in=1000, n_out=1000, dtype="Float", size=8, ranks=None):
    """Arguments of an event; None leaves one out."""
    values = dict(zip(ARGUMENTS, (name, n_in, n_out, dtype, size, ranks), strict=True))
    return arguments_of({name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "n_in", "n_out", "operation", "elements"),
    [
        ("allreduce", 1000, 1000, "all_reduce", 1000),
        ("allreduce_coalesced", 1000, 1000, "all_reduce", 1000),
        ("nccl:all_reduce", 1000, 1000, "all_reduce", 1000),
        ("_allgather_base", 1000, 8000, "all_gather", 8000),
        ("allgather", 1000, 8000, "all_gather", 8000),
        ("all_gather", 1000, 8000, "all_gather", 8000),
        ("allgather_into_tensor_coalesced", 1000, 8000, "all_gather", 8000),
        ("_reduce_scatter_base", 8000, 1000, "reduce_scatter", 8000),
        ("reduce_scatter", 8000, 1000, "reduce_scatter", 8000),
        ("reduce_scatter_tensor_coalesced", 8000, 1000, "reduce_scatter", 8000),
        ("all_to_all", 1000, 1000, "all_to_all", 1000),
        ("alltoall_base", 1000, 1000, "all_to_all", 1000),
        ("all_to_allv", 1000, 3000, "all_to_all", 1000),
    ],
)
def test_bytes_are_those_of_the_whole_buffer(name, n_in, n_out, operation, elements):
    """Two bytes for each element of what a rank reduces, gathers, scatters or sends."""
    data = exchange_of(arguments(name, n_in, n_out, "BFloat16", 8, EIGHT))
    assert data == ExchangeData(ss.Collective(operation, 2 * elements, 8), "", Members(0, 7))


@pytest.mark.parametrize(("name", "n_in", "n_out"), [("send", 500, 500), ("recv", 0, 500), ("send", 500, 0)])
def test_a_message_has_two_ranks(name, n_in, n_out):
    """The communicator has eight; they tell on which nodes the two may lie."""
    data = exchange_of(arguments(name, n_in, n_out, "Half", 8, EIGHT))
    assert data == ExchangeData(ss.Collective("send_recv", 1000, 2), "", Members(0, 7))


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("Byte", 1),
        ("Char", 1),
        ("Bool", 1),
        ("Float8_e4m3fn", 1),
        ("Float8_e5m2", 1),
        ("Half", 2),
        ("BFloat16", 2),
        ("Short", 2),
        ("Int", 4),
        ("Float", 4),
        ("Long", 8),
        ("Double", 8),
        ("ComplexDouble", 16),
        ("torch.bfloat16", 2),
        ("c10::Half", 2),
        ("float32", 4),
    ],
)
def test_number_formats(dtype, nbytes):
    assert exchange_of(arguments(dtype=dtype)).collective == ss.Collective("all_reduce", 1000 * nbytes, 8)


@pytest.mark.parametrize(
    ("given_arguments", "elements"),
    [
        (arguments("allgather", n_out=None), 8000),
        (arguments("allgather", n_in=None, n_out=8000), 8000),
        (arguments("reduce_scatter", n_in=None), 8000),
        (arguments("reduce_scatter", n_in=8000, n_out=None), 8000),
        (arguments(n_out=None), 1000),
        (arguments(n_in=None), 1000),
        (arguments("recv", n_in=None), 1000),
        (arguments(n_in="1000"), 1000),
        (arguments(n_in=1000.0, size=Decimal(8)), 1000),
        (arguments(size=None, ranks=EIGHT), 1000),
        (arguments(size=None, ranks=list(range(8))), 1000),
    ],
)
def test_one_number_follows_from_the_others(given_arguments, elements):
    data = exchange_of(given_arguments).collective
    assert data is not None
    assert data.bytes == 4 * elements


@pytest.mark.parametrize(
    ("ranks", "size", "members"),
    [
        (EIGHT, 8, (0, 7)),
        ("[8, 9, 10, 11]", 4, (8, 11)),
        ("[0, 1, ..., 7]", 8, (0, 7)),
        ("[0, 8, 16, ..., 504]", 64, (0, 504)),
        (f"[{', '.join(map(str, range(30)))}, ...]", 64, (0, 63)),
        ("[2, 3, ...]", 4, (2, 5)),
        ("[]", 8, (0, 7)),
        ("", 8, (0, 7)),
        (None, 8, (0, 7)),
    ],
)
def test_lists_of_ranks(ranks, size, members):
    """A list may be shortened; without one the ranks are the first."""
    data = exchange_of(arguments(size=size, ranks=ranks))
    assert data.collective == ss.Collective("all_reduce", 4000, size)
    assert data.members == members


@pytest.mark.parametrize(
    ("given_arguments", "why"),
    [
        (arguments_of({}), NOT_STATED),
        (arguments("broadcast"), "broadcast has no model"),
        (arguments("nccl:reduce"), "reduce has no model"),
        (arguments("gather"), "gather has no model"),
        (arguments("scatter"), "scatter has no model"),
        (arguments("barrier", 0, 0, "Byte"), "barrier has no model"),
        (arguments("my_kernel"), "my_kernel has no model"),
        (arguments(""), "a collective without a name has no model"),
        (arguments(None), "'Collective name' is missing"),
        (arguments(n_in=None, n_out=None), "'In msg nelems' is missing"),
        (arguments("all_to_all", n_in=None), "'In msg nelems' is missing"),
        (arguments(n_in=-1), "'In msg nelems' is '-1', not a number"),
        (arguments(n_in="many"), "'In msg nelems' is 'many', not a number"),
        (arguments(n_in=True), "'In msg nelems' is 'True', not a number"),
        (arguments(n_in=1.5), "'In msg nelems' is '1.5', not a number"),
        (arguments(n_out=float("nan")), "'Out msg nelems' is 'nan', not a number"),
        (arguments(n_in=10**30), "'In msg nelems' is '1000000000000000000000000000000', not a number"),
        (arguments(n_in=[5]), "'In msg nelems' is '[5]', not a number"),
        (arguments(n_in=0, n_out=0), "all_reduce of no elements"),
        (arguments("all_to_allv", n_in=0), "all_to_all of no elements"),
        (arguments(dtype="Foo"), "'dtype' is 'Foo', whose size is not known"),
        (arguments(dtype=7), "'dtype' is '7', whose size is not known"),
        (arguments(dtype=None), "'dtype' is missing"),
        (arguments(size=None), "'Group size' is missing"),
        (arguments(size=1), "'Group size' is 1"),
        (arguments(size=0), "'Group size' is 0"),
        (arguments(size=5000), "'Group size' is 5000"),
        (arguments("send", size=1), "'Group size' is 1"),
        (arguments(size=4, ranks=EIGHT), "'Group size' is 4, but 'Process Group Ranks' has 8"),
        (arguments(size=9, ranks=EIGHT), "'Group size' is 9, but 'Process Group Ranks' has 8"),
        (arguments(size=2, ranks="[0, 1, 2, ..., 7]"), "'Group size' is 2, but 'Process Group Ranks' has 4"),
        (arguments(n_out=999), "'In msg nelems' is 1000 and 'Out msg nelems' 999 for all_reduce of 8 ranks"),
        (arguments("send", n_out=9), "'In msg nelems' is 1000 and 'Out msg nelems' 9 for send_recv of 8 ranks"),
        (arguments("allgather"), "'In msg nelems' is 1000 and 'Out msg nelems' 1000 for all_gather of 8 ranks"),
        (
            arguments("reduce_scatter", 1000, 8000),
            "'In msg nelems' is 1000 and 'Out msg nelems' 8000 for reduce_scatter of 8 ranks",
        ),
    ],
)
def test_unknown_exchanges_say_why(given_arguments, why):
    data = exchange_of(given_arguments)
    assert (data.collective, data.unknown) == (None, why)


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(ARGUMENTS, anything)))
def test_any_arguments_are_known_or_not(args):
    data = exchange_of(arguments_of(args))
    assert (data.collective is None) == bool(data.unknown)


def test_ranks_of_one_collective_agree():
    """The rank that sends most decides an all-to-all; a rank that does not say holds with the others."""
    one = exchange_of(arguments())
    other = exchange_of(arguments(n_in=5, n_out=5))
    nothing = exchange_of(arguments_of({}))
    assert common_exchange([one, one]) == common_exchange([nothing, one]) == one
    assert common_exchange([nothing, nothing]) == nothing
    assert common_exchange([one, other]).unknown == "its ranks disagree on what is exchanged"
    sent = [exchange_of(arguments("all_to_allv", n_in=n, n_out=900)) for n in (700, 1100)]
    assert common_exchange(sent).collective == ss.Collective("all_to_all", 4400, 8)
