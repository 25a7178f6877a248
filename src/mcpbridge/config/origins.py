"""Where each value of the running configuration comes from: the file, a variable that the file names, or the default.

Pure. Secrets are the caller's to mask: values are shown by `redact`, and what a variable brought is not shown at all.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct
from pydantic import BaseModel

from mcpbridge.base.masking.mask import MASK
from mcpbridge.config.schema import Settings

Origin = Literal["file", "variable", "default", "value file", "command", "keyring", "secret"]
"""`file`: the configuration itself; a `value file` is one of `${file:PATH}`, a `secret` one of `mcpbridge secret`."""

_REFERENCE = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_NAMED_SECTIONS = frozenset({"servers", "tools", "profiles"})
"""Sections of tables that people name: only what the file says of them is shown."""
_PRIVATE = re.compile(r"(?i)token(?!izer)|secret|password|authorization|headers|env\b|key\b|sha256|cookie|webhook")


class Value(Struct, frozen=True):
    """One value that is in effect."""

    key: str
    """As in `servers.toml`, with dots: `results.threshold`."""
    value: Any
    """As JSON; masked where it may be a secret."""
    origin: Origin
    source: str = ""
    """What the value stands for in the file, of a variable: `${NAME}`."""


def effective_values(settings: Settings, document: Mapping[str, Any], redact: Callable[[str], str]) -> list[Value]:
    """Every value, by section. `document`: the tables of the file, variables not filled in."""
    found: list[Value] = []
    for section in Settings.model_fields:
        if section == "source":
            continue
        said = document.get(section)
        value = getattr(settings, section)
        if section in _NAMED_SECTIONS:
            if isinstance(said, Mapping):
                found += _leaves(section, cast("Mapping[str, Any]", said), redact)
        elif isinstance(value, BaseModel):
            found += _of_section(section, value, said, redact)
        elif said is not None or value:
            found.append(_value(section, said, value, redact))
    return found


def _of_section(section: str, model: BaseModel, written: Any, redact: Callable[[str], str]) -> Iterator[Value]:
    table: Mapping[str, Any] = cast("Mapping[str, Any]", written) if isinstance(written, Mapping) else {}
    values = model.model_dump(mode="json")
    for name, value in values.items():
        yield _value(f"{section}.{name}", table.get(name), value, redact)


def _leaves(key: str, value: Any, redact: Callable[[str], str]) -> Iterator[Value]:
    """What the file says of named tables, one value each."""
    if isinstance(value, Mapping) and value:
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _leaves(f"{key}.{name}", inner, redact)
    else:
        yield _value(key, value, value, redact)


def _value(key: str, written: Any, value: Any, redact: Callable[[str], str]) -> Value:
    if written is None:
        return Value(key, _masked(key, value, redact), "default")
    references = [match.group() for match in _REFERENCE.finditer(str(written))]
    if references:
        return Value(key, MASK, _origin(references[0]), redact(", ".join(dict.fromkeys(references))))
    return Value(key, _masked(key, value, redact), "file")


def _origin(reference: str) -> Origin:
    """Where a reference gets its value from."""
    kind, colon, rest = reference[2:-1].partition(":")
    if not colon:
        return "variable"
    if kind == "keyring":
        return "keyring" if "/" in rest else "secret"
    kinds: dict[str, Origin] = {"file": "value file", "cmd": "command", "secret": "secret"}
    return kinds.get(kind, "variable")


def _masked(key: str, value: Any, redact: Callable[[str], str]) -> Any:
    if value in (None, "", [], {}) or isinstance(value, bool | int | float):
        return value
    if _PRIVATE.search(key):
        return MASK
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, BaseModel):  # of a list of tables, such as `permissions`: what is set in it
        return _masked(key, value.model_dump(mode="json", exclude_defaults=True), redact)
    if isinstance(value, Mapping):
        return {name: _masked(f"{key}.{name}", one, redact) for name, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_masked(key, one, redact) for one in cast("list[Any]", value)]
    return redact(str(value))
