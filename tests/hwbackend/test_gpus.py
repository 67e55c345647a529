"""Tests of a real GPU fail where one should be usable, and are left out where it cannot be."""

import pytest
from gpus import require_gpu

FAILED, SKIPPED = pytest.fail.Exception, pytest.skip.Exception


@pytest.mark.parametrize(
    ("package", "usable", "has_cuda", "outcome"),
    [
        ("json", False, True, FAILED),
        ("json", False, False, SKIPPED),
        ("no_such_package", False, True, SKIPPED),
        ("no_such_package", True, True, SKIPPED),
    ],
)
def test_tests_of_a_gpu(package, usable, has_cuda, outcome):
    with pytest.raises(outcome, match="no driver" if outcome is FAILED else package):
        require_gpu(package, lambda: (usable, "no driver"), lambda: has_cuda)


def test_tests_of_a_gpu_run_where_there_is_one():
    require_gpu("json", lambda: (True, "1 x GPU"))
