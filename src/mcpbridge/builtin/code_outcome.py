"""What came of a program, as the result of `code-execute`. Pure."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.sandbox.job import Limits, Ran
from mcpbridge.sandbox.outcome import SANDBOX, cut_told, decoded, how_it_ended
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["outcome"]

_MOST_FILES = 50
"""Files that are named."""


def outcome(ran: Ran, limits: Limits, *, given: Mapping[str, int]) -> Body:
    """The result. `given`: sizes of the files that were there at the beginning; they count as written once changed."""
    written = [(name, size) for name, size in sorted(ran.files.items()) if given.get(name) != size]
    stdout, stderr = decoded(ran.stdout, is_cut=bool(ran.cut[0])), decoded(ran.stderr, is_cut=bool(ran.cut[1]))
    how = how_it_ended(ran, limits)
    value: dict[str, Any] = {
        "ended": ran.ended,
        "exitCode": ran.code if ran.ended == "exit" else None,
        "stdout": stdout,
        "stderr": stderr,
        "cut": {"stdout": ran.cut[0], "stderr": ran.cut[1]},
        "files": [{"name": name, "size": size} for name, size in written],
        "seconds": round(ran.seconds, 3),
    }
    said = [how and f"The program failed: {how}", *_stream("stdout", stdout, ran.stdout, ran.cut[0], is_plain=not how)]
    said += _stream("stderr", stderr, ran.stderr, ran.cut[1], is_plain=False)
    if written:
        said.append(_told(written))
    text = "\n".join(part for part in said if part) or "The program ended and printed nothing."
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "structuredContent": value}
    if how:
        result["isError"] = True
    return Body(encode({**result, "_meta": {SANDBOX: ran.tier}}))


def _stream(name: str, text: str, data: bytes, cut: int, *, is_plain: bool) -> list[str]:
    """`is_plain`: without a heading."""
    if not text.strip() and not cut:
        return []
    return ["" if is_plain else f"{name}:", text.rstrip("\n"), cut_told(name, len(data), cut)]


def _told(written: list[tuple[str, int]]) -> str:
    named = ", ".join(f"{name} ({size:,} bytes)" for name, size in written[:_MOST_FILES])
    more = len(written) - _MOST_FILES
    return f"files: {named}{f' and {more} more' if more > 0 else ''}"
