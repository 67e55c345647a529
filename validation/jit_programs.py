"""Random native functions over the whole subset that is compiled, drawn from a grammar, and the tables they work on.

Whole numbers are wrapped wherever they could leave 64 bits, which is nothing to the compiler; divisors are not 0, what
is rounded is a number, places are inside of their columns, and loops end.
"""

import re
from math import nan
from random import Random
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i1, i4, i8, length, native, wrapped

N: Final = 8
"""Places of a column; parts of it that are passed on have at least half."""
LARGE = 9007199254740993
ODD = -7
NAN = nan
HEAD: Final = """from math import ceil, floor, inf
from simsched.base.jit import Column, Rows, i1, i4, i8, f8, native, wrapped
from validation.jit_programs import LARGE, NAN, ODD, Core, Part, Record, State, depth_of, mixed

"""


class Record(Row):
    """A row with a field of each kind."""

    e: i1
    a: f8
    d: i4
    c: i8
    b: f8


class Core(Table):
    """A table in a table in a table."""

    x: f8
    ints: Column[i4] = length("8")
    i: i8


class Part(Table):
    """A table in a table."""

    i: i8
    core: Core
    x: f8
    longs: Column[i8] = length("8")


class State(Table):
    """The tables of programs."""

    which: i8
    i: i8
    j: i8
    x: f8
    part: Part
    y: f8
    longs: Column[i8] = length("8")
    other_longs: Column[i8] = length("8")
    ints: Column[i4] = length("8")
    bytes: Column[i1] = length("8")
    floats: Column[f8] = length("8")
    other_floats: Column[f8] = length("8")
    rows: Rows[Record] = length("8")
    other_rows: Rows[Record] = length("8")
    perhaps: Column[i8]  # given or not
    found_ints: Column[i8] = length("40")
    found_floats: Column[f8] = length("40")


@native
def mixed(seed: int, value: int) -> int:
    """Return a number that depends on every bit of two."""
    return wrapped((seed ^ wrapped(value * -7046029254386353131)) * 1181783497276652981)


@native
def depth_of(s: State, i: int, steps: int) -> int:
    """Return how far one gets along a column, by calling itself."""
    return steps if steps == 5 else depth_of(s, s.longs[i] & 7, steps + 1) + (s.longs[i] & 1)


