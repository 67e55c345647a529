"""The compiler of native functions on many random programs, which do the same as Python, unoptimised and optimised.

    python -m validation.jit --programs 20000 --seed 1 --log validation/jit.json

Each program runs from equal tables, several times; afterwards these have to be equal to the last bit.
"""

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random
from time import perf_counter
from typing import Any, Final

import numpy as np

from simsched.base.jit.compiler import compile_piece
from simsched.base.jit.functions import symbol_of, units_of
from simsched.base.jit.machine_code import link, to_object
from validation.evidence import keep, options
from validation.jit_programs import HEAD, State, source_of

TOGETHER: Final = 10
"""Programs that are compiled at once."""
_TABLES: Final = 3  # that each is run on
_FLOATS: Final = (0.0, -0.0, 1.0, -1.5, 1e-310, 1e308, -1e15, np.inf, -np.inf, np.nan)


def differences(first: int, count: int, seed: int) -> Iterator[str]:
    """Run programs; yield the source of each that differs in any way, with the difference."""
    sources = {number: source_of(number, seed) for number in range(first, first + count)}
    calls = "".join(f"    if s.which == {number}:\n        program_{number}(s)\n" for number in sources)
    names = module_of(
        f"{HEAD}{''.join(sources.values())}@native\ndef entry(s: State) -> None:\n{calls}", f"programs_{first}"
    )
    entry = compile_piece(names["entry"], units_of(names["entry"]))
    symbol = symbol_of(names["entry"])
    natives = [link(symbol, to_object(entry, how)) for how in ("O0", "O3")]  # which are not kept on disk
    for number, source in sources.items():
        for k in range(_TABLES):
            ways: list[Callable[[State], object]] = [
                names[f"program_{number}"],
                *(lambda state, run=run: run(state.address) for run in natives),
            ]
            python, *others = (_result(way, number, Random(f"{seed}/{number}/{k}")) for way in ways)
            found = [
                f"{what}: {one} as Python, {other} as {how}"
                for how, result in zip(("O0", "O3"), others, strict=True)
                for (what, one), (_, other) in zip(python, result, strict=True)
                if one != other
            ]
            if found:
                yield f"program {number} of seed {seed}, table {k}\n{source}" + "\n".join(found)
                break


def module_of(source: str, name: str) -> dict[str, Any]:
    """Return the names of a module made of some source, which the compiler can read."""
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": name}
    exec(compile(source, file, "exec"), names)
    return names


def _result(way: Callable[[State], object], number: int, random: Random) -> list[tuple[str, str]]:
    """Return the contents of a random table after a program has worked on it, floats as text.

    Any NaN is one, and zero has no sign: LLVM takes ``min(-0.0, min(x, -0.0))`` for ``min(x, -0.0)``.
    """
    state = State(which=number, i=_number(random, "i8"), x=_number(random, "f8"), y=_number(random, "f8"))
    if random.random() < 0.5:
        state["perhaps"] = np.array([_number(random, "i8") for _ in range(8)], np.int64)
    columns = ["longs", "other_longs", "ints", "bytes", "floats", "other_floats", "rows", "other_rows"]
    arrays: dict[str, Any] = {name: state[name] for name in columns}
    for name in ("rows", "other_rows"):
        array = arrays.pop(name)
        arrays |= {f"{name}.{field}": array[field] for field in array.dtype.names}
    part = state.part
    arrays |= {"part.longs": part["longs"], "part.core.ints": part.core["ints"]}
    for array in arrays.values():
        array[:] = [_number(random, array.dtype.str[1:]) for _ in range(len(array))]
    for table in (part, part.core):
        table.i = int(_number(random, "i8"))
        table.x = _number(random, "f8")
    way(state)
    arrays |= {name: state[name] for name in ("found_ints", "found_floats")}
    tables = {"": (state, "ijxy"), "part.": (part, "ix"), "part.core.": (part.core, "ix")}
    numbers = [
        (prefix + name, repr(getattr(table, name) + 0)) for prefix, (table, names) in tables.items() for name in names
    ]
    return numbers + [(name, repr((array + 0).tolist())) for name, array in arrays.items()]


def _number(random: Random, code: str) -> float:
    if code == "f8":
        return random.choice([*_FLOATS, random.uniform(-1000.0, 1000.0)])
    most: int = 2 ** (8 * int(code[1]) - 1)
    return random.choice([0, 1, -1, 2, most - 1, -most, random.randrange(-most, most), random.randrange(-100, 100)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run programs, print those that differ, and return the status of the process."""
    given = options(__doc__, arguments, programs=1000, first=0, seed=0, log=None)
    start = perf_counter()
    n_different = 0
    end = given.first + given.programs
    for first in range(given.first, end, TOGETHER):
        for text in differences(first, min(TOGETHER, end - first), given.seed):
            print(text, end="\n\n", flush=True)
            n_different += 1
    record = {
        "seed": given.seed,
        "first": given.first,
        "programs": given.programs,
        "different": n_different,
        "seconds": round(perf_counter() - start, 1),
    }
    print(f"{n_different} of {given.programs} programs differ, seed {given.seed}, {record['seconds']} s")
    if given.log:
        keep(given.log, record)
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
