"""The result of a call from what its command wrote: how that is read, and what the error of a failure shows. Pure.

A command failed if it did not end by itself, or with an exit code that the settings do not call good; so did one whose
output cannot be read as the settings say. The error then shows why, and the beginning of what it wrote to standard
error and standard output, with secrets masked.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import SANDBOX, JobResult, Limits, decoded, describe_cut, describe_end
from mcpbridge.tools.python.output import check_of, wrapped

_decode = msgspec.json.Decoder().decode


class OutputShape:
    """What structured results look like, by an output schema; one of anything but an object is one of `result`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError: it is none."""
        self.schema = wrapped(schema)
        self.is_wrapped = self.schema != schema and "result" in self.schema.get("required", ())
        self.fault = check_of(self.schema)
        """What is wrong with a value; empty: nothing."""


class OutputReader(Struct, frozen=True):
    """How the output of a program is read."""

    output: Literal["text", "json", "lines"]
    cap: int
    """Bytes of output that are shown."""
    good: tuple[int, ...]
    """Exit codes that are no failure."""
    limits: Limits
    shape: OutputShape | None = None
    redact: Callable[[str], str] = str
    """Masks secrets in what a program says of its failure."""

    def result(self, ran: JobResult) -> Body:
        """The result of a run."""
        if ran.ended != "exit" or ran.code not in self.good:
            return self._failed(ran, describe_end(ran, self.limits) or "exit code 0")
        if self.output == "json":
            return self._of_json(ran)
        shown, note = self._excerpt("the output", ran.stdout, ran.cut[0])
        lines = [shown, note] if shown or note else self._beside(ran)
        if self.output == "text":
            return _body(lines, ran)
        return self._structured(lines, {"lines": shown.splitlines()}, ran)

    def _of_json(self, ran: JobResult) -> Body:
        if ran.cut[0]:
            return self._failed(ran, "its output is larger than `sandbox.output`, so it cannot be read as JSON")
        try:
            value: Any = _decode(ran.stdout)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._failed(ran, f"its output is no JSON ({error})")
        is_object = isinstance(value, dict) and not (self.shape is not None and self.shape.is_wrapped)
        structured = cast("dict[str, Any]", value if is_object else {"result": value})
        return self._structured([ran.stdout.decode("utf-8", "replace").strip()], structured, ran)

    def _structured(self, lines: list[str], value: dict[str, Any], ran: JobResult) -> Body:
        fault = self.shape.fault(value) if self.shape is not None else ""
        if fault:
            return self._failed(ran, f"its output does not fit the output schema ({fault})")
        return _body(lines, ran, structuredContent=value)

    def _beside(self, ran: JobResult) -> list[str]:
        """Of a program that wrote nothing to its standard output: what it said besides."""
        shown, note = self._excerpt("stderr", ran.stderr, ran.cut[1])
        return ["(no output)", *(("stderr:", shown, note) if shown.strip() else ())]

    def _failed(self, ran: JobResult, why: str) -> Body:
        lines = [f"It failed: {why}"]
        for name, data, cut in (("stderr", ran.stderr, ran.cut[1]), ("stdout", ran.stdout, ran.cut[0])):
            shown, note = self._excerpt(name, data, cut)
            if shown.strip():
                lines += [f"{name}:", shown]
            lines.append(note)
        return _body([self.redact(part) for part in lines], ran, isError=True)

    def _excerpt(self, name: str, data: bytes, cut: int) -> tuple[str, str]:
        """The beginning, and what is said of the rest."""
        kept = data[: self.cap]
        missing = cut + len(data) - len(kept)
        return decoded(kept, is_cut=bool(missing)).rstrip("\n"), describe_cut(name, len(kept), missing)


def _body(lines: list[str], ran: JobResult, **more: Any) -> Body:
    text = "\n".join(part for part in lines if part)
    return Body(encode({"content": [{"type": "text", "text": text}], **more, "_meta": {SANDBOX: ran.tier}}))
