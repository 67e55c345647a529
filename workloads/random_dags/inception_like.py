"""Random networks of inception blocks: parallel branches of convolutions between concatenations."""

from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.weights import FLOP_PER_MOVED_ELEMENT, MOST_OPS, Count, Weights

_NBYTES: Final = 4  # of an element, fp32
_LARGEST: Final = 10**6
_NARROW: Final = 4  # a branch has this part of the channels
_WINDOW: Final = 9  # of a pool
_STEM_READS: Final = 3 * 9  # 3 x 3 pixels of red, green and blue
_CONV, _POOL, _CONCAT = range(3)


@workload(Weights, time=(45.0, 55.0), comm_ratio=None)
def random_inception_like(
    weights: Weights,
    n_blocks: Count = 9,
    max_branches: Annotated[int, Range(2, MOST_OPS)] = 4,
    max_length: Count = 4,
    channels: Annotated[int, Range(_NARROW, _LARGEST)] = 256,
    image_size: Annotated[int, Range(1, _LARGEST)] = 56,
) -> OpGraph:
    """Return a random chain of blocks like the blocks of Inception networks.

    Parameters
    ----------
    n_blocks
        Blocks, at least 1.
    max_branches
        Most branches of a block, at least 2.
    max_length
        Most convolutions of a branch, at least 1.
    channels, image_size
        Channels between blocks, from 4, and pixels along each side of the images, both up to 10^6.
    comm_ratio
        None: edges carry their tensors, and links decide how long that takes. Else see
        `workloads.random_dags.weights`.
    rng, utilization, min_transfer
        See `workloads.random_dags.weights`.
    time
        Range of the time in us of a 5 x 5 convolution within a branch (`workloads.random_dags.weights`).

    Raises
    ------
    GraphError
        If a parameter is out of range, or there could be more than 10^8 operators or twice as many edges.

    Notes
    -----
    A 3 x 3 convolution of colours as stem, then blocks. A block has 2 to `max_branches` branches (uniform) that read
    the output of the block before, and a concatenation that ends them. All branches but the last are
    chains of 1 to `max_length` convolutions (uniform): the first is 1 x 1, the others are 3 x 3 or
    5 x 5 with equal chances. The last is a pool of 3 x 3 and a 1 x 1 convolution. Kinds are "conv",
    "pool" and "concat". Numbered block by block and branch by branch; one source, one sink.

    Between blocks there are C = `channels` channels, within branches C / 4, of `image_size` squared
    pixels in fp32. Convolutions count 2 FLOP per multiply-add, pools 9 per output. The work that a
    time is in proportion to is the FLOP, but 100 per output element for pools and concatenations,
    which move data: a GPU that computes 13 FLOP in the time of a byte does so, at 8 bytes read and written.

    The shapes belong to no particular network: see `workloads.models` for networks. O(operators + edges log edges).

    Examples
    --------
    >>> graph = random_inception_like(2, rng=0)
    >>> graph.inputs, graph.outputs, len(graph.blocks)
    (('op0',), ('op15',), 3)
    """
    most_inner = n_blocks * max_branches * max(max_length, 2)
    weights.affordable(
        1 + n_blocks + most_inner,
        most_inner + n_blocks * max_branches,
        "give fewer n_blocks, max_branches or max_length",
    )
    rng = weights.rng

    branches = rng.integers(2, max_branches + 1, size=n_blocks)
    block = np.repeat(np.arange(n_blocks), branches)  # of each branch
    length = rng.integers(1, max_length + 1, size=len(block))
    pools = np.cumsum(branches) - 1  # the last branch of each block
    length[pools] = 2
    first = 1 + block + np.cumsum(length) - length  # operator of each branch
    last = first + length - 1
    concat = last[pools] + 1
    n_ops = 1 + n_blocks + int(length.sum())
    weights.draw(n_ops)

    kind = np.full(n_ops, _CONV)
    kind[first[pools]] = _POOL
    kind[concat] = _CONCAT
    side = 3 + 2 * rng.integers(2, size=n_ops)
    side[first] = side[first[pools] + 1] = 1
    before = np.append(0, concat[:-1])  # inputs of the branches of each block
    inner = np.ones(n_ops, np.bool_)  # operators that another of the branch reads
    inner[last] = inner[concat] = inner[0] = False
    inside = np.flatnonzero(inner)

    pixels = float(image_size**2)
    narrow = channels // _NARROW
    wide = np.isin(kind, (_POOL, _CONCAT))
    wide[0] = True  # of the stem's output
    outputs = pixels * np.where(wide, channels, narrow)
    reads_wide = side == 1
    flops = 2.0 * pixels * narrow * side**2 * np.where(reads_wide, channels, narrow)
    flops[0] = 2.0 * pixels * channels * _STEM_READS
    flops[kind == _POOL] = pixels * channels * _WINDOW
    flops[kind == _CONCAT] = 0.0
    effort = np.where(kind == _CONV, flops, FLOP_PER_MOVED_ELEMENT * outputs)
    return weights.graph(
        [before[block], inside, last],
        [first, inside + 1, concat[block]],
        kind=(kind, ("conv", "pool", "concat")),
        work=effort / (2.0 * pixels * narrow * 5**2 * narrow),
        flops=flops,
        output_nbytes=_NBYTES * outputs,
    )
