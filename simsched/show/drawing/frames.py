"""Boxes with their labels laid out, and what lies behind them: frames around blocks, bands of stages."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats
from simsched.show.drawing.layout import Arrangement, Layout, layout, pick_engine
from simsched.show.drawing.picture import Box, Picture
from simsched.show.drawing.style import text_width

NAME_SIZE: Final = 12.0
DETAIL_SIZE: Final = 10.0
BOX_HEIGHT: Final = 40.0
BOX_PADDING: Final = 8.0
_NARROWEST, _WIDEST = 56.0, 220.0  # boxes
_FRAME_SIDE, _FRAME_TOP, _FRAME_BOTTOM = 8.0, 20.0, 8.0  # between a frame and the boxes in it
_BAND = 22.0  # between a band and the boxes in it


class Frame(NamedTuple):
    """A rectangle behind some boxes."""

    label: str
    left: float
    top: float
    right: float
    bottom: float


class Plate(NamedTuple):
    """A picture laid out."""

    layout: Layout
    names: list[str]
    """What stands in the boxes."""
    frames: list[Frame]
    bands: list[Frame]


def lay_out(graph: OpGraph, picture: Picture, engine: str) -> Plate:
    """Return where everything lies; operators in a frame go by the part of their name that its label leaves."""
    names = [box.name for box in picture.boxes]
    engine = pick_engine(engine)
    if engine == "own":
        arranged = Arrangement(graph, picture.stage)

    def place() -> Layout:
        widths = _widths(names, picture.boxes)
        if engine == "own":
            return arranged.place(widths, BOX_HEIGHT)
        return layout(graph, width=widths, height=BOX_HEIGHT, engine=engine)

    if picture.stage is not None and engine == "own":
        placed = place()
        return Plate(placed, names, [], _bands(placed, picture))
    framed = {label: ops for label, ops in picture.blocks.items() if len(ops) > 1}
    while True:  # fewer blocks each time, and hardly ever more than twice
        for ops in framed.values():
            for i in ops:
                names[i] = picture.boxes[i].short
        placed = place()
        frames = _frames(placed, framed)
        if len(frames) == len(framed):
            return Plate(placed, names, list(frames.values()), [])
        for label in [label for label in framed if label not in frames]:
            for i in framed.pop(label):
                names[i] = picture.boxes[i].name


def _widths(names: Sequence[str], boxes: Sequence[Box]) -> Floats:
    wanted = [
        max(text_width(name, NAME_SIZE), text_width(box.detail, DETAIL_SIZE)) + 2 * BOX_PADDING
        for name, box in zip(names, boxes, strict=True)
    ]
    return np.clip(np.ceil(wanted), _NARROWEST, _WIDEST)


def _frames(placed: Layout, blocks: dict[str, list[int]]) -> dict[str, Frame]:
    """Return frames around the blocks that have no other operator, nor a part of an earlier frame, between theirs."""
    left, right = placed.x - placed.width / 2, placed.x + placed.width / 2
    top, bottom = placed.y - placed.height / 2, placed.y + placed.height / 2
    inside: dict[str, list[Floats]] = {label: [] for label in blocks}  # x of edges that do not leave their block
    block_of = {i: label for label, ops in blocks.items() for i in ops}
    for (u, v), route in zip(placed.pairs.tolist(), placed.routes, strict=True):
        if u in block_of and block_of[u] == block_of.get(v):
            inside[block_of[u]].append(route[:, 0])
    found: dict[str, Frame] = {}
    taken = np.empty((4, len(blocks)))  # sides of the frames found so far, as those of the boxes
    for label, ops in blocks.items():
        frame = Frame(
            label,
            float(np.concatenate([left[ops], *inside[label]]).min()) - _FRAME_SIDE,
            float(top[ops].min()) - _FRAME_TOP,
            float(np.concatenate([right[ops], *inside[label]]).max()) + _FRAME_SIDE,
            float(bottom[ops].max()) + _FRAME_BOTTOM,
        )
        within = _overlap(frame, left, top, right, bottom)
        if within.sum() == len(ops) and not _overlap(frame, *taken[:, : len(found)]).any():
            taken[:, len(found)] = frame[1:]
            found[label] = frame
    return found


def _overlap(frame: Frame, left: Floats, top: Floats, right: Floats, bottom: Floats) -> npt.NDArray[np.bool_]:
    """Return which of some rectangles, given by their sides, a frame overlaps."""
    return (left < frame.right) & (right > frame.left) & (top < frame.bottom) & (bottom > frame.top)


def _bands(placed: Layout, picture: Picture) -> list[Frame]:
    """Return a band for each stage, as wide as the picture."""
    assert picture.stage is not None
    _, first = np.unique(picture.stage, return_index=True)
    top, bottom = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    np.minimum.at(top, picture.stage, placed.y - placed.height / 2 - _BAND)
    np.maximum.at(bottom, picture.stage, placed.y + placed.height / 2 + _BAND)
    return [
        Frame(f"stage {picture.boxes[i].badge}", 0.0, above, placed.size[0], below)
        for i, above, below in zip(first.tolist(), top.tolist(), bottom.tolist(), strict=True)
    ]
