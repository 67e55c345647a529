"""Random kernels over the whole subset that is compiled: statements.

A program is a kernel of a `State` and what it calls. It ends: loops have counters, and calls are made only where they
are cheap. The number of a program and a seed are all that it depends on.
"""

from random import Random

from validation.jit_expressions import Expressions, Helper, Local
from validation.jit_state import COLUMNS, KINDS, RANGES, N


def source_of(number: int, seed: int) -> str:
    """Return the kernels of a program; the last is ``program_NUMBER``."""
    random = Random(f"{seed}/{number}")
    helpers: list[Helper] = []
    text = ""
    for k in range(random.choice((0, 0, 1, 1, 2))):
        kinds = ["State", *random.choices(KINDS, k=random.randrange(5))][random.random() < 0.2 :]
        results = tuple(random.choices(["int", "small", "float", "bool"], k=random.choice((1, 1, 1, 2, 3))))
        if random.random() < 0.3:
            results = random.choice(((), ("Record",), ("i4",), ("f8",))) if "State" in kinds else ()
        made = _Kernel(random, f"helper_{number}_{k}", tuple(kinds), results, tuple(helpers))
        text += made.text()
        helpers.append(Helper(made.name, tuple(kinds), results, made.work))
    return text + _Kernel(random, f"program_{number}", ("State",), (), tuple(helpers)).text()


