"""ONNX models as operator graphs."""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from simsched.base.errors import FormatError, MissingDependencyError
from simsched.base.io import read_bytes
from simsched.base.signals import without_collector
from simsched.model import Edge, Operator, OpGraph
from simsched.model.graph import UNKNOWN
from workloads.checks import one_of
from workloads.costs import in_fp32, of_one_model
from workloads.formats.onnx.bodies import prepared
from workloads.formats.onnx.formulas import join_formulas
from workloads.formats.onnx.operators import is_supported, operator_of
from workloads.formats.onnx.shapes import ShapeReader
from workloads.formats.onnx.tensors import Formats, Step, plain
from workloads.formats.reading import build
from workloads.fusion import fuse, with_biases
from workloads.models.builder import GRANULARITIES
from workloads.retired import refusing_retired

if TYPE_CHECKING:
    import onnx

_logger = logging.getLogger(__name__)

_MEMORY: Final = "model"
_MOST_KINDS_NAMED: Final = 12
_MOST_NBYTES: Final = 2**31 - 1  # that protobuf reads; data in other files are not counted


@refusing_retired
def read_onnx(
    path: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    granularity: str = "operator",
    dtype: str | None = None,
) -> OpGraph:
    """Return the graph of an ONNX file, named as the file is without its suffix.

    Parameters are those of `from_onnx`. Weights that the model keeps in other files are counted and not read, so
    these files need not be there; a file itself may have up to 2 GB.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not an ONNX model, or one that cannot be imported; see `from_onnx`.
    MissingDependencyError
        If the package onnx is not installed.
    """
    _require_onnx()
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    file = Path(path)
    if file.is_file() and file.stat().st_size > _MOST_NBYTES:
        raise FormatError(
            f"{path}: {file.stat().st_size} bytes are more than protobuf reads (2 GB); save the model with its "
            "weights in another file: onnx.save(model, path, save_as_external_data=True)"
        )
    content = read_bytes(path)
    if not content:
        raise FormatError(f"{path}: the file is empty")
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise FormatError(f"{path}: not an ONNX model, or cut off ({' '.join(str(error).split())})") from error
    return from_onnx(model, name=file.stem, source=str(path), shapes=shapes, granularity=granularity, dtype=dtype)


@refusing_retired
def from_onnx(
    model: "onnx.ModelProto",
    *,
    name: str | None = None,
    source: str = _MEMORY,
    shapes: Mapping[str, Sequence[int]] | None = None,
    granularity: str = "operator",
    dtype: str | None = None,
) -> OpGraph:
    """Return the graph of an ONNX model.

    Parameters
    ----------
    model
        The decoded model. One of an operator set before 7 is converted by ``onnx.version_converter``; a line says so.
    name
        Of the graph; by default that of the model's graph.
    source
        How errors name the model.
    shapes
        Sizes of an input by its name, in place of those in the model; needed where the model leaves sizes open.
        What is written by an operator whose output cannot be inferred may be given here as well; what the model
        declares for it holds as long as no size that the model fixes is given otherwise.
    granularity
        "operator" keeps single operators; "unit" makes units of them as `workloads.fusion.fuse` does.
    dtype
        Counts all floating-point tensors and weights in this number format; None keeps the model's own. Convolutions
        of a model that is fp32 by itself run in tf32 where the device has it, as in PyTorch; "fp32" excludes that.

    Raises
    ------
    FormatError
        If the model is not valid, an input has a size that is not known (the message lists the sizes to give), or
        the costs of a supported operator depend on a shape that cannot be inferred. The message names the
        operator.
    GraphError
        If granularity or number format is not known.
    MissingDependencyError
        If the package onnx is not installed.

    Notes
    -----
    Operators stand in the order of the model, under the names they have there, or else the name of their first
    output, or else their number; a name that stands there already gets ``#2``, ``#3`` and so on. Kinds, attributes,
    costs and works are those of `workloads.models.network.Network`. What depends on constants and shapes only is
    no operator. Attention, layer normalisation, GELU and SiLU that the exporter wrote as several operators are one,
    as PyTorch and runtimes launch them, under the name of the last. Reading a tensor that another operator writes
    makes one edge; what one operator reads twice is moved once. An operator with several outputs has the shape of the
    first, a split that of the whole.

    Functions of the model are inlined by ``onnx.inliner``. The bodies of `If`, `Loop` and `Scan` stand in their place:
    the branch of a condition that is constant, or else the costlier one; as many rounds as constants say, or else one.
    A line says what was assumed.

    Initialisers are weights, in bytes of their own format; a weight that two operators read counts for both. An
    operator that is not supported (of another domain, or one without a rule) keeps its bytes, as far as its tensors'
    shapes are known, and counts no FLOP; its attribute "unknown" marks it, and one warning counts these and their part
    of all bytes.

    O(V + E); each node is inferred once.

    References
    ----------
    .. [1] Open Neural Network Exchange, intermediate representation and operator specifications,
       https://onnx.ai/onnx/repo-docs/IR.html
    """
    _require_onnx()
    one_of(source, "granularity", granularity, GRANULARITIES)
    formats = Formats(dtype, in_memory=source == _MEMORY)
    try:
        _check_version(model, source)
        with without_collector():  # of 10,000 nodes all objects stay
            reader = ShapeReader(prepared(model, source), shapes or {}, formats, source)
            for remark in reader.remarks:
                _logger.warning("%s: %s", source, remark)
            title = name or (model.graph.name if isinstance(model.graph.name, str) else "") or "model"
            return in_fp32(of_one_model(_graph(title, reader, granularity, source)), dtype)
    except (OverflowError, RecursionError, UnicodeError) as error:
        raise FormatError(f"{source}: {' '.join(str(error).split())}") from error


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MissingDependencyError("reading ONNX models needs onnx: pip install 'simsched[onnx]'") from None


