"""Print the sizes of the packages, the pages and the documentation.

Lines of code are those with a token that is neither a comment nor part of a docstring; words are of Markdown files that
no command writes.
"""

import ast
import tokenize
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("simsched", "workloads", "hwbackend", "validation", "tests")
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


def main() -> None:
    """Print all sizes."""
    sizes = {}
    for name in PACKAGES:
        sizes[name] = sum(code_lines(path.read_text(encoding="utf-8")) for path in (ROOT / name).rglob("*.py"))
    pages = [path for kind in ("css", "js", "html", "json") for path in (ROOT / "simsched").rglob(f"*.{kind}")]
    sizes["pages"] = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in pages)
    sizes["words"] = words([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
    for name, size in sizes.items():
        print(f"{name:<12} {size:>7,}")


if __name__ == "__main__":
    main()
