"""What a command wrote, as the result of a call. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from mcpbridge.backends.outputs import check_of, wrapped
from mcpbridge.sandbox.job import Limits, Ran
from mcpbridge.sandbox.outcome import SANDBOX, cut_told, decoded, how_it_ended
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["Reading", "Shape"]

_decode = msgspec.json.Decoder().decode


class Shape:
    """What structured results look like, by an output schema; one of anything but an object is one of `result`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError: it is none."""
        self.schema = wrapped(schema)
        self.is_wrapped = self.schema != schema and "result" in self.schema.get("required", ())
        self.fault = check_of(self.schema)
        """What is wrong with a value; empty: nothing."""


class Reading(Struct, frozen=True):
    """How the output of a program is read."""

    output: Literal["text", "json", "lines"]
    cap: int
    """Bytes of output that are shown."""
    good: tuple[int, ...]
    """Exit codes that are no failure."""
    limits: Limits
    shape: Shape | None = None
    redact: Callable[[str], str] = str
    """Masks secrets in what a program says of its failure."""

    def result(self, ran: Ran) -> Body:
        """The result of a run."""
        if ran.ended != "exit" or ran.code not in self.good:
            return self._failed(ran, how_it_ended(ran, self.limits) or "exit code 0")
        if self.output == "json":
            return self._of_json(ran)
        shown, note = self._shown("the output", ran.stdout, ran.cut[0])
        said = [shown, note] if shown or note else self._beside(ran)
        if self.output == "text":
            return _body(said, ran)
        return self._structured(said, {"lines": shown.splitlines()}, ran)

    def _of_json(self, ran: Ran) -> Body:
        if ran.cut[0]:
            return self._failed(ran, "its output is larger than `sandbox.output`, so it cannot be read as JSON")
        try:
            value: Any = _decode(ran.stdout)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._failed(ran, f"its output is no JSON ({error})")
        is_object = isinstance(value, dict) and not (self.shape is not None and self.shape.is_wrapped)
        structured = cast("dict[str, Any]", value if is_object else {"result": value})
        return self._structured([ran.stdout.decode("utf-8", "replace").strip()], structured, ran)

    def _structured(self, said: list[str], value: dict[str, Any], ran: Ran) -> Body:
        fault = self.shape.fault(value) if self.shape is not None else ""
        if fault:
            return self._failed(ran, f"its output does not fit the output schema ({fault})")
        return _body(said, ran, structuredContent=value)

    def _beside(self, ran: Ran) -> list[str]:
        """Of a program that wrote nothing to its standard output: what it said besides."""
        shown, note = self._shown("stderr", ran.stderr, ran.cut[1])
        return ["(no output)", *(("stderr:", shown, note) if shown.strip() else ())]

    def _failed(self, ran: Ran, why: str) -> Body:
        said = [f"It failed: {why}"]
        for name, data, cut in (("stderr", ran.stderr, ran.cut[1]), ("stdout", ran.stdout, ran.cut[0])):
            shown, note = self._shown(name, data, cut)
            if shown.strip():
                said += [f"{name}:", shown]
            said.append(note)
        return _body([self.redact(part) for part in said], ran, isError=True)

    def _shown(self, name: str, data: bytes, cut: int) -> tuple[str, str]:
        """The beginning, and what is said of the rest."""
        kept = data[: self.cap]
        missing = cut + len(data) - len(kept)
        return decoded(kept, is_cut=bool(missing)).rstrip("\n"), cut_told(name, len(kept), missing)


def _body(said: list[str], ran: Ran, **more: Any) -> Body:
    text = "\n".join(part for part in said if part)
    return Body(encode({"content": [{"type": "text", "text": text}], **more, "_meta": {SANDBOX: ran.tier}}))
