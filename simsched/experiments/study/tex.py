"""Tables for papers: LaTeX with the package booktabs."""

from collections.abc import Sequence
from typing import Final

from simsched.base.text import printable

_SPECIAL: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "#": r"\#",
        "$": r"\$",
        "%": r"\%",
        "&": r"\&",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


def escape(text: str) -> str:
    r"""Return a text as LaTeX shows it.

    >>> print(escape("50 % of a_b"))
    50 \% of a\_b
    """
    return printable(text).translate(_SPECIAL)


def booktabs(
    headings: Sequence[str], groups: Sequence[Sequence[Sequence[str]]], *, n_left: int, comments: Sequence[str] = ()
) -> str:
    r"""Return a ``tabular`` with rules of booktabs, a rule between groups of rows.

    Parameters
    ----------
    headings, groups
        Texts of columns, and of the rows of each group.
    n_left
        Columns, from the first, whose texts are aligned to the left; other columns are aligned to the right.
    comments
        Lines above it that are not typeset.
    """
    lines = [f"% {printable(comment)}" for comment in comments]
    lines.append(r"\begin{tabular}{" + "l" * n_left + "r" * (len(headings) - n_left) + "}")
    lines.append(r"\toprule")
    lines.append(_line(headings))
    for rows in groups:
        lines.append(r"\midrule")
        lines += map(_line, rows)
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
