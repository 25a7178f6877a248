"""The messages of A2A in both of its forms, and the result of a tool from what an agent answers. Pure.

1.0 names methods as `SendMessage`, and the member in which something is says what it is; 0.2 and 0.3 name them
`message/send`, and `kind` says what something is. The reader looks at what is there and not at a version, because
agents mix the two forms.

Texts become text, files become resources, images or links, data becomes `structuredContent`. A task that waits for the
user is no error: the result says what it wants, and how to continue.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast
from urllib.parse import quote

from msgspec import Struct

from mcpbridge.tools.agent.a2a_card import Interface

Method = Literal["send", "stream", "get", "cancel"]

_NAMES: Mapping[str, Mapping[Method, str]] = {
    "1.0": {"send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask", "cancel": "CancelTask"},
    "0.3": {"send": "message/send", "stream": "message/stream", "get": "tasks/get", "cancel": "tasks/cancel"},
}

ENDED = frozenset({"completed", "failed", "canceled", "rejected"})
INTERRUPTED = frozenset({"input-required", "auth-required"})
_MODES = ["text/plain", "application/json", "*/*"]


class Part(Struct, frozen=True):
    """A piece of what an agent says: a text, data, or a file."""

    text: str | None = None
    data: Any = None
    raw: str = ""
    """A file's bytes, base64; empty: none."""
    url: str = ""
    """Where a file is; empty: it is here."""
    name: str = ""
    media_type: str = ""
    is_data: bool = False


class Artifact(Struct):
    """Something that a task made."""

    name: str
    parts: list[Part]


class Record:
    """What an agent has reported so far in one exchange."""

    def __init__(self) -> None:
        self.task_id = self.context_id = ""
        self.state = ""
        """`working`, `completed`, …; `message`: it answered at once, without a task; empty: it has told nothing."""
        self.status_parts: list[Part] = []
        """The words that go with its state."""
        self.artifacts: dict[str, Artifact] = {}
        self.answer: list[Part] = []
        """The last message of its own in the history of the task."""

    @property
    def goes_on(self) -> bool:
        """There is a task, and the agent works on it."""
        return bool(self.task_id) and self.state not in ENDED | INTERRUPTED | {"message"}

    def take(self, value: object) -> str:
        """Take what the agent reports; returns what is new about it, in a few words. Empty: nothing."""
        reply = _unwrapped(_table(value))
        if "status" in reply or "artifact" in reply or "artifactId" in reply or reply.get("kind") == "task":
            self._note_ids(reply, "taskId" if "artifact" in reply or "taskId" in reply else "id")
            if "artifact" in reply:
                return self._take_artifact(reply)
            return self._take_task(reply)
        if "parts" in reply:
            self._note_ids(reply, "taskId")
            self.state, self.status_parts = "message", _parts(reply.get("parts"))
            return text_of(self.status_parts)
        return ""

    def _note_ids(self, reply: Mapping[str, Any], task: str) -> None:
        self.task_id = _text(reply, task) or self.task_id
        self.context_id = _text(reply, "contextId") or self.context_id

    def _take_task(self, reply: Mapping[str, Any]) -> str:
        status = _table(reply.get("status"))
        before = self.state, self.status_parts
        self.state = _state(_text(status, "state")) or self.state or "submitted"
        if "message" in status:
            self.status_parts = _parts(_table(status["message"]).get("parts"))
        elif before[0] != self.state:
            self.status_parts = []
        for one in map(_table, _list(reply.get("artifacts"))):
            self.artifacts[_text(one, "artifactId") or str(len(self.artifacts))] = _artifact(one)
        for one in map(_table, _list(reply.get("history"))):
            if _text(one, "role").lower().removeprefix("role_") == "agent":
                self.answer = _parts(one.get("parts"))
        if (self.state, self.status_parts) == before:
            return ""
        words = text_of(self.status_parts)
        return f"{self.state}: {words}" if words else self.state

    def _take_artifact(self, reply: Mapping[str, Any]) -> str:
        artifact = _table(reply["artifact"])
        id_ = _text(artifact, "artifactId")
        new = _artifact(artifact)
        known = self.artifacts.get(id_)
        if reply.get("append") is True and known is not None:
            known.parts += new.parts
        else:
            self.artifacts[id_] = new
        words = text_of(new.parts)
        return f"{new.name}: {words}" if new.name else words


def method_name(interface: Interface, method: Method) -> str:
    """What the method is called there."""
    return _NAMES[interface.version][method]


def params_of_message(
    interface: Interface,
    message_id: str,
    *,
    text: str | None,
    data: object,
    context_id: str,
    task_id: str,
    skill: str,
) -> dict[str, Any]:
    """The params that send a message. The answer may be a task that runs on; waiting for its end is ours."""
    is_new = interface.version == "1.0"
    parts: list[dict[str, Any]] = []
    if text is not None:
        parts.append({"text": text} if is_new else {"kind": "text", "text": text})
    if data is not None:
        parts.append({"data": data} if is_new else {"kind": "data", "data": data})
    message: dict[str, Any] = {"messageId": message_id, "role": "ROLE_USER" if is_new else "user", "parts": parts}
    if not is_new:
        message["kind"] = "message"
    if context_id:
        message["contextId"] = context_id
    if task_id:
        message["taskId"] = task_id
    if skill:
        message["metadata"] = {"skillId": skill}
    configuration = {"acceptedOutputModes": _MODES, **({"returnImmediately": True} if is_new else {"blocking": False})}
    return _for_tenant(interface, {"message": message, "configuration": configuration})


