"""What is said of a study while it runs, by a clock that stands still unless it is told."""

import pytest

from simsched.cli import printing


@pytest.fixture
def lines(monkeypatch, capsys):
    """The lines for what is told at times in s, as tuples of both; the clock begins at 100 s."""

    def said(*told):
        clock = iter([100.0, *(seconds for seconds, *_ in told)])
        monkeypatch.setattr(printing, "monotonic", lambda: next(clock))
        with printing.row_progress("example") as tell:
            for _, *numbers in told:
                tell(*numbers)
        out, err = capsys.readouterr()
        assert out == ""
        return err.splitlines()

    return said


def test_a_line_a_minute_and_one_at_the_end(lines):
    """Told every 25 s: lines after 75 s and 150 s, and after 175 s, when all is done."""
    assert lines(*((100.0 + 25 * done, done, 7, 0) for done in range(8))) == [
        "example: 3 of 7 rows, 0.04 rows/s, 0:01:40 left",
        "example: 6 of 7 rows, 0.04 rows/s, 0:00:25 left",
        "example: 7 of 7 rows, 0.04 rows/s",
    ]


def test_pace(lines):
    """10 rows were there before; then 20 in 80 s are 0.25 rows/s, and the 70 that are left take 280 s.

    Of 7,330 rows, ten in 100 s: 7,320 are 20 h 20 min.
    """
    assert lines((100.0, 10, 100, 0), (180.0, 30, 100, 1), (280.0, 100, 100, 2)) == [
        "example: 30 of 100 rows, 0.25 rows/s, 0:04:40 left, 1 without a result",
        "example: 100 of 100 rows, 0.5 rows/s, 2 without a result",
    ]
    assert lines((100.0, 0, 7330, 0), (200.0, 10, 7330, 0)) == ["example: 10 of 7330 rows, 0.1 rows/s, 20:20:00 left"]
    assert lines((100.0, 12, 12, 0)) == ["example: 12 of 12 rows"]  # the clock has not moved


def test_schedulers_have_a_line_a_minute_too(monkeypatch, capsys):
    """Told after 10, 70 and 90 s: one line, after 70 s, of the second of three schedulers."""
    clock = iter([100.0, 110.0, 170.0, 170.0, 190.0])
    monkeypatch.setattr(printing, "monotonic", lambda: next(clock))
    with printing.progress(3) as tell:
        tell("greedy")
        tell("ios")
        tell("ios", "block 4 of 9")
    assert capsys.readouterr().err.splitlines() == ["1 of 3 done, ios"]
