"""The page: one HTML file with its styles, scripts and numbers in it, which may load nothing else."""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

from simsched.base.errors import MissingDependencyError
from simsched.show.report.html import Writer
from simsched.show.report.sections import Section

_SCRIPTS = ("page.js", "figures.js", "gantt.js")
_FOREIGN: Final = re.compile(r"(?<!\\)[\u0080-\uffff]")
"""What JavaScript can name by four digits."""
_OPENS, _ENDS, _NEAR = "this, () => {\n", "\n}));", 1000
"""How Plotly's script begins, within so many characters, and ends: a call that is given all of it as a function."""


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return sections as an HTML page.

    Raises
    ------
    MissingDependencyError
        If plotly, which draws the figures, is not installed.

    Notes
    -----
    The page forbids itself, by its content security policy, to load anything, and to run any script but those whose
    digests it names: a text that became a script by mistake would not run.
    """
    writer = Writer()
    body = "\n".join(writer.section(section) for section in sections)
    own, drawing = "\n".join(_read(name) for name in _SCRIPTS), library() if writer.draws else ""
    scripts = [own, drawing]
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in writer.contents)
    # not run as the page is read: texts and tables are there before it is
    later = f'<script type="text/plain" id="plotly">{drawing}</script>' if drawing else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="simsched">
<title>{escape(title)}</title>
<style>
{_read("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<div class="page">
<header><div><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></div>
<button type="button" class="theme">Colours</button></header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main id="content" tabindex="-1">
<noscript><p>Figures and sorting need JavaScript; tables hold what they show.</p></noscript>
{body}
</main>
</div>
<script>{own}</script>
{later}
</body>
</html>
"""


def _read(name: str) -> str:
    return (files(str(__package__)) / name).read_text(encoding="utf-8")


def library() -> str:
    """Return Plotly's script, in which nothing ends the element it stands in.

    Raises
    ------
    MissingDependencyError
        If plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("a report needs plotly: pip install 'simsched[report]'") from None
    return quick(str(get_plotlyjs()).replace("</script", "<\\/script"))


def quick(script: str) -> str:
    r"""Return a script that does the same and starts sooner.

    A browser keeps and reads ASCII faster than other text. And it compiles a function in parentheses as it reads it,
    while it skips any other and reads that again when it is called: here the function that is the whole library.

    >>> quick('(function(f) { f(); } (this, () => {\n"\u00b5";\n}));')
    '(function(f) { f(); } (this, (() => {\n"\\u00b5";\n})));'
    """
    plain = _FOREIGN.sub(lambda found: f"\\u{ord(found[0]):04x}", script).rstrip()
    if plain.find(_OPENS) not in range(_NEAR) or not plain.endswith(_ENDS):
        return plain  # not built as is expected
    return plain.replace(_OPENS, "this, (() => {\n", 1).removesuffix(_ENDS) + "\n})));"
