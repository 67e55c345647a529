"""`overlap`, and `llm:` as a GRAPH of the command line."""

import json

import pytest

import simsched as ss

CONFIG = {
    "model_type": "deepseek_v3",
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "q_lora_rank": 128,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


@pytest.fixture(scope="module")
def files(files):
    (files / "config.json").write_text(json.dumps(CONFIG))
    ss.OpGraph([ss.Operator("a", time=50.0), ss.Operator("b", time=50.0)], name="fork").save(str(files / "fork.json"))
    return files


def test_shared_experts_beside_routed_ones(said, tmp_path):
    """In the two layers that have experts; where it turns, and half-batches from a batch of 2 on."""
    line = "overlap llm:config.json,batch=4,tp=2 --gpu h100 --gpus 2 --over batch=1:8 -o found.json --plot gains.svg"
    text = said(line)
    found = ss.Overlaps.load(str(tmp_path / "found.json"))
    assert found.row("shared").places == 2
    assert [point.value for point in found.points] == [1, 2, 4, 8]
    assert ["half-batches" in point.gain for point in found.points] == [False, True, True, True]
    assert {turn.name for turn in found.turns} >= {"shared", "half-batches"}
    assert "shared: " in text
    assert (tmp_path / "gains.svg").read_text().startswith("<?xml")
    printed = json.loads(said("overlap llm:config.json,batch=4,tp=2 --gpu h100 --gpus 2 --json"))
    assert printed["rows"] == found.to_dict()["rows"]


def test_gains_over_a_measured_step(said):
    """Twice as long a step, about half of the gain."""
    rows = [
        json.loads(said(f"overlap fork.json --gpu a100 {more} --json"))["rows"][0]["gain"]
        for more in ("", "--measured 1000")
    ]
    assert 0 < rows[1] < rows[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("overlap llm:config.json --over batch=4:1", "over 'batch=4:1': the range must rise, from 1 at least"),
        ("overlap llm:config.json --over bach=1:4", "has no parameter 'bach'; known are: config, phase, batch"),
        ("overlap fork.json --over batch=1:4", "has no parameter 'batch'"),
        ("overlap llm:config.json,tp=4 --gpu h100 --gpus 2", "give the cluster 4 devices (--gpus 4)"),
        ("overlap llm:config.json --execution stages", "unknown execution of overlaps 'stages'"),
        ("show llm:fork.json", "fork.json: model_type None is not known; known are: llama"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(line, message, refused):
    assert message in refused(line)


def test_models_are_listed(said):
    text = said("list workloads")
    assert "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json" in text


def test_every_gpu_does_the_same(said):
    """A step of four GPUs is neither split over more of them nor copied to them."""
    found = json.loads(said("advise llm:config.json,tp=4 --gpu h100 --gpus 4 --schedulers lios --json"))
    assert found["assumed"]["ranks"] == "4 GPUs do the same, one of them is simulated"
    assert not [row["name"] for row in found["rows"] if "GPUs" in row["name"]]
