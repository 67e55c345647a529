"""The rules: where they hold, what they make of it and what that costs; all of it is seen to compute the same."""

import pytest
from rewritten import applied, of_text

import simsched as ss
from simsched.rewriting import RULES, GraphDraft

C = "c = conv(x, 4, 3, activation=None)"
TWO = "a = conv(x, 4, 1); b = conv(x, 8, 1)"
JOIN = "join = concat([a, b]); p = pool(join, 'max', 2)"
ALIKE = "a = conv(x, 8, 3); b = conv(y, 8, 3) | weights={'of': 'a'}"
BARE = "a = conv(x, 4, 1, activation=None); b = conv(x, 2, 1, activation=None)"
SUM = "a = conv(x, 8, 1, activation=None); b = conv(y, 8, 1, activation=None); sum = add([a, b]{})"
POOLS = "a = pool(x, 'avg', 3, padding=1); b = pool({}, 'avg', 3, padding=1); sum = add([a, b]{})"
PRODUCTS = "a = linear(x, 4); b = linear(x, 8{}); join = concat([a, b], axis=2); r = activation(join)"
TERMS = "a = linear(x, 4{}); b = linear({}, 4{}); sum = add([a, b])"
QKV = (
    "query = linear(x, 6); key = linear(x, 6); value = linear(x, 6); turned = view(key, (2, 6, 3)); "
    "scores = matmul(query, turned); weights = softmax(scores); context = matmul(weights, value)"
)
PIECES = (
    "both = concat([x, y]); s = copy(both, ({0}, 4, 6, 6), kind='slice') | axis=1, begin=0, end=4; "
    "t = copy(both, ({0}, 2, 6, 6), kind='slice') | axis=1, begin=4, end=6; keep = add([both]); {1}"
)
HALF = "both = concat([x, y]); t = copy(both, (1, 4, 6, 6), kind='slice') | axis=1, begin=4, end=8; r = activation(t)"
PART = (
    "both = concat([x, y]); p = activation(both) | input_shapes=[(1, 2, 6, 6)], output_shape=(1, 2, 6, 6), "
    "slices={{'0': [1, {}]}}; r = activation(p) | input_shapes=[(1, 2, 6, 6)], output_shape=(1, 2, 6, 6); "
    "s = activation(both)"
)
XY = {"x": (1, 8, 6, 6), "y": (1, 8, 6, 6)}
X46 = {"x": (1, 4, 6, 6), "y": (1, 6, 6, 6)}
X42 = {"x": (1, 4, 6, 6), "y": (1, 2, 6, 6)}
ROWS = {"x": (2, 3, 6), "y": (2, 3, 6)}
BOTH = [{"of": "a"}, {"of": "b"}]

