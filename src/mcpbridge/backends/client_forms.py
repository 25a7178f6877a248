"""Ask the user of the client that calls, with a form, where a tool needs no more than a few plain values.

Forms are what every client that shows any can show (spec, elicitation): fields that are texts, numbers, yes or no, or
choices. What does not fit into one is not asked this way.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct

from mcpbridge.backends.events import Teller
from mcpbridge.interaction import ELICIT, Question, QuestionRefused
from mcpbridge.model import Call
from mcpbridge.wire.frame import encode

__all__ = ["Answer", "ask", "asked_about", "form_of"]

ASK_SECONDS = 300.0
"""Seconds that the user has; then somebody else may answer."""
TELL_SECONDS = 10.0
"""Seconds between two words that the call still waits."""
LONGEST_SHOWN = 2000
"""Characters of arguments that the user is shown."""
MOST_FIELDS = 32

_ANY = {"type", "title", "description", "default"}
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({*_ANY, "minLength", "maxLength", "format", "enum", "oneOf", "enumNames"}),
    "number": frozenset({*_ANY, "minimum", "maximum"}),
    "integer": frozenset({*_ANY, "minimum", "maximum"}),
    "boolean": frozenset(_ANY),
}
"""What a field of a form may say, by its type (MCP 2025-11-25, elicitation, requested schema)."""
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_OF_OBJECT = frozenset({"type", "properties", "required", "title", "description", "additionalProperties", "$schema"})


class Answer(Struct, frozen=True):
    """What the user did."""

    action: Literal["accept", "decline", "none"]
    """`none`: nobody has seen the form, or it was closed without a word."""
    content: Mapping[str, Any] = {}
    """The fields; of `accept` only."""


def form_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form that asks for a value of this schema; None: it does not fit into one. Pure."""
    fields = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(fields, dict) or not schema.keys() <= _OF_OBJECT:
        return None
    named = cast("dict[str, object]", fields)
    if not 0 < len(named) <= MOST_FIELDS or not all(map(_is_plain, named.values())):
        return None
    form: dict[str, Any] = {"type": "object", "properties": named}
    if schema.get("required"):
        form["required"] = schema["required"]
    return form


def _is_plain(field: object) -> bool:
    if not isinstance(field, dict):
        return False
    said = cast("dict[str, Any]", field)
    keywords = _KEYWORDS.get(str(said.get("type")))
    if keywords is None or not said.keys() <= keywords or said.get("format", "date") not in _FORMATS:
        return False
    choices: list[object] = said.get("enum", [])
    titled: list[object] = said.get("oneOf", [])
    return all(isinstance(one, str) for one in choices) and all(map(_is_choice, titled))


def _is_choice(option: object) -> bool:
    if not isinstance(option, dict):
        return False
    said = cast("dict[str, object]", option)
    return said.keys() <= {"const", "title"} and isinstance(said.get("const"), str)


def asked_about(text: str, arguments: bytes | Raw | None) -> str:
    """What the user reads: what it is about, and the call's arguments, of which no character hides anything. Pure."""
    raw = bytes(arguments or b"{}").decode("utf-8", "replace")
    shown = raw if len(raw) <= LONGEST_SHOWN else f"{raw[: LONGEST_SHOWN - 1]}…"
    plain = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in shown)
    return text if raw == "{}" else f"{text}\nArguments: {plain}"


async def ask(call: Call, asker: str, message: str, form: Mapping[str, Any]) -> Answer:
    """Show the form to the user of the client that calls, and wait. `asker`: who asks, as the client shows it."""
    if not call.client.profile.form:
        return Answer("none")
    params = {"mode": "form", "message": message, "requestedSchema": form}
    answer = asyncio.ensure_future(call.client.ask(Question(asker, ELICIT, Raw(encode(params)))))
    teller = Teller(call)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            while not (await asyncio.wait([answer], timeout=TELL_SECONDS))[0]:
                teller.tell("Waiting for the user's answer")
        return msgspec.json.decode(answer.result(), type=_Said).answer
    except (QuestionRefused, TimeoutError, msgspec.DecodeError):
        return Answer("none")
    finally:
        answer.cancel()


class _Said(Struct):
    action: str
    content: dict[str, Any] | None = None

    @property
    def answer(self) -> Answer:
        if self.action == "accept":
            return Answer("accept", self.content or {})
        return Answer("decline" if self.action == "decline" else "none")
