"""What a line of the audit log says of a call or of what else happened, with secrets masked. On the writer's thread."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpbridge.base.hidden_text import with_hidden_shown, without_hidden
from mcpbridge.base.masking.known_values import known_only
from mcpbridge.core.recording import uid_text
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.storage.call_log.format import CallRecord

CALL = "call"
"""The kind of a line about a call; what else happened has the names of events, such as `approval.granted`."""

_LONGEST_NAME = 1000
_LONGEST_TEXT = 500
_MOST_NAMES = 2000
_LARGEST = 1 << 63
"""Whole numbers from here on are written as texts."""
_MARGIN = 4096
"""Bytes of arguments that are looked at beyond what is kept, so that a secret at the edge is not kept in part."""
_OF_CONTENT = ("message", "kept")
"""What is noted of a call that quotes it, or lets somebody read its result."""
_OF_EVENTS = frozenset(
    [
        *("principal", "user", "role", "client", "client_version", "oauth_client", "address", "session"),
        *("server", "tool", "outcome", "who", "detail", "rule", "approval"),
    ]
)
"""What events say that has a field of its own; the rest is below `facts`."""
_IN_WORDS_OF_CLIENTS = ("tool", "detail")
"""What of events can hold any text of a client, such as the name of a tool that there is not."""
_OWN = ("rule", "permission", "approval")
"""What is noted of a call and has a field of its own."""


class Entries:
    """Makes the fields of lines."""

    def __init__(self, redact: Callable[[str], str], *, keeps_arguments: bool, max_arguments: int) -> None:
        self._redact, self._known = redact, known_only(redact)
        self._keeps_arguments, self._max_arguments = keeps_arguments, max_arguments
        self._names: dict[str, str] = {}

    def of_call(self, record: CallRecord) -> dict[str, Any]:
        """Of a call; fields without a value are left out."""
        name = self._name
        noted = dict(record.facts) if record.facts else {}
        arguments: dict[str, Any] = {"bytes": len(record.arguments), "sha256": canonical_digest(record.arguments)}
        if self._keeps_arguments and record.arguments:
            arguments["value"] = self._text_of(record.arguments)
        fields: dict[str, Any] = {
            "principal": name(record.principal),
            "user": name(record.user),
            "role": name(record.role),
            "client": name(record.client),
            "client_version": name(record.client_version),
            "oauth_client": name(record.oauth_client),
            "address": name(record.address),
            "session": name(record.session),
            "run": name(record.run),
            "server": record.server,
            "tool": name(record.tool),
            "method": name(record.method),
            "outcome": record.outcome,
            "error": self._text(record.error),
            "rule": self._value(noted.get("rule", "")) or name(record.rule),
            "permission": self._value(noted.get("permission", "")),
            "approval": self._value(noted.get("approval", "")),
            "arguments": arguments,
            "result": {"bytes": record.received, "tokens": record.tokens} if record.received else None,
            "seconds": round(record.seconds, 6),
            "call": uid_text(record.uid) if record.uid else "",
            "parent": uid_text(record.parent) if record.parent else "",
            "facts": {key: self._value(value) for key, value in noted.items() if key not in (*_OF_CONTENT, *_OWN)},
        }
        return {key: value for key, value in fields.items() if value not in ("", None, {})} | {
            "principal": fields["principal"]  # empty says that it is the local user
        }

    def of_event(self, facts: Mapping[str, object]) -> dict[str, Any]:
        """Of what is no call. Bytes as `arguments` are those of a call."""
        fields: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in facts.items():
            if key == "arguments" and isinstance(value, bytes):
                fields[key] = {"bytes": len(value), "sha256": canonical_digest(value)}
                if self._keeps_arguments:
                    fields[key]["value"] = self._text_of(value)
            elif key != "at" and value not in ("", None):
                is_of_client = key in _IN_WORDS_OF_CLIENTS
                masked = self._client_text(str(value)) if is_of_client else self._value(value)
                (fields if key in _OF_EVENTS else rest)[key] = masked
        return {**fields, "facts": rest} if rest else fields

    def _name(self, text: str) -> str:
        if not text:
            return ""
        masked = self._names.get(text)
        if masked is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            masked = self._names[text] = _plain(self._known(text)[:_LONGEST_NAME])
        return masked

    def _text(self, text: str) -> str:
        return _plain(self._redact(text)[:_LONGEST_TEXT]) if text else ""

    def _client_text(self, text: str) -> str:
        """With hidden characters visible. A secret that they stand in is masked, and they go with it."""
        clean = without_hidden(text)
        return self._text(with_hidden_shown(text) if self._redact(clean) == clean else clean)

    def _text_of(self, data: bytes) -> str:
        text = data[: self._max_arguments + _MARGIN].decode("utf-8", errors="replace")
        return self._redact(text).encode(errors="replace")[: self._max_arguments].decode("utf-8", errors="ignore")

    def _value(self, value: object) -> Any:
        if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _LARGEST):
            return value
        if isinstance(value, Mapping):
            members = cast("Mapping[object, object]", value)
            return {_plain(str(key))[:_LONGEST_NAME]: self._value(item) for key, item in members.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(item) for item in cast("list[object]", value)]
        return self._text(str(value))


def _plain(text: str) -> str:
    """A lone surrogate, which JSON can hold, has no UTF-8 form and would cost the whole line."""
    return text if text.isascii() else text.encode(errors="replace").decode()
