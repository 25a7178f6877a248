"""What all formats share: responses as plain JSON, calls, content of results, names of tools, stop reasons. Pure.

Objects of the official packages are recognised by what they can do (`model_dump`), so none of them is imported.
Content that a format cannot carry is replaced by a text with its type, size and address; nothing is dropped silently.

A tool keeps its wire name where the format takes it. Any other name is respelled and ends in a hash of the whole, so
no two tools share one. A wire name that looks as if it ended in such a hash gets one too: no server can choose the name
that another server's tool has in a format.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, BridgeError, FormatError
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.tool_names import fingerprint
from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.pipeline.validation.schema_check import decode_exact

Message = dict[str, Any]
"""A message, or a whole response, of any format."""


class Wanted(Struct, frozen=True):
    """A call as a model wrote it."""

    name: str
    """As the format has it."""
    arguments: object
    """JSON text, or an object."""
    id: str = ""
    """Empty: the format gave it none."""


def plain(value: Any) -> Any:
    """The value with all objects of packages in it as JSON values, fields that are not set left out."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Sequence):
        return [plain(one) for one in cast("Sequence[Any]", value)]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    return value


def nested(value: object) -> Message:
    """An object as it is; empty when the value is none."""
    return cast("Message", value) if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """A list as it is; empty when the value is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def items_of(value: object) -> list[Message]:
    """The objects in a list."""
    return [one for one in listed(value) if isinstance(one, dict)]


def blocks_of(message: object) -> list[Message]:
    """The content blocks of a message; text alone is one block."""
    content: object = nested(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [cast("Message", content)] if isinstance(content, dict) else items_of(content)


def text_in(blocks: Sequence[Message], *kinds: str) -> str:
    """The texts of the blocks of these types, joined."""
    return "".join(str(block.get("text") or "") for block in blocks if block.get("type") in kinds)


def read_arguments(wanted: Wanted) -> tuple[dict[str, Any], str]:
    """The arguments of a call; and, where they cannot be read, why, for the model. Numbers stay exact."""
    raw = wanted.arguments
    if isinstance(raw, dict):
        return cast("dict[str, Any]", raw), ""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, ""
    if not isinstance(raw, str):
        return {}, _problem(wanted, f"they are {_kind_of(raw)}, not a JSON object")
    encoded = raw.encode("utf-8", "replace")
    try:
        value = decode_exact(encoded)
        if not isinstance(value, dict):
            return {}, _problem(wanted, f"they are {_kind_of(value)}, not a JSON object")
        refuse_doubles(wanted.name, encoded)
    except ArgumentsRefused as error:
        return {}, error.full_message()
    except BridgeError as error:  # pragma: no cover - whatever else the check of names may say is for the model too
        return {}, error.full_message()
    except RecursionError:
        return {}, _problem(wanted, "they are nested too deeply")
    except (msgspec.DecodeError, ValueError) as error:
        return {}, _problem(wanted, f"they are no JSON: {error}")
    return cast("dict[str, Any]", value), ""


def _problem(wanted: Wanted, why: str) -> str:
    return (
        f"The arguments of {wanted.name} cannot be read: {why}. Nothing was called. Call it again with one JSON "
        "object, complete and with every string closed."
    )


def _kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    return "a string" if isinstance(value, str) else "a list" if isinstance(value, list) else "a number"


NOTHING = "(no content)"
FAILED = "Error: "


class Media(Struct, frozen=True):
    """Data that is no text."""

    data: str
    """Base64."""
    type: str
    """MIME type, in lower case, without parameters."""
    name: str
    """How to speak of it: its address, or what it is."""

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.type.startswith("image/")

    @property
    def url(self) -> str:
        """It, as a `data:` address."""
        return f"data:{self.type};base64,{self.data}"


def pieces_of(result: CallResult[Any], takes: Callable[[str], bool]) -> list[str | Media]:
    """The content in order. `takes`: whether the format carries data of a MIME type."""
    pieces = [piece for block in result.content for piece in _pieces(block, takes)]
    return pieces or [NOTHING if result.structured is None else _json(result.structured)]


def text_alone(pieces: Sequence[str | Media], *, is_error: bool = False) -> str:
    """The texts among the pieces, a line break between two; an error that does not say so is made to."""
    text = "\n".join(piece for piece in pieces if isinstance(piece, str))
    return marked_error(text, is_error=is_error)


def marked_error(text: str, *, is_error: bool) -> str:
    """The text; where the format has no mark for errors, it begins with one."""
    return f"{FAILED}{text}" if is_error and not text.lstrip().lower().startswith("error") else text


def id_of(result: CallResult[Any]) -> str:
    """The model's id of the call that a result is of; empty for one that is of none."""
    return result.call.id if result.call is not None else ""


