"""The format of Gemini's contents: parts in turns, and the part of JSON Schema that it reads. Pure.

Older Gemini APIs give calls no id. Such a call gets one (`MADE_UP`), which is not sent back: results belong to calls
by name and order.

Input schemas (`parametersJsonSchema`) only lose rules, so the rewritten schema takes every argument that the original
takes. The description says what was left out, and the bridge checks calls against the original.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.llm_formats.messages import (
    Media,
    Message,
    Wanted,
    id_of,
    items_of,
    name_in,
    nested,
    pieces_of,
    stop_reason_of,
    text_alone,
)
from mcpbridge.library.llm_formats.schemas.parts import Unsayable, followed, in_one_piece, object_of, texts_of
from mcpbridge.library.llm_formats.schemas.plain import plain_schema
from mcpbridge.library.llm_formats.schemas.strict import enumerated
from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import is_schema

MADE_UP = "made-up-"
"""What ids begin with that Gemini did not give."""
_REFUSALS = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
_STOPS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", **dict.fromkeys(_REFUSALS, "refusal")}


def tool(name: str, description: str, schema: Message) -> Message:
    """A function as a tool of a request declares it."""
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def _content(response: Message) -> Message:
    """The model's content: of the first candidate, or the response itself."""
    candidates = items_of(response.get("candidates"))
    return nested(candidates[0].get("content")) if candidates else response


def _get(part: Message, name: str, other: str) -> Any:
    """A field by either of the spellings that the API and its package take."""
    return part.get(name, part.get(other))


def wanted(response: Message) -> list[Wanted]:
    """The calls of functions; code that the API runs itself is not ours."""
    found: list[Wanted] = []
    for part in items_of(_content(response).get("parts")):
        call = nested(_get(part, "functionCall", "function_call"))
        if call:
            found.append(Wanted(str(call.get("name", "")), call.get("args"), str(call.get("id") or "")))
    return found


def assistant(response: Message) -> list[Message]:
    """The model's turn: all parts, with the signatures of its thoughts, which the API wants back."""
    return [{"role": "model", **_content(response)}]


def _takes_media(kind: str) -> bool:
    return kind in ("image/png", "image/jpeg", "image/webp", "application/pdf")


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One content with the answers to all calls of a turn."""
    parts = [{"functionResponse": _response(result)} for result in results]
    return [{"role": "user", "parts": parts}] if parts else []


def _response(result: CallResult[Any]) -> Message:
    pieces = pieces_of(result, _takes_media)
    told = text_alone(pieces)
    media = [piece for piece in pieces if isinstance(piece, Media)]
    said: Message = {"error": told} if result.is_error else {"result": told}
    if result.structured is not None and not result.is_error:
        said = {"result": result.structured}
        if any(block.get("type") != "text" for block in result.content):
            said["content"] = told  # the structured result does not tell what else there is
    name = name_in("gemini", result.call.name if result.call is not None else "")
    answer: Message = {"name": name, "response": said}
    if id_of(result) and not id_of(result).startswith(MADE_UP):
        answer["id"] = id_of(result)
    if media:
        answer["parts"] = [{"inlineData": {"mimeType": one.type, "data": one.data}} for one in media]
    return answer


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that a content of the history answers: id, and name where there is no id."""
    found: list[tuple[str, str]] = []
    for part in items_of(message.get("parts")):
        answer = nested(_get(part, "functionResponse", "function_response"))
        if answer:
            found.append((str(answer.get("id") or ""), str(answer.get("name", ""))))
    return found


def text(response: Message) -> str:
    """What the model said in words, without its thoughts."""
    parts = items_of(_content(response).get("parts"))
    return "".join(str(part["text"]) for part in parts if part.get("text") and not part.get("thought"))


def stop(response: Message) -> str:
    """Why it stopped."""
    candidates = items_of(response.get("candidates"))
    reason = _get(candidates[0], "finishReason", "finish_reason") if candidates else ""
    if not candidates and _get(response, "promptFeedback", "prompt_feedback"):
        return "refusal"
    return stop_reason_of(str(reason or ""), _STOPS, has_calls=bool(wanted(response)))