# rules and matches, what they are applied to and the shapes of its sources; then the operators there are, in
# topological order, and what is said of some: fields, attributes, what they read, `like` an operator of before
MADE = [
    # R1: the convolution's FLOP and bytes stay; the activation's launch and bytes go
    (
        "R1",
        f"{C}; r = activation(c)",
        {},
        "x r",
        {"r": {"like": "c", "intensity": "compute", "activation": "relu", "weights": {"of": "c"}, "reads": "x"}},
    ),
    # a normalization and the bias it makes: 4 x 36 weights and no bias, so 4 values of 4 bytes more in weights and
    # traffic, which was 144 + 64 + 144 values; or with a bias, which stays one
    (
        "R1",
        "c = conv(x, 4, 3, bias=False, activation=None); n = batch_norm(c)",
        {},
        "x n",
        {
            "n": {
                "kind": "conv",
                "weight_nbytes": 592.0,
                "nbytes": 4 * 352 + 16.0,
                "weights": {"normalized": {"of": "c"}, "by": {"of": "n"}},
            }
        },
    ),
    ("R1", f"{C}; n = batch_norm(c)", {}, "x n", {"n": {"weight_nbytes": 592.0}}),
    (
        "R1 c c.norm; R1",
        "c = conv(x, 4, 3, norm=True)",
        {"granularity": "operator"},
        "x c.relu",
        {"c.relu": {"activation": "relu"}},
    ),
    (
        "R1 l s; R1",
        "l = linear(x, 5); s = activation(l, 'sigmoid'); r = linear(z, 4); m = matmul(s, r); t = activation(m, 'tanh')",
        {"x": (2, 3, 4), "z": (2, 5, 4)},
        "x z s r t",
        {"s": {"activation": "sigmoid"}, "t": {"kind": "matmul"}},
    ),
    # R2: the join of all that one convolution writes is that: its readers read the convolution, or a view of it where
    # it is an output of the network; in the order of the concatenation
    ("R2", f"{TWO}; join = concat([a, b])", {}, "x a+b join", {"join": {"kind": "slice", "time": 0.0}}),
    ("R2", f"{TWO}; {JOIN}", {}, "x a+b p", {"a+b": {"flops": 2.0 * 12 * 36 * 4}}),
    ("R2", f"{TWO}; join = concat([b, a]); p = pool(join, 'max', 2)", {}, "x b+a p", {}),
    # the join reads all of a+b at once, though a part of it on its own would have to be copied
    *(
        (
            "R2",
            f"{TWO}; c = conv(x, 2, 1, activation=None); join = concat([a, b, c])",
            {"x": (batch, 4, 6, 6)},
            "x a+b c join",
            {
                "join": {
                    "input_shapes": ((batch, 12, 6, 6), (batch, 2, 6, 6)),
                    "attributes": {"axis": 1},
                    "nbytes": batch * 2 * 14 * 36 * 4.0,
                }
            },
        )
        for batch in (1, 3)
    ),
    # R3: 3 x 3 for both: 12 channels x 36 pixels x 4 x 9 x 2 FLOP, each image; weights 12 x 37 x 4 bytes
    *(
        (
            "R3",
            "a = conv(x, 4, 1); b = conv(x, 8, 3, padding=1); join = concat([a, b])",
            {"x": (batch, 4, 6, 6)},
            None,
            {
                "a+b": {
                    "flops": batch * 12 * 36 * 72.0,
                    "weight_nbytes": 12 * 37 * 4.0,
                    "weights": {"concat": [{"pad": {"of": "a"}, "kernel": [3, 3]}, {"of": "b"}], "axis": 0},
                }
            },
        )
        for batch in (1, 2)
    ),
    # R4: 1 + 2 images of 8 x 16 outputs, 72 FLOP each; inputs 3 x 144, outputs 3 x 128 and 296 weights, of 4 bytes
    (
        "R4",
        f"{ALIKE}; join = concat([a, b], axis=0); p = pool(join, 'max', 2)",
        {"y": (2, 4, 6, 6)},
        "y x a+b.input a+b p",
        {
            "a+b": {
                "flops": 3 * 128 * 72.0,
                "nbytes": 4.0 * (432 + 384 + 296),
                "weight_nbytes": 296 * 4.0,
                "weights": {"of": "a"},
            },
            "a+b.input": {"kind": "concat", "flops": 0.0, "nbytes": 2 * 432 * 4.0, "kernels": ()},
        },
    ),
    (
        "R4",
        f"{ALIKE}; p = pool(a, 'max', 2); q = pool(b, 'max', 2)",
        {"y": (2, 4, 6, 6)},
        None,
        {"q": {"slices": {"0": [0, 1, 3]}}},
    ),
    # R5: twice the groups and channels; FLOP 16 x 16 x 9 x 8 / groups x 2, as before; of 2 x 288 inputs, 2 x 128
    # outputs and twice the weights, 8 x 8 / groups x 9 and 8 biases
    *(
        (
            "R5 a b join",
            f"a = conv(x, 8, 3, groups={g}); b = conv(y, 8, 3, groups={g}); {JOIN}",
            XY,
            "x y a+b.input a+b p",
            {
                "a+b": {
                    "groups": 2 * g,
                    "out_channels": 16,
                    "flops": 16 * 16 * 9 * 8 / g * 2,
                    "weight_nbytes": 2 * 4 * (576 / g + 8),
                    "nbytes": 2 * 4 * (576 / g + 8 + 288 + 128),
                }
            },
        )
        for g in (1, 2, 8)
    ),
    # depthwise convolutions are split
    (
        "R5 a b",
        "a = conv(x, 8, 3, groups=8); b = conv(y, 8, 3, groups=8)",
        XY,
        None,
        {"b": {"attributes": {"axis": 1, "begin": 8, "end": 16}}, "a+b": {"groups": 16}},
    ),
    # R6: FLOP 8 x 36 x (4 + 6) x 2; weights 8 x 10 and one bias; reads 10 x 36, writes 8 x 36 values of 4 bytes
    *(
        (
            "R6",
            SUM.format(f", activation={activation!r}"),
            X46,
            "x y sum.input sum",
            {
                "sum": {
                    "kind": "conv",
                    "flops": 5760.0,
                    "weight_nbytes": 88 * 4.0,
                    "nbytes": 4.0 * (360 + 288 + 88),
                    "activation": activation,
                    "weights": {"concat": BOTH, "axis": 1},
                }
            },
        )
        for activation in (None, "relu")
    ),
    # R7: of one tensor twice the pool: 4 x 36 values read, doubled and written
    *(
        (
            "R7",
            POOLS.format("x", f", activation={activation!r}"),
            {},
            "x a sum",
            {"sum": {"kind": "mul", "flops": 144.0, "nbytes": 2 * 144 * 4.0, "factor": 2.0, "activation": activation}},
        )
        for activation in (None, "tanh")
    ),
    # of two the pool of a sum of 144 values, which costs what one of both did
    *(
        (
            "R7",
            POOLS.format("y", "").replace("padding", f"stride={stride}, padding"),
            {},
            "x y sum.input sum",
            {"sum": {"like": "a"}, "sum.input": {"flops": 144.0, "nbytes": 3 * 144 * 4.0}},
        )
        for stride in (1, 2)
    ),
    # R8: of 16 channels: twice the FLOP of 16 x 16 / groups x 9 weights for each of 36 or 9 pixels, and as many zeros
    *(
        (
            "R8",
            f"c = conv(x, 16, 3, stride={stride}, padding=1, groups={g})",
            {"x": (1, 16, 6, 6)},
            "x c",
            {
                "c": {
                    "like": "c",
                    "groups": g // 2,
                    "flops": 2 * 2304 / g * 72 / stride**2,
                    "weight_nbytes": 4 * (4608 / g + 16),
                    "nbytes": 4 * (4608 / g + 16 + 576 + 576 / stride**2),
                }
            },
        )
        for g in (2, 4, 8)
        for stride in (1, 2)
    ),
    # R9: 12 outputs of 6 inputs: 144 FLOP; 12 x 7 weights, 6 values read and 12 written, of 4 bytes; one bias is two
    *(
        (
            "R9",
            PRODUCTS.format(bias),
            {"x": (1, 1, 6)},
            "x a+b r",
            {
                "a+b": {
                    "kind": "linear",
                    "flops": 144.0,
                    "weight_nbytes": 336.0,
                    "nbytes": 336.0 + 4 * 18,
                    "attributes": {
                        "in_features": 6,
                        "out_features": 12,
                        "bias": True,
                        "weights": {"concat": BOTH, "axis": 0},
                    },
                }
            },
        )
        for bias in ("", ", bias=False")
    ),
    (
        "R9 query key; R9",
        QKV,
        {"x": (2, 3, 6), "granularity": "operator"},
        None,
        {"query+key+value": {"out_features": 18}},
    ),
    # R10: 6 rows of 4 outputs of 6 + 5 inputs: 528 FLOP; 44 weights and one bias of 4
    *(
        (
            "R10",
            TERMS.format("", "y", "")[:-1] + f", activation={activation!r})",
            {"x": (2, 3, 6), "y": (2, 3, 5)},
            "x y sum.input sum",
            {
                "sum": {
                    "flops": 528.0,
                    "weight_nbytes": 48 * 4.0,
                    "nbytes": 4.0 * (66 + 48 + 24),
                    "activation": activation,
                    "weights": {"concat": BOTH, "axis": 1},
                }
            },
        )
        for activation in (None, "tanh")
    ),
    # x (w1 + w2): one product of 6 rows, 4 outputs and 6 inputs, 288 FLOP; a bias if one had one
    *(
        (
            "R10",
            TERMS.format(f", bias={bias}", "x", ""),
            {"x": (2, 3, 6)},
            "x sum",
            {"sum": {"flops": 288.0, "weight_nbytes": 28 * 4.0, "bias": True, "weights": {"sum": BOTH}}},
        )
        for bias in (True, False)
    ),
    # (x + y) w: a sum of 36 values before the product; the bias counts twice
    *(
        (
            "R10",
            TERMS.format(f", bias={bias}", "y", f", bias={bias}").replace("; sum", " | weights={'of': 'a'}; sum"),
            ROWS,
            "x y sum.input sum",
            {
                "sum": {"flops": 288.0, "weights": {"bias": {"of": "a"}, "times": 2} if bias else {"of": "a"}},
                "sum.input": {"kind": "add", "flops": 36.0, "nbytes": 3 * 144.0},
            },
        )
        for bias in (True, False)
    ),
    # R11: all 144 + 72 values at once; the copy is as large as before
    (
        "R11",
        "rx = activation(x); ry = activation(y); join = concat([rx, ry]); p = pool(join, 'max', 2)",
        X42,
        "x y join.input join p",
        {
            "join": {"kind": "relu", "flops": 216.0, "nbytes": 2 * 216 * 4.0},
            "join.input": {"nbytes": 2 * 216 * 4.0, "attributes": {"axis": 1}},
        },
    ),
    # what R2 made: relu of both parts is relu of the whole, and nothing needs to be joined, whichever comes first
    *(
        ("R2; R11", f"{BARE}; {rows}", {}, f"x a+b ra+rb {last}", {"q": {"slices": {"0": [1, 4, 6]}}})
        for last, rows in (
            ("p q", "ra = activation(a); p = pool(ra, 'max', 2); rb = activation(b); q = pool(rb, 'avg', 2)"),
            ("q p", "rb = activation(b); q = pool(rb, 'avg', 2); ra = activation(a); p = pool(ra, 'max', 2)"),
        )
    ),
    # two branches of one tensor, both 4 x 36 values: joined along the first axis, which to split is free
    (
        "R11",
        "a = conv(x, 4, 1, activation=None); ra = activation(a); p = pool(ra, 'max', 2); "
        "b = conv(x, 4, 1, activation=None); rb = activation(b); q = pool(rb, 'max', 2)",
        {},
        None,
        {"ra+rb": {"output_shape": (2, 4, 6, 6)}, "q": {"slices": {"0": [0, 1, 2]}}},
    ),
    # R12: what was joined is read as it was
    (
        "R12 both s; R12",
        PIECES.format(2, "p = pool(s, 'max', 2); q = pool(t, 'max', 2)"),
        {"x": (2, 4, 6, 6), "y": (2, 2, 6, 6)},
        "x y both keep p q",
        {"p": {"reads": "x"}, "q": {"reads": "y"}},
    ),
    # a join that nobody needs goes; this is still read by s
    ("R12", HALF.replace("; t", "; s = copy(both, (1, 4, 6, 6), kind='slice'); t"), {}, "x y both s r", {}),
    # again(s, t) is both; the two copies go, and who read it reads both
    *(
        (
            "R12 again",
            PIECES.format(batch, "again = concat([s, t]); r = activation(again)"),
            {"x": (batch, 4, 6, 6), "y": (batch, 2, 6, 6)},
            "x y both keep r",
            {"r": {"reads": "both"}},
        )
        for batch in (1, 2)
    ),
    # who reads channels 4 and 5 of both reads y
    ("R12", PART.format("4, 6"), X42, "x y both p r s", {"p": {"reads": "y"}}),
    # R13: 288 FLOP of 144 elements; reads three tensors and writes one, of 576 bytes each
    (
        "R13",
        "two = add([y, z]); all = add([x, two])",
        {},
        "y z x all",
        {
            "all": {
                "kind": "add",
                "flops": 288.0,
                "nbytes": 4 * 576.0,
                "attributes": {},
                "reads": "x y z",
                "kernels": (),
            }
        },
    ),
    # relu((x + y) n) z: 1 + 2 + 1 + 1 FLOP per element, three tensors read and one written; n has 4 values per channel
    (
        "R13 a n; R13 n r; R13 r m",
        "a = add([x, y]); n = batch_norm(a); r = activation(n); m = elementwise('mul', [z, r])",
        {},
        "x y z m",
        {
            "m": {
                "kind": "elementwise",
                "flops": 144 * 5.0,
                "nbytes": 4 * 576.0 + 16 * 4,
                "parts": [("add", [-2, -3]), ("batch_norm", [0]), ("relu", [1]), ("mul", [-1, 2])],
            }
        },
    ),
    # (x - y) - z, x - (y - z) and z - relu(x - y): the order of inputs is kept
    ("R13", "i = elementwise('sub', [x, y]); o = elementwise('sub', [i, z])", {}, None, {"o": {"reads": "x y z"}}),
    ("R13", "i = elementwise('sub', [y, z]); o = elementwise('sub', [x, i])", {}, None, {"o": {"reads": "x y z"}}),
    (
        "R13 i r; R13 r s; R13",
        "i = elementwise('sub', [x, y]); r = activation(i); s = add([z, r]); o = elementwise('sub', [s, z])",
        {},
        None,
        {"o": {"reads": "z x y z"}},
    ),
]


