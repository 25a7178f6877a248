"""What went wrong with an expression, said so that the next one works. Pure."""

import json
import re

from mcpbridge.sandbox import javascript_worker as program

__all__ = ["complaint"]

_LONGEST = 400
_PLACE = re.compile(r"<input>:(\d+)(?::(\d+))?\)?\s*$")
_CALLEE = re.compile(r"[\w$.\[\]'\"?]{1,60}$")
_NAME = re.compile(r"[\w$]{1,60}")
_OF_THE_ENGINE = (
    ("interrupted", "it took longer than {seconds:g} s"),
    ("out of memory", "it needs more memory than an expression may have"),
    ("call stack", "it goes too deep: too much recursion, or a value that is nested too deeply"),
    ("stack overflow", "it goes too deep: too much recursion, or a value that is nested too deeply"),
)


def complaint(source: str, kind: str, payload: str) -> str:
    """One line for whoever wrote `source`; `kind` and `payload` are the worker's answer."""
    if kind == "large":
        most = program.LARGEST_ANSWER
        return f"the answer would have {int(payload):,} characters, at most {most:,} are given: narrow it"
    if kind == "unread":
        why = _known(payload) or _line(payload.partition("\n")[0])
        return f"the result cannot be bound: {why}"
    if kind == "error":
        name, message, stack, offset, shape = json.loads(payload)
        return _of_javascript(source, str(name), str(message), str(stack), int(offset), str(shape))
    return _known(payload) or f"the engine gave up: {_line(payload)}"


def _of_javascript(source: str, name: str, message: str, stack: str, offset: int, shape: str) -> str:
    if name == "Gave":
        return _line(f"the expression gave {message}") + _hint(shape)
    if name in ("InternalError", "RangeError") and (known := _known(message)):
        return known
    lines = source.split("\n")
    line, column = _place(stack, offset, lines)
    if message == "not a function" and line and (callee := _callee(lines[line - 1], column)):
        message = f"{callee} is not a function"
    said = _line(f"{name}: {message}" if name else message)
    if line:
        said += f" (at {line}:{column})" if len(lines) > 1 else f" (at character {column})"
    if name == "SyntaxError" and line:
        said += _near(lines[line - 1], column)
    if "BigInt" in message:
        return f"{said}; integers beyond 2^53 are kept exact: write Number(…) around one to calculate with it"
    if name == "ReferenceError":
        return f"{said}{_hint(shape)}, `text` its text, `lines` the lines of it"
    return said + (_hint(shape) if name == "TypeError" else "")


def _known(message: str) -> str:
    for sign, said in _OF_THE_ENGINE:
        if sign in message:
            return said.format(seconds=program.SECONDS)
    return ""


def _place(stack: str, offset: int, lines: list[str]) -> tuple[int, int]:
    """Line and column in the source, from 1; 0, 0 if the stack does not say, or names a place that is ours."""
    for entry in stack.split("\n"):
        if entry and "(native)" not in entry:
            found = _PLACE.search(entry)
            line = int(found[1]) - offset if found else 0
            if not 1 <= line <= len(lines):
                return 0, 0
            return line, min(int((found and found[2]) or 1), len(lines[line - 1]) + 1)
    return 0, 0


def _callee(line: str, column: int) -> str:
    """What is called at this column, which is that of its last name or of the bracket behind it."""
    before, after = _CALLEE.search(line[: column - 1]), _NAME.match(line[column - 1 :])
    return f"{before[0] if before else ''}{after[0] if after else ''}"


def _near(line: str, column: int) -> str:
    around = line[max(0, column - 21) : column + 20].strip()
    return f", near `{around}`" if around and len(line) > 40 else ""


def _hint(shape: str) -> str:
    return f"; `result` is {shape}" if shape else ""


def _line(text: str) -> str:
    """On one line, and short: it may be anything that a result contains."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
