"""A checker of races in a wrapper of Inductor: it reads the text, and orders what streams do by vector clocks.

Memory that is freed may be given to whatever is allocated later on the stream that it was allocated on; the checker
takes it for given that it is.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_ALIASES: Final = ("reinterpret_tensor", "alias", "as_strided", "copy_if_misaligned", "_tensor_constant")
_NO_KERNEL: Final = ("assert_size_stride", "assert_alignment", "get_raw_stream", "fork")
_SIGNATURE: Final = re.compile(r"^def (triton_\w+)\(([^)]*)\):", re.MULTILINE)


@dataclass(frozen=True)
class Race:
    """Two uses of memory that nothing orders."""

    first: str
    second: str


@dataclass
class _Use:
    stream: int
    at: int
    writes: bool
    where: str
    elements: frozenset[int] | None


@dataclass
class _Storage:
    owner: int
    uses: list[_Use] = field(default_factory=list)
    freed: list["_Storage"] = field(default_factory=list)
    names: int = 0


def races(text: str) -> list[Race]:
    """Return the races in the function `call` of a wrapper, in the order of the second use."""
    return _Reader(text).read()


@dataclass(frozen=True)
class _View:
    """A part of a storage by its elements; None is all of it."""

    storage: _Storage
    elements: frozenset[int] | None = None


class _Reader:
    def __init__(self, text: str) -> None:
        self._signatures = {
            name: [part.split(":")[0].strip() for part in parameters.split(",")]
            for name, parameters in _SIGNATURE.findall(text)
        }
        self._statements = list(_call_of(text))
        self._on = 0
        self._clocks: list[list[int]] = [[0]]
        self._events: dict[str, list[int]] = {}
        self._raw: dict[str, int] = {}
        self._views: dict[str, _View] = {}
        self._freed: dict[int, list[_Storage]] = {}
        self._races: list[Race] = []
        self.kernels = 0

    def read(self) -> list[Race]:
        for statement in self._statements:
            self._statement(statement)
        return self._races

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Delete):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    self._forget(target.id)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple | ast.List):
            for target in statement.targets[0].elts:
                self._bind(ast.unparse(target), _View(_Storage(0)))
        elif isinstance(statement, ast.Assign):
            self._assign(ast.unparse(statement.targets[0]), statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement.value, None)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            for name in _names(statement.value):
                if name in self._views:
                    self._use(self._views[name], False, "return")

    def _assign(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Call):
            called = ast.unparse(value.func)
            if called == "get_raw_stream":
                self._raw[name] = self._on
                return
            if called == "streams.record":
                self._events[name] = list(self._clocks[_number(value.args[0])])
                return
            if called.startswith("empty_strided"):
                self._bind(name, self._allocate())
                return
            if called.split(".")[-1] in _ALIASES:
                self._alias(name, value if called.endswith("reinterpret_tensor") else value.args[0])
                return
            self._call(value, name)
            return
        if any(known in self._views for known in _names(value)):
            self._alias(name, value)

    def _alias(self, name: str, value: ast.expr) -> None:
        view = self._viewed(value)
        if view is not None:
            self._bind(name, view)

    def _viewed(self, value: ast.expr) -> _View | None:
        """Return what an expression looks at; of what is not known how, all of the first storage in it."""
        known = next((name for name in _names(value) if name in self._views), None)
        if known is None:
            return None
        view = self._views[known]
        if not (isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "reinterpret_tensor"):
            return view
        size, stride, offset = (ast.literal_eval(part) for part in value.args[1:4])
        return _View(view.storage, _elements(size, stride, offset))

    def _call(self, call: ast.Call, result: str | None) -> None:
        called = ast.unparse(call.func)
        if called == "fork":
            self._clocks += [list(self._clocks[0]) for _ in range(_number(call.args[0]) - 1)]
            width = len(self._clocks)
            self._clocks = [[*clock, *[0] * (width - len(clock))] for clock in self._clocks]
            return
        if called == "streams.on":
            self._on = _number(call.args[0])
            return
        if called == "streams.wait":
            self._merge(_number(call.args[0]), self._events[ast.unparse(call.args[1])])
            return
        if called == "streams.join":
            self._on = 0
            for clock in self._clocks[1:]:
                self._merge(0, clock)
            return
        if called.split(".")[-1] in _NO_KERNEL or called in ("args.clear", "torch.cuda.set_device"):
            return
        self._kernel(called, call, result)

    def _kernel(self, called: str, call: ast.Call, result: str | None) -> None:
        stream = self._on
        for keyword in call.keywords:
            if keyword.arg == "stream":
                stream = self._raw[ast.unparse(keyword.value)]
        self.kernels += 1
        self._clocks[stream][stream] += 1
        where = f"{called} (kernel {self.kernels}, stream {stream})"
        parameters = self._signatures.get(called.removesuffix(".run"), [])
        for i, argument in enumerate(call.args):
            parameter = parameters[i] if i < len(parameters) else ""
            writes = parameter.startswith(("out_ptr", "in_out_ptr")) or called.endswith("_.default")
            self._touch(argument, writes, where, stream)
        for keyword in call.keywords:
            self._touch(keyword.value, keyword.arg == "out", where, stream)
        if result is not None:
            view = self._allocate()
            self._bind(result, view)
            self._use(view, True, where, stream)

    def _touch(self, value: ast.expr, writes: bool, where: str, stream: int) -> None:
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        for part in parts:
            view = self._viewed(part)
            if view is not None:
                self._use(view, writes, where, stream)

    def _use(self, view: _View, writes: bool, where: str, stream: int | None = None) -> None:
        stream = self._on if stream is None else stream
        clock = self._clocks[stream]
        before = [use for earlier in view.storage.freed for use in earlier.uses]
        before += [u for u in view.storage.uses if (u.writes or writes) and _overlap(u.elements, view.elements)]
        for use in before:
            if use.stream != stream and clock[use.stream] < use.at:
                self._races.append(Race(use.where, where))
        view.storage.uses.append(_Use(stream, clock[stream], writes, where, view.elements))

    def _allocate(self) -> _View:
        return _View(_Storage(self._on, freed=list(self._freed.get(self._on, []))))

    def _bind(self, name: str, view: _View) -> None:
        view.storage.names += 1
        self._forget(name)
        self._views[name] = view

    def _forget(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is None:
            return
        view.storage.names -= 1
        if not view.storage.names:
            self._freed.setdefault(view.storage.owner, []).append(view.storage)

    def _merge(self, stream: int, other: Sequence[int]) -> None:
        own = self._clocks[stream]
        padded = [*other, *[0] * (len(own) - len(other))]
        self._clocks[stream] = [max(a, b) for a, b in zip(own, padded, strict=True)]


def kernels_of(text: str) -> list[str]:
    """Return the sources of what a wrapper launches, sorted, without the numbers in names of kernels."""
    sources = {name: _source(text, name) for name, _ in _SIGNATURE.findall(text)}
    return sorted(sources.get(name, name) for name in _launched(text))


def names_of(text: str) -> list[str]:
    """Return the names of what a wrapper launches, sorted; those of Triton's kernels say what is fused in them."""
    return sorted(re.sub(r"^(triton_.*)_\d+$", r"\1", name) for name in _launched(text))


