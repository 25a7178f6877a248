"""A person is asked about a `file-write` only where it can be done (issue 18, 33)."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after

from mcpbridge import Bridge

NOTE = "first\nsecond\nsecond\n"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    (folder / "sub").mkdir()
    (folder / "note.txt").write_text(NOTE)
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "fixed").write_text("x")
    (folder / "fixed").chmod(0o444)
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (tmp_path / "outside.txt").write_text("outside")
    os.link(tmp_path / "outside.txt", folder / "hard")
    return folder


def state(top: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_ino, path.lstat().st_mtime_ns) for path in top.parent.rglob("*"))


async def write(top: Path, answer: bool, **arguments: Any) -> tuple[Any, int]:
    """The result, and how often a person was asked."""
    asked: list[object] = []

    async def approve(request: object) -> bool:
        asked.append(request)
        return answer

    config = {"builtin": {"enable": ["file-write"], "files": {"roots": [str(top)], "max_write": 200}}}
    async with Bridge.open(config, remember=False, approver=approve) as bridge:
        with fail_after(30):
            return await bridge.call_tool("file-write", arguments), len(asked)


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "exists already": {"path": "note.txt", "content": "x"},
    "outside": {"path": "../outside.txt", "content": "x", "mode": "overwrite"},
    "absolute": {"path": "/etc/passwd", "content": "x", "mode": "overwrite"},
    "through a link": {"path": "out/new.txt", "content": "x"},
    "of the repository": {"path": ".git/config", "content": "x"},
    "beneath what is protected": {"path": ".git/hooks/new/x", "content": "x", "create_parents": True},
    "of a shell": {"path": "sub/.bashrc", "content": "x"},
    "of an agent, in a new directory": {"path": ".claude/settings.json", "content": "x", "create_parents": True},
    "hard link": {"path": "hard", "content": "x", "mode": "overwrite"},
    "pipe": {"path": "pipe", "content": "x", "mode": "append"},
    "directory": {"path": "sub", "content": "x", "mode": "overwrite"},
    "root": {"path": ".", "content": "x", "mode": "overwrite"},
    "write-protected": {"path": "fixed", "content": "x", "mode": "overwrite"},
    "no directory": {"path": "none/new.txt", "content": "x"},
    "a file on the way": {"path": "note.txt/new.txt", "content": "x", "create_parents": True},
    "too large": {"path": "new.txt", "content": "x" * 201},
    "too large in a new directory": {"path": "none/new.txt", "content": "x" * 201, "create_parents": True},
    "too large with what is there": {"path": "note.txt", "content": "x" * 190, "mode": "append"},
    "changed since": {"path": "note.txt", "content": "x", "mode": "overwrite", "sha256": "0" * 64},
    "gone since": {"path": "new.txt", "content": "x", "mode": "overwrite", "sha256": "0" * 64},
    "no such piece": {"path": "note.txt", "edits": [{"old": "third", "new": "x"}]},
    "piece that is there twice": {"path": "note.txt", "edits": [{"old": "second", "new": "x"}]},
    "edits of nothing": {"path": "new.txt", "edits": [{"old": "a", "new": "b"}]},
    "edits of a binary": {"path": "binary", "edits": [{"old": "a", "new": "b"}]},
    "two ways": {"path": "new.txt", "content": "x", "edits": [{"old": "a", "new": "b"}]},
    "neither way": {"path": "new.txt"},
    "path of a directory": {"path": "new/", "content": "x"},
}


@pytest.mark.parametrize("arguments", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_nobody_is_asked_about_what_cannot_be_done(top: Path, arguments: dict[str, Any]) -> None:
    before = state(top)
    result, asked = await write(top, True, **arguments)
    assert result.is_error
    assert result.text
    assert asked == 0
    assert state(top) == before


POSSIBLE: dict[str, dict[str, Any]] = {
    "new": {"path": "new.txt", "content": "x"},
    "new, in new directories": {"path": "a/b/new.txt", "content": "x", "create_parents": True},
    "replaced": {"path": "note.txt", "content": "x", "mode": "overwrite"},
    "replaced as it was read": {
        "path": "note.txt",
        "content": "x",
        "mode": "overwrite",
        "sha256": sha256(NOTE.encode()).hexdigest(),
    },
    "added to": {"path": "note.txt", "content": "x", "mode": "append"},
    "edited": {"path": "note.txt", "edits": [{"old": "first", "new": "x"}]},
    "edited everywhere": {"path": "note.txt", "edits": [{"old": "second", "new": "x", "all": True}]},
    "a binary replaced": {"path": "binary", "content": "x", "mode": "overwrite"},
}


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("arguments", POSSIBLE.values(), ids=POSSIBLE)
async def test_what_can_be_done_is_asked_once_and_done_if_so_decided(
    top: Path, arguments: dict[str, Any], *, answer: bool
) -> None:
    before = state(top)
    result, asked = await write(top, answer, **arguments)
    assert asked == 1
    assert result.is_error is not answer
    assert (state(top) != before) is answer
    if answer:
        assert "x" in (top / arguments["path"]).read_text()


async def test_what_changes_while_a_person_thinks_is_looked_at_again(top: Path) -> None:
    async def approve(request: object) -> bool:
        (top / "new.txt").write_text("somebody else's")
        return True

    config = {"builtin": {"enable": ["file-write"], "files": {"roots": [str(top)]}}}
    async with Bridge.open(config, remember=False, approver=approve) as bridge:
        with fail_after(30):
            result = await bridge.call_tool("file-write", {"path": "new.txt", "content": "x"})
    assert result.is_error
    assert "exists already" in result.text
    assert (top / "new.txt").read_text() == "somebody else's"
