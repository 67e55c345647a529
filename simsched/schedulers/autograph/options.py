"""Options of AutoGraph, checked."""

from collections.abc import Iterable, Mapping
from math import inf

from simsched.base.errors import SchedulerError
from simsched.base.numeric import is_count, is_number
from simsched.model.graph import OpGraph
from simsched.rewriting import RULES, Rule
from simsched.schedulers.listing import require_choice, require_flag

OBJECTIVES = ("mixed", "sum")


def require_numbers(wholes: Mapping[str, tuple[object, int]], numbers: Mapping[str, tuple[object, float]]) -> None:
    """Refuse options, given with the least they may be, that are no whole numbers, or no finite numbers at all."""
    for option, (value, least) in wholes.items():
        if not is_count(value, least):
            raise SchedulerError(f"autograph: {option} must be a whole number of at least {least}, not {value!r}")
    for option, (value, lowest) in numbers.items():
        if not is_number(value) or not lowest <= value < inf:  # type: ignore[operator]
            raise SchedulerError(f"autograph: {option} must be a number of at least {lowest:g}, not {value!r}")


def require_rest(objective: object, dp: bool, measure: object, progress: object, streams_by: object) -> None:
    """Refuse unknown objectives, what is not True or False, what cannot be called, and AutoGraph within AutoGraph."""
    require_choice("autograph", "objective", objective, OBJECTIVES)
    require_flag("autograph", "dp", dp)
    if measure is not None and not callable(measure):
        raise SchedulerError(f"autograph: measure must be a function from a schedule to us, not {measure!r}")
    if progress is not None and not callable(progress):
        raise SchedulerError(f"autograph: progress must be a function of a text, not {progress!r}")
    if isinstance(streams_by, str) and streams_by == "autograph":
        raise SchedulerError("autograph: streams_by must be another scheduler, such as 'nimble'")


def chosen_rules(rules: Iterable[str | Rule] | None) -> dict[str, Rule]:
    """Return rules by name: all, those of the library that are named, or somebody's own."""
    if rules is None:
        return dict(RULES)
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise SchedulerError(f"autograph: rules must be a list of names, such as ['R1', 'R2'], not {rules!r}")
    found: dict[str, Rule] = {}
    for rule in rules:
        if isinstance(rule, str):
            if rule not in RULES:
                raise SchedulerError(f"autograph: rules has no {rule!r}; known are: {', '.join(RULES)}")
            found[rule] = RULES[rule]
        elif _is_rule(rule):
            found[rule.name] = rule
        else:
            raise SchedulerError(
                f"autograph: rules must hold names or rules with `name`, `matches` and `apply`, not {rule!r}"
            )
    return found


def _is_rule(rule: object) -> bool:
    named = isinstance(getattr(rule, "name", None), str)
    return named and all(callable(getattr(rule, what, None)) for what in ("matches", "apply"))


def require_shapes(graph: OpGraph, rules: Mapping[str, Rule]) -> None:
    """Refuse a graph of which no operator says what it computes on, unless no rule is to be tried anyway."""
    if rules and all(op.output_shape is None for op in graph.operators):
        raise SchedulerError(
            f"autograph: operator {graph.names[0]!r} has no shapes, and no other has: substitutions cannot be checked; "
            f"give operators `kind`, `attributes`, `input_shapes` and `output_shape`, or rules=() to rewrite nothing"
        )
