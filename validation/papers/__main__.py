"""Run the claims of the papers and print them beside ours.

    python -m validation.papers [--only hios] [--claim KEY] [--quick] [--workers 2]
                                [--log validation/papers.json] [--page docs/background/claims.md]

Outcomes are kept in the log as they come, and the tables of the page are written anew from all that are there. A
quick run, with fewer instances, prints only: it shows that every claim can be run, not how it comes out.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import simsched
from simsched.base.errors import SimschedError
from simsched.base.io import read_text, write_file
from validation.papers import claims
from validation.papers.hios import columns


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", choices=claims.PAPERS, action="append", help="the claims of one paper; can be repeated"
    )
    parser.add_argument("--claim", metavar="KEY", action="append", help="one claim; can be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer instances; nothing is kept")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log", default="validation/papers.json")
    parser.add_argument("--page", default="docs/background/claims.md")
    options = parser.parse_args(arguments)
    every = claims.claims_of(claims.PAPERS)
    asked = [
        claim
        for claim in claims.claims_of(options.only or claims.PAPERS)
        if not options.claim or claim.key in options.claim
    ]
    unknown = [key for key in options.claim or [] if key not in [claim.key for claim in asked]]
    if unknown:
        parser.error(f"no claim has the key {unknown[0]!r}; known are: {', '.join(claim.key for claim in every)}")
    keeps = not options.quick
    known = claims.Outcomes.load(options.log).claims if keeps and Path(options.log).exists() else {}
    kept = {
        each.key: replace(found, verdict=each.verdict(found.ours)) for each in every if (found := known.get(each.key))
    }
    failed = False
    for claim in asked:
        try:
            kept[claim.key] = claims.measure(claim, claims.Run(options.quick, options.workers))
        except SimschedError as error:
            print(f"error: claim {claim.key}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{claim.key}: {kept[claim.key].seconds} s", file=sys.stderr, flush=True)
        if keeps:
            in_order = {each.key: kept[each.key] for each in every if each.key in kept}
            claims.Outcomes(simsched.__version__, in_order).save(options.log)
    print(claims.tables(asked, kept))
    print(f"\n{_counts(asked, kept)}")
    if keeps and Path(options.page).exists():
        write_file(options.page, claims.put_between(read_text(options.page), "claims", section(every, kept)))
    return 2 if failed else 0


def section(every: Sequence[claims.Claim], outcomes: Mapping[str, claims.Outcome]) -> str:
    """Return the page of the claims: a summary, a table per paper, and HIOS's figures side by side."""
    parts = [f"{len(every)} claims: {_counts(every, outcomes)}.", claims.tables(every, outcomes), columns(outcomes)]
    return "\n\n".join(parts).strip()


def _counts(asked: Sequence[claims.Claim], outcomes: Mapping[str, claims.Outcome]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in claims.verdicts(asked, outcomes).items())


if __name__ == "__main__":
    sys.exit(main())
