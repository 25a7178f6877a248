"""A disk that is full, or a directory that cannot be written, is told where people look (issue 18)."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from mcpbridge.app.doctor.machine import _directory
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.disk import LEAST_FREE, disk_problem, disk_problems


def disk(free: int = 1 << 40, *, read_only: bool = False) -> Callable[[object], Any]:
    return lambda _: SimpleNamespace(f_flag=1 if read_only else 0, f_bavail=free // 4096, f_frsize=4096)


@pytest.mark.parametrize(
    ("free", "read_only", "expected"),
    [
        (1 << 40, False, ""),
        (LEAST_FREE, False, ""),
        (LEAST_FREE - 4096, False, "is full"),
        (0, False, "is full: 0 B are free"),
        (1 << 40, True, "mounted read-only"),
        (0, True, "mounted read-only"),
    ],
)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_what_the_disk_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, read_only: bool, expected: str, depth: int
) -> None:
    monkeypatch.setattr(os, "statvfs", disk(free, read_only=read_only))
    directory = tmp_path.joinpath(*["new"] * depth)
    found = disk_problem(directory)
    assert expected in found
    assert bool(found) == bool(expected)
    assert not directory.exists() or depth == 0, "looking makes nothing"


def test_a_file_in_the_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for directory in (tmp_path / "state", tmp_path / "state/mcpbridge"):
        assert "is no directory" in disk_problem(directory)
    assert disk_problem(tmp_path / "a\0b")
    assert len(disk_problems([tmp_path / "state", tmp_path / "state"])) == 1


def test_a_right_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write" in disk_problem(tmp_path)


async def test_the_status_says_so_and_what_works_again_is_said_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "store/store.db"
    with anyio.fail_after(60):
        async with Bridge.open({"store": {"path": str(file)}}) as bridge:
            assert bridge.status()["storage_problems"] == []
            monkeypatch.setattr(os, "statvfs", disk(0))
            [said] = bridge.status()["storage_problems"]
            assert "is full" in said
            monkeypatch.undo()
            file.parent.write_text("in the way")
            await bridge.store.put("kind", b"value", principal="", expires_in=60)
            said = bridge.status()["storage_problems"]
            assert "the store cannot be used" in said[0]


def test_the_doctor_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", disk(0))
    [finding] = _directory("state", tmp_path)
    assert (finding.code, finding.level) == ("directory-unusable", "fail")
    assert "is full" in finding.why
