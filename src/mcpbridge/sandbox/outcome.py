"""What came of a job, as its caller is told. Pure."""

import signal

from mcpbridge.sandbox.job import Limits, Ran
from mcpbridge.units import show_bytes, show_seconds

__all__ = ["SANDBOX", "cut_told", "decoded", "how_it_ended"]

SANDBOX = "mcpbridge/sandbox"
"""In `_meta` of results: which sandbox it ran in, or `off`."""

_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""


def how_it_ended(ran: Ran, limits: Limits) -> str:
    """One line, empty when it ended by itself with exit code 0."""
    if ran.ended == "timeout":
        return f"stopped after {show_seconds(limits.timeout)}: it had no more time"
    if ran.ended == "memory":
        return f"stopped: it needed more than {show_bytes(limits.memory)} of memory"
    if ran.ended == "disk":
        most = f"{show_bytes(limits.disk)}, or {limits.entries:,} files"
        return f"stopped: it wrote more to its work folder than it may (at most {most})"
    if ran.ended == "signal":
        return f"ended by {_signal(ran.code)}"
    return f"exit code {ran.code}" if ran.code else ""


def decoded(data: bytes, *, is_cut: bool) -> str:
    """Output as text; what is no UTF-8 is replaced, and of a character that is cut in half nothing is left."""
    if is_cut:
        for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
            byte = data[-back]
            if byte >= 0xC0:  # the first byte of a character of several
                length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                data = data[:-back] if length > back else data
                break
            if byte < 0x80:
                break
    return data.decode("utf-8", "replace")


def cut_told(stream: str, kept: int, cut: int) -> str:
    """That an output is longer than what is shown; empty when it is not. Sizes in bytes."""
    if not cut:
        return ""
    return f"[{stream} had {kept + cut:,} bytes: the first {kept:,} are shown, {cut:,} were cut]"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