_ROW: Final = ("s.rows[{index}]", "s.other_rows[{index}]", "{Rows[Record]}[{int} & 3]")
_GRAMMAR: Final[dict[str, tuple[str, ...]]] = {
    "int": (
        "wrapped({int} + {int})",
        "wrapped({int} - {int})",
        "wrapped({int} * {int})",
        "wrapped(-({int} ^ {int}))",
        "(~{int})",
        "wrapped(({int} - {int} * {int}) ^ ~{int})",
        "wrapped({int} << {shift})",
        "({int} >> {shift})",
        "({int} // {divisor})",
        "({int} % {divisor})",
        "({int} & {int})",
        "({int} | {int})",
        "({int} ^ {int})",
        "max({int}, {int})",
        "min({int}, {int}, {int})",
        "({int} if {truth} else {int})",
        "wrapped({bool} + {int})",
        "int({bounded})",
        "floor({bounded})",
        "ceil({bounded})",
        "mixed({int}, {int})",
        "depth_of(s, {index}, 0)",
        "{i8}",
        "{i8}",
        "{i4}",
        "{i1}",
    ),
    "float": (
        "({float} + {float})",
        "({float} - {float})",
        "({float} * {float})",
        "({float} * {int})",
        "({int} - {float})",
        "({bool} + {float})",
        "({float} / (abs({float}) + 0.5))",
        "({float} / -0.7)",
        "({float} / 7)",
        "(-{float})",
        "abs({float})",
        "float({int})",
        "max({float}, {float})",
        "max({float}, 0.0)",
        "min({float}, {float}, {float})",
        "min((-0.0), {float})",
        "({float} if {truth} else {float})",
        "{f8}",
        "{f8}",
        "{f8}",
    ),
    "bool": (
        "({int} {order} {int})",
        "({int} {order} {int})",
        "({float} {order} {float})",
        "({float} {order} {float})",
        "({float} {order} 3)",
        "({int} {order} {bool})",
        "({int} in ({int}, {int}))",
        "({bool} and {bool})",
        "({bool} or {bool})",
        "(not {truth})",
        "({bool} if {truth} else {bool})",
        "(s.perhaps is None)",
        "(s.perhaps is not None and s.perhaps[{index}] < {int})",
        "(s.perhaps is None or s.perhaps[{index}] == {int})",
    ),
    "truth": ("{bool}", "{bool}", "{bool}", "{int}", "({bool} and {int})", "({int} or {bool})"),
    "order": ("==", "!=", "<", "<=", ">", ">="),
    "shift": ("({int} & 63)", "1", "40", "63"),
    "divisor": ("7", "1000", "(-3)", "(-8)", "(-9223372036854775808)", "max(1, {int})", "min(-2, {int})"),
    "bounded": ("max(-1e6, min(1e6, {float}))",),
    "index": ("{int} & 7", "0", "3", "7"),
    "i8": (
        "s.i",
        "s.j",
        "s.longs[{index}]",
        "s.other_longs[{index}]",
        "{Record}.c",
        "{Column[i8]}[{int} & 3]",
        "{Part}.i",
        "{Core}.i",
        "{Part}.longs[{index}]",
    ),
    "i4": ("s.ints[{index}]", "{Core}.ints[{index}]", "{Record}.d", "{Column[i4]}[{int} & 3]"),
    "i1": ("s.bytes[{index}]", "{Record}.e", "{Column[i1]}[{int} & 3]"),
    "f8": (
        "s.x",
        "s.y",
        "s.floats[{index}]",
        "{Record}.a",
        "{Record}.b",
        "{Column[f8]}[{int} & 3]",
        "{Part}.x",
        "{Core}.x",
    ),
    "Record": _ROW,
    "Part": ("s.part",),
    "Core": ("s.part.core", "{Part}.core"),
    "Rows[Record]": ("s.rows", "s.other_rows", "s.rows[{int} & 3 :]"),
    "Column[i8]": ("s.longs", "s.other_longs[{int} & 3 :]", "{Part}.longs"),
    "Column[i4]": ("s.ints", "s.ints[{int} & 3 :]", "s.part.core.ints"),
    "Column[i1]": ("s.bytes", "s.bytes[{int} & 3 :]"),
    "Column[f8]": ("s.floats", "s.other_floats[{int} & 3 :]"),
    "range": (
        "{int} & 7, min(8, {int})",
        "{int} & 3, 8, 3",
        "7, -1, -2",
        "{int} & 7, 1, -1",
        "8",
        "{int} & 7",
        "2, 7",
    ),
    "store": (
        "{i8} = {int}",
        "{i8} = {bool}",
        "{i4} = {int} % 2147483647 - 1073741823",
        "{i1} = {int} & 127",
        "{i4} = max(-2147483648, min(2147483647, {int}))",
        "{i1} = max(-128, min(127, {int}))",
        "{f8} = {float}",
        "{f8} = {float}",
        "{f8} += {float}",
        "{f8} -= {int}",
        "{f8} *= {float}",
        "{f8} /= -0.1",
        "{i8} //= 3",
        "{i8} //= -2",
        "{i4} %= -9",
        "{i8} %= 30",
        "{i1} >>= 2",
        "{i8} |= 5",
        "{i4} ^= -4",
        "{i1} &= 31",
        "{i8}, {f8} = {int}, {float}",
        "{i8}, {i8} = {i8}, {i8}",
        "{f8}, {i4} = {f8}, {bool}",
    ),
}
_LEAVES: Final = {
    "int": (
        "0",
        "1",
        "(-1)",
        "3",
        "(-8)",
        "100",
        "2147483648",
        "9223372036854775807",
        "(-9223372036854775808)",
        "LARGE",
        "ODD",
        "(-ODD)",
    ),
    "float": ("0.0", "(-0.0)", "1.5", "(-2.75)", "0.1", "1e300", "5e-324", "inf", "(-inf)", "NAN", "1e15"),
    "bool": ("True", "False"),
}
_CHANGES: Final = {
    "int": ("{v} %= 30\n{v} += {int} & 7", "{v} &= 31\n{v} *= {int} & 3", "{v} //= -2", "{v} ^= {int}"),
    "float": ("{v} += {float}", "{v} -= {int}", "{v} *= {float}", "{v} /= 3.0"),
    "bool": ("{v} = not {v}", "{v} = {v} and {bool}"),
}
_KINDS: Final = tuple(kind for kind in _GRAMMAR if kind in ("int", "float", "bool") or kind[0].isupper())
_WORK: Final = 400  # statements that a function may run, about