def _check_version(model: "onnx.ModelProto", source: str) -> None:
    from onnx import IR_VERSION

    version = model.ir_version
    if version < 1:
        raise FormatError(f"{source}: not an ONNX model: field 'ir_version' is missing")
    if version > IR_VERSION:
        raise FormatError(f"{source}: field 'ir_version' is {version}; this onnx knows up to {IR_VERSION}; upgrade it")


def _graph(title: str, reader: ShapeReader, granularity: str, source: str) -> OpGraph:
    if not reader.steps:
        raise FormatError(f"{source}: the model has no operator that depends on an input")
    steps = join_formulas(reader.steps, reader.results)
    names = _unique([step.name for step in steps] + [tensor.name for tensor in reader.results])
    operators, edges = [], []
    for name, step in zip(names, steps, strict=False):
        operator, reads = build(source, operator_of, step, name)
        operators.append(operator)
        edges += [Edge(names[x.producer], name, step.nbytes(x)) for x in reads if x.producer is not None]
    _warn(source, steps, operators)
    for name, tensor in zip(names[len(operators) :], reader.results, strict=True):
        operators.append(Operator(name, kind="output"))
        if tensor.producer is not None:
            edges.append(Edge(names[tensor.producer], name))
    whole = OpGraph(operators, edges, title)
    return build(source, with_biases, whole) if granularity == "operator" else build(source, fuse, whole, io=False)


def _unique(names: list[str]) -> list[str]:
    """Return names of which none stands twice, the first of equal ones unchanged."""
    taken, count = set(names), Counter[str]()
    found = []
    for name in names:
        count[name] += 1
        unique = name
        while count[name] > 1 and unique in taken:
            unique = f"{name}#{count[name]}"
            count[name] += unique in taken
        taken.add(unique)
        found.append(unique)
    return found


def _warn(source: str, steps: list[Step], operators: list[Operator]) -> None:
    """Log one line that counts what is not supported, and its part of all bytes."""
    left = [step for step in steps if not is_supported(step)]
    if not left:
        return
    kinds = Counter(plain(f"{step.domain}.{step.op_type}" if step.domain else step.op_type) for step in left)
    shown = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common(_MOST_KINDS_NAMED))
    rest = f" and {len(kinds) - _MOST_KINDS_NAMED} kinds more" if len(kinds) > _MOST_KINDS_NAMED else ""
    unsized = sum(any(out.shape is None for out in step.written) for step in left)
    ending = f"; {unsized} of them write tensors of unknown size, which count nothing" if unsized else ""
    total = sum(op.nbytes for op in operators)
    share = sum(op.nbytes for op in operators if UNKNOWN in op.attributes) / total if total else 1.0
    _logger.warning(
        "%s: operators that are not supported count their bytes and no FLOP, %.3g %% of all bytes: %s%s%s",
        source,
        100 * share,
        shown,
        rest,
        ending,
    )
