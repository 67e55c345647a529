"""`Study`: what files say, and what is refused."""

import json
import pickle

import pytest
from documents import STUDY
from study_cases import study

from simsched.base.errors import FileError, StudyError
from simsched.experiments.study import Study

MINIMAL = """
name = "example"
schedulers = ["sequential", "lios", "inter-lp"]
seeds = 10
[workload]
kind = "layered"
n_ops = [100, 200]
n_layers = 14
comm_ratio = 0.8
[cluster]
gpu = "a40"
gpus = [2, 4]
"""
FULL = """
name = "full"
schedulers = ["lios", {scheduler = "hios-lp", w = [2, 4]}, {scheduler = "ios", label = "IOS", r = ["none", 3], s = 8},
              {scheduler = "autograph", rules = [["R2", "R3"], []]}]
seeds = [3, 1]
seed = 7
[[workload]]
kind = ["inception_v3", "squeezenet"]
[[workload]]
kind = "nets/model.onnx"
batch = [1, 8]
[[cluster]]
gpu = ["a100", "h100"]
device = {launch = [0.0, 2.5], contention = false}
[[cluster]]
file = "cluster.json"
overheads = [true, false]
[simulation]
jitter = 0.02
samples = [10, 100]
"""


def written(path, text):
    path.write_text(text)
    return path


def test_the_resolved_configuration_reads_back_to_an_equal_study(tmp_path):
    for found in (STUDY, Study.from_file(written(tmp_path / "study.toml", FULL))):
        again = Study.from_dict(json.loads(json.dumps(found.to_dict())))
        assert again == found == pickle.loads(pickle.dumps(found))
        assert (hash(again), again.to_dict()) == (hash(found), found.to_dict())
    assert found.folder == str(tmp_path)


def test_the_minimal_file(tmp_path):
    """3 schedulers x 10 seeds x 2 sizes x 2 clusters = 120 rows; defaults are written out."""
    found = Study.from_file(written(tmp_path / "study.toml", MINIMAL))
    assert (len(found), found.instances) == (120, tuple(range(10)))
    defaults = {"engine": "compiled", "threads": "device", "transfers": "async", "bound": True}
    assert (found.to_dict()["seed"], found.to_dict()["simulation"]) == (0, defaults)


def test_the_full_file(tmp_path):
    """Schedulers 1 + 2 + 2 + 2 = 7; workloads 2 + 2; clusters 2 x 2 + 2; samples 2; instances 2: 7 x 4 x 6 x 2 x 2."""
    found = Study.from_file(written(tmp_path / "study.toml", FULL))
    assert len(found) == 672
    assert [(choice.label, dict(choice.options)) for choice in found.choices] == [
        ("lios", {}),
        ("hios-lp w=2", {"w": 2}),
        ("hios-lp w=4", {"w": 4}),
        ("IOS r=none", {"r": None, "s": 8}),
        ("IOS r=3", {"r": 3, "s": 8}),
        ("autograph rules=R2,R3", {"rules": ("R2", "R3")}),
        ("autograph rules=()", {"rules": ()}),
    ]