def source_of(number: int, seed: int) -> str:
    """Return the source of a program: some native functions, the last of which is called with the table alone."""
    rng = Random(f"{seed}/{number}")
    helpers: list[_Function] = []
    for k in range(rng.randrange(4)):
        parameters = tuple(rng.choices(_KINDS, k=rng.randrange(4)))
        result = None if rng.random() < 0.2 else rng.choice(_KINDS)
        helpers.append(_Function(rng, f"helper_{number}_{k}", parameters, result, helpers))
    return "".join(each.text for each in (*helpers, _Function(rng, f"program_{number}", (), None, helpers)))


class _Function:
    """A native function, which may call `helpers`; its first parameter is the table."""

    def __init__(
        self, rng: Random, name: str, parameters: tuple[str, ...], result: str | None, helpers: "list[_Function]"
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.result = result
        self.work = 0
        self._rng = rng
        self._helpers = [*helpers]
        self._locals = [(f"p{k}", kind) for k, kind in enumerate(parameters)]
        self._steady: list[str] = []  # counters, which loops must not change
        self._lines: list[str] = []
        self._times = 1
        self._count = 0
        given = ", ".join(f"{name}: {kind}" for name, kind in [("s", "State"), *self._locals])
        self._block("    ", rng.randint(3, 8))
        if result or not self._lines:
            self._return("    ")
        else:
            for k, (local, kind) in enumerate(self._locals[:40]):
                if kind in _LEAVES:
                    self._add(f"s.found_{'floats' if kind == 'float' else 'ints'}[{k}] = {local}", "    ")
        head = f"@native\ndef {name}({given}) -> {result}:\n"
        self.text = head + "".join(f"{line}\n" for line in self._lines) + "\n\n"

    # --- expressions

    def _text(self, kind: str, depth: int) -> str:
        """Return an expression of a kind, or whatever the grammar has under a name."""
        names = [name for name, other in self._locals if other == kind]
        if names and self._maybe(0.35):
            return self._rng.choice(names)
        found = [helper for helper in self._helpers if helper.result == kind]
        if found and depth > 0 and self._maybe(0.15) and (call := self._call(self._rng.choice(found), depth - 1)):
            return call
        if kind in _LEAVES and (kind not in _GRAMMAR or depth <= 0):
            return self._rng.choice(_LEAVES[kind])
        return self._filled(self._rng.choice(_GRAMMAR[kind]), depth)

    def _filled(self, template: str, depth: int) -> str:
        return re.sub(r"\{([^{}]+)\}", lambda found: self._text(found[1], depth - 1), template)

    def _call(self, helper: "_Function", depth: int) -> str:
        """Return a call; empty if it costs too much here."""
        if self._times * helper.work + self.work > _WORK:
            return ""
        self.work += self._times * helper.work
        given = [self._text(kind, depth) for kind in helper.parameters]
        return f"{helper.name}({', '.join(['s', *given])})"

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    # --- statements

    def _add(self, lines: str, indent: str) -> None:
        for line in lines.split("\n"):
            self._lines.append(indent + line)
            self.work += self._times

    def _block(self, indent: str, size: int, *, in_loop: bool = False) -> None:
        """Write some statements; locals that begin in a block end with it, if it is not the outermost."""
        before = list(self._locals)
        for _ in range(size):
            if len(indent) < 16 and self._maybe(0.25):
                self._rng.choice((self._if, self._if, self._for, self._while))(indent, in_loop)
            else:
                self._rng.choice((self._begin, self._begin, self._store, self._store, self._change, self._use))(indent)
        if len(indent) > 4:
            if in_loop and self._maybe(0.25):
                self._add(self._rng.choice(("break", "continue")), indent)
            elif self._maybe(0.05):
                self._return(indent)
            self._locals = before

    def _return(self, indent: str) -> None:
        self._add(f"return {self._text(self.result, 2) if self.result else ''}".rstrip(), indent)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        self._locals.append((f"v{self._count}", kind))
        return f"v{self._count}"

    def _begin(self, indent: str) -> None:
        """Give a local a value, a new one mostly."""
        kind = self._rng.choice(("int", "int", "float", "float", "bool", "Record", *_KINDS))
        text = self._text(kind, self._rng.choice((1, 2, 3, 4)))
        old = [name for name, other in self._locals if other == kind and name not in self._steady]
        name = self._rng.choice(old) if old and self._maybe(0.3) else self._fresh(kind)
        self._add(f"{name} = {text}", indent)

    def _store(self, indent: str) -> None:
        self._add(self._text("store", self._rng.choice((2, 3, 4))), indent)

    def _change(self, indent: str) -> None:
        """Change a local in place, or exchange two."""
        found = [(name, kind) for name, kind in self._locals if kind in _CHANGES and name not in self._steady]
        if found:
            name, kind = self._rng.choice(found)
            like = [other for other, its in found if its == kind]
            template = self._rng.choice((*_CHANGES[kind], f"{{v}}, {like[0]} = {like[0]}, {{v}}"))
            self._add(self._filled(template.replace("{v}", name), 2), indent)

    def _use(self, indent: str) -> None:
        """Call a native function for its effect."""
        if self._helpers and (call := self._call(self._rng.choice(self._helpers), 2)):
            self._add(call, indent)

    def _if(self, indent: str, in_loop: bool) -> None:
        if self._maybe(0.2):  # a local that begins in each branch
            kind = self._rng.choice(_KINDS)
            test = self._text("truth", 2)
            first = self._text(kind, 2)
            other = self._text(kind, 2)
            name = self._fresh(kind)
            return self._add(f"if {test}:\n    {name} = {first}\nelse:\n    {name} = {other}", indent)
        heads = ["if {truth}:", *["elif {truth}:"] * self._maybe(0.3), *["else:"] * self._maybe(0.5)]
        for head in heads:
            self._add(self._filled(head, 3), indent)
            self._body(indent, in_loop)
        return None

    def _body(self, indent: str, in_loop: bool) -> None:
        before = len(self._lines)
        self._block(indent + "    ", self._rng.randint(1, 3), in_loop=in_loop)
        if len(self._lines) == before:
            self._add("s.j ^= 1", indent + "    ")

    def _for(self, indent: str, _in_loop: bool) -> None:
        if self._times < 10:
            text = self._text("range", 2)
            name = self._fresh("int")
            on = "-" if text.endswith(("-1", "-2")) else "+"
            first = f"{name} {on}= 1" * self._maybe(0.2)  # the next one is counted all the same
            self._loop(indent, f"for {name} in range({text}):", first, N // 2)

    def _while(self, indent: str, _in_loop: bool) -> None:
        if self._times < 10:
            name = f"n{self._count}"
            most = self._rng.randint(1, 5)
            self._count += 1
            self._add(f"{name} = 0", indent)
            test = self._rng.choice(("True", f"{name} < {most} and {{truth}}", f"{{truth}} and {name} < {most}"))
            first = f"{name} += 1" + f"\nif {name} > {most}:\n    break" * (test == "True")
            self._loop(indent, self._filled(f"while {test}:", 3), first, most)

    def _loop(self, indent: str, head: str, first: str, times: int) -> None:
        before = list(self._locals)
        steady = list(self._steady)
        self._add(head, indent)
        self._times *= times
        self._steady += [head.split()[1]]
        if first:
            self._add(first, indent + "    ")
        self._body(indent, in_loop=True)
        self._times //= times
        self._steady = steady
        self._locals = [local for local in before if not head.startswith(f"for {local[0]} ")]