@pytest.mark.parametrize(("steps", "text", "sources", "names", "said"), MADE)
def test_what_a_rule_makes(steps, text, sources, names, said):
    before = of_text(text, **{"granularity": "unit", **sources})
    after = applied(before, steps)
    assert names is None or after.order == tuple(names.split())
    for name, expected in said.items():
        op = after[name]
        found = {field: getattr(op, field) for field in type(op).__dataclass_fields__} | dict(op.attributes)
        found["reads"] = " ".join(edge.src for edge in after.edges if edge.dst == name)
        if "parts" in found:
            found["parts"] = [(part["kind"], part["inputs"]) for part in found["parts"]]
        if "like" in expected:
            model = before[expected["like"]]
            fields = ("kind", "flops", "nbytes", "weight_nbytes", "kernels")
            expected = {field: getattr(model, field) for field in fields} | dict(model.attributes) | expected
        for key, value in expected.items():
            assert key == "like" or found.get(key) == value, (name, key)


AB, ABJ, ABS = "a b", "a b join", "a b sum"
NO_RELU = ", activation=None"
READ_ELSEWHERE = "; more = add([sum, a])"
# rules and matches that they must refuse, in what; matches that they find in it all the same
REFUSED = [
    ("R1", "", f"{C}; r = activation(c); s = add([r, c])", {}, ""),  # c is read twice
    ("R1", "x c", f"{C} | activation='tanh'; r = activation(c)", {}, ""),
    ("R1", "", "l = linear(x, 5); n = batch_norm(l)", {"x": (2, 3, 4, 5)}, ""),  # axis 1 is not what the weights make
    ("R1", "", f"{C}; r = activation(c, 'prelu')", {}, ""),  # has weights
    # scale and shift go into the weights; the activation that somebody put behind them would be lost
    ("R1", "c n", f"{C}; n = batch_norm(c) | activation='relu'", {}, ""),
    # the activation reads channels 0 and 1 of 4, and nobody the rest
    (
        "R1",
        "",
        f"{C}; r = activation(c) | input_shapes=[(1, 2, 4, 4)], output_shape=(1, 2, 4, 4), slices={{'0': [1, 0, 2]}}",
        {},
        "",
    ),
    *(
        ("R2", AB, f"a = conv(x, 4, 1); b = conv(x, 8, {second})", {}, "")
        for second in (
            "1, stride=2",
            "1, activation=None",
            "1, padding=1",
            "3, padding=1",
            "1, groups=2",
            "1, activation='tanh'",
        )
    ),
    # nobody knows which inputs of the network, or two tensors
    ("R2", AB, "a = conv(input(1, 4, 6, 6), 4, 1); b = conv(input(1, 4, 6, 6), 4, 1)", {}, ""),
    ("R2", AB, "a = conv(x, 4, 1); b = conv(y, 4, 1)", {}, ""),
    *(
        ("R3", AB, f"a = conv(x, 4, {first}); b = conv(x, 8, {second})", {}, "")
        for first, second in (
            ("1, stride=2", "3, padding=1, stride=2"),  # not stride 1
            ("(1, 3), padding=(0, 1)", "(3, 1), padding=(1, 0)"),  # neither is the larger
            ("1", "3"),  # not padded to the same size
            ("1", "1"),  # the same: R2
            ("2", "4, padding=1"),  # even
            ("1", "3, padding=1, groups=2"),
            ("1", "3, padding=1, activation=None"),
        )
    ),
    ("R4", AB, f"{ALIKE}".replace("'a'", "'b'"), {}, ""),
    ("R4", AB, f"{ALIKE}, activation='tanh'", {}, ""),
    ("R4", AB, ALIKE.replace("y", "x"), {}, ""),  # of one tensor: the same twice
    # the same convolution twice in a row: both are alike, but the second reads the first
    ("R4", AB, "a = conv(x, 4, 3, padding=1); b = conv(a, 4, 3, padding=1) | weights={'of': 'a'}", {}, AB),
    ("R5", AB, "a = conv(x, 8, 3); b = conv(y, 8, 3)", XY, ""),  # neither joined nor depthwise
    ("R5", ABJ, f"a = conv(x, 8, 3); b = conv(y, 8, 3); {JOIN}; again = pool(a, 'max', 2)", XY, ""),  # read elsewhere
    # another kernel
    ("R5", ABJ, f"a = conv(x, 8, 3); b = conv(y, 8, 1); {JOIN}", XY | {"y": (1, 8, 4, 4)}, ""),
    ("R5", AB, "a = conv(x, 8, 3, groups=8); b = conv(y, 8, 1, groups=8)", XY | {"y": (1, 8, 4, 4)}, ""),
    ("R5", ABJ, f"{TWO}; {JOIN}", {}, ""),  # of one tensor: R2
    ("R5", ABJ, "a = conv(x, 4, 1); b = conv(y, 4, 1); join = concat([a, b], axis=0)", {}, ""),  # along another axis
    ("R6", ABS, SUM.format("").replace("y", "x"), {}, ""),  # of one tensor
    ("R6", ABS, SUM.format("").replace("y, 8, 1", "y, 8, 3, padding=1"), X46, ""),
    ("R6", ABS, SUM.format("").replace(NO_RELU, NO_RELU + ", groups=2"), X46, ""),
    ("R6", ABS, SUM.format("").replace(NO_RELU, ""), X46, ""),  # with an activation in between
    ("R6", ABS, SUM.format("") + READ_ELSEWHERE, X46, ""),
    # the sum reads half of the channels of each
    (
        "R6",
        ABS,
        SUM.format("") + " | input_shapes=[(1, 4, 6, 6)] * 2, output_shape=(1, 4, 6, 6), "
        "slices={'0': [1, 0, 4], '1': [1, 0, 4]}",
        X46,
        "",
    ),
    ("R7", ABS, POOLS.format("x", "").replace("avg", "max"), {}, ""),
    ("R7", ABS, POOLS.format("x", "").replace("avg", "max", 1), {}, ""),
    ("R7", ABS, POOLS.format("x", "").replace("3, padding=1);", "5, padding=2);", 1), {}, ""),
    ("R7", ABS, POOLS.format("x", "") + READ_ELSEWHERE, {}, ""),
    ("R7", ABS, POOLS.format("y", ", activation='relu'"), {}, ""),
    # the sum of two relus is not the relu of the sum
    ("R7", ABS, POOLS.format("y", "").replace(";", " | activation='relu';"), {}, ""),
    *(
        ("R8", "c", f"c = conv(x, 12, 3, {given})", {"x": (1, 12, 6, 6)}, "")
        for given in ("groups=1", "groups=3", "groups=12", "groups=2, stride=3", "groups=2, activation='tanh'")
    ),
    ("R9", AB, PRODUCTS.format(", activation='relu'"), {"x": (1, 1, 6)}, ""),
    ("R10", ABS, TERMS.format(", activation='relu'", "y", ", activation='relu'"), ROWS, ""),
    ("R10", ABS, TERMS.format("", "y", "") + READ_ELSEWHERE, ROWS, ""),
    # not the same activation, read elsewhere, one is no relu, twice the same, nothing in common
    ("R11", "", "r = activation(x); s = activation(y, 'sigmoid'); join = concat([r, s])", {}, ""),
    ("R11", "", "r = activation(x); s = activation(y); join = concat([r, s]); p = pool(r, 'max', 2)", {}, ""),
    ("R11", "", "r = activation(x); join = concat([r, y])", {}, ""),
    ("R11", "r s", "r = activation(x); s = activation(x); sum = add([r, s])", {}, ""),
    ("R11", "", "x1 = activation(x); r = activation(x1); y1 = activation(y); s = activation(y1)", {}, ""),
    ("R12", "both t", HALF, {}, ""),  # without the join x would be an output of the network
    ("R12", "both p", PART.format("3, 5"), X42, ""),  # of channels 3 and 4 one is of x
    # t before s is another tensor
    *(
        (
            "R12",
            "again",
            PIECES.format(batch, "again = concat([t, s]); r = activation(again)"),
            {"x": (batch, 4, 6, 6), "y": (batch, 2, 6, 6)},
            "both s, both t",
        )
        for batch in (1, 2)
    ),
    # a join with an activation behind it, along an axis from the end, or in another format than what it joins
    *(
        ("R12", "both s", PIECES.format(1, "p = pool(s, 'max', 2)").replace(";", f" | {given};", 1), X42, "")
        for given in ("activation='relu'", "axis=-3", "dtype='fp16'")
    ),
    # r is read twice
    ("R13", "r t", f"{C}; r = activation(c); t = activation(r, 'tanh'); s = add([r, t])", {}, "t s"),
    # b is spread over a
    (
        "R13",
        "a s",
        "a = activation(x); b = activation(y) | input_shapes=[(1, 1)], output_shape=(1, 1); "
        "s = add([a, b]) | input_shapes=[(1, 4), (1, 1)]",
        {"x": (1, 4), "y": (1, 4)},
        "",
    ),
]


