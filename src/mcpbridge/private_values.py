"""What is nobody's business in the settings of a server or tool: found in tables, masked where they are shown. Pure.

What may be shown is listed, so that a key that comes later is masked until somebody has judged it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import BaseModel

__all__ = ["private_texts", "settings_as_json"]


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PRIVATE = _keys("env headers document_headers metadata auth params body constructor_args server_variables proxy tls")
"""Tables and texts that may hold credentials."""
_PLAIN = _keys(
    "title tags description method transport era questions share start service include exclude deprecated permission "
    "risk arguments late cache_scope side_effects rate_limit tools tool resources prompts results retry breaker "
    "input_schema output_schema annotations examples input_mapping output_mapping card health allow_origins command "
    "cwd function executor_class descriptor roots inherit_env grpc sandbox"
)
"""What is shown as it is; numbers and truth values that stand alone are, too."""
_ADDRESSES = _keys("url endpoint openapi agent base_url health card")
"""Shown without their query, which may hold a key."""

MASK = "…"


def private_texts(table: Mapping[str, Any]) -> Iterator[str]:
    """The texts in a table that may be credentials; of `Bearer TOKEN` the token as well."""
    for key, value in table.items():
        if key in _PRIVATE:
            for text in _texts(value):
                yield text
                scheme, _, rest = text.partition(" ")
                if rest and scheme.isalpha():
                    yield rest
        elif key in _ADDRESSES and isinstance(value, str):
            address, query = _parts(value)
            yield from (pair.partition("=")[2] for pair in query.split("&") if "=" in pair)
            if address not in value:  # it has credentials
                credentials = value.partition("://")[2].partition("@")[0]
                yield from (credentials, credentials.partition(":")[2])


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, object]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _texts(inner)


def settings_as_json(settings: BaseModel, redact: Callable[[str], str]) -> dict[str, Any]:
    """What is set of a server or tool and is not the default, as JSON values, secrets masked."""
    said = settings.model_dump(mode="json", exclude_defaults=True)
    return {key: _shown(key, value, redact) for key, value in said.items()}


def _shown(key: str, value: Any, redact: Callable[[str], str]) -> Any:
    if key in _ADDRESSES and isinstance(value, str):
        address, query = _parts(value)
        return redact(address) + (f"?{MASK}" if query else "")
    if key == "command" and isinstance(value, list):  # of a tool: a program and its arguments
        words = cast("list[Any]", value)
        return [*words[:1], *(MASK for _ in words[1:])]
    if key in _PLAIN:
        return _redacted(value, redact)
    return value if isinstance(value, bool | int | float) and key not in _PRIVATE else _masked(value)


def _parts(address: str) -> tuple[str, str]:
    """An address without its credentials and query, and the query."""
    head, _, query = address.partition("?")
    try:
        credentials = urlsplit(head).netloc.rpartition("@")[0]
    except ValueError:
        return MASK, query
    return head.replace(f"{credentials}@", "", 1) if credentials else head, query


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _masked(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_masked(inner) for inner in cast("list[Any]", value)]
    return value if value is None or isinstance(value, bool) else MASK


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _redacted(inner, redact) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_redacted(inner, redact) for inner in cast("list[Any]", value)]
    return redact(value) if isinstance(value, str) else value
