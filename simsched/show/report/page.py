"""The page: one HTML file with its styles, scripts and numbers in it, which may load nothing else."""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from string import Template
from typing import Final

from simsched.base.errors import MissingDependencyError
from simsched.show.report.html import Writer, read_resource
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
    own, drawing = "\n".join(read_resource(name) for name in _SCRIPTS), library() if writer.draws else ""
    scripts = [own, drawing]
    allowed = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in writer.contents)
    # not run as the page is read: texts and tables are there before it is
    later = f'<script type="text/plain" id="plotly">{drawing}</script>' if drawing else ""
    return Template(read_resource("page.html")).substitute(
        title=escape(title), subtitle=escape(subtitle), policy=policy, style=read_resource("page.css"), links=links,
        body=body, own=own, later=later,
    )  # fmt: skip


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
