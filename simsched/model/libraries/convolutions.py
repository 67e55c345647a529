"""Convolutions: implicit products, the kernels that turn tensors round for them, grouped and depthwise ones."""

from simsched.base.numeric import sum_in_order
from simsched.model.graph import Work
from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import parts
from simsched.model.libraries.launch import Launch
from simsched.model.libraries.products import Shape, tile_product

_TURN_TILE = 280.0
_TURN_BYTE = 100.0
"""Clock cycles in which an SM turns a tile of 32 x 32 elements round, and more for each byte of an element."""
_TURN_WEIGHTS = 390.0
"""Clock cycles for a tile of weights, most of which is empty."""
_TURNED = 0.64
"""Part of the bandwidth of DRAM of kernels that turn tensors round."""
_START = 2.1
_ALIGNMENT = 16
"""Bytes: rows of a plain product start at multiples of it."""
_FEW_CHANNELS = 4
_GROUP_COLUMNS = 32
_WINOGRAD_WINDOW = 9
_WINOGRAD_CHANNELS = 16
_UNSTRIDED = 2.0
"""Elements of the input for each pixel and channel of the output, below which the stride is 1; with 2 there are 4."""


def convolution(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of a convolution; in fp32 in tf32 where the work allows it and is faster so."""
    choices = [_kernels(case, case.dtype)]
    if case.may_use_tf32:
        choices.append(_kernels(case, "tf32"))
    return (*min(choices, key=lambda launches: sum_in_order(launch.time for launch in launches)), *_bias(case))


def _kernels(case: WorkCase, dtype: str) -> tuple[Launch, ...]:
    work = case.work
    chip = case.chip
    tensor = chip.tensor(dtype)
    channels = max(1, work.inner // work.window)
    if channels == 1 and work.batch > 1:
        return (_depthwise(case),)
    if channels <= _FEW_CHANNELS and work.batch == 1 and work.rule != "channels_last":
        if tensor:  # too few for a step of tensor cores
            dtype = "fp32"
        tensor = False
    generation = chip.generation
    shape = Shape(work.batch, work.rows, work.columns, work.inner)
    if work.batch > 1:
        shape = shape._replace(columns=max(work.columns, _GROUP_COLUMNS))
    if not tensor:
        if _suits_winograd(work):
            computing = generation.winograd
        else:
            computing = 1.0
        return tile_product(case, shape, generation.simt_convolution, dtype, computing=computing)
    last = work.rule == "channels_last"
    pixels = work.rows // work.images
    if work.window == 1 and (last or (work.rule == "plain" and pixels * case.width % _ALIGNMENT == 0)):
        return tile_product(case, shape, chip.engine(dtype), dtype, split=True)
    if dtype == "tf32":
        engine = generation.tf32_convolution
    else:
        engine = generation.tensor_convolution
    main = tile_product(case, shape, engine, dtype)
    if last:
        return main
    width = case.width
    total = work.batch * channels
    outputs = work.batch * work.columns
    image = parts(max(1, work.elements // (work.images * total)), 32) * parts(total, 32) * work.images
    turned = parts(pixels, 32) * parts(outputs, 32) * work.images
    weights = outputs * parts(channels, 32) * parts(work.window, 32)
    tile = _TURN_TILE + _TURN_BYTE * width
    first = [_turn(case, image, tile, 2.0 * work.elements * width, work.reads)]
    if work.window > 1:
        first.append(_turn(case, weights, _TURN_WEIGHTS, 2.0 * work.weights, work.weights))
    return (*first, *main, _turn(case, turned, tile, 2.0 * work.rows * outputs * width, work.writes))


def _suits_winograd(work: Work) -> bool:
    """Return whether libraries compute a convolution by Winograd's algorithm: 3 x 3, stride 1, and not too narrow."""
    channels = work.inner // work.window
    unstrided = work.elements < _UNSTRIDED * work.rows * channels
    return work.window == _WINOGRAD_WINDOW and work.batch == 1 and channels >= _WINOGRAD_CHANNELS and unstrided


def _turn(case: WorkCase, tiles: int, cycles: float, nbytes: float, traffic: float) -> Launch:
    """Return a kernel that turns a tensor round, tile by tile of 32 x 32 elements."""
    chip = case.chip
    kept_bytes = case.part_in_l2(case.work.reads, case.work.writes)
    return case.streaming(
        tiles,
        1,
        256,
        36,
        _START,
        0.0,
        shared_memory=2112,
        efficiency=_TURNED,
        nbytes=nbytes,
        traffic=traffic * (1 - kept_bytes),
    )._replace(compute=cycles * tiles / chip.sms * chip.cycle)


def _depthwise(case: WorkCase) -> Launch:
    work = case.work
    if case.width < 4 and work.window <= 25:
        cycles = 60 + 12 * work.window
    else:
        cycles = 80 + 20 * work.window
    outputs = work.batch * work.columns * work.rows
    return case.streaming(outputs, 1024, 1024, 32, 1.9, float(cycles), flops=work.flops)


def _bias(case: WorkCase) -> tuple[Launch, ...]:
    work = case.work
    if not work.bias:
        return ()
    outputs = work.batch * work.columns * work.rows
    nbytes = 2.0 * outputs * case.width
    traffic = nbytes * (1 - case.part_in_l2(nbytes / 2, nbytes / 2))
    return (case.streaming(outputs, 512, 128, 28, 1.3, 80.0, nbytes=nbytes, traffic=traffic),)