def params_of_task(interface: Interface, task_id: str) -> dict[str, Any]:
    """The params that ask for a task, or cancel it."""
    return _for_tenant(interface, {"id": task_id})


def text_of(parts: list[Part]) -> str:
    """All text of some parts."""
    return "".join(part.text for part in parts if part.text is not None).strip()


def _for_tenant(interface: Interface, params: dict[str, Any]) -> dict[str, Any]:
    return {"tenant": interface.tenant, **params} if interface.tenant else params


def _unwrapped(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """1.0 says what something is by the member that it stands in."""
    for name in ("task", "message", "msg", "statusUpdate", "artifactUpdate"):
        if isinstance(reply.get(name), dict) and "kind" not in reply:
            return cast("Mapping[str, Any]", reply[name])
    return reply


def _state(name: str) -> str:
    state = name.lower().removeprefix("task_state_").replace("_", "-")
    return {"cancelled": "canceled", "unspecified": "", "unknown": ""}.get(state, state)


def _artifact(artifact: Mapping[str, Any]) -> Artifact:
    return Artifact(_text(artifact, "name"), _parts(artifact.get("parts")))


def _parts(value: object) -> list[Part]:
    return [_part(_table(one)) for one in _list(value)]


def _part(part: Mapping[str, Any]) -> Part:
    file = _table(part.get("file"))  # 0.3; in 1.0 its members stand in the part
    name = _text(part, "filename") or _text(file, "name")
    media_type = _text(part, "mediaType") or _text(file, "mimeType")
    raw = _text(part, "raw") or _text(file, "bytes")
    url = _text(part, "url") or _text(file, "uri")
    if raw or url:
        return Part(raw=raw, url=url, name=name, media_type=media_type)
    if "data" in part:
        return Part(data=part["data"], is_data=True)
    text = part.get("text")
    return Part(text=text if isinstance(text, str) else "")


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""


ABOUT = "mcpbridge/agent"
"""In `_meta` of a result: `state`, `taskId` and `contextId`, as programs may want to know."""

_FAILED = {
    "failed": "The agent could not do it.",
    "rejected": "The agent does not do it.",
    "canceled": "The task was cancelled before it was done.",
}


def result_of(record: Record, redact: Callable[[str], str]) -> dict[str, Any]:
    """The result, as a JSON object. Files that hold what `redact` masks are left out; texts are not masked yet."""
    parts = [part for artifact in record.artifacts.values() for part in artifact.parts]
    if text_of(parts) != text_of(record.status_parts) or not parts:
        parts += record.status_parts
    parts = parts or record.answer
    blocks = [block for part in parts if (block := _block(part, record, redact)) is not None]
    note = _note(record)
    if note:
        blocks.append({"type": "text", "text": note})
    if not blocks:
        blocks.append({"type": "text", "text": "(the agent is done and said nothing)"})
    ids = {"taskId": record.task_id, "contextId": record.context_id}
    about = {"state": record.state, **{name: value for name, value in ids.items() if value}}
    result: dict[str, Any] = {"content": blocks, "_meta": {ABOUT: about}}
    data = [part.data for part in parts if part.is_data]
    if data:
        result["structuredContent"] = data[0] if len(data) == 1 and isinstance(data[0], dict) else {"data": data}
    if record.state in _FAILED:
        result["isError"] = True
    return result


def _note(record: Record) -> str:
    """What the caller needs to know to go on."""
    ids = {"task_id": record.task_id, "context_id": record.context_id}
    both = " and ".join(f'{name} "{value}"' for name, value in ids.items() if value)
    if record.state == "input-required":
        return f"The agent waits for an answer: call again with it as the message, with {both}."
    if record.state == "auth-required":
        return (
            "The agent waits until somebody signs in or allows something: tell the user what it wants. "
            f"To see what became of it, call again with {both} and no message."
        )
    if record.state in _FAILED:
        return _FAILED[record.state]
    return f'To continue this conversation: context_id "{record.context_id}".' if record.context_id else ""


def _block(part: Part, record: Record, redact: Callable[[str], str]) -> dict[str, Any] | None:
    if part.is_data:
        return {"type": "text", "text": json.dumps(part.data, ensure_ascii=False, separators=(",", ":"))}
    if part.text is not None:
        return {"type": "text", "text": part.text} if part.text else None
    if part.url:
        link = {"type": "resource_link", "uri": part.url, "name": part.name or part.url.rpartition("/")[2] or part.url}
        return {**link, "mimeType": part.media_type} if part.media_type else link
    return _file(part, record, redact)


def _file(part: Part, record: Record, redact: Callable[[str], str]) -> dict[str, Any]:
    name = part.name or "file"
    try:
        size = len(base64.b64decode(part.raw, validate=True))
    except (binascii.Error, ValueError):
        return {"type": "text", "text": f"(the agent sent the file {name}, which cannot be read: it is no base64)"}
    if redact(part.raw) != part.raw:
        return {"type": "text", "text": f"(the file {name} is left out: a secret of the configuration is in it)"}
    kind = part.media_type.partition("/")[0]
    if kind in ("image", "audio") and size:
        return {"type": kind, "data": part.raw, "mimeType": part.media_type}
    media_type = part.media_type or "application/octet-stream"
    uri = f"a2a://{record.task_id or record.context_id or 'agent'}/{quote(name)}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": part.raw}}
