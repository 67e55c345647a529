"""Random kernels as Python, as unoptimised and as optimised machine code; `python -m validation.jit` runs many more."""

import ast

import pytest

from simsched.base.jit import compiler
from validation.jit import TOGETHER, differences


@pytest.mark.parametrize("first", range(0, 200, TOGETHER))
def test_python_and_machine_code_do_the_same(first):
    assert list(differences(first, TOGETHER, seed=0)) == []


@pytest.mark.parametrize(
    ("table", "key", "wrong"),
    [("_COMPARISONS", ast.NotEq, "eq"), ("_FLOAT_OPS", ast.Sub, "fadd"), ("_STORED", "i1", "i32")],
)
def test_a_wrong_instruction_is_noticed(table, key, wrong, monkeypatch):
    monkeypatch.setitem(getattr(compiler, table), key, wrong)
    assert any(text for first in range(0, 50, TOGETHER) for text in differences(first, TOGETHER, seed=0))
