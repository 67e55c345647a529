"""A compiler for native functions: typed Python over tables becomes LLVM assembly, a piece at a time.

A piece is a function of one table and all the native functions it calls. Their source is parsed by `ast`; parameters
have the types of their hints, a local has the type of the first value that is assigned to it. Code outside of the
subset is refused with file and line. `docs/background/native.md` is for readers of this file.
"""

import ast
import builtins
import math
from collections.abc import Mapping, Sequence
from struct import pack
from types import FunctionType
from typing import Any, Final, NamedTuple, cast

from simsched.base.jit.functions import CompileError, SourceFile, is_native, signature_of, symbol_of, wrapped
from simsched.base.jit.tables import ColumnKind, dtype_of

INT = "i64"
FLOAT = "double"
BOOL = "i1"
NONE = "void"
"""Types of numbers, as LLVM names them and `kind_of` returns them."""
_STORED: Final = {"i1": "i8", "i4": "i32", "i8": INT, "f8": FLOAT}
"""How numbers of tables lie in memory."""
_INT_OPS: Final = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_FLOAT_OPS: Final = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARISONS: Final = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_ROUNDED: Final = {math.floor: "floor", math.ceil: "ceil"}
_NAMES: Final = {INT: "int", FLOAT: "float", BOOL: "bool", NONE: "None"}
_EXACT: Final = 2**53  # whole numbers up to here are floats
_INTRINSICS: Final = """
declare double @llvm.floor.f64(double)
declare double @llvm.ceil.f64(double)
declare double @llvm.fabs.f64(double)
declare i64 @llvm.fptosi.sat.i64.f64(double)
"""


def compile_piece(entry: FunctionType, units: Mapping[str, SourceFile]) -> str:
    """Return LLVM assembly of a function of one table and of the native functions that it calls.

    Raises
    ------
    CompileError
        If something is not in the subset; the message names file, line and remedy.
    """
    text = [_INTRINSICS]
    todo = [entry]
    for function in todo:  # which gets longer meanwhile
        compiler = _FunctionCompiler(units, function)
        text += compiler.lines(external=function is entry)
        todo += [callee for callee in compiler.called if callee not in todo]
    return "\n".join([*text, ""])


class _Value(NamedTuple):
    """An operand: its type, and its text in LLVM assembly."""

    kind: Any
    text: str


def _llvm(kind: Any) -> str:
    """Return a type in LLVM assembly."""
    if isinstance(kind, str):
        return kind
    return "ptr"


def _describe_type(kind: Any) -> str:
    """Return a type as a reader of the source knows it."""
    if isinstance(kind, ColumnKind):
        return f"a column of {kind.element if isinstance(kind.element, str) else kind.element.__name__}"
    if isinstance(kind, str):
        return _NAMES[kind]
    return f"a row or table {kind.__name__}"


