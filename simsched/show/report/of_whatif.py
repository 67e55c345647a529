"""Sections of a what-if: before, after and the difference, where the time goes, and both runs."""

from typing import TYPE_CHECKING, Any

from simsched.base.units import format_time
from simsched.show.report.describe import parameters, run_facts
from simsched.show.report.figures import stacks
from simsched.show.report.sections import Column, Gantt, Section, Table, Tabs, Text, time_column

if TYPE_CHECKING:
    from simsched.experiments.whatif import Answer, WhatIf


def whatif_sections(asked: "WhatIf") -> tuple[Section, ...]:
    """Return the answer to a question."""
    return answer_sections(asked.answer())


def answer_sections(answer: "Answer") -> tuple[Section, ...]:
    """Return what changes do to the makespan."""
    before, after = answer.before.trace, answer.after.trace
    changes = ", ".join(answer.changes) or "nothing is changed"
    title = f"What if: {changes}"
    kept = answer.kept.trace if answer.rescheduled and answer.kept is not None else None
    cases = [("before", before), *([("plan kept", kept)] if kept is not None else []), ("after", after)]
    blames = {name: trace.critical_path().blame for name, trace in cases}
    blocks: list[Any] = [
        Text(_lead(answer), "lead"),
        _table(blames, {name: trace.makespan for name, trace in cases}),
        *(Text(note, "note") for note in answer.notes),
        stacks("Where the time of the critical path goes", blames),
    ]
    panels = tuple((name, (run_facts(trace), Gantt(f"{name}: what runs when", trace))) for name, trace in cases)
    worlds = {"before": answer.before, "after": answer.after}
    about = [Section(f"{name[0].upper()}{name[1:]}", parameters(case.schedule.graph, case.cluster).blocks)
             for name, case in worlds.items()]  # fmt: skip
    return (
        Section(f"{title} ({answer.before.schedule.graph.name})", tuple(blocks)),
        Section("What runs when", (Tabs("Before and after", panels),)),
        Section("Parameters", tuple(about)),
    )


def _lead(answer: "Answer") -> str:
    plan, faster = answer.before.schedule, answer.difference < 0
    text = f"{plan.graph.name} takes {format_time(answer.makespan)} instead of {format_time(answer.makespan_before)}: "
    if answer.difference == 0:
        return text + "no difference."
    text += f"{format_time(abs(answer.difference))} {'less' if faster else 'more'}, {answer.speedup:.3g} times as fast."
    if answer.rescheduled and answer.direct is not None and answer.rescheduling is not None:
        text += (
            f" Of the difference {_signed(answer.direct)} come from the changes with the plan kept, and "
            f"{_signed(answer.rescheduling)} from scheduling anew."
        )
    elif answer.rescheduled:
        text += " The plan as it was cannot run after the changes, so there is no telling what re-scheduling adds."
    if answer.rescheduled and answer.rescheduling_alone:
        text += f" Scheduling anew without any change makes {_signed(answer.rescheduling_alone)}."
    return text


def _signed(us: float) -> str:
    return ("\u2212" if us < 0 else "+") + format_time(abs(us))


def _table(blames: dict[str, dict[str, float]], makespans: dict[str, float]) -> Table:
    names = list(makespans)
    every = list(makespans.values())
    columns = [Column("of which"), *(time_column(name, every) for name in names), time_column("difference", every)]
    rows: list[tuple[Any, ...]] = [("makespan", *every, every[-1] - every[0])]
    for cause in blames["before"]:
        values = [blames[name].get(cause, 0.0) for name in names]
        rows.append((cause, *values, values[-1] - values[0]))
    return Table("Makespan, and what it is blamed on", tuple(columns), tuple(rows), best=0, mark="in all")
