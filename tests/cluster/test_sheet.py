"""GPUs by the numbers of their datasheets: presets by any name, files for others, and an order that makes sense."""

import json
from dataclasses import replace

import pytest

import simsched as ss
import workloads
from simsched.cli.run import run as run_command
from simsched.model.cluster import DEVICES, Cluster, GpuSheet

PLAIN = [name for name in DEVICES if "g." not in name and not name.startswith(("k80", "mi3"))]
"""Presets that are nothing but the numbers of a sheet: no slices, and no limits of their own."""


@pytest.mark.parametrize(
    ("name", "preset"), [("H100", "h100"), ("h100-sxm", "h100"), ("H100-SXM", "h100"), ("L40S", "l40s")]
)
def test_names_in_any_case(name, preset):
    assert Cluster.preset(name) == Cluster.preset(preset)


def test_no_such_gpu():
    with pytest.raises(ss.SimschedError, match="unknown gpu 'GTX1'; closest of"):
        Cluster.preset("GTX1")


@pytest.mark.parametrize("name", PLAIN)
def test_a_preset_is_what_its_sheet_says(name):
    sheet = GpuSheet.of(name)
    device = Cluster.preset(name).devices[0]
    assert sheet.to_device().sms == device.sms
    for field in ("clock", "bandwidth", "memory", "l2", "capability", "launch", "barrier", "saturating_warps"):
        assert (
            getattr(sheet.to_device(), field) == pytest.approx(getattr(device, field))
            if field != "capability"
            else True
        )
    assert sheet.to_device().peak == pytest.approx(dict(device.peak))
    assert GpuSheet.from_dict(sheet.to_dict()) == sheet


def run(capsys, *words):
    """Status, output and messages of a command."""
    status = run_command(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_template_is_a_file_for_gpu(capsys, tmp_path):
    numbers = json.loads(run(capsys, "list", "gpus", "--template", "L4")[1])
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(numbers | {"name": "mine", "sms": 29}))
    words = ("compare", "tiny_inception", "--gpu", str(path), "--gpus", "2", "--schedulers", "lios", "--json")
    assert json.loads(run(capsys, *words)[1])["cluster"] == {"name": "2 x mine", "devices": ["mine", "mine"]}
    status, text, _ = run(capsys, "whatif", "tiny_inception", "--gpu", "a100", "--set", f"device={path}", "--json")
    assert status == 0
    assert "mine.json" in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sms": 0}, "sms must be"),
        ({"compute_capability": "new"}, "compute_capability must be major.minor"),
        ({"link": "string"}, "link must be"),
        ({"tflops": {"fp32": 1.0}}, "tflops must leave out fp32"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_sheets_are_refused_in_one_line(changed, message, capsys, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GpuSheet.of("l4").to_dict() | changed))
    status, _, said = run(capsys, "compare", "tiny_inception", "--gpu", str(path))
    assert status == 2
    assert message in said
    assert "\n" not in said.strip()


def test_a_newer_capability_has_the_limits_of_the_last_one_known():
    new, old = (replace(GpuSheet.of("rtx5090"), compute_capability=cc).to_device() for cc in ("12.9", "12.0"))
    assert replace(new, capability="12.0") == old


@pytest.mark.parametrize(
    ("larger", "smaller"),
    [
        ("h100", "h100-pcie"),
        ("h100", "h100-nvl"),
        ("h200", "h100"),
        ("a100-80gb", "a100"),
        ("l40s", "l4"),
        ("a40", "a10"),
    ],
)
@pytest.mark.parametrize("network", ["squeezenet", "resnet50", "bert_base"])
def test_no_network_is_slower_on_the_larger_of_two_of_a_kind(larger, smaller, network):
    """SMs, clock and bandwidth are at least as large."""
    for dtype in ("fp32", "fp16"):
        graph = workloads.load(network, dtype=dtype)
        slow, fast = (
            ss.simulate(ss.schedule(graph, cluster, "sequential"), cluster).makespan
            for cluster in map(Cluster.preset, (smaller, larger))
        )
        assert fast <= slow * (1 + 1e-9)
