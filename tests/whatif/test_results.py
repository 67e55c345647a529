"""Documents of analyses whose parts do not fit: places of reasons, and samples of rows."""

import pytest
from documents import asked, document

from simsched.base.errors import SimschedError
from simsched.experiments.documents import DOCUMENTS

ONE = asked().sweep("gpus", [1, 2]).to_dict()
TWO, ROBUST = document("simsched.sweep"), document("simsched.robustness")
EMPTY = {name: [] for name in ROBUST["samples"]}


@pytest.mark.parametrize(
    ("data", "edit", "message"),
    [
        (ONE, {"reasons": [[1, 0, "why"]]}, None),
        (ONE, {"reasons": [[2, 0, "why"]]}, "reasons must be"),
        (ONE, {"reasons": [[-1, 0, "why"]]}, r"reasons\[0\]\[0\] must be"),
        (ONE, {"reasons": [[0, 1, "why"]]}, "reasons must be"),
        (TWO, {"reasons": [[0, 0, "why"], [1, 1, "why"]]}, None),
        (TWO, {"reasons": [[0, 2, "why"]]}, "reasons must be"),
        (ROBUST, {"rows": [], "samples": {}}, "there must be rows, and samples of each"),
        (ROBUST, {"samples": EMPTY}, "there must be rows, and samples of each"),
        (ROBUST, {"samples": dict(reversed(ROBUST["samples"].items()))}, "samples of each, in the same order"),
    ],
)
def test_parts_of_a_document_that_do_not_fit(data, edit, message):
    """Two values have places 0 and 1, none beyond; one parameter has a second place of 0."""
    load = DOCUMENTS[data["format"]].from_dict
    if message is None:
        assert repr(load(data | edit))
    else:
        with pytest.raises(SimschedError, match=message):
            load(data | edit, "x.json")