@pytest.mark.parametrize(("rule", "match", "text", "sources", "found"), REFUSED)
def test_what_a_rule_refuses(rule, match, text, sources, found):
    """It finds nothing, and does nothing where it is told to."""
    draft = GraphDraft.from_graph(of_text(text, **{"granularity": "unit", **sources}))
    assert list(RULES[rule].matches(draft)) == [tuple(names.split()) for names in found.split(", ") if found]
    assert not match or RULES[rule].apply(draft, tuple(match.split())) is None


def test_an_activation_is_not_taken_in_by_what_is_read_outside():
    kept = GraphDraft(GraphDraft.from_graph(of_text(f"{C}; r = activation(c)")).rows.values(), kept=["c"])
    assert list(RULES["R1"].matches(kept)) == []
    assert RULES["R1"].apply(kept, ("c", "r")) is None


def test_a_concatenation_of_inputs_of_the_graph_alone_is_left_alone():
    """No edge says where its pieces are from."""
    small, whole = (1, 4, 8, 8), (1, 7, 8, 8)
    operators = [
        ss.Operator("c", "concat", attributes={"axis": 1}, input_shapes=[(1, 3, 8, 8), small], output_shape=whole),
        ss.Operator(
            "s", "slice", attributes={"axis": 1, "begin": 3, "end": 7}, input_shapes=[whole], output_shape=small
        ),
    ]
    graph = ss.OpGraph(operators, [ss.Edge("c", "s", 1792)])
    assert not RULES["R12"].matches(GraphDraft.from_graph(graph))