class _FunctionCompiler:
    """One native function on its way to LLVM assembly.

    Every local lies on the stack, where LLVM's first pass finds it; every expression becomes a new value.
    """

    def __init__(self, units: Mapping[str, SourceFile], function: FunctionType) -> None:
        self._function = function
        self._unit = units[function.__code__.co_filename]
        self.called: dict[FunctionType, None] = {}
        self._definition = self._unit.definition(function.__name__)
        self._line = self._definition.lineno
        self._slots: list[str] = []
        self._code: list[str] = []
        self._locals: dict[str, _Value] = {}
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self._count = 0

    def lines(self, *, external: bool) -> list[str]:
        """Return the function."""
        parameters, self._returns = signature_of(self._function)
        for name, kind in parameters.items():
            self._store_local(name, _Value(kind, f"%p.{name}"))
        self._block(self._definition.body)
        if not self._is_closed():
            self._code.append("  ret void" if self._returns == NONE else "  unreachable")
        listed = ", ".join(f"{_llvm(kind)} %p.{name}" for name, kind in parameters.items())
        head = f"define {'' if external else 'internal '}{_llvm(self._returns)} "
        head += f'@"{symbol_of(self._function)}"({listed}) nounwind {{'
        return [head, *self._slots, *self._code, "}"]

    def _refuse(self, why: str) -> Any:
        raise CompileError(f"{self._unit.file}:{self._line}: {why}")

    # --- code

    def _emit(self, kind: Any, operation: str) -> _Value:
        """Write an operation that gives a value."""
        self._count += 1
        self._code.append(f"  %v{self._count} = {operation}")
        return _Value(kind, f"%v{self._count}")

    def _set(self, place: _Value, value: _Value) -> None:
        self._code.append(f"  store {_llvm(place.kind)} {value.text}, ptr {place.text}")

    def _get(self, place: _Value) -> _Value:
        return self._emit(place.kind, f"load {_llvm(place.kind)}, ptr {place.text}")

    def _labels(self, n: int) -> list[str]:
        self._count += n
        return [f"l{self._count - k}" for k in range(n)]

    def _is_closed(self) -> bool:
        """Return whether nothing goes on behind the last line."""
        return bool(self._code) and self._code[-1].startswith(("  br ", "  ret "))

    def _jump(self, label: str) -> None:
        if not self._is_closed():
            self._code.append(f"  br label %{label}")

    def _begin(self, label: str) -> None:
        """Begin a block; the code before it continues there."""
        self._jump(label)
        self._code.append(f"{label}:")

    def _branch(self, condition: _Value, then: str, otherwise: str) -> None:
        self._code.append(f"  br i1 {condition.text}, label %{then}, label %{otherwise}")

    def _slot(self, kind: Any) -> _Value:
        """Return a new place on the stack."""
        self._count += 1
        self._slots.append(f"  %v{self._count} = alloca {_llvm(kind)}")
        return _Value(kind, f"%v{self._count}")

    # --- statements

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._line = statement.lineno
            name = type(statement).__name__.lower()
            method = getattr(self, f"_do_{name}", None)
            if method is None or (getattr(statement, "orelse", None) and name != "if"):
                self._refuse(f"{name}, or its else, is not compiled; {_SUBSET}")
            cast(Any, method)(statement)
            if self._is_closed():  # the rest is never run
                return

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._expr(node.value)

    def _do_assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Tuple):
            given = node.value.elts
        else:
            given = [node.value]
        values = [self._expr(each) for each in given]
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            if len(names) != len(values):
                self._refuse(f"{len(values)} values for {len(names)} names; give as many")
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name):
                    self._store_local(name.id, value)
                else:
                    self._write(self._place(name), value)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            new = self._operation(node.op, self._expr(node.target), self._expr(node.value))
            self._store_local(node.target.id, new)
        else:
            place = self._place(node.target)
            self._write(place, self._operation(node.op, self._value_at(place), self._expr(node.value)))

    def _do_return(self, node: ast.Return) -> None:
        if node.value:
            value = self._expr(node.value)
        else:
            value = _Value(NONE, "")
        value = self._fitting(value, self._returns, "the result")
        self._code.append(f"  ret {_llvm(self._returns)} {value.text}")

    def _do_if(self, node: ast.If) -> None:
        then, otherwise, end = self._labels(3)
        self._branch(self._truth(node.test), then, otherwise)
        self._begin(then)
        self._block(node.body)
        self._jump(end)
        self._begin(otherwise)
        self._block(node.orelse)
        self._begin(end)

    def _do_while(self, node: ast.While) -> None:
        test, body, end = self._labels(3)
        self._begin(test)
        self._branch(self._truth(node.test), body, end)
        self._begin(body)
        self._loop(node.body, test, end)
        self._jump(test)
        self._begin(end)

    def _loop(self, body: Sequence[ast.stmt], on: str, out: str) -> None:
        self._loops.append((on, out))
        self._block(body)
        self._loops.pop()

    def _do_for(self, node: ast.For) -> None:
        call = cast(ast.Call, node.iter)
        target = node.target
        if not (isinstance(call, ast.Call) and self._static(call.func) is range and isinstance(target, ast.Name)):
            self._refuse("for runs over range(...) only; index the column by a number")
        if call.keywords or not 1 <= len(call.args) <= 3:
            self._refuse("a range has one to three bounds, without names")
        bounds = [self._fitting(self._expr(each), INT, "a bound of range") for each in call.args[:2]]
        if len(bounds) == 2:
            start, stop = bounds
        else:
            start = _Value(INT, "0")
            stop = bounds[0]
        step = self._constant(call.args[2]) if len(call.args) == 3 else 1
        if not isinstance(step, int) or not step:
            self._refuse("the step of a range is a whole number, not 0, that stands in the source")
        at = self._slot(INT)
        test, body, on, end = self._labels(4)
        self._set(at, start)
        self._begin(test)
        now = self._get(at)
        order = "slt" if step > 0 else "sgt"
        self._branch(self._emit(BOOL, f"icmp {order} i64 {now.text}, {stop.text}"), body, end)
        self._begin(body)
        self._store_local(cast(ast.Name, target).id, now)
        self._loop(node.body, on, end)
        self._begin(on)
        self._set(at, self._emit(INT, f"add i64 {now.text}, {step}"))
        self._jump(test)
        self._begin(end)

    def _do_break(self, _node: ast.Break) -> None:
        self._jump(self._loops[-1][1])

    def _do_continue(self, _node: ast.Continue) -> None:
        self._jump(self._loops[-1][0])

    # --- places

    def _store_local(self, name: str, value: _Value) -> None:
        if value.kind == NONE:
            self._refuse(f"{name!r} cannot be None; call the function alone")
        if name not in self._locals:
            self._locals[name] = self._slot(value.kind)
        place = self._locals[name]
        if place.kind != value.kind:
            self._refuse(
                f"{name!r} is {_describe_type(place.kind)} and becomes {_describe_type(value.kind)}; use two names"
            )
        self._set(place, value)

    def _place(self, node: ast.expr) -> _Value:
        """Return the address of a field or of a place in a column, with a number's code as type."""
        if isinstance(node, ast.Attribute):
            row = self._expr(node.value)
            offset, code = getattr(row.kind, "fields", {}).get(node.attr, (0, ""))
            place = f"i8, ptr {row.text}, i64 {offset}"
        elif isinstance(node, ast.Subscript):
            column = self._expr(node.value)
            part = node.slice
            if not isinstance(column.kind, ColumnKind):
                self._refuse(f"{ast.unparse(node.value)!r} is {_describe_type(column.kind)} and has no places")
            code = column.kind.element
            if isinstance(part, ast.Slice):
                if part.lower is None or part.upper or part.step:
                    self._refuse("a part of a column has a start only: column[start:]")
                part = cast(ast.expr, part.lower)
                code = column.kind
            i = self._fitting(self._expr(part), INT, "a place in a column")
            place = f"[{dtype_of(column.kind.element).itemsize} x i8], ptr {column.text}, i64 {i.text}"
        else:
            code = ""
        if not code:
            self._refuse(f"{ast.unparse(node)!r} is no local, field or column")
        return self._emit(code, f"getelementptr {place}")

    def _read(self, place: _Value) -> _Value:
        stored = _STORED[place.kind]
        value = self._emit(FLOAT if stored == FLOAT else INT, f"load {stored}, ptr {place.text}")
        if stored == value.kind:
            return value
        return self._emit(INT, f"sext {stored} {value.text} to i64")

    def _write(self, place: _Value, value: _Value) -> None:
        if place.kind not in _STORED:
            self._refuse("what is written to is a local, a field or a number of a column")
        stored = _STORED[place.kind]
        value = self._fitting(value, FLOAT if stored == FLOAT else INT, "what is written")
        if stored != value.kind:
            value = self._emit(stored, f"trunc i64 {value.text} to {stored}")
        self._code.append(f"  store {stored} {value.text}, ptr {place.text}")

    # --- expressions

    def _expr(self, node: ast.expr) -> _Value:
        method = getattr(self, f"_get_{type(node).__name__.lower()}", None)
        if method is None:
            self._refuse(f"{ast.unparse(node)!r} is not compiled; {_SUBSET}")
        return cast(_Value, cast(Any, method)(node))

    def _static(self, node: ast.expr) -> Any:
        """Return the value of a global name of the function; None if it has none."""
        if isinstance(node, ast.Name) and node.id not in self._locals:
            return self._unit.names.get(node.id, getattr(builtins, node.id, None))
        return None

    def _constant(self, node: ast.expr) -> Any:
        """Return a number that stands in the source, or is one of the module's; else None."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._constant(node.operand)
            if isinstance(number, int | float):
                return -number
            return None
        found = self._static(node)
        if isinstance(found, int | float):
            return found
        return None

    def _get_constant(self, node: ast.expr) -> _Value:
        number = self._constant(node)
        if isinstance(number, bool):
            return _Value(BOOL, str(number).lower())
        if isinstance(number, int) and -(2**63) <= number < 2**63:
            return _Value(INT, str(number))
        if isinstance(number, float):
            return _Value(FLOAT, f"0x{pack('>d', number).hex()}")
        return self._refuse(f"{ast.unparse(node)!r} is no number of 64 bits and no local; {_SUBSET}")  # type: ignore[no-any-return]

    def _get_name(self, node: ast.Name) -> _Value:
        if node.id in self._locals:
            return self._get(self._locals[node.id])
        return self._get_constant(node)

    def _get_attribute(self, node: ast.Attribute) -> _Value:
        return self._value_at(self._place(node))

    def _get_subscript(self, node: ast.Subscript) -> _Value:
        place = self._place(node)
        if isinstance(node.slice, ast.Slice):  # a column from there on
            return place
        return self._value_at(place)

    def _value_at(self, place: _Value) -> _Value:
        """Return the number or the column at a place; a row or a nested table is its place."""
        if isinstance(place.kind, ColumnKind):
            return self._get(place)
        if isinstance(place.kind, str):
            return self._read(place)
        return place

    def _get_binop(self, node: ast.BinOp) -> _Value:
        return self._operation(node.op, self._expr(node.left), self._expr(node.right))

    def _operation(self, op: ast.operator, a: _Value, b: _Value) -> _Value:
        if not {a.kind, b.kind} <= {INT, FLOAT, BOOL}:
            self._refuse(f"arithmetic of {_describe_type(a.kind)} and {_describe_type(b.kind)}")
        if FLOAT in (a.kind, b.kind):
            if type(op) not in _FLOAT_OPS:
                self._refuse(f"{type(op).__name__} is of whole numbers; round with floor, ceil or int first")
            a = self._as_float(a)
            b = self._as_float(b)
            return self._emit(FLOAT, f"{_FLOAT_OPS[type(op)]} double {a.text}, {b.text}")
        a = self._as_int(a)
        b = self._as_int(b)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self._floor_division(op, a, b)
        if isinstance(op, ast.LShift | ast.RShift):  # the same on every processor; Python goes on beyond 63
            b = self._emit(INT, f"and i64 {b.text}, 63")
        if type(op) not in _INT_OPS:
            self._refuse(f"{type(op).__name__} of whole numbers is not compiled; write float(a) / b, or a product")
        return self._emit(INT, f"{_INT_OPS[type(op)]} i64 {a.text}, {b.text}")

    def _floor_division(self, op: ast.operator, a: _Value, b: _Value) -> _Value:
        """Divide towards minus infinity, as Python does; LLVM divides towards 0."""
        quotient = self._emit(INT, f"sdiv i64 {a.text}, {b.text}")
        rest = self._emit(INT, f"srem i64 {a.text}, {b.text}")
        signs = self._emit(INT, f"xor i64 {rest.text}, {b.text}")
        differ = self._emit(BOOL, f"icmp slt i64 {signs.text}, 0")
        some = self._emit(BOOL, f"icmp ne i64 {rest.text}, 0")
        off = self._emit(BOOL, f"and i1 {some.text}, {differ.text}")
        if isinstance(op, ast.FloorDiv):
            return self._emit(INT, f"sub i64 {quotient.text}, {self._as_int(off).text}")
        other = self._emit(INT, f"add i64 {rest.text}, {b.text}")
        return self._emit(INT, f"select i1 {off.text}, i64 {other.text}, i64 {rest.text}")

    def _get_unaryop(self, node: ast.UnaryOp) -> _Value:
        if isinstance(node.op, ast.Not):
            return self._emit(BOOL, f"xor i1 {self._truth(node.operand).text}, true")
        if self._constant(node) is not None:
            return self._get_constant(node)
        value = self._expr(node.operand)
        if isinstance(node.op, ast.USub) and value.kind == FLOAT:
            return self._emit(FLOAT, f"fneg double {value.text}")
        if value.kind not in (INT, BOOL) or isinstance(node.op, ast.UAdd):
            self._refuse(f"{ast.unparse(node)!r} is not compiled; {_SUBSET}")
        operation = "sub i64 0," if isinstance(node.op, ast.USub) else "xor i64 -1,"
        return self._emit(INT, f"{operation} {self._as_int(value).text}")

    def _get_boolop(self, node: ast.BoolOp) -> _Value:
        return self._truth(node, exactly=True)

    def _truth(self, node: ast.expr, *, exactly: bool = False) -> _Value:
        """Return whether something holds, as `if` sees it; `exactly`: it has to be a bool."""
        if isinstance(node, ast.BoolOp):  # the right operand is evaluated only if the left one does not decide
            end = self._labels(1)[0]
            found = self._slot(BOOL)
            for k, each in enumerate(node.values):
                self._set(found, value := self._truth(each, exactly=exactly))
                if k + 1 < len(node.values):
                    on = self._labels(1)[0]
                    self._branch(value, *((on, end) if isinstance(node.op, ast.And) else (end, on)))
                    self._begin(on)
            self._begin(end)
            return self._get(found)
        value = self._expr(node)
        if value.kind == BOOL:
            return value
        if exactly or value.kind != INT:
            self._refuse(f"{ast.unparse(node)!r} is {_describe_type(value.kind)}, no truth; compare it")
        return self._compare("ne", value, _Value(INT, "0"))

    def _get_compare(self, node: ast.Compare) -> _Value:
        if len(node.ops) > 1:
            self._refuse("a chain of comparisons; use `and`")
        left = self._expr(node.left)
        op = node.ops[0]
        right = node.comparators[0]
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(left.kind, ColumnKind) and isinstance(right, ast.Constant) and right.value is None):
                self._refuse("`is` asks of a column whether it is None; else compare by ==")
            order = "eq" if isinstance(op, ast.Is) else "ne"
            return self._emit(BOOL, f"icmp {order} ptr {left.text}, null")
        if isinstance(op, ast.In):
            # of floats it would not be the same: NaN is in a tuple of itself, and equals nothing
            if not isinstance(right, ast.Tuple) or left.kind == FLOAT:
                self._refuse("`in` asks of a whole number for a tuple of such, written out; else compare by ==")
            found = _Value(BOOL, "false")
            for each in cast(ast.Tuple, right).elts:
                same = self._compare("eq", left, self._expr(each))
                found = self._emit(BOOL, f"or i1 {found.text}, {same.text}")
            return found
        if type(op) not in _COMPARISONS:
            self._refuse(f"{ast.unparse(node)!r} is not compiled; {_SUBSET}")
        return self._compare(_COMPARISONS[type(op)], left, self._expr(right))

    def _compare(self, order: str, a: _Value, b: _Value) -> _Value:
        if FLOAT in (a.kind, b.kind):
            for value in (a, b):
                if value.kind != FLOAT and not (value.text.lstrip("-").isdigit() and abs(int(value.text)) <= _EXACT):
                    self._refuse(f"a float is compared with {_describe_type(value.kind)}; write float(...)")
            a = self._as_float(a)
            b = self._as_float(b)
            return self._emit(BOOL, f"fcmp {'une' if order == 'ne' else 'o' + order} double {a.text}, {b.text}")
        if not {a.kind, b.kind} <= {INT, BOOL}:
            self._refuse(f"{_describe_type(a.kind)} is compared with {_describe_type(b.kind)}")
        a = self._as_int(a)
        b = self._as_int(b)
        return self._emit(BOOL, f"icmp {order if order in ('eq', 'ne') else 's' + order} i64 {a.text}, {b.text}")

    def _get_ifexp(self, node: ast.IfExp) -> _Value:
        then, otherwise, end = self._labels(3)
        self._branch(self._truth(node.test), then, otherwise)
        self._begin(then)
        value = self._expr(node.body)
        found = self._slot(value.kind)
        self._set(found, value)
        self._jump(end)
        self._begin(otherwise)
        self._set(found, self._fitting(self._expr(node.orelse), found.kind, "the other value"))
        self._begin(end)
        return self._get(found)

    def _get_call(self, node: ast.Call) -> _Value:
        called = self._static(node.func)
        if is_native(called):
            return self._call(cast(FunctionType, called), node)
        if isinstance(called, FunctionType) and called is not wrapped:
            self._refuse(f"{called.__name__} is not native; mark it @native, or call it from Python")
        arguments = [self._expr(each) for each in node.args]
        kinds = [argument.kind for argument in arguments]
        if node.keywords or not arguments:
            self._refuse(f"{ast.unparse(node)!r} is not compiled; {_SUBSET}")
        first = arguments[0]
        if called in (max, min) and len(kinds) > 1 and len(set(kinds)) == 1 and kinds[0] in (INT, FLOAT):
            for other in arguments[1:]:  # of equal ones, and beside NaN, the first stays, as in Python
                better = self._compare("gt" if called is max else "lt", other, first)
                operands = f"i1 {better.text}, {first.kind} {other.text}, {first.kind} {first.text}"
                first = self._emit(first.kind, f"select {operands}")
            return first
        if len(kinds) == 1:
            if called is float and kinds[0] == INT:
                return self._as_float(first)
            if called is wrapped and kinds[0] == INT:
                return first
            if called is abs and kinds[0] == FLOAT:
                return self._emit(FLOAT, f"call double @llvm.fabs.f64(double {first.text})")
            if called in (int, *_ROUNDED) and kinds[0] == FLOAT:
                if called in _ROUNDED:
                    first = self._emit(FLOAT, f"call double @llvm.{_ROUNDED[called]}.f64(double {first.text})")
                return self._emit(INT, f"call i64 @llvm.fptosi.sat.i64.f64(double {first.text})")
        types = ", ".join(map(_describe_type, kinds))
        return self._refuse(f"{ast.unparse(node)!r} of {types} is not compiled; {_SUBSET}")  # type: ignore[no-any-return]

    def _call(self, function: FunctionType, node: ast.Call) -> _Value:
        kinds, result = signature_of(function)
        if node.keywords or len(node.args) != len(kinds):
            self._refuse(f"{function.__name__} takes {', '.join(kinds)}; give each of them, in this order")
        given = [
            self._fitting(self._expr(each), kinds[name], f"{name!r}")
            for name, each in zip(kinds, node.args, strict=True)
        ]
        listed = ", ".join(f"{_llvm(value.kind)} {value.text}" for value in given)
        call = f'call {_llvm(result)} @"{symbol_of(function)}"({listed})'
        self.called[function] = None
        if result == NONE:
            self._code.append(f"  {call}")
            return _Value(NONE, "")
        return self._emit(result, call)

    # --- types

    def _fitting(self, value: _Value, kind: Any, what: str) -> _Value:
        """Return a value that has to be of a type; a truth is a whole number where one is wanted."""
        if value.kind == BOOL and kind == INT:
            return self._as_int(value)
        if value.kind != kind:
            self._refuse(
                f"{what} is {_describe_type(value.kind)}, and has to be {_describe_type(kind)};"
                " write int(...) or float(...)"
            )
        return value

    def _as_int(self, value: _Value) -> _Value:
        if value.kind == INT:
            return value
        return self._emit(INT, f"zext i1 {value.text} to i64")

    def _as_float(self, value: _Value) -> _Value:
        if value.kind == FLOAT:
            return value
        if value.kind == INT and value.text.lstrip("-").isdigit():
            return _Value(FLOAT, f"0x{pack('>d', float(int(value.text))).hex()}")
        return self._emit(FLOAT, f"sitofp i64 {self._as_int(value).text} to double")


_SUBSET: Final = (
    "native functions have int, float, bool, tables, rows and columns, if, while, for range, calls of such functions,"
    " max, min, abs, floor, ceil, int, float, wrapped"
)
