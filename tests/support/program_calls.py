"""Calls of the tools that run programs of the user, repositories for them, and programs that tell whether they ran."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpbridge.base.errors import ToolInactive
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import Job, JobResult


def cli_call(tool: str, command: object, **more: object) -> Call:
    params = {"name": tool, "arguments": {"command": command, **more}}
    return Call("tools/call", "builtin", tool, Body(encode(params)))


async def said_by(tool: Any, call: Call) -> tuple[str, bool]:
    """The text of the result, and whether it is an error."""
    result = (await tool.run(call)).value()
    (block,) = result["content"]
    return block["text"], result.get("isError", False)


class NoSandbox:
    """A runner that is not ready."""

    is_off = False

    async def run(self, job: Job) -> JobResult:
        raise ToolInactive("the sandbox", "there is none here", "Install one.")


class Recorder:
    """A runner that notes its jobs, and answers as told."""

    is_off = False

    def __init__(self, **ran: Any) -> None:
        self.jobs: list[Job] = []
        self.ran = {"ended": "exit", "code": 0, "stdout": b"", "stderr": b"", "cut": (0, 0), "seconds": 0.1, **ran}

    async def run(self, job: Job) -> JobResult:
        self.jobs.append(job)
        return JobResult(**{"tier": "bubblewrap", **self.ran})


def plain_git(where: Path, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """git without any of our protection, in an environment of its own."""
    made = {
        "PATH": os.environ["PATH"],
        "HOME": str(where.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
        **(env or {}),
    }
    return subprocess.run(
        ["git", *argv], cwd=where, env=made, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=20
    )


def repository(where: Path, model: Path | None = None) -> Path:
    """A repository of three commits on `main`, a branch `topic`, a tag `v1`, and something changed; or a copy."""
    if model is not None:
        return Path(shutil.copytree(model, where, symlinks=True))
    where.mkdir(parents=True)
    plain_git(where, "init", "-q", "-b", "main")
    for sample in (where / ".git" / "hooks").glob("*.sample"):  # there would be a dozen in every copy
        sample.unlink()
    (where / "src").mkdir()
    for number, text in enumerate(("one", "two", "three")):
        (where / "src" / "a.py").write_text(f"def {text}():\n    return {number}\n")
        (where / "README.md").write_text(f"# {text}\n")
        plain_git(where, "add", "-A")
        plain_git(where, "commit", "-q", "-m", f"the {text}", "--no-gpg-sign")
        if number == 1:
            plain_git(where, "branch", "topic")
            plain_git(where, "tag", "-a", "v1", "-m", "first")
    (where / "README.md").write_text("# changed\n")
    (where / "new.txt").write_text("new\n")
    return where


def program(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