_KEPT = ("type", "format", "title", "minItems", "minimum", "maximum", "required", "propertyOrdering")
"""Of what it reads, what stays as it is. Not `maxItems`: many of them make it refuse the whole request."""
_TOLD = (
    *("const", "enum", "default", "pattern", "minLength", "maxLength", "maxItems", "uniqueItems", "multipleOf"),
    *("exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties", "propertyNames"),
)
_MAX_LEVELS = 100


def gemini_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema in Gemini's words. The top is always an object."""
    return _Writing(plain_schema(schema)).whole()


class _Writing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions: dict[str, Schema] = {}
        self._names: dict[str, str] = {}
        self._open: list[tuple[str, int]] = []
        """References that are being written, and how many optional properties were around each."""
        self._optional = 0
        self._levels = 0

    def whole(self) -> Schema:
        written = self._write(self._root)
        return {**written, "$defs": self._definitions} if self._definitions else written

    def _write(self, schema: object) -> Schema:
        """A part of the schema; one that cannot be told is one that takes any value."""
        if not is_schema(schema) or self._levels > _MAX_LEVELS:
            return {}
        self._levels += 1
        try:
            return self._written(_flat(self._root, schema))
        finally:
            self._levels -= 1

    def _written(self, flat: Schema) -> Schema:
        if "$ref" in flat:
            reference = self._reference(str(flat["$ref"]))
            text = _description(flat, ())
            return {"anyOf": [reference], "description": text} if reference and text else reference
        written: Schema = {key: flat[key] for key in _KEPT if key in flat}
        said = set(written)
        values = enumerated(flat)
        if values and all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
            written["enum"] = values
            said |= {"enum", "const"}
        self._write_members(flat, written)
        for keyword in ("anyOf", "oneOf"):  # it reads both as `anyOf`
            if isinstance(flat.get(keyword), list) and "anyOf" not in written:
                written["anyOf"] = [self._write(one) for one in flat[keyword]]
        text = _description(flat, said)
        return {**written, "description": text} if text else written

    def _write_members(self, flat: Schema, written: Schema) -> None:
        if is_schema(flat.get("properties")):
            required = texts_of(flat.get("required"))
            written["properties"] = {}
            for name, one in object_of(flat["properties"]).items():
                self._optional += name not in required
                written["properties"][name] = self._write(one)
                self._optional -= name not in required
        has_patterns = bool(flat.get("patternProperties"))
        if "additionalProperties" in flat and not has_patterns:
            additional = flat["additionalProperties"]
            written["additionalProperties"] = additional if isinstance(additional, bool) else self._write(additional)
        if isinstance(flat.get("prefixItems"), list):
            written["prefixItems"] = [self._write(one) for one in flat["prefixItems"]]
        if is_schema(flat.get("items")):
            written["items"] = self._write(flat["items"])

    def _reference(self, reference: str) -> Schema:
        for opened, optional in self._open:
            if opened == reference and optional == self._optional:
                return {}  # it takes cycles through optional properties alone
        if reference == "#":
            return {}
        if reference not in self._names:
            try:
                target = followed(self._root, reference)
            except Unsayable:
                return {}
            last = re.sub(r"[^a-zA-Z0-9_]", "_", reference.rsplit("/", 1)[-1]) or "part"
            name = last
            while name in self._definitions:
                name = f"{last}_{len(self._definitions)}"
            self._names[reference] = name
            self._definitions[name] = {}
            self._open.append((reference, self._optional))
            self._definitions[name] = self._write(target)
            self._open.pop()
        return {"$ref": f"#/$defs/{self._names[reference]}"}


def _flat(root: Schema, schema: Schema) -> Schema:
    try:
        return in_one_piece(root, schema)
    except Unsayable:  # the parts cannot be told as one: what stands beside them is
        return {key: value for key, value in schema.items() if key not in ("allOf", "$ref")}


def _description(flat: Schema, written: object) -> str:
    told = cast("set[str]", written)
    text = flat.get("description")
    text = text if isinstance(text, str) else ""
    notes = [f"{key}: {_json(flat[key])}" for key in _TOLD if key in flat and key not in told and flat[key] is not None]
    return f"{text} ({', '.join(notes)})".strip() if notes else text


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
