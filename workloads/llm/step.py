"""`StepGraph`: the operators of one step of a language model on one GPU, added one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from simsched.model import Edge, Operator, OpGraph
from simsched.model.graph import DTYPE_NBYTES, Collective, Work
from workloads.costs import ACTIVATION_FLOPS, ROW_FLOPS, Costs, intensity, of_one_model

STORED_NBYTES: Final = {**DTYPE_NBYTES, "fp4": 0.5}
"""Bytes of a stored weight; the scales of blocks of weights are left out."""
ENGINE: Final = "engine"
"""Rule of products by kernels of inference engines."""
_COMPUTES: Final = ("linear", "experts", "attention", "matmul")


class StepTensor(NamedTuple):
    """The output of an operator, or a part of it; `producer` is None for inputs of the step."""

    producer: str | None
    nbytes: float


@dataclass(frozen=True, slots=True)
class NumberFormats:
    """Number formats of a step.

    Parameters
    ----------
    products
        In which products compute.
    weights, expert_weights
        Number formats in which their weights, and the weights of routed experts, are stored.
    cache
        Of keys and values in the cache.
    """

    products: str
    weights: str
    expert_weights: str
    cache: str

    @property
    def plain(self) -> str:
        """Format of activations, and of operators that are not quantised: norms, router, words."""
        if self.products == "fp8":
            return "bf16"
        return self.products


class StepGraph:
    """A step under construction.

    Parameters
    ----------
    name
        Of the graph.
    formats
        Number formats.
    is_fused
        Whether queries, keys and values are one product.

    Attributes
    ----------
    block
        Label of the operators that are added from now on, and the beginning of their names.
    """

    def __init__(self, name: str, formats: NumberFormats, *, is_fused: bool = True) -> None:
        self.name = name
        self.is_fused = is_fused
        self.formats = formats
        self.block = ""
        self.costs = Costs(formats.plain)
        self.products = Costs(formats.products)
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []

    @property
    def width(self) -> int:
        """Bytes of a number of an activation."""
        return self.costs.width

    def add(
        self,
        name: str,
        kind: str,
        work: Work,
        xs: Sequence[StepTensor],
        *,
        dtype: str | None = None,
        kept: float | None = None,
    ) -> StepTensor:
        """Add an operator of one work, which has all its bytes; return its output.

        Parameters
        ----------
        dtype
            Number format in which it computes; by default the activations'.
        kept
            Bytes of its parameters on the device; by default the work's.
        """
        if self.block:
            full = f"{self.block}.{name}"
        else:
            full = name
        operator = Operator(
            full,
            kind=kind,
            flops=work.flops,
            nbytes=work.reads + work.weights + work.writes,
            weight_nbytes=work.weights if kept is None else kept,
            works=(work,),
            intensity=intensity(kind in _COMPUTES),
            dtype=dtype or self.costs.dtype,
            block=self.block or None,
        )
        self._append(operator, xs)
        return StepTensor(full, work.writes)

    def _append(self, operator: Operator, xs: Sequence[StepTensor]) -> None:
        """Add an operator with one edge from each producer of the tensors that it reads."""
        self._operators.append(operator)
        nbytes: dict[str, float] = {}
        for x in xs:
            if x.producer is not None:
                nbytes[x.producer] = nbytes.get(x.producer, 0.0) + x.nbytes
        self._edges += [Edge(producer, operator.name, nbytes=n) for producer, n in nbytes.items()]

    def linear(
        self,
        name: str,
        xs: Sequence[StepTensor],
        rows: int,
        inner: int,
        columns: int,
        *,
        stored: str | None = None,
        bias: bool = False,
        plain: bool = False,
    ) -> StepTensor:
        """Add a product of (rows, inner) with weights (inner, columns).

        Parameters
        ----------
        stored
            Number format of the weights; by default the step's.
        bias
            Whether the end of the kernel adds a value for each column.
        plain
            Whether it is not quantised.
        """
        if plain:
            costs = self.costs
            stored = self.costs.dtype
        else:
            costs = self.products
            stored = stored or self.formats.weights
        weights = inner * columns * STORED_NBYTES[stored] + bias * columns * self.width
        is_quantised = STORED_NBYTES[stored] < costs.width
        work = replace(
            costs.linear(rows, inner, columns, bias=False),
            rule=ENGINE if is_quantised else "plain",
            reads=float(rows * inner * costs.width),
            weights=weights,
            writes=float(rows * columns * self.width),
        )
        return self.add(name, "linear", work, xs, dtype=costs.dtype)

    def stacked_products(
        self, name: str, xs: Sequence[StepTensor], batch: int, rows: int, inner: int, columns: int
    ) -> StepTensor:
        """Add products of `batch` matrices (rows, inner), each with weights of its own, (inner, columns)."""
        stored = STORED_NBYTES[self.costs.dtype]
        work = replace(
            self.costs.matmul(batch, rows, inner, columns),
            reads=float(batch * rows * inner * self.width),
            weights=float(batch * inner * columns * stored),
            writes=float(batch * rows * columns * self.width),
        )
        return self.add(name, "matmul", work, xs)

    def norm(
        self,
        name: str,
        xs: Sequence[StepTensor],
        rows: int,
        features: int,
        *,
        adds: bool = False,
        kind: str = "rms_norm",
    ) -> StepTensor:
        """Add a normalisation of rows; one that `adds` takes the sum of two inputs first and writes that, too."""
        passed = float(rows * features * self.width)
        n_tensors = 2 if adds else 1
        n_weights = features * (1 if kind == "rms_norm" else 2)
        work = replace(
            self.costs.rows(kind, rows, features, n_weights=n_weights),
            reads=n_tensors * passed,
            writes=n_tensors * passed,
            flops=float(rows * features * (ROW_FLOPS[kind] + adds)),
        )
        output = self.add(name, kind, work, xs)
        return output._replace(nbytes=passed)

    def gated_activation(self, name: str, x: StepTensor, rows: int, features: int) -> StepTensor:
        """Add SiLU of one half of each row times the other half, of so many features each."""
        work = replace(
            self.costs.elementwise((rows, features), flops=ACTIVATION_FLOPS["silu"] + 1, rule="activation"),
            reads=float(2 * rows * features * self.width),
            writes=float(rows * features * self.width),
        )
        return self.add(name, "silu_mul", work, [x])

    def moving(
        self,
        name: str,
        kind: str,
        xs: Sequence[StepTensor],
        n_elements: int,
        *,
        reads: float,
        writes: float,
        flops: float = 0.0,
    ) -> StepTensor:
        """Add an elementwise operator over so many elements with these bytes and FLOP in all."""
        work = replace(self.costs.elementwise((n_elements,)), reads=reads, writes=writes, flops=flops)
        return self.add(name, kind, work, xs)

    def collective(self, name: str, exchanged: Collective, xs: Sequence[StepTensor]) -> StepTensor:
        """Add a collective operator of equal GPUs, of which the graph has one; return the exchanged tensor."""
        if self.block:
            full = f"{self.block}.{name}"
        else:
            full = name
        operator = Operator(
            full, kind="collective", dtype=self.costs.dtype, block=self.block or None, collective=exchanged
        )
        self._append(operator, xs)
        return StepTensor(full, exchanged.bytes)

    def graph(self) -> OpGraph:
        """Return the graph, operators in the order in which they were added."""
        return of_one_model(OpGraph(self._operators, self._edges, self.name))
