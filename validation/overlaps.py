"""Published gains of overlaps beside those that the simulator predicts.

    python -m validation.overlaps [--page docs/overlap-record.md] [--json FILE]

`validation/overlaps.json` lists the cases, which of them are asked and how; it was committed before the first answer.
Why an answer differs, and whether the host or other kernels decide (``"beyond"``), was written after it.
With `--page` the tables are written into that page, between its marks.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.base.io import dump_json, read_json, write_file
from simsched.experiments.overlap import gain_of_step, read_over
from simsched.experiments.overlap.results import HALVES, TOGETHER, Turn
from simsched.experiments.overlap.trials import ERRORS
from simsched.experiments.overlap.turns import turn
from simsched.experiments.ranges import ranges
from simsched.model.graph import Collective
from validation.h100.figures import Figure, Section, documents
from workloads import from_spec, load_kind
from workloads.llm.step import NumberFormats, StepGraph, StepTensor

CASES: Final = Path(__file__).with_name("overlaps.json")
PAGE_MARK: Final = "<!-- made by python -m validation.overlaps -->\n"
TELLING: Final = 2.0
"""Per cent from which on the sign of a published gain counts."""
_LESS: Final = 0.01
"""Lower gain from which the table of thresholds also says that an overlap pays."""
_TURN_COLUMNS: Final = ("graph", "overlap", "published batch", "simulated, from 2 %", "simulated, from 1 %")
_INNER, _COLUMNS, _CHUNKS = 7168, 16384, 8
"""Sizes of the product of the chunked cases, and chunks: one for each GPU, as PyTorch divides it."""
_ROWS: Final = {"qkv": TOGETHER, "halves": HALVES}
"""Rows of `simsched overlap` by the word of a case, where they differ."""
Case = Mapping[str, Any]


class Answer(NamedTuple):
    """The simulated gain of a case, in per cent.

    Parameters
    ----------
    gain, low, high
        Over the simulated step, and the ends of its 90 % range.
    of_step
        Saved time over the published step; None where that is not published.
    """

    gain: float
    low: float
    high: float
    of_step: float | None


def cases() -> list[Case]:
    """Return all cases, those that are not asked among them."""
    every: list[Case] = read_json(CASES)["cases"]
    return every


def answer(case: Case) -> Answer:
    """Return the simulated gain of a case that is asked."""
    cluster = ss.Cluster.preset(case["gpu"], case["gpus"])
    kind, _, rows = case["graph"].partition(":rows=")
    if kind == "chunks":
        return _of_chunks(case, int(rows), cluster)
    spec = case["graph"]
    execution = case.get("execution", "graph")
    halves = partial(load_kind, spec, microbatches=2)
    overlaps = ss.overlap(from_spec(spec), cluster, halves=halves, execution=execution)
    name = _ROWS.get(case["overlap"], case["overlap"])
    row = next(row for row in overlaps.rows if row.name == name or row.name.startswith(f"{name} .. "))
    assert row.gain_low is not None
    assert row.gain_high is not None
    of_step = _over_step(case, overlaps.makespan_us, row.makespan_us)
    return Answer(100 * row.gain, 100 * row.gain_low, 100 * row.gain_high, of_step)


def _over_step(case: Case, without_us: float, with_us: float) -> float | None:
    """Return the saved time over the published step in per cent; None if the case has none."""
    step = case.get("step_us")
    if step is None:
        return None
    return 100 * gain_of_step(without_us / with_us - 1.0, simulated=without_us, measured=step)


def _of_chunks(case: Case, rows: int, cluster: ss.Cluster) -> Answer:
    """Return the gain of reducing and scattering a product in chunks, beside the product of the next one."""
    whole = _product(rows, 1)
    chunked = _product(rows, _CHUNKS)
    plain = ss.schedule(whole, cluster, "sequential")
    order = np.arange(len(chunked))
    plan = ss.Schedule.from_columns(
        chunked, order, [cluster.devices[0].name], stream=order % 2, execution="events", scheduler="overlap"
    )
    without, beside = (ss.simulate(each, cluster).makespan for each in (plain, plan))
    ranged, _ = ranges({"chunks": plan.lower(cluster)}, cluster, reference=plain.lower(cluster), errors=ERRORS)
    low = ranged["chunks"].speedup_low or 0.0
    high = ranged["chunks"].speedup_high or 0.0
    of_step = _over_step(case, without, beside)
    return Answer(100 * (without / beside - 1.0), 100 * (low - 1.0), 100 * (high - 1.0), of_step)


def _product(rows: int, chunks: int) -> ss.OpGraph:
    """Return a product in fp8 whose result is reduced and scattered over eight GPUs, in chunks."""
    step = StepGraph(f"product of {rows} rows in {chunks}", NumberFormats("fp8", "fp8", "fp8", "bf16"))
    part = -(-rows // chunks)
    for i in range(chunks):
        output = step.linear(f"product{i}", [StepTensor(None, 0.0)], part, _INNER, _COLUMNS)
        step.collective(f"scatter{i}", Collective("reduce_scatter", output.nbytes, 8), [output])
    return step.graph()


def sections() -> Iterator[Section]:
    """Yield the tables: the cases that are asked, and why others are not."""
    asked = [case for case in cases() if "graph" in case]
    answers = [answer(case) for case in asked]
    known = [(case, found) for case, found in zip(asked, answers, strict=True) if case["published_pct"] is not None]
    telling = [(case, found) for case, found in known if abs(case["published_pct"]) > TELLING]
    right = [(case["published_pct"] > 0) == (found.gain > 0) for case, found in telling]
    errors = [abs(found.gain - case["published_pct"]) for case, found in known]
    of_steps = [abs(found.of_step - case["published_pct"]) for case, found in known if found.of_step is not None]
    within = [error for (case, _), error in zip(known, errors, strict=True) if "beyond" not in case]
    held = [found.low <= case["published_pct"] <= found.high for case, found in known]
    figures = [
        Figure(f"sign right where the gain is above {TELLING:g} %, part of {len(telling)}", fmean(right), least=0.8),
        Figure(f"mean absolute error in points, of {len(known)}", fmean(errors), most=4.0),
        Figure(f"the same where neither the host nor other kernels decide, of {len(within)}", fmean(within), most=4.0),
        Figure(f"mean absolute error over the published step, of {len(of_steps)}", fmean(of_steps), most=4.0),
        Figure(f"published gain inside the range, part of {len(known)}", fmean(held)),
    ]
    rows = [
        (
            f"[{case['id']}]({case['address']})",
            f"`{case['graph']}`",
            f"{case['gpus']} x {case['gpu']}",
            case["overlap"],
            case["assumed"] or "-",
            case["sign"] if case["published_pct"] is None else f"{case['published_pct']:+.1f}",
            f"{found.gain:+.1f} ({found.low:+.1f} to {found.high:+.1f})",
            "-" if found.of_step is None else f"{found.of_step:+.1f}",
            case.get("why", ""),
        )
        for case, found in zip(asked, answers, strict=True)
    ]
    columns = (
        "case",
        "graph",
        "on",
        "overlap",
        "assumed",
        "published %",
        "simulated %",
        "of its step %",
        "why it differs",
    )
    yield Section("Cases that are asked", figures, columns, rows)
    simulated = [(case, *_turns_of(case)) for case in turns()]
    close = [_is_close(case, usual) for case, usual, _ in simulated]
    turned = Figure(f"thresholds within a factor of 2, part of {len(close)}", fmean(close))
    yield Section("Where they turn", [turned], ("case", *_TURN_COLUMNS), [_turn_row(*row) for row in simulated])
    reasons = Counter(case["left_out"] for case in cases() if "left_out" in case)
    left_out = [
        (case["left_out"], f"[{case['id']}]({case['address']})", case) for case in cases() if "left_out" in case
    ]
    order = [reason for reason, _ in reasons.most_common()]
    shown = sorted(left_out, key=lambda row: order.index(row[0]))
    table = [
        (link, reason, case["sign"] if case["published_pct"] is None else f"{case['published_pct']:+.1f}")
        for reason, link, case in shown
    ]
    yield Section("Cases that are not asked", [], ("case", "reason", "published %"), table)


def turns() -> list[Case]:
    """Return the thresholds that engines have."""
    thresholds: list[Case] = read_json(CASES)["turns"]
    return thresholds


def _turns_of(case: Case) -> tuple[Turn, Turn]:
    """Return where an overlap begins or ends to pay, by the usual gain and by a lower one."""
    spec = case["graph"]
    load = partial(load_kind, spec)
    overlaps = ss.overlap(
        from_spec(spec),
        ss.Cluster.preset(case["gpu"], case["gpus"]),
        load=load,
        halves=partial(load, microbatches=2),
        over=read_over(case["over"]),
        execution=case.get("execution", "graph"),
    )
    name = str(_ROWS.get(case["overlap"], case["overlap"]))
    usual = next(place for place in overlaps.turns if place.name == name)
    return usual, turn(name, overlaps.points, _LESS)


def _is_close(case: Case, place: Turn) -> bool:
    """Return whether an overlap turns as an engine's threshold does, at a batch within a factor of two of it."""
    ratio = place.ends[0] / float(case["published"]) if place.ends else 0.0
    return place.pays == str(case["pays"]) and 0.5 <= ratio <= 2.0


