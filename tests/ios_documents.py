"""Documents in the form of IOS and HIOS, by hand and drawn,"""

import json


def placeholder(channels, size, name="0"):
    return {"type": "placeholder", "name": name, "hint_name": name, "output_shape": [channels, size, size]}


def node(kind, name, inputs, shape, **fields):
    return {"type": kind, "name": name, "hint_name": name, "inputs": inputs, **fields, "output_shape": shape}


def conv(name, inputs, shape, kernel=1, padding=0, **fields):
    window = {"kernel": 2 * [kernel], "stride": [1, 1], "padding": 2 * [padding]}
    return node(
        "conv", name, inputs, shape, **(window | {"out_channels": shape[0], "groups": 1, "act": "relu"} | fields)
    )


def pool(name, inputs, shape, pool_type="max", kernel=3, stride=1, padding=1):
    window = {"kernel": 2 * [kernel], "stride": 2 * [stride], "padding": 2 * [padding]}
    return node("pool", name, inputs, shape, pool_type=pool_type, **window)


def graph(enter, *blocks, name="net"):
    """A document of blocks, each a pair of its nodes and its stages."""
    begins = [enter, *(nodes[-1] for nodes, _ in blocks)]
    rows = [
        {"enter_name": begin["name"], "inner_nodes": nodes[:-1], "exit_node": nodes[-1], "stages": stages}
        for begin, (nodes, stages) in zip(begins, blocks, strict=False)
    ]
    return {"name": name, "input": enter, "blocks": rows}


def merged():
    """Convolutions 1 and 2 merged into one of 4 + 8 channels, then what reads its halves, and a pool at the end."""
    nodes = [
        conv("1", [[["0", 0, 3]]], [12, 8, 8], 3, 1, hint_name="1 2"),
        conv("3", [[["1", 0, 4]]], [4, 8, 8]),
        pool("4", [[["0", 0, 3]]], [3, 8, 8]),
        node("identity", "5", [[["3", 0, 4]], [["1", 4, 12]], [["4", 0, 3]]], [15, 8, 8]),
    ]
    last = pool("6", [[["5", 0, 15]]], [15, 1, 1], "global_avg", 8, 1, 0)
    return graph(placeholder(3, 8), (nodes, [[["1"]], [["3"], ["4"]], [["5"]]]), ([last], [[["6"]]]))


def value(name, begin, end, rank, tag, size=8):
    return [name, begin, end, size, size, rank, tag]


def two_devices():
    """A schedule of HIOS: device 0 runs "1" and what ends the blocks, device 1 runs "2" beside "3"."""
    nodes = [
        conv("1", [[["0", 0, 4]]], [2, 8, 8]),
        conv("2", [[["1", 0, 2]]], [2, 8, 8]),
        pool("3", [[["0", 0, 4]]], [4, 8, 8], kernel=1, padding=0),
        node("identity", "4", [[["1", 0, 2], ["2", 0, 2]], [["3", 0, 4]]], [6, 8, 8]),
    ]
    stages = [{"rank": 0, "stages": [[["1"]], [["4"]]]}, {"rank": 1, "stages": [[["2"], ["3"]], [["4"]]]}]
    last = pool("5", [[["4", 0, 6]]], [6, 1, 1], "global_avg", 8, 1, 0)
    both = [{"rank": rank, "stages": [[["5"]]]} for rank in (0, 1)]
    document = graph(placeholder(4, 8), (nodes, stages), ([last], both), name="two")
    ranks = {"0": 0, "1": 0, "2": 1, "3": 1, "4": -1, "5": -3}
    for one in all_nodes(document):
        inputs = [[value(*read, ranks[read[0]], 0) for read in term] for term in one["inputs"]]
        one.update(rank=ranks[one["name"]], outputs=[], inputs=inputs)
    return document


def all_nodes(document):
    return [n for block in document["blocks"] for n in (*block["inner_nodes"], block["exit_node"])]


def change(document, where, fields):
    """Replace fields of an operator, of "input", of a block ("block 0") or of the document ("")."""
    places = {f"block {i}": block for i, block in enumerate(document["blocks"])} | {"": document}
    places |= {"input": document["input"]} | {one["name"]: one for one in all_nodes(document)}
    places[where].update(fields)
    return document


def write(path, document):
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path
