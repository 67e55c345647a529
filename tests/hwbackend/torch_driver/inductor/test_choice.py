"""The measured choice: which variant stays by which times, within the budget, and what is remembered of it."""

import json
import os
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from threading import Thread

import pytest

from hwbackend.torch.inductor.choice import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    KeptPlan,
    VariantChoice,
    choose,
    key_of,
    read_choice,
    remember,
)

NAMES = ("plain", "graph", "graph+channels_last", "graph+freezing", "graph+streams")


def times(**each):
    """Times of calls in us by variant, again and again; those not named take 100."""
    rows = {name: cycle(each.get(name.replace("+", "_"), (100.0,))) for name in NAMES}
    return lambda name: next(rows[name])


@pytest.mark.parametrize("winner", NAMES)
def test_each_variant_wins_where_it_is_faster(winner):
    """50 us against 100 without noise: a gain of 50 is more than the least one, 2 us."""
    choice = choose(NAMES, times(**{winner.replace("+", "_"): (50.0,)}), 1.0)
    assert choice.name == winner
    assert choice.times[winner] == 50.0
    assert choice.rounds == MOST_ROUNDS


def test_a_gain_within_the_noise_stays_plain():
    """Differences are 43, -37, 43, ...: their median, 3, is below three standard errors, 15.8."""
    choice = choose(NAMES[:2], times(plain=(100.0,), graph=(57.0, 137.0)), 1.0)
    assert choice.name == "plain"
    assert choice.noise["graph"] == pytest.approx(3 * 1.4826 * 1.2533 * 40.0 / 200**0.5)


@pytest.mark.parametrize(("time", "name"), [(98.1, "plain"), (97.9, "graph")])
def test_a_gain_below_2_percent_is_none(time, name):
    """Of 100 us without any noise, 1.9 are too few and 2.1 are enough."""
    assert choose(NAMES[:2], times(graph=(time,)), 1.0).name == name


def test_a_bolder_variant_has_to_beat_the_one_chosen_before():
    """Against plain, 100, streams with 59.5 would win; against the graph, 60, half a microsecond is below 2 %."""
    choice = choose(NAMES, times(graph=(60.0,), graph_streams=(59.5,)), 1.0)
    assert choice.name == "graph"


def test_variants_are_measured_in_turns():
    calls = []
    choose(NAMES[:3], lambda name: calls.append(name) or 1.0, 1.0)
    assert calls == list(NAMES[:3]) * MOST_ROUNDS


@pytest.mark.parametrize(("rounds", "name"), [(LEAST_ROUNDS - 1, "plain"), (LEAST_ROUNDS, "graph")])
def test_no_round_begins_after_the_budget_and_few_rounds_decide_nothing(rounds, name):
    """A clock that passes 1 s at each look: the budget of n - 0.5 s allows n rounds, of which five decide."""
    clock = iter(range(1000))
    choice = choose(NAMES[:2], times(graph=(1.0,)), rounds - 0.5, lambda: next(clock))
    assert (choice.rounds, choice.name) == (rounds, name)


def test_a_choice_is_remembered_by_all_that_it_depends_on(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice = VariantChoice("graph", {"plain": 2.0, "graph": 1.0}, {"graph": 0.1}, 7)
    key = key_of(("graph of dynamo", "float32 (2, 3)", "H100", "2.13"))
    remember(key, choice)
    assert read_choice(key) == choice
    for other in (("another", "float32 (2, 3)", "H100", "2.13"), ("graph of dynamo", "float32 (2, 3)", "A100", "2.13")):
        assert read_choice(key_of(other)) is None


CHOICE = VariantChoice("graph+streams", {"plain": 2.0}, {}, 7, KeptPlan(("a", "b"), (0, 1), {"measured": 2}))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file of a choice that was kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("key", CHOICE)
    (path,) = (tmp_path / "simsched" / "torch-compile").iterdir()
    assert read_choice("key") == CHOICE
    return path


@pytest.mark.parametrize(
    "change",
    ["{", "[]", "null", "3", '"plain"', "", "\x00", "{}", '{"name": "plain"}', "[" * 100_000, "\udcff", "cut"],
)
def test_a_broken_file_is_measured_again(change, kept):
    text = kept.read_text()
    if change == "cut":
        change = text[: len(text) // 2]
    kept.write_bytes(change.encode(errors="surrogateescape"))
    assert read_choice("key") is None
    remember("key", CHOICE)
    assert read_choice("key") == CHOICE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", float("inf")),
        ("rounds", float("nan")),
        ("rounds", "x"),
        ("rounds", None),
        ("times", 3),
        ("times", {"plain": 10**400}),
        ("noise", {"graph": []}),
        ("plan", 3),
        ("plan", {}),
        ("plan", {"kernels": 3, "streams": [0], "timed": {}}),
        ("plan", {"kernels": ["a"], "streams": [float("inf")], "timed": {}}),
    ],
)
def test_a_field_of_another_kind_is_measured_again(field, value, kept):
    kept.write_text(json.dumps({**json.loads(kept.read_text()), field: value}))
    assert read_choice("key") is None


@pytest.mark.parametrize("obstacle", ["file in the way", "folder in the way", "no home"])
def test_where_nothing_can_be_kept_nothing_is(obstacle, tmp_path, monkeypatch):
    """Neither is an error: the next process measures again."""
    if obstacle == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

        def fail():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", fail)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        folder = tmp_path / "simsched" / "torch-compile"
        if obstacle == "file in the way":
            folder.parent.write_text("")
        else:
            (folder / "key.json").mkdir(parents=True)
    remember("key", CHOICE)
    assert read_choice("key") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o500)
    remember("key", CHOICE)
    assert read_choice("key") is None


def test_a_file_that_may_only_be_read_is_replaced(kept):
    kept.chmod(0o400)
    other = replace(CHOICE, rounds=8)
    remember("key", other)
    assert read_choice("key") == other


def test_who_keeps_at_the_same_time_keeps_a_whole_choice(kept):
    """Four threads keep choices of different lengths while another reads: each answer is one of them."""
    choices = [replace(CHOICE, times={f"variant {i}": float(i) for i in range(10**k)}) for k in range(4)]
    remember("key", choices[0])
    seen = []

    def keep(choice):
        for _ in range(10):
            remember("key", choice)

    threads = [Thread(target=keep, args=(choice,)) for choice in choices]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(read_choice("key"))
    assert all(choice in choices for choice in (*seen, read_choice("key")))
    assert [path.name for path in kept.parent.iterdir()] == ["key.json"]
