"""The two engines against each other on many random programs.

    python -m validation.parity --examples 25000 --seed 1 --jit O3 --log validation/parity.json

The cases are those of ``tests/simulator/test_engine_parity.py``, a third each: small programs, busy devices,
and programs with rows taken out or moved.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

from simsched.base.io import dump_json, read_json, write_file
from simsched.base.jit.pieces import SWITCH, running


def main() -> None:
    """Run the cases; the first one on which the engines differ is shrunk and raised."""
    parser = argparse.ArgumentParser(description="Hold the compiled engine against the reference engine.")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jit", choices=("0", "O0", "O3"), help="how kernels run: as Python, unoptimised, optimised")
    parser.add_argument("--log", help="JSON file to which what was run is added")
    options = parser.parse_args()

    from hypothesis import given, seed, settings

    tests = Path(__file__).resolve().parent.parent / "tests"
    sys.path += [str(tests), str(tests / "simulator")]
    cases = import_module("test_engine_parity")
    third = options.examples // 3
    how = options.jit or os.environ.get(SWITCH, "")
    start = perf_counter()
    for plans, examples in (
        (cases.programs(), options.examples - 2 * third),
        (cases.busy(), third),
        (cases.edited(), third),
    ):
        if examples:
            run = given(plan=plans)(lambda plan: cases.assert_parity(plan))
            with running(how):
                settings(cases.relaxed, max_examples=examples, database=None)(seed(options.seed)(run))()
    seconds = round(perf_counter() - start, 1)
    record = {"seed": options.seed, "examples": options.examples, "kernels": how or "usual", "seconds": seconds}
    print(
        f"no difference in {options.examples} examples, seed {options.seed}, kernels {record['kernels']}, {seconds} s"
    )
    if options.log:
        known = read_json(options.log)["runs"] if Path(options.log).exists() else []
        write_file(options.log, dump_json({"runs": [*known, record]}))


if __name__ == "__main__":
    main()
