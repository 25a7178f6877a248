"""The wording of mistakes in a configuration: what pydantic found, as one `ConfigError` that a person can act on.

It names file, line, key, the value as it was written (never an expanded one, which may be a secret) and the nearest
valid key.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import SECRET_NAME
from mcpbridge.base.suggestions import nearest

LineOf = Callable[[Sequence[str]], int | None]
"""The line of a key in the file at hand, if it is known."""

_SET_WHILE_LOADING = {"unavailable", "project_texts", "written", "source"}
_WHAT = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected a table of keys and values"),
    "list_type": "expected a list",
}
"""Mistakes that pydantic reports in words of its own, which name our classes."""
_ALSO = {"retry": "expected a number of tries, or a table of keys and values"}
"""Keys whose table may be something shorter."""
_NOT_SHOWN = {"env", "headers", "tokens", "args", "url", "proxy", "key_password"}
"""Sections whose values may be secrets."""
_MOST_SECTIONS = 2
"""A key that more sections have, such as `timeout`, says nothing of where it belongs."""


def dotted(key: Sequence[str]) -> str:
    """A key as TOML writes it: `servers.github.tool."a.b".rename`."""
    parts = [part if part.replace("-", "").replace("_", "").isalnum() else f'"{part}"' for part in key]
    return ".".join(parts)


def place(file: str, line: int | None) -> str:
    """`file:line`, or the file alone."""
    return f"{file}:{line}" if line else file


def unknown_key(root: type[BaseModel], key: Sequence[str], *, file: str, line_of: LineOf) -> ConfigError:
    """The error for a key that does not exist; names the nearest of those that do."""
    model = _model_at(root, key[:-1])
    fields = model.model_fields.items() if model else ()
    valid = sorted({field.alias or name for name, field in fields} - _SET_WHILE_LOADING)
    close = nearest(key[-1], valid, limit=1) or nearest(key[-1].lower().replace("-", "_"), valid, limit=1)
    hint = f"Did you mean `{close[0]}`?" if close else f"Valid keys here: {', '.join(valid)}." if valid else ""
    if len(key) == 2 and (elsewhere := _sections_with(root, key[-1])):
        hint = f"`{key[-1]}` belongs in {elsewhere}."
    return ConfigError("unknown key", file=place(file, line_of(key)), key=dotted(key), hint=hint or None)


def _sections_with(root: type[BaseModel], name: str) -> str:
    """The sections at the top that have this very key; empty: none has."""
    models = {section: _model_at(root, [section]) for section in root.model_fields}
    named = [f"`[{section}]`" for section, model in models.items() if model is not None and name in model.model_fields]
    return " or ".join(named) if len(named) <= _MOST_SECTIONS else ""


def as_config_error(
    error: ValidationError,
    document: Mapping[str, object],
    *,
    root: type[BaseModel],
    file: str,
    line_of: LineOf,
    within: Sequence[str] = (),
) -> ConfigError:
    """The first mistake, with the others behind it. `document` is the configuration as it was written.

    `within`: where in the file the document is; `line_of` takes keys inside of it.
    """
    found = [_one(details, document, root, file, line_of) for details in error.errors()]
    if within:
        found = [ConfigError(one.what, file=one.file, key=_inside(within, one.key), hint=one.hint) for one in found]
    return together(found)


def _inside(within: Sequence[str], key: str | None) -> str:
    return f"{dotted(within)}.{key}" if key else dotted(within)


def together(mistakes: Sequence[ConfigError]) -> ConfigError:
    """The first mistake, with the others behind it; there is at least one."""
    first, *others = mistakes
    hint = "\n  ".join(filter(None, [first.hint, *map(_behind, others)]))
    return ConfigError(first.what, file=first.file, key=first.key, hint=hint or None)


def _behind(other: ConfigError) -> str:
    """A further mistake, in lines that stand below the first."""
    text = f"{other.file}: {other.key}: {other.what}"
    return f"{text}\n  {other.hint}".replace("\n", "\n  ") if other.hint else text


def _one(
    details: Any, document: Mapping[str, object], root: type[BaseModel], file: str, line_of: LineOf
) -> ConfigError:
    key = [str(part) for part in details["loc"] if part != "[key]"]
    written = _value_at(document, key)
    while key and written is _ABSENT and details["type"] != "missing":
        key.pop()  # pydantic adds which member of a union it tried
        written = _value_at(document, key)
    if details["type"] == "extra_forbidden":
        return unknown_key(root, key, file=file, line_of=line_of)
    takes_list = key[:1] == ["hooks"] or ("command" in root.model_fields and "servers" not in root.model_fields)
    if key[-1:] == ["command"] and (better := _as_command(written, is_hook=takes_list)):
        what, fix = better
        return ConfigError(what, file=place(file, line_of(key)), key=dotted(key), hint=f"Write:\n{fix}")
    what = _ALSO.get(key[-1], "") if details["type"] == "model_type" and key else ""
    what = what or _WHAT.get(details["type"]) or str(details["msg"]).removeprefix("Value error, ")
    what = what[:1].lower() + what[1:]
    if isinstance(written, str | int | float) and not _NOT_SHOWN.intersection(key):
        what += f" (found {_value_text(written)})"
    elif details["type"] == "missing":
        what = "missing"
    return ConfigError(what, file=place(file, line_of(key)), key=dotted(key))


def _as_command(written: object, *, is_hook: bool) -> tuple[str, str] | None:
    """What is wrong with a command that has its arguments in it (of a hook: that has none), and how it is written."""
    if isinstance(written, str):
        try:
            words = shlex.split(written)
        except ValueError:  # an open quote
            words = written.split()
    elif isinstance(written, list) and not is_hook:
        words = [str(word) for word in cast("list[object]", written)]
    else:
        return None
    if not words or (written == words[0] and not is_hook):
        return None
    program, *arguments = (json.dumps(word, ensure_ascii=False) for word in words)
    if any(map(SECRET_NAME.search, arguments)):
        arguments = ["…"]
    if is_hook:
        fix = f"    command = [{', '.join([program, *arguments])}]"
        return "expected a list: the program and its arguments", fix
    fix = f"    command = {program}\n    args = [{', '.join(arguments)}]"
    return "expected the program alone; its arguments belong into `args`", fix


def _value_text(value: str | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


_ABSENT = object()


def _value_at(document: object, key: Sequence[str]) -> object:
    for part in key:
        if isinstance(document, dict):
            document = cast("dict[str, object]", document).get(part, _ABSENT)
        elif isinstance(document, list) and part.isdigit() and int(part) < len(cast("list[object]", document)):
            document = cast("list[object]", document)[int(part)]
        else:
            return _ABSENT
    return document


def _model_at(root: type[BaseModel], key: Sequence[str]) -> type[BaseModel] | None:
    """The model whose fields are the valid keys at `key`; None where any key is valid."""
    kind: Any = root
    for part in key:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(part)
            kind = field.annotation if field else None
        else:
            kind = get_args(kind)[-1] if get_args(kind) else None  # the values of a dict, the items of a list
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