def test_equal_studies():
    """Those with the same fields in the same order, by which rows are numbered."""
    sizes = {"kind": "layered", "n_ops": [1, 2], "n_layers": [3, 4]}
    one, other = study(workload=sizes), study(workload=dict(reversed(sizes.items())))
    more = study(workload=sizes, execution={"time_limit": 5}, figure={"kind": "box"})
    assert one not in (other, more)
    assert one == study(workload=sizes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 10", "seads = 10", "unknown field 'seads'; known are: name, schedulers, seeds, seed, workload, "),
        ("seeds = 10", "seeds = 0", "'seeds' must be a whole number of at least 1 or must be a list, not 0"),
        ("seeds = 10", "seeds = [1, 1]", "'seeds' must be different numbers"),
        ("seeds = 10", "seed = -1", "'seed' must be a whole number from 0 to .*, not -1"),
        ('name = "example"', "", "'name' is missing; a study has at least name, schedulers, workload, cluster"),
        ('"lios", ', '"lois", ', "unknown scheduler 'lois'; closest of 20 known: lios, "),
        ('"lios", ', '"lios", "lios", ', "scheduler 'lios' stands twice; remove one, or give it a 'label' of its own"),
        ('"lios", ', "{w = 2}, ", "the 'scheduler' of a table in 'schedulers' must be a text that is"),
        ('"lios", ', '{scheduler = "hios-lp", v = 2}, ', "'hios-lp' has no option 'v'; known are: .*w, "),
        ('"lios", ', '{scheduler = "lios", label = ""}, ', "the 'label' of scheduler 'lios' must be a text that is"),
        ('["sequential", "lios", "inter-lp"]', "[]", "'schedulers' is an empty list; give at least one, such as"),
        ('["sequential", "lios", "inter-lp"]', '"lios"', "'schedulers' must be a list of names or tables, not 'lios'"),
        ("n_ops = [100, 200]", "n_ops = []", "'n_ops' of \\[workload\\] is an empty list; give at least one value"),
        ("n_ops = [100, 200]", "n_ops = [100, 100]", "'n_ops' of \\[workload\\] has 100 twice, so its rows would"),
        ("gpus = [2, 4]", "device = {launch = [1.5, 1.5]}", "'device.launch' of \\[cluster\\] has 1.5 twice"),
        ("n_ops = [100, 200]", f"n_ops = {2**129}", "'n_ops' of \\[workload\\] must be .* or must be in "),
        ('name = "example"', f"name = 0x{'f' * 5000}", "a number in it has thousands of digits"),
        ("n_ops = [100, 200]", "n_ops = nan", "'n_ops' of \\[workload\\] must be a text or must be "),
        ('kind = "layered"', "", "\\[workload\\] has no 'kind'; give a random family, a network or a file"),
        ('kind = "layered"', "kind = 3", "'kind' of \\[workload\\] must be a text that is not empty, not 3"),
        ('gpu = "a40"', 'gpu = "a41"', "'gpu' of \\[cluster\\] must be one of k80, .*, not 'a41'"),
        ('gpu = "a40"', 'gpu = "a40"\nlink = "rope"', "'link' of \\[cluster\\] must be one of .*, not 'rope'"),
        ('gpu = "a40"', 'gpu = "a40"\nfile = "c.json"', "\\[cluster\\] needs either 'gpu', a preset, or 'file'"),
        ('gpu = "a40"', 'file = "c.json"', "'gpus' of \\[cluster\\] is part of a preset, but 'file' is given"),
        ("gpus = [2, 4]", "gpus = [2, 0]", "'gpus' of \\[cluster\\] must be a whole number from 1 to 4,096, not 0"),
        ("gpus = [2, 4]", "gpu_s = 2", "unknown field 'gpu_s' of \\[cluster\\]; known are: gpu, gpus, "),
        ("gpus = [2, 4]", "device = 3", "'device' of \\[cluster\\] must be a table such as {launch = 0.0}, not 3"),
        ("gpus = [2, 4]", "overheads = 0", "'overheads' of \\[cluster\\] must be true or false, not 0"),
        ("[cluster]", "[simulation]\nx = 1\n[cluster]", "unknown field 'x' of \\[simulation\\]; known are: engine, "),
        ("[cluster]", "[simulation]\nengine = 'fast'\n[cluster]", "'engine' of .* must be one of compiled, reference"),
        ("[cluster]", "[simulation]\nsamples = 5\n[cluster]", "has 'samples' but no 'jitter', so all would be alike"),
        (
            "[cluster]",
            "[execution]\ntime_limit = 0\n[cluster]",
            "'time_limit' of .* must be in \\(0, 1e\\+07\\], not 0",
        ),
        ("[cluster]", "[execution]\nmemory_limit = 1.5\n[cluster]", "'memory_limit' of .* must be a whole number"),
        ("[cluster]", "[cluster", "not valid TOML: .*line 10"),
        (MINIMAL, "name = 'x'\nschedulers = ['lios']\nworkload = 3\ncluster = []", "'workload' must be a table, "),
        (MINIMAL, "name = 'x'\nschedulers = ['lios']\nworkload = []\ncluster = []", "there is no \\[workload\\]; give"),
    ],
)
def test_what_is_refused(tmp_path, old, new, message):
    assert old in MINIMAL
    path = written(tmp_path / "study.toml", MINIMAL.replace(old, new))
    with pytest.raises(StudyError, match=message) as caught:
        Study.from_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


def test_sweeps_that_are_far_too_large_are_counted_and_not_made():
    """8 fields of 1,000 values each are 10^24 rows, more than a length can be; a million is the most."""
    many = list(range(1, 1001))
    sweep = {"kind": "layered", **{f"p{i}": many for i in range(6)}}
    assert len(study("lios", seeds=10**6)) == 10**6
    for schedulers, fields in (
        ([{"scheduler": "lios", "streams": many}], {"workload": sweep, "cluster": {"gpu": "a40", "gpus": many}}),
        (["lios"], {"seeds": 10**6 + 1}),
    ):
        with pytest.raises(StudyError, match="it has more than 1,000,000 rows"):
            study(*schedulers, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"simulation": {"engine": "reference", "jitter": 0.1, "samples": 3}},
            "samples are drawn by the compiled engine",
        ),
        ({"figure": [{"x": object()}]}, r"\[figure\] must hold texts, numbers and lists"),
        ({"workload": {"kind": "a", 3: 4}}, r"a field of \[workload\] must be a text that is not empty, not 3"),
    ],
)
def test_what_is_refused_in_python(fields, message):
    with pytest.raises(StudyError, match=message):
        study("lios", **fields)


def test_what_is_no_study(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*none\.toml"):
        Study.from_file(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="study: a study is a table of fields, not list"):
        Study.from_dict([])
