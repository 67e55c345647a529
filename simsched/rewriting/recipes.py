"""How the weights of a rewritten operator come from those of the original ones.

The weights of an operator are its parameters: those of a convolution or a product with a matrix are a weight
(output channels first) and a bias, those of a normalisation its scale and shift. All that is done to them is done
once, before the network runs, and costs nothing. An operator says in ``attributes["weights"]``, as JSON values:

``{"of": name}``
    Those of the operator of the graph that had this name at first; with ``"part": i``, of part i of a unit. An
    operator without the attribute has its own. Two operators that share their weights name the same one.
``{"concat": [...], "axis": 0 | 1}``
    Stacked along the output channels, biases too; or along the input channels, biases added up.
``{"pad": recipe, "kernel": [...]}``
    Zeros around the kernel up to this size, (K - k) // 2 of them before it.
``{"sum": [...]}``
    Weights and biases added up.
``{"normalized": recipe, "by": recipe}``
    Each output channel scaled and shifted as a batch normalisation does.
``{"ungrouped": recipe, "groups": [from, to]}``
    For fewer groups: each output channel has zeros for the inputs that it did not read.
``{"bias": recipe, "times": n}``
    With n times the bias.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simsched.model.graph import Operator

ATTRIBUTE: Final = "weights"

Recipe = Mapping[str, Any]


def recipe_of(op: Operator) -> Recipe:
    """Return the recipe of an operator's weights."""
    found: Recipe = op.attributes.get(ATTRIBUTE, {"of": op.name})
    return found


def concat(recipes: Sequence[Recipe], axis: int) -> Recipe:
    """Return the recipe for weights stacked along the output (0) or input (1) channels."""
    found: list[Recipe] = []
    for recipe in recipes:
        same = "concat" in recipe and recipe["axis"] == axis
        found += recipe["concat"] if same else [recipe]
    return {"concat": found, "axis": axis}


def pad(recipe: Recipe, kernel: Sequence[int], to: Sequence[int]) -> Recipe:
    """Return the recipe for weights with a larger kernel."""
    if tuple(kernel) == tuple(to):
        return recipe
    if "concat" in recipe:
        return {**recipe, "concat": [pad(inner, kernel, to) for inner in recipe["concat"]]}
    return {"pad": recipe, "kernel": list(to)}