class _Kernel(Expressions):
    """One kernel in the making."""

    def text(self) -> str:
        """Return the kernel."""
        self._block(1, "", in_loop=False, size=self._random.randint(2, 6))
        if self._results:
            self._add("return " + ", ".join(map(self._result, self._results)), "")
        elif self._has_state:
            for k, local in enumerate(self._locals[:40]):
                if local.kind in ("int", "small", "bool", "float"):
                    self._add(f"s.found_{'floats' if local.kind == 'float' else 'ints'}[{k}] = {local.name}", "")
        return self._head + "".join(f"    {line}\n" for line in self._lines or ["pass"]) + "\n\n"

    def _result(self, kind: str) -> str:
        return self._given(kind, 2)

    # --- statements

    def _add(self, line: str, indent: str) -> None:
        self._lines.append(indent + line)
        self.work += self._times

    def _block(self, depth: int, indent: str, *, in_loop: bool, size: int) -> None:
        """Write some statements; locals that begin in a block end with it, if it is not the outermost."""
        before = list(self._locals)
        ways = (self._begin, self._begin, self._assign, self._store, self._store, self._store, self._augment,
                self._tuple, self._swap, self._procedure, self._unpack, self._reference)  # fmt: skip
        for _ in range(size):
            if depth < 4 and self._maybe(0.25):
                ways_in = (self._if, self._if, self._for, self._while)
                self._random.choice(ways_in)(depth, indent, in_loop)
            else:
                self._random.choice(ways)(indent)
        if indent and self._maybe(0.3 if in_loop else 0.15):
            if in_loop and self._maybe(0.9):
                self._add(self._random.choice(("break", "continue")), indent)
            elif depth > 1:
                self._add(f"return {', '.join(map(self._result, self._results))}".rstrip(), indent)
        if indent:
            self._locals = before

    def _begin(self, indent: str) -> None:
        """Give a new local its value."""
        kind = self._random.choice(("int", "int", "small", "float", "float", "bool"))
        name = self._fresh()
        self._add(f"{name} = {self._given(kind, self._depth)}", indent)
        self._locals.append(Local(name, kind, *self._bounds(kind)))

    def _changeable(self, *kinds: str) -> list[Local]:
        return [local for local in self._all(*kinds) if local.name not in self._steady]

    def _assign(self, indent: str) -> None:
        if found := self._changeable("int", "small", "float", "bool"):
            local = self._random.choice(found)
            more = [other for other in found if other.kind == local.kind and other != local]
            also = f"{self._random.choice(more).name} = " if more and self._maybe(0.15) else ""
            self._add(f"{also}{local.name} = {self._given(local.kind, self._depth)}", indent)

    def _store(self, indent: str) -> None:
        code = self._random.choice(("i1", "i4", "i8", "i8", "f8", "f8"))
        if place := self._place(code, 2):
            self._add(f"{place} = {self._storable(code)}", indent)

    def _storable(self, code: str) -> str:
        if code == "f8":
            return (
                self._float(self._depth)
                if self._maybe(0.8)
                else self._random.choice((self._int(2).text, self._bool(2)))
            )
        return self._narrow(self._int(self._depth), *RANGES[code]) if self._maybe(0.9) else self._bool(2)

    def _augment(self, indent: str) -> None:
        kind = self._random.choice(("float", "int", "small", "bool", "f8", "i8", "i4", "i1"))
        found = [] if kind in COLUMNS else [local.name for local in self._changeable(kind)]
        target = self._random.choice(found) if found else self._place(kind, 2) if kind in COLUMNS else ""
        if not target:
            return
        if kind == "bool":
            self._add(f"{target} {self._random.choice('&|^')}= {self._bool(2)}", indent)
        elif kind in ("float", "f8"):
            other = self._float(2) if self._maybe(0.8) else self._int(2).text
            self._add(f"{target} {self._random.choice('+-*')}= {other}", indent)
            if self._maybe(0.2):
                self._add(f"{target} /= {self._random.choice(('3.0', '-0.1', '7'))}", indent)
        elif "[" in target or self._maybe(0.3):  # a place that may be another one when looked up again
            changes = ["%= 30", "%= -9", "&= 31", "//= 3", "//= -2", ">>= 2", *["|= 5", "^= -4"] * (kind != "small")]
            self._add(f"{target} {self._random.choice(changes)}", indent)
        else:
            self._add(f"{target} {self._random.choice(('%= 30', '%= -20', '&= 31'))}", indent)
            self._add(f"{target} {self._random.choice('+-*')}= {self._narrow(self._int(2), -4, 4)}", indent)

    def _tuple(self, indent: str) -> None:
        """Assign to two places at once, the second found when the first has its value."""
        targets, values = [], []
        for _ in range(2):
            found = self._changeable("int", "small", "float", "bool")
            if found and self._maybe(0.5):
                local = self._random.choice(found)
                targets.append(local.name)
                values.append(self._given(local.kind, 2))
            else:
                code = self._random.choice(("i1", "i4", "i8", "f8"))
                if place := self._place(code):
                    targets.append(place)
                    values.append(self._storable(code))
        if len(targets) == 2:
            self._add(f"{', '.join(targets)} = {', '.join(values)}", indent)

    def _swap(self, indent: str) -> None:
        found = [local for local in self._locals if local.kind != "State" and local.name not in self._steady]
        pairs = [(a.name, b.name) for a in found for b in found if a.name < b.name and a[1:] == b[1:]]
        for code in ("i1", "i4", "i8", "f8"):
            pairs.append((self._place(code), self._place(code)))
        a, b = self._random.choice(pairs)
        if a and b:
            self._add(f"{a}, {b} = {b}, {a}", indent)

    def _procedure(self, indent: str) -> None:
        if found := [helper for helper in self._helpers if len(helper.results) < 2]:
            call = self._called(self._random.choice(found), 2)
            if call:
                self._add(call, indent)

    def _unpack(self, indent: str) -> None:
        found = [helper for helper in self._helpers if len(helper.results) > 1]
        if not found:
            return
        helper = self._random.choice(found)
        call = self._called(helper, 2)
        if not call:
            return
        targets, new = [], []
        for kind in helper.results:
            place = self._place({"float": "f8"}.get(kind, "i8")) if self._maybe(0.3) else ""
            targets.append(place or self._fresh())
            if not place:
                new.append(Local(targets[-1], kind, *self._bounds(kind)))
        self._add(f"{', '.join(targets)} = {call}", indent)
        self._locals += new

    def _reference(self, indent: str) -> None:
        """Give a row, or a column, a name, or another one."""
        code = self._random.choice(("Record", "Record", "Rows", "i1", "i4", "i8", "f8"))
        if text := self._given(code, 2):
            found = self._changeable(code)
            if code == "Record" and self._maybe(0.3) and (other := self._row()):
                text = f"({text} if {self._truth(1)} else {other})"
            name = self._random.choice(found).name if found and self._maybe(0.4) else self._fresh()
            self._add(f"{name} = {text}", indent)
            if name not in [local.name for local in self._locals]:
                self._locals.append(Local(name, code))

    # --- statements that hold others

    def _if(self, depth: int, indent: str, in_loop: bool) -> None:
        kind, name = self._random.choice(("int", "float", "bool")), ""
        if self._maybe(0.2):  # a local that begins in each branch
            name = self._fresh()
        for k in range(3):
            last = k == 2 or self._maybe(0.4)
            head = f"if {self._truth(2)}:" if k == 0 else "else:" if last else f"elif {self._truth(2)}:"
            if last and not name and self._maybe(0.5) and k:
                break
            self._add(head, indent)
            before = len(self._lines)
            self._block(depth + 1, indent + "    ", in_loop=in_loop, size=self._random.randint(0 if name else 1, 3))
            if name:  # before what may leave the block
                value = self._given(kind, 2)
                self._lines.insert(before, f"{indent}    {name} = {value}")
            if len(self._lines) == before:
                self._add("pass", indent + "    ")
            if head == "else:":
                break
        else:
            last = True
        if name and head != "else:":
            self._add("else:", indent)
            self._add(f"{name} = {self._given(kind, 2)}", indent + "    ")
        if name:
            self._locals.append(Local(name, kind, *self._bounds(kind)))

    def _for(self, depth: int, indent: str, _in_loop: bool) -> None:
        if self._times > 10:
            return
        name = self._fresh()
        first, last = sorted(self._random.choices(range(N), k=2))
        step = self._random.choice((1, 1, 1, 2, 3))
        start = str(first) if self._maybe(0.6) else f"{self._int(1).text} & {N - 1}"
        stop = str(last + 1) if self._maybe(0.6) else f"min({N}, {self._int(1).text})"
        low = 0
        if self._maybe(0.2):
            text = f"range({N - 1}, {self._random.choice((first - 1, -1))}, -{step})"
        elif self._maybe(0.3):
            text = f"range({stop})"
        else:
            text = f"range({start}, {stop}{f', {step}' if step > 1 else ''})"
        self._add(f"for {name} in {text}:", indent)
        self._loop(depth, indent, Local(name, "int", low, N - 1), N // 2)

    def _loop(self, depth: int, indent: str, counter: Local, times: int) -> None:
        before, lines = list(self._locals), len(self._lines)
        self._times *= times
        self._locals.append(counter)
        self._steady.add(counter.name)
        if counter.kind == "int" and self._maybe(0.1):
            self._add(f"{counter.name} = {N - 1} - {counter.name}", indent + "    ")
        self._block(depth + 1, indent + "    ", in_loop=True, size=self._random.randint(1, 4))
        if len(self._lines) == lines:
            self._add("pass", indent + "    ")
        self._times //= times
        self._locals = before

    def _while(self, depth: int, indent: str, _in_loop: bool) -> None:
        if self._times > 10:
            return
        name, most = self._fresh(), self._random.randint(1, 5)
        self._add(f"{name} = 0", indent)
        test = f"{name} < {most} and {self._truth(2)}" if self._maybe(0.7) else f"{self._truth(2)} and {name} < {most}"
        forever = self._maybe(0.2)
        self._add(f"while {'True' if forever else test}:", indent)
        self._add(f"{name} += 1", indent + "    ")
        if forever:
            self._add(f"if {name} > {most}:", indent + "    ")
            self._add("break", indent + "        ")
        self._loop(depth, indent, Local(name, "count", 0, most + 1), most)
