"""Random kernels over the whole subset that is compiled: expressions.

Whole numbers carry bounds, so that it is known where to wrap and to narrow: nothing overflows but inside of `wrapped`,
what is stored fits, divisors are not 0, what is rounded is a number.
"""

from random import Random
from typing import Final, NamedTuple

from validation.jit_state import COLUMNS, FIELDS, LARGE, ODD, RANGES, ROW_FIELDS, N, annotation

_MOST: Final = 2**63 - 1
_SMALL: Final = (-1000, 1000)
_NUMBERS: Final = (0, 1, -1, 2, 3, 7, -8, 100, 2**31, 2**53, _MOST, -_MOST - 1)
_FLOATS: Final = ("0.0", "-0.0", "1.5", "-2.75", "0.1", "1e300", "5e-324", "inf", "-inf", "NAN", "1e15")
_ORDERS: Final = ("==", "!=", "<", "<=", ">", ">=")
_WORK: Final = 400  # statements that a kernel may run, about


class Int(NamedTuple):
    """A whole number: its text, and what it is at least and at most."""

    text: str
    low: int
    high: int


class Local(NamedTuple):
    """A local, and what it is at least and at most if it is a whole number."""

    name: str
    kind: str  # as in `Helper`
    low: int = 0
    high: int = 0


