"""Documents in the form of IOS and HIOS, by hand and drawn,"""

import json


def placeholder(channels, size, name="0"):
    return {"type": "placeholder", "name": name, "hint_name": name, "output_shape": [channels, size, size]}


def node(kind, name, inputs, shape, **fields):
    return {"type": kind, "name": name, "hint_name": name, "inputs": inputs, **fields, "output_shape": shape}


def conv(name, inputs, shape, kernel=1, padding=0, **fields):
    defaults = {"stride": [1, 1], "groups": 1, "act": "relu"}
    return node("conv", name, inputs, shape, out_channels=shape[0], kernel=2 * [kernel], padding=2 * [padding],
                **{**defaults, **fields})  # fmt: skip


def pool(name, inputs, shape, pool_type="max", kernel=3, stride=1, padding=1):
    return node("pool", name, inputs, shape, pool_type=pool_type, kernel=2 * [kernel], stride=2 * [stride],
                padding=2 * [padding])  # fmt: skip


def graph(enter, *blocks, name="net"):
    """A document of blocks, each a pair of its nodes and its stages."""
    rows = []
    begin = enter
    for nodes, stages in blocks:
        rows.append({"enter_name": begin["name"], "enter_node": begin, "inner_nodes": nodes[:-1],
                     "exit_node": nodes[-1], "stages": stages})  # fmt: skip
        begin = nodes[-1]
    return {"name": name, "input": enter, "blocks": rows}


def merged():
    """Convolutions 1 and 2 merged into one of 4 + 8 channels, then what reads its halves, and a pool at the end."""
    return graph(
        placeholder(3, 8),
        (
            [
                conv("1", [[["0", 0, 3]]], [12, 8, 8], 3, 1, hint_name="1 2"),
                conv("3", [[["1", 0, 4]]], [4, 8, 8]),
                pool("4", [[["0", 0, 3]]], [3, 8, 8]),
                node("identity", "5", [[["3", 0, 4]], [["1", 4, 12]], [["4", 0, 3]]], [15, 8, 8]),
            ],
            [[["1"]], [["3"], ["4"]], [["5"]]],
        ),
        ([pool("6", [[["5", 0, 15]]], [15, 1, 1], "global_avg", 8, 1, 0)], [[["6"]]]),
    )


def value(name, begin, end, rank, tag, size=8):
    return [name, begin, end, size, size, rank, tag]


def two_devices():
    """A schedule of HIOS: device 0 runs "1" and what ends the blocks, device 1 runs "2" beside "3"."""

    def ranked(kind, name, inputs, shape, rank, outputs, **fields):
        return node(kind, name, inputs, shape, rank=rank, outputs=outputs, **fields)

    window = {"kernel": [1, 1], "stride": [1, 1], "padding": [0, 0]}
    conv = {"out_channels": 2, **window, "groups": 1, "act": "relu"}
    enter = {"type": "placeholder", "name": "0", "hint_name": "0", "output_shape": [4, 8, 8], "rank": -1}
    leave = ranked("identity", "4", [[value("1", 0, 2, 0, 5), value("2", 0, 2, 1, 6)], [value("3", 0, 4, 1, 7)]],
                 [6, 8, 8], -1, [])  # fmt: skip
    last = ranked("pool", "5", [[value("4", 0, 6, -1, 8)]], [6, 1, 1], -3, [], pool_type="global_avg", kernel=[8, 8],
                stride=[1, 1], padding=[0, 0])  # fmt: skip
    return {
        "name": "two",
        "input": enter,
        "blocks": [
            {
                "enter_name": "0",
                "enter_node": enter,
                "inner_nodes": [
                    ranked("conv", "1", [[value("0", 0, 4, 0, 1)]], [2, 8, 8], 0, [[1, 3]], **conv),
                    ranked("conv", "2", [[value("1", 0, 2, 0, 3)]], [2, 8, 8], 1, [], **conv),
                    ranked("pool", "3", [[value("0", 0, 4, 0, 4)]], [4, 8, 8], 1, [], pool_type="max", **window),
                ],
                "exit_node": leave,
                "stages": [{"rank": 0, "stages": [[["1"]], [["4"]]]}, {"rank": 1, "stages": [[["2"], ["3"]], [["4"]]]}],
            },
            {
                "enter_name": "4",
                "enter_node": leave,
                "inner_nodes": [],
                "exit_node": last,
                "stages": [{"rank": 0, "stages": [[["5"]]]}, {"rank": 1, "stages": [[["5"]]]}],
            },
        ],
    }


def all_nodes(document):
    return [n for block in document["blocks"] for n in (*block["inner_nodes"], block["exit_node"])]


def write(path, document):
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def stages_of(schedule):
    """The groups of each stage by device, each the operators in launch order."""
    found = {}
    for row in schedule.placements:
        found.setdefault((row.device, row.stage), {}).setdefault(row.group, []).append(row.op)
    return {at: [groups[j] for j in sorted(groups)] for at, groups in found.items()}