def _pieces(block: Mapping[str, Any], takes: Callable[[str], bool]) -> Iterator[str | Media]:
    match block.get("type"):
        case "text":
            text = str(block.get("text") or "")
            if text.strip():
                yield text
        case "image" | "audio":
            yield from _data(block, str(block.get("data") or ""), str(block["type"]), takes)
        case "resource_link":
            yield _link(block)
        case "resource":
            yield from _resource(block.get("resource") or {}, takes)
        case _:
            yield _json(block)


def _resource(resource: Mapping[str, Any], takes: Callable[[str], bool]) -> Iterator[str | Media]:
    address = str(resource.get("uri") or "resource")
    if "blob" in resource:
        yield from _data(resource, str(resource.get("blob") or ""), address, takes)
    else:
        yield f"[{address}]\n{resource.get('text') or ''}"


def _data(block: Mapping[str, Any], data: str, name: str, takes: Callable[[str], bool]) -> Iterator[str | Media]:
    kind = str(block.get("mimeType") or "application/octet-stream").split(";")[0].strip().lower()
    if not takes(kind):
        yield f"[{name}: {kind}, {_size(data)}; it cannot be shown to this model]"
        return
    if ":" in name:
        yield f"[{name}]"
    yield Media(data, kind, name)


def _link(block: Mapping[str, Any]) -> str:
    told = [str(block.get("title") or block.get("name") or ""), str(block.get("mimeType") or "")]
    about = ", ".join(part for part in told if part)
    text = f"[resource {block.get('uri')}{f': {about}' if about else ''}]"
    return f"{text} {block['description']}" if block.get("description") else text


def _size(data: str) -> str:
    size = len(data.rstrip("=")) * 3 // 4
    return f"{size:,} bytes" if size < 10_000 else f"{size // 1000:,} kB"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


Format = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]
"""OpenAI's chat completions, its responses, Anthropic's messages, Gemini's contents, and MCP's sampling with tools."""
FORMATS: tuple[Format, ...] = get_args(Format)

_HASH_LENGTH = 12
_MARK = "_0"
_HASHED = re.compile(r"_0[a-z2-7]{12}\Z")


class _Rule(Struct, frozen=True):
    fits: re.Pattern[str]
    foreign: re.Pattern[str]
    longest: int
    starts: re.Pattern[str]
    """What the first character has to be."""


def _rule(characters: str, longest: int, first: str | None = None) -> _Rule:
    first = characters if first is None else first
    fits = re.compile(rf"[{first}][{characters}]{{0,{longest - 1}}}\Z")
    return _Rule(fits, re.compile(rf"[^{characters}]"), longest, re.compile(f"[{first}]"))


_OPENAI = _rule("a-zA-Z0-9_-", 64)
_RULES: dict[Format, _Rule | None] = {
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": _rule("a-zA-Z0-9_-", 128),
    "gemini": _rule("a-zA-Z0-9_.:-", 64, "a-zA-Z_"),  # 128 by its newest reference; older models take 64
    "mcp": None,
}


def known_format(api: str) -> Format:
    """The format of that name.

    Raises:
        FormatError: there is none; names the nearest.
    """
    for known in FORMATS:
        if api == known:
            return known
    meant = nearest(api, FORMATS)
    hint = f'; "{meant[0]}" is' if meant else ""
    raise FormatError(f'"{api}" is no format of a model API{hint}. There are: {", ".join(FORMATS)}')


def name_in(api: Format, wire: str) -> str:
    """The name of a tool in a format. A function of its wire name alone: different tools have different names."""
    rule = _RULES[api]
    if rule is None or (rule.fits.match(wire) and not _HASHED.search(wire)):
        return wire
    spelled = rule.foreign.sub("_", wire)
    if not rule.starts.match(spelled):
        spelled = f"_{spelled}"
    room = rule.longest - len(_MARK) - _HASH_LENGTH
    return f"{spelled[:room]}{_MARK}{fingerprint(wire, length=_HASH_LENGTH)}"


STOPS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn")
"""It was done; it wants tools called; it ran out of tokens, so that its last call may be cut off; it met a text to stop
at; it, or a filter, refuses; it wants to continue. Another reason is given in the API's own words."""


def stop_reason_of(reason: str, words: Mapping[str, str], *, has_calls: bool) -> str:
    """A format's reason in these words; calls that are there are wanted, whatever the reason says of the rest."""
    told = words.get(reason, reason)
    if has_calls and told in ("", "end_turn"):
        return "tool_use"
    return told or "end_turn"