class Helper(NamedTuple):
    """A kernel that others may call; kinds are those below, and State."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    work: int


class Expressions:
    """The expressions of one kernel."""

    def __init__(
        self, random: Random, name: str, kinds: tuple[str, ...], results: tuple[str, ...], helpers: tuple[Helper, ...]
    ) -> None:
        self.name, self.work = name, 0
        self._random, self._results, self._helpers = random, results, helpers
        names = ["s" if kind == "State" else f"p{k}" for k, kind in enumerate(kinds)]
        self._locals = [Local(name, kind, *self._bounds(kind)) for name, kind in zip(names, kinds, strict=True)]
        self._steady: set[str] = set()  # counters, which loops must not change
        self._lines: list[str] = []
        self._times, self._count = 1, 0
        given = ", ".join(f"{local.name}: {annotation(local.kind)}" for local in self._locals)
        shown = ", ".join(map(annotation, results)) or "None"
        self._head = f"def {name}({given}) -> {f'tuple[{shown}]' if len(results) > 1 else shown}:\n"

    # --- what there is

    @staticmethod
    def _bounds(kind: str) -> tuple[int, int]:
        return {"int": RANGES["i8"], "small": _SMALL}.get(kind, (0, 0))

    def _all(self, *kinds: str) -> list[Local]:
        return [local for local in self._locals if local.kind in kinds]

    @property
    def _has_state(self) -> bool:
        return bool(self._all("State"))

    @property
    def _depth(self) -> int:
        """Return how deep an expression is to be."""
        return self._random.choice((1, 1, 1, 2, 2, 3))

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    # --- places

    def _index(self, n: int, depth: int = 1) -> str:
        counters = [local.name for local in self._all("int", "small") if local.low >= 0 and local.high < n]
        if counters and self._maybe(0.5):
            return self._random.choice(counters)
        return str(self._random.randrange(n)) if self._maybe(0.6) else f"{self._int(depth).text} & {n - 1}"

    def _column(self, code: str, depth: int = 1) -> tuple[str, int]:
        """Return a column and how many places of it may be used; its text is empty if there is none."""
        if depth > 0 and self._maybe(0.2) and (call := self._call(code, depth - 1)):
            return call, N // 2
        found = [(local.name, N // 2) for local in self._all(code)]
        if self._has_state:
            found += [(f"s.{name}", N) for name in COLUMNS[code]]
        if not found:
            return "", 0
        text, n = self._random.choice(found)
        if n == N and self._maybe(0.2):
            return f"{text}[{self._index(N // 2, depth)} :]", N // 2
        return text, n

    def _row(self, depth: int = 1) -> str:
        if depth > 0 and self._maybe(0.2) and (call := self._call("Record", depth - 1)):
            return call
        rows = [local.name for local in self._all("Record")]
        if rows and self._maybe(0.6):
            return self._random.choice(rows)
        column = self._rows_column()
        return f"{column[0]}[{self._index(column[1], depth)}]" if column[0] else ""

    def _rows_column(self) -> tuple[str, int]:
        found = [(local.name, N // 2) for local in self._all("Rows")]
        if self._has_state:
            found += [("s.rows", N), ("s.other_rows", N), (f"s.rows[{self._index(N // 2, 0)} :]", N // 2)]
        return self._random.choice(found) if found else ("", 0)

    def _place(self, code: str, depth: int = 1) -> str:
        """Return a field or a number of a column; empty if there is none."""
        way = self._random.choice(["field", "column", "column", "row"])
        if way == "field" and code in FIELDS and self._has_state:
            return f"s.{self._random.choice(FIELDS[code])}"
        if way == "row" and (row := self._row(depth)):
            return f"{row}.{self._random.choice(ROW_FIELDS[code])}"
        column, n = self._column(code, depth)
        return f"{column}[{self._index(n, depth)}]" if column else ""

    # --- whole numbers

    def _int(self, depth: int) -> Int:
        if depth <= 0 or self._maybe(0.15):
            return self._int_leaf(depth)
        ways = (self._sum, self._sum, self._ring, self._division, self._bits, self._shift, self._negated, self._extreme,
                self._int_choice, self._int_of_other, self._int_call)  # fmt: skip
        return self._random.choice(ways)(depth - 1)

    def _int_leaf(self, depth: int) -> Int:
        locals_ = self._all("int", "small")
        if locals_ and self._maybe(0.5):
            local = self._random.choice(locals_)
            return Int(local.name, local.low, local.high)
        if self._maybe(0.5):
            code = self._random.choice(list(RANGES))
            if place := self._place(code, depth - 1):
                return Int(place, *RANGES[code])
        if self._maybe(0.1):
            name, value = self._random.choice([("LARGE", LARGE), ("ODD", ODD), ("-ODD", -ODD), ("N", N)])
            return Int(name, value, value)
        value = self._random.choice([*_NUMBERS, self._random.getrandbits(62)])
        return Int(f"({value})" if value < 0 else str(value), value, value)

    @staticmethod
    def _fit(text: str, *ends: int) -> Int:
        """Return a number between the least and the greatest of some, wrapped if that may be beyond 64 bits."""
        low, high = min(ends), max(ends)
        fits = low >= -_MOST - 1 and high <= _MOST
        return Int(text, low, high) if fits else Int(f"wrapped({text})", *RANGES["i8"])

    def _sum(self, depth: int) -> Int:
        a, b = self._int(depth), self._int(depth)
        op = self._random.choice("+-*")
        if op == "*":
            return self._fit(f"({a.text} * {b.text})", *(x * y for x in a[1:] for y in b[1:]))
        if op == "-":
            return self._fit(f"({a.text} - {b.text})", a.low - b.high, a.high - b.low)
        return self._fit(f"({a.text} + {b.text})", a.low + b.low, a.high + b.high)

    def _ring(self, depth: int) -> Int:
        """Return some operations of which the lower bits depend on lower bits only, wrapped once."""
        text = self._int(depth).text
        for _ in range(self._random.randint(1, 3)):
            if self._maybe(0.15):
                text = f"({text} << {self._random.randrange(64)})"
            elif self._maybe(0.15):
                text = f"(~{text})"
            else:
                text = f"({text} {self._random.choice('+-*&|^')} {self._int(depth - 1).text})"
        return Int(f"wrapped({text})", *RANGES["i8"])

    def _division(self, depth: int) -> Int:
        a, b = self._int(depth), self._int(depth)
        divisors = [self._literal(), self._literal(), Int(f"max(1, {b.text})", 1, max(1, b.high)),
                    Int(f"min(-2, {b.text})", min(-2, b.low), -2)]  # fmt: skip
        if a.low >= -_MOST:  # else -1 must not divide it
            divisors.append(Int(f"({b.text} | 1)", *RANGES["i8"]))
        divisor = self._random.choice(divisors)
        if self._maybe(0.5):
            return Int(f"({a.text} % {divisor.text})", min(0, divisor.low + 1), max(0, divisor.high - 1))
        most = max(abs(a.low), abs(a.high))
        return Int(f"({a.text} // {divisor.text})", max(-most, -_MOST - 1), min(most, _MOST))

    def _literal(self) -> Int:
        value = self._random.choice([1, 2, 3, 7, 8, 1000, 2**40, _MOST, -2, -3, -8, -10, -_MOST - 1])
        return Int(f"({value})", value, value)

    def _bits(self, depth: int) -> Int:
        a, b = self._int(depth), self._int(depth)
        bits = max(x.bit_length() for x in (*a[1:], *b[1:]))
        return Int(f"({a.text} {self._random.choice('&|^')} {b.text})", -(2**bits), 2**bits - 1)

    def _shift(self, depth: int) -> Int:
        a = self._int(depth)
        if self._maybe(0.5):
            by = str(self._random.randrange(64)) if self._maybe(0.5) else f"({self._int(depth).text} & 63)"
            return Int(f"({a.text} >> {by})", min(a.low, 0), max(a.high, 0))
        k = self._random.choice([1, 3, 20, 40, 63])
        by = str(k) if self._maybe(0.5) else f"({self._int(depth).text} % {k + 1})"
        return self._fit(f"({a.text} << {by})", a.low, a.high, a.low << k, a.high << k)

    def _negated(self, depth: int) -> Int:
        a = self._int(depth)
        return (
            Int(f"(~{a.text})", ~a.high, ~a.low)
            if self._maybe(0.5)
            else self._fit(f"({'-' if a.low < a.high else '0 - '}{a.text})", -a.high, -a.low)
        )

    def _extreme(self, depth: int) -> Int:
        numbers = [self._int(depth) for _ in range(self._random.choice((2, 2, 3)))]
        which = self._random.choice((max, min))
        text = f"{which.__name__}({', '.join(number.text for number in numbers)})"
        return Int(text, which(number.low for number in numbers), which(number.high for number in numbers))

    def _int_choice(self, depth: int) -> Int:
        a, test, b = self._int(depth), self._truth(depth), self._int(depth)
        return Int(f"({a.text} if {test} else {b.text})", min(a.low, b.low), max(a.high, b.high))

    def _int_of_other(self, depth: int) -> Int:
        if self._maybe(0.3):
            return Int(f"int({self._bool(depth)})", 0, 1)
        if self._maybe(0.3):
            a = self._int(depth)
            return self._fit(f"({self._bool(depth)} + {a.text})", a.low, a.high + 1)
        name = self._random.choice(("int", "floor", "ceil"))
        return Int(f"{name}(max(-1e6, min(1e6, {self._float(depth)})))", -(10**6), 10**6)

    def _int_call(self, depth: int) -> Int:
        if self._maybe(0.2):
            return Int(f"mixed({self._int(depth).text}, {self._int(depth).text})", *RANGES["i8"])
        if self._has_state and self._maybe(0.2):
            return Int(f"depth_of(s, {self._index(N, depth)}, 0)", 0, 100)
        kind = self._random.choice(("int", "small"))
        text = self._call(kind, depth)
        return Int(text, *self._bounds(kind)) if text else self._sum(depth)

    def _narrow(self, number: Int, low: int, high: int) -> str:
        """Return a number that is in a range."""
        if low <= number.low and number.high <= high:
            return number.text
        bits, text = 2 ** (high.bit_length() - 1) - 1, number.text
        halves = f"({text} % {high} - {high // 2})"
        return self._random.choice([f"({text} & {bits})", f"max({low}, min({high}, {text}))", halves])

    # --- floats

    def _float(self, depth: int) -> str:
        if depth <= 0 or self._maybe(0.15):
            return self._float_leaf(depth)
        ways = (self._float_sum, self._float_sum, self._float_mix, self._float_division, self._float_of_one,
                self._float_extreme, self._float_choice, self._float_call)  # fmt: skip
        return self._random.choice(ways)(depth - 1)

    def _float_leaf(self, depth: int) -> str:
        locals_ = self._all("float")
        if locals_ and self._maybe(0.5):
            return self._random.choice(locals_).name
        if self._maybe(0.6) and (place := self._place("f8", depth - 1)):
            return place
        return self._random.choice(_FLOATS)

    def _float_sum(self, depth: int) -> str:
        return f"({self._float(depth)} {self._random.choice('+-*')} {self._float(depth)})"

    def _float_mix(self, depth: int) -> str:
        other = self._int(depth).text if self._maybe(0.8) else self._bool(depth)
        texts = [self._float(depth), other]
        self._random.shuffle(texts)
        return f" {self._random.choice('+-*')} ".join(texts).join("()")

    def _float_division(self, depth: int) -> str:
        divisor = self._random.choice([f"(abs({self._float(depth)}) + 0.5)", "3.0", "(-0.7)", "1e-300", "7"])
        return f"({self._float(depth)} / {divisor})"

    def _float_of_one(self, depth: int) -> str:
        text = self._float(depth)
        other = self._int(depth).text if self._maybe(0.7) else self._bool(depth)
        return self._random.choice(
            [f"(-{text})", f"abs({text})", f"sqrt(abs({text}))", f"float({other})", f"float({text})"]
        )

    def _float_extreme(self, depth: int) -> str:
        numbers = [self._float(depth) for _ in range(self._random.choice((2, 2, 3)))]
        return f"{self._random.choice(('max', 'min'))}({', '.join(numbers)})"

    def _float_choice(self, depth: int) -> str:
        return f"({self._float(depth)} if {self._truth(depth)} else {self._float(depth)})"

    def _float_call(self, depth: int) -> str:
        return self._call("float", depth) or self._float_sum(depth)

    # --- truths

    def _bool(self, depth: int) -> str:
        if depth <= 0 or self._maybe(0.1):
            locals_ = [local.name for local in self._all("bool")]
            return self._random.choice([*locals_, *locals_, "True", "False", self._comparison(0)])
        ways = (self._comparison, self._comparison, self._chain, self._member, self._both, self._bool_of_one,
                self._missing, self._bool_call)  # fmt: skip
        return self._random.choice(ways)(depth - 1)

    def _comparison(self, depth: int) -> str:
        order = self._random.choice(_ORDERS)
        if self._maybe(0.4):
            right = self._float(depth) if self._maybe(0.8) else self._random.choice(("0", "1", "-3"))
            return f"({self._float(depth)} {order} {right})"
        right = self._int(depth).text if self._maybe(0.9) else self._bool(depth - 1)
        return f"({self._int(depth).text} {order} {right})"

    def _chain(self, depth: int) -> str:
        orders = self._random.choices(_ORDERS, k=2)
        if self._maybe(0.5):
            names = [local.name for local in self._all("float")] + ["0.0", "1.5", "inf"]
            texts = [self._float(depth), *self._random.choices(names, k=2)]
        else:
            names = [local.name for local in self._all("int", "small")] + ["0", "5", "LARGE"]
            texts = [self._int(depth).text, *self._random.choices(names, k=2)]
        return f"({texts[0]} {orders[0]} {texts[1]} {orders[1]} {texts[2]})"

    def _member(self, depth: int) -> str:
        numbers = ", ".join(self._int(depth - 1).text for _ in range(self._random.randint(1, 3)))
        return f"({self._int(depth).text} {self._random.choice(('in', 'not in'))} ({numbers},))"

    def _both(self, depth: int) -> str:
        op = self._random.choice(("and", "or", "and", "or", "&", "|", "^"))
        return f"({self._bool(depth)} {op} {self._bool(depth)})"

    def _bool_of_one(self, depth: int) -> str:
        number = self._int(depth).text if self._maybe(0.5) else self._float(depth)
        text = f"bool({number})" if self._maybe(0.6) else f"(not {self._truth(depth)})"
        return text if self._maybe(0.7) else f"({text} if {self._truth(depth)} else {self._bool(depth)})"

    def _missing(self, depth: int) -> str:
        if not self._has_state:
            return self._comparison(depth)
        read = f"s.perhaps[{self._index(N, depth)}] {self._random.choice(('<', '==', '>'))} {self._int(depth).text}"
        return self._random.choice(["(s.perhaps is None)", "(s.perhaps is not None)", f"(s.perhaps is None or {read})",
                                    f"(s.perhaps is not None and {read})"])  # fmt: skip

    def _bool_call(self, depth: int) -> str:
        return self._call("bool", depth) or self._comparison(depth)

    def _truth(self, depth: int) -> str:
        """Return what `if` takes."""
        if self._maybe(0.8):
            return self._bool(depth)
        a, b = self._bool(depth), self._random.choice([self._int(depth).text, self._float(depth)])
        return self._random.choice([b, f"(not {b})", f"({a} and {b})", f"({b} or {a})"])

    # --- calls

    def _call(self, result: str, depth: int) -> str:
        """Return a call of a kernel with that one result; empty if there is none that is cheap enough."""
        found = [helper for helper in self._helpers if helper.results == (result,)]
        return self._called(self._random.choice(found), depth) if found else ""

    def _called(self, helper: Helper, depth: int) -> str:
        if self._times * helper.work + self.work > _WORK:
            return ""
        given = []
        for k, kind in enumerate(helper.parameters):
            if not (text := self._given(kind, depth)):
                return ""
            named = k > 1 and k == len(helper.parameters) - 1 and self._maybe(0.3)
            given.append(f"p{k}={text}" if named else text)
        self.work += self._times * helper.work
        return f"{helper.name}({', '.join(given)})"

    def _given(self, kind: str, depth: int) -> str:
        if kind == "State":
            return "s" if self._has_state else ""
        if kind in ("int", "small"):
            return self._narrow(self._int(depth), *self._bounds(kind))
        if kind == "Record":
            return self._row(depth)
        if kind == "Rows":
            return self._rows_column()[0]
        if kind in COLUMNS:
            return self._column(kind, depth)[0]
        return self._float(depth) if kind == "float" else self._bool(depth)

    def _result(self, kind: str) -> str:
        return self._given(kind, 2)
