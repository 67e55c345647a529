"""Pictures as DOT, and the texts and colours of all pictures."""

import re
import xml.etree.ElementTree as ET

from drawn import graph_of, op, two_devices
from hypothesis import given
from hypothesis import strategies as st

import simsched as ss
from simsched.show.drawing import to_dot
from simsched.show.drawing.style import ink, printable, shortened, text_width
from simsched.show.figure import PALETTE


def test_dot_of_a_graph():
    graph = ss.OpGraph([op("a", time=3.0), op('b"\\', block="blk")], [ss.Edge("a", 'b"\\', nbytes=8)], name="net")
    lines = to_dot(graph).splitlines()
    assert lines[0] == 'digraph "net" {'
    assert any(line.startswith('  n0 [label="a\\nconv · 3 us", fillcolor="#') for line in lines)
    assert '    label="blk"; labeljust=l;' in lines
    assert any(line.startswith('    n1 [label="b\\"\\\\\\nconv"') for line in lines)
    assert '  n0 -> n1 [tooltip="a → b\\"\\\\\\n8 B"];' in lines


def test_dot_of_schedules():
    """Edges between devices are dashed; stages are clusters, or part of labels where they are no bands."""
    text = to_dot(two_devices())
    assert text.count("style=dashed") == 2
    graph = graph_of("ab", alone="z")
    rows = [ss.Placement("z"), ss.Placement("a", stage=1), ss.Placement("b", "gpu1")]
    assert "conv · gpu0 stream 0 · stage 1" in to_dot(ss.Schedule(graph, rows, execution="stages"))
    rows = [ss.Placement("z"), ss.Placement("a", stage=1), ss.Placement("b", stage=2)]
    banded = to_dot(ss.Schedule(graph, rows, execution="stages"))
    assert re.findall(r'label="(stage \d)"', banded) == ["stage 0", "stage 1", "stage 2"]


def test_ink_has_contrast():
    """At least 4.5 to 1 on every fill, as WCAG 2 asks for."""
    from simsched.show.drawing.style import OTHER, paint

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for fill in [OTHER, *PALETTE, *(paint(hue, tint) for hue in range(7) for tint in range(4))]:
        light, dark = sorted([luminance(fill), luminance(ink(fill))], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


@given(text=st.text(), width=st.floats(20, 300))
def test_shortened_texts_fit(text, width):
    found = shortened(text, 12, width)
    assert text_width(found, 12) <= width
    assert found == text or "…" in found


@given(st.text())
def test_printable_texts_are_lines_of_xml(text):
    found = printable(text)
    assert found
    assert "\n" not in found
    ET.fromstring(f"<a>{found.replace('&', '&amp;').replace('<', '&lt;').replace(']]>', '')}</a>")
