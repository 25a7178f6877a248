"""The lines of a log that were written at some time."""

import json
from pathlib import Path

import pytest

from mcpbridge.app.admin.log_lines import lines_between

NOW = 1_785_240_000.0  # 2026-07-28T12:00:00Z


def line(second: float, event: str = "x", **fields: object) -> str:
    return json.dumps({**fields, "event": event, "level": "info", "timestamp": f"2026-07-28T12:00:{second:09.6f}Z"})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


def test_only_those_of_the_time_are_found_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "log", *(line(second, f"e{second}", n=second) for second in range(60)))
    found = lines_between(path, NOW + 10, NOW + 12.5, most=100)
    assert [one.event for one in found.lines] == ["e10", "e11", "e12"]
    assert found.lines[0].fields == {"n": 10}
    assert (found.lines[0].at, found.lines[0].level) == ("2026-07-28T12:00:10.000000Z", "info")
    assert found.more == 0


def test_of_many_the_newest_are_found_and_the_others_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "log", *(line(number / 100, str(number)) for number in range(1000)))
    found = lines_between(path, NOW, NOW + 60, most=10)
    assert [one.event for one in found.lines] == [str(number) for number in range(990, 1000)]
    assert found.more == 990


def test_the_part_that_was_put_aside_is_looked_through_too(tmp_path: Path) -> None:
    write(tmp_path / "log.1", *(line(second, "old") for second in range(30)))
    path = write(tmp_path / "log", *(line(second, "new") for second in range(30, 60)))
    found = lines_between(path, NOW + 28, NOW + 31, most=100)
    assert [one.event for one in found.lines] == ["old", "old", "new", "new"]


def test_what_is_no_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log",
        "Traceback",
        line(1),
        "[]",
        "{",
        '{"event": 3}',
        "",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
        line(2),
        "[" * 5000,
    )
    assert len(lines_between(path, NOW, NOW + 60, most=100).lines) == 2


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"")])
def test_a_file_that_cannot_be_read_has_none(make: object, tmp_path: Path) -> None:
    make(tmp_path / "log")  # type: ignore[operator]
    assert lines_between(tmp_path / "log", NOW, NOW + 60, most=100).lines == []


def test_long_lines_and_blocks_are_put_together(tmp_path: Path) -> None:
    path = write(tmp_path / "log", *(line(number, "x" * 50_000) for number in range(20)))
    assert len(lines_between(path, NOW, NOW + 60, most=100).lines) == 20


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "log", line(0, "first"), *("y" * 1000 for _ in range(6000)), line(1, "last"))
    assert [one.event for one in lines_between(path, NOW, NOW + 60, most=10).lines] == ["last"]
