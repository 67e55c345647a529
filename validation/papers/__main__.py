"""Run the claims of the papers and print them beside ours.

    python -m validation.papers [--only hios] [--claim KEY] [--quick] [--workers 2]
                                [--log validation/papers.json] [--page docs/background/claims.md]

Outcomes are kept in the log as they come, and the tables of the page are written anew from all that are there. A
quick run, with fewer instances, prints only: it shows that every claim can be run, not how it comes out.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from simsched.base.errors import SimschedError
from simsched.base.io import read_text, write_file
from validation.papers.claims import Claim, Run
from validation.papers.record import PAPERS, Outcome, claims_of, dump, measure, put_between, read, table, verdicts


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PAPERS, action="append", help="the claims of one paper; can be repeated")
    parser.add_argument("--claim", metavar="KEY", action="append", help="one claim; can be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer instances; nothing is kept")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log", default="validation/papers.json")
    parser.add_argument("--page", default="docs/background/claims.md")
    options = parser.parse_args(arguments)
    every = claims_of(PAPERS)
    asked = [claim for claim in claims_of(options.only or PAPERS) if not options.claim or claim.key in options.claim]
    unknown = [key for key in options.claim or [] if key not in [claim.key for claim in asked]]
    if unknown:
        parser.error(f"no claim has the key {unknown[0]!r}; known are: {', '.join(claim.key for claim in every)}")
    kept = read(options.log) if Path(options.log).exists() and not options.quick else {}
    failed = _run(asked, Run(options.quick, options.workers), kept, None if options.quick else (options.log, every))
    print(table(asked, kept))
    print(f"\n{', '.join(f'{n} {verdict}' for verdict, n in verdicts(asked, kept).items())}")
    if not options.quick and Path(options.page).exists():
        write_file(options.page, put_between(read_text(options.page), "claims", section(every, kept)))
    for key, reason in failed.items():
        print(f"error: claim {key}: {reason}", file=sys.stderr)
    return 2 if failed else 0


def _run(asked: list[Claim], run: Run, kept: dict[str, Outcome], log: tuple[str, list[Claim]] | None) -> dict[str, str]:
    """Measure claims and keep their outcomes; return why some have none."""
    failed: dict[str, str] = {}
    for claim in asked:
        try:
            kept[claim.key] = measure(claim, run)
        except SimschedError as error:
            failed[claim.key] = str(error)
            continue
        print(f"{claim.key}: {kept[claim.key].seconds} s", file=sys.stderr, flush=True)
        if log is not None:
            path, every = log
            write_file(path, dump(kept, every))
    return failed


def section(claims: list[Claim], outcomes: dict[str, Outcome]) -> str:
    """Return what the page has of the claims: a summary, a table per paper, and what a paper's module adds."""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts(claims, outcomes).items())
    parts = [f"{len(claims)} claims: {counts}.", table(claims, outcomes)]
    for paper in PAPERS:
        module = import_module(f"validation.papers.{paper}")
        if hasattr(module, "tables"):
            parts.append(module.tables(outcomes))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
