"""Print the sizes of packages beside their budget in ``[tool.simsched.size]``; the status is 1 where one is over it.

Lines of code are those with a token that is neither a comment nor part of a docstring; words are of Markdown files that
no command writes. Raising a budget is a commit that says why.
"""

import ast
import sys
import tokenize
import tomllib
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ("claims.md", "real-gpus.md")  # by `validation.papers` and `validation.realtraces`
NOTHING = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Return how many lines of a module are code."""
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    found = {row for each in tokens if each.type not in NOTHING for row in range(each.start[0], each.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def words(paths: list[Path]) -> int:
    """Return how many words pages have, without those that commands write."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths if path.name not in WRITTEN)


def main() -> int:
    """Print all sizes, and return the status."""
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["simsched"]["size"]
    over = 0
    for name, most in budget.items():
        if name == "words":
            found = words([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
        elif name == "pages":
            pages = [path for kind in ("css", "js", "html", "json") for path in (ROOT / "simsched").rglob(f"*.{kind}")]
            found = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in pages)
        else:
            found = sum(code_lines(path.read_text(encoding="utf-8")) for path in (ROOT / name).rglob("*.py"))
        over += found > most
        print(f"{name:<12} {found:>7,} of {most:>7,}{'  OVER ITS BUDGET' if found > most else ''}")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