def _turn_row(case: Case, usual: Turn, other: Turn) -> tuple[str, ...]:
    """Return an engine's threshold beside the simulated ones."""
    return (
        f"[{case['id']}]({case['address']})",
        f"`{case['graph']}`",
        case["overlap"],
        f"{case['pays']} batch {case['published']:,}",
        _in_words(case, usual),
        _in_words(case, other),
    )


def _in_words(case: Case, place: Turn) -> str:
    """Return where an overlap turns, and the range of that."""
    where = place.place("batch")
    if place.low is not None or place.high is not None:
        least, most = case["over"].partition("=")[2].split(":")
        low = least if place.low is None else f"{place.low:,.0f}"
        high = most if place.high is None else f"{place.high:,.0f}"
        where += f" ({low} to {high})"
    return where


def lines(tables: Sequence[Section]) -> Iterator[str]:
    """Yield the tables in Markdown."""
    for section in tables:
        text = [*section.lines()]
        if not section.figures:  # a table of cases without figures
            start = next(i for i, line in enumerate(text) if line.startswith("| case"))
            text = [*text[:2], *text[start:]]
        yield from (*text, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="page whose tables to write")
    parser.add_argument("--json", type=Path, help="file for the figures and cases")
    options = parser.parse_args(arguments)
    try:
        tables = [*sections()]
        text = "\n".join(lines(tables))
        print(text)
        if options.page:
            head, mark, _ = options.page.read_text().partition(PAGE_MARK)
            write_file(options.page, f"{head}{mark or PAGE_MARK}\n{text}")
        if options.json:
            write_file(options.json, dump_json(documents(tables)))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