def _launched(text: str) -> Iterator[str]:
    for statement in _call_of(text):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called.startswith(("triton_", "extern_kernels", "torch.ops")):
                    yield called.removesuffix(".run")


def _source(text: str, name: str) -> str:
    start = text.index(f"def {name}(")
    body = text[start : text.index("'''", start)]
    return re.sub(r"_\d+\(", "(", body, count=1)


def _elements(size: Sequence[int], stride: Sequence[int], offset: int) -> frozenset[int]:
    places = [offset]
    for n, step in zip(size, stride, strict=True):
        places = [place + i * step for place in places for i in range(n)]
    return frozenset(places)


def _overlap(one: frozenset[int] | None, other: frozenset[int] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)


def _call_of(text: str) -> Iterator[ast.stmt]:
    """Yield the statements of the function or method `call`, those within device guards among them."""
    tree = ast.parse(text)
    (function,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call")

    def flat(body: Sequence[Any]) -> Iterator[ast.stmt]:
        for statement in body:
            if isinstance(statement, ast.With):
                yield from flat(statement.body)
            else:
                yield statement

    return flat(function.body)


def _names(value: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]


def _number(value: ast.expr) -> int:
    assert isinstance(value, ast.Constant)
    assert isinstance(value.value, int)
    return value.value
