"""Spoiled ONNX models: fields of any message in them dropped, replaced, repeated, exchanged."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_WHOLE: Final = (0, 1, -1, 2, 3, 5, 7, 8, 10, 11, 16, 20, 100, 2**31 - 1, 2**31, 10**12, 2**62, 2**63 - 1, -(2**63))
_REALS: Final = (0.0, -1.0, 0.5, 1e30, float("inf"), float("nan"))
_TEXTS: Final = (
    "", "x", "0", "Conv", "Gemm", "MatMul", "If", "Loop", "Scan", "Constant", "ConstantOfShape", "Reshape", "Range",
    "Expand", "Tile", "Split", "Einsum", "LSTM", "Resize", "ai.onnx", "a\nb", "é😀", "\0", "n" * 5000, "perm", "axis",
    "shape", "value", "pads", "kernel_shape", "ij,jk->ik", "SAME_UPPER",
)  # fmt: skip
_MOST_REPEATED: Final = 200

Place = tuple[Any, Any]  # a message and the descriptor of a field of it that is set
Step = tuple[int, int, int, int]


def spoil_proto(data: bytes, documents: Sequence[bytes], steps: Sequence[Step]) -> bytes:
    """Return a serialised model with some steps taken; see `validation.fuzz_mutations.spoil`."""
    from onnx import ModelProto

    model = ModelProto.FromString(data)
    for step in steps:
        other = ModelProto.FromString(documents[step[3] % len(documents)])
        _spoil(model, other, step)
    found: bytes = model.SerializeToString()
    return found


def _spoil(model: Any, other: Any, step: Step) -> None:
    _, change, where, what = step
    places = list(_places(model))
    if not places:
        return
    message, field = places[where % len(places)]
    alike = [(m, f) for m, f in (*places, *_places(other)) if f is field or f.full_name == field.full_name]
    like, same = alike[what % len(alike)]
    old = getattr(message, field.name)
    is_list = _is_repeated(field)

    def drop() -> None:
        if is_list and change % 2:
            del old[what % len(old)]
        else:
            message.ClearField(field.name)

    def repeat() -> None:
        if is_list:
            old.extend([old[what % len(old)]] * (1 + (what % _MOST_REPEATED if what % 7 == 0 else 0)))

    def put(value: Any) -> None:
        if is_list:
            old[what % len(old)] = value
        else:
            setattr(message, field.name, value)

    def replace() -> None:
        if field.message_type is None:
            put(_value(field, what))
        else:
            drop()

    def copy() -> None:
        value = getattr(like, same.name)
        if not is_list:
            old.CopyFrom(value) if field.message_type is not None else put(value)
        elif field.message_type is not None:
            old[where % len(old)].CopyFrom(type(value[0]).FromString(value[what % len(value)].SerializeToString()))
        else:
            put(value[where % len(value)])

    def turn() -> None:
        if is_list and field.message_type is not None:
            rows = [type(row).FromString(row.SerializeToString()) for row in reversed(old)]
            message.ClearField(field.name)
            getattr(message, field.name).extend(rows)
        elif is_list:
            old[:] = list(reversed(old))

    def add() -> None:
        """Set a field of the message, whether it was set or not."""
        simple = [f for f in message.DESCRIPTOR.fields if f.message_type is None]
        if not simple:
            return
        chosen = simple[what % len(simple)]
        value = _value(chosen, where)
        if _is_repeated(chosen):
            getattr(message, chosen.name).append(value)
        else:
            setattr(message, chosen.name, value)

    def nest() -> None:
        """Put the model's graph, or a node, inside its own first node."""
        if model.graph.node:
            graph = type(model.graph).FromString(model.graph.SerializeToString())
            for _ in range(1 + what % 3):
                wrapped = type(graph)()
                wrapped.CopyFrom(graph)
                attribute = wrapped.node[where % len(wrapped.node)].attribute.add(name="then_branch", type=5)
                attribute.g.CopyFrom(graph)
                graph = wrapped
            model.graph.CopyFrom(graph)

    changes: tuple[Callable[[], None], ...] = (
        drop, replace, replace, replace, repeat, copy, copy, copy, turn, add, add, drop, nest,
    )  # fmt: skip
    changes[change % len(changes)]()


def _places(message: Any) -> Iterator[Place]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for row in value if _is_repeated(field) else (value,):
                yield from _places(row)


def _is_repeated(field: Any) -> bool:
    found = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return bool(found)


def _value(field: Any, what: int) -> Any:
    """Return a value of the type of a field, at or beyond its bounds."""
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        text = _TEXTS[what % len(_TEXTS)]
        return text.encode() if field.type == field.TYPE_BYTES else text
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return _REALS[what % len(_REALS)]
    if kind == field.CPPTYPE_ENUM:
        return field.enum_type.values[what % len(field.enum_type.values)].number
    value = _WHOLE[what % len(_WHOLE)]
    if kind == field.CPPTYPE_INT32:
        return max(-(2**31), min(value, 2**31 - 1))
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return abs(value) % 2**32
    return value
