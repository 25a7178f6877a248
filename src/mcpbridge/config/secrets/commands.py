"""Runs the command of a `${cmd:…}`: no shell, nothing on standard input, and what it prints is the value."""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mcpbridge.base.masking.known_values import without_secrets
from mcpbridge.config.variables import NotThereError

LARGEST = 64 * 1024
"""Bytes that a value may have."""
_SHOWN = 200
"""Characters of what a command says on standard error that are repeated."""
_END_SECONDS = 1.0
"""Seconds that a killed command has to end. What it started may keep its pipes open: they are not waited for."""


def output_of(command: str, directory: Path, environ: Mapping[str, str], timeout: float) -> str:
    """What a command prints, without the line end. It runs in `directory`; `timeout` in seconds. Blocks.

    The command stays in the group of this process, so that it can ask at the terminal that the user is at.

    Raises:
        NotThereError: there is no value; says why, without secrets.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise NotThereError(f"no command line: {str(error).lower()}") from None
    if not words:
        raise NotThereError("it names no command")
    program = os.path.basename(words[0])  # noqa: PTH119 - a word of a command line
    try:
        started = subprocess.Popen(
            words,
            cwd=directory,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise NotThereError(f"`{program}` is not installed, or not in PATH") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be started"
        raise NotThereError(f"`{program}`: {reason}") from None
    try:
        printed, complaint = started.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise NotThereError(f"`{program}` took longer than {timeout:g} s") from None
    finally:
        _end(started)
    if started.returncode:
        raise NotThereError(f"`{program}` ended with exit code {started.returncode}{_last_line(complaint, printed)}")
    return _value(printed, program)


def _value(printed: bytes, program: str) -> str:
    if len(printed) > LARGEST:
        raise NotThereError(f"`{program}` printed more than {LARGEST // 1024} KiB")
    try:
        text = printed.decode()
    except UnicodeDecodeError:
        raise NotThereError(f"what `{program}` printed is not text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or "\0" in text:
        raise NotThereError(f"`{program}` printed {'a NUL character' if text else 'nothing'}")
    return text


def _last_line(complaint: bytes, printed: bytes) -> str:
    """The last line of standard error, for people. A command may repeat there what it printed."""
    text = complaint.decode(errors="replace")
    for line in printed.decode(errors="replace").split():
        text = text.replace(line, "…") if len(line) > 3 else text
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return f": {without_secrets(lines[-1])[:_SHOWN]}" if lines else ""


def _end(started: "subprocess.Popen[bytes]") -> None:
    if started.poll() is None:
        started.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(timeout=_END_SECONDS)
    for pipe in (started.stdout, started.stderr):
        if pipe is not None:
            pipe.close()
