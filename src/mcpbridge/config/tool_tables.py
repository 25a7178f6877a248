"""The tables of `[tools]`, and those that spec files stand for: each is checked by the settings of its kind.

A mistake in a spec file is reported with that file and the key in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from mcpbridge.base.errors import ConfigError
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.error_messages import LineOf, as_config_error, dotted, place
from mcpbridge.config.variables import Expansion, Missing
from mcpbridge.core.model import OWN
from mcpbridge.tools.factory import KEYS, model_of, read_settings
from mcpbridge.tools.settings import BackendSettings

if TYPE_CHECKING:  # loaded where a file names specs
    from mcpbridge.tools.spec_files import SpecTool


_LARGEST_SPEC = 4 << 20


class _Origin:
    """Where a table stands."""

    def __init__(self, file: str, key: Sequence[str], line_of: LineOf) -> None:
        self.file, self.key, self._line_of = file, list(key), line_of

    def place(self, inner: Sequence[str] = ()) -> str:
        return place(self.file, self._line_of([*self.key, *inner]))


def read_tools(
    expanded: Mapping[str, object], document: Mapping[str, object], expansion: Expansion, file: str, line_of: LineOf
) -> tuple[dict[str, BackendSettings], list[str]]:
    """The settings of every backend, by name, and warnings for people.

    `expanded` is the document with its variables filled in, by `expansion`, which fills in those of spec files too.

    Raises:
        ConfigError: a table or a spec file is wrong.
    """
    found: dict[str, BackendSettings] = {}
    origins: dict[str, str] = {}
    tables = expanded.get("tools")
    written = document.get("tools")
    for name, table in cast("dict[str, object]", tables).items() if isinstance(tables, dict) else ():
        origin = _Origin(file, ["tools", name], line_of)
        lost = [one for one in expansion.missing if one.key[:2] == ("tools", name)]
        lost += expansion.unread("tools", name, KEYS)
        own = cast("dict[str, object]", written).get(name) if isinstance(written, dict) else None
        found[name] = _read(name, table, own, origin, lost, expansion.directory)
        origins[name] = origin.place()
    warnings: list[str] = []
    specs = expanded.get("spec")
    for number, named in enumerate(cast("list[object]", specs) if isinstance(specs, list) else ()):
        if not isinstance(named, str):
            continue  # the model says so
        path = expansion.directory / Path(named).expanduser()
        for one in _spec(path, place(file, line_of(["spec", str(number)])), expansion.files):
            if one.name in found:
                what = f"a tool of this name exists already ({origins[one.name]})"
                raise ConfigError(what, file=one.file, key=one.key, hint="Give one of them another name.")
            found[one.name], origins[one.name] = _of_spec(one, expansion), f"{one.file}: {one.key}"
            warnings += one.warnings
    _refuse_clashes(found, origins, expanded)
    return found, warnings


def _read(
    name: str, table: object, written: object, origin: _Origin, lost: Sequence[Missing], directory: Path
) -> BackendSettings:
    _refuse_name(name, origin)
    if not isinstance(table, dict):
        raise ConfigError("expected a table of keys and values", file=origin.place(), key=dotted(origin.key))
    given = dict(cast("dict[str, object]", table))
    if "unavailable" in given:
        raise ConfigError("unknown key", file=origin.place(["unavailable"]), key=dotted([*origin.key, "unavailable"]))
    if lost:
        _without_lost_values(given, lost, len(origin.key))
    _from_directory(given, directory)
    try:
        return cast("BackendSettings", read_settings(given))
    except ValidationError as error:
        model = _model(given)
        inner = cast("dict[str, object]", written) if isinstance(written, dict) else {}
        raise as_config_error(
            error, inner, root=model, file=origin.file, line_of=lambda key: _line(origin, key), within=origin.key
        ) from None
    except ValueError as error:
        raise ConfigError(str(error), file=origin.place(), key=dotted(origin.key)) from None


def _line(origin: _Origin, key: Sequence[str]) -> int | None:
    told = origin.place(key).rpartition(":")[2]
    return int(told) if told.isdigit() else None


def _model(table: Mapping[str, object]) -> type[BaseModel]:
    return model_of(next(KEYS[key] for key in KEYS if table.get(key) is not None))


def _refuse_name(name: str, origin: _Origin) -> None:
    if len(name) > foreign.NAME_LENGTH or not foreign.NAME.fullmatch(name):
        hint = f"Use letters, digits, - and _, a letter or digit first, at most {foreign.NAME_LENGTH} characters."
        raise ConfigError("not usable as the name of a tool", file=origin.place(), key=dotted(origin.key), hint=hint)


def _refuse_clashes(
    backends: Mapping[str, BackendSettings], origins: Mapping[str, str], expanded: Mapping[str, object]
) -> None:
    servers = expanded.get("servers")
    for name in backends:
        if (isinstance(servers, dict) and name in servers) or name in OWN:
            what = "a server is called so too" if name not in OWN else "the bridge's own tools have this name"
            file, _, key = origins[name].partition(": ")
            hint = "Give one of them another name."
            raise ConfigError(what, file=file, key=key or dotted(["tools", name]), hint=hint)


def _spec(path: Path, named_at: str, files: dict[str, str]) -> "Iterator[SpecTool]":
    from mcpbridge.tools.spec_files import read_spec

    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_SPEC + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror} (named in {named_at})", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8", file=str(path), hint="Save it as UTF-8.") from error
    if len(data) > _LARGEST_SPEC:
        raise ConfigError("larger than 4 MiB, which no spec is", file=str(path))
    files[str(path)] = text
    yield from read_spec(text, str(path))


def _of_spec(one: "SpecTool", expansion: Expansion) -> BackendSettings:
    """The settings of one item of a spec file, its variables filled in."""
    before = len(expansion.missing)
    table = expansion.of(dict(one.table), ("tools", one.name))
    lost = [*expansion.missing[before:], *expansion.unread("tools", one.name, KEYS)]
    del expansion.missing[before:]  # they take this tool out, and nothing else
    origin = _Origin(one.file, [one.key], lambda key: None)
    _refuse_name(one.name, origin)
    given = cast("dict[str, Any]", table)
    if lost:
        _without_lost_values(given, lost, 2)
    _from_directory(given, Path(one.file).parent)
    try:
        return cast("BackendSettings", read_settings(given))
    except ValidationError as error:
        first = error.errors()[0]
        inner = ".".join(str(part) for part in first["loc"])
        key = one.keys.get(inner, f"{one.key}.{inner}" if inner else one.key)
        what = str(first["msg"]).removeprefix("Value error, ")
        raise ConfigError(what[:1].lower() + what[1:], file=one.file, key=key) from None
    except ValueError as error:
        raise ConfigError(str(error), file=one.file, key=one.key) from None


def _without_lost_values(table: dict[str, object], lost: Sequence[Missing], depth: int) -> None:
    """Make the rest of a table checkable whose variables are missing, and say in it why it is off."""
    for missing in lost:
        key = missing.key[depth]
        if key in KEYS:
            table[key] = {"endpoint": "http://unavailable.invalid", "openapi": "http://unavailable.invalid"}.get(
                key, ["unavailable"] if key == "command" else "unavailable:unavailable"
            )
        else:
            table.pop(key, None)
    reasons = dict.fromkeys(f"{missing.reason} in {dotted(missing.key[depth:])}" for missing in lost)
    table["unavailable"] = "; ".join(reasons)


_PATHS = ("cwd", "descriptor")
_TLS_PATHS = ("ca", "cert", "key")


def _from_directory(table: dict[str, object], directory: Path) -> None:
    """Let relative paths start where the file is: a client may start the bridge anywhere."""
    for key in _PATHS:
        if isinstance(value := table.get(key), str) and value:
            table[key] = str(directory / Path(value).expanduser())
    document = table.get("openapi")
    if isinstance(document, str) and document and "://" not in document:
        table["openapi"] = str(directory / Path(document).expanduser())
    command = table.get("command")
    if isinstance(command, list) and command:
        program, *arguments = cast("list[object]", command)
        if isinstance(program, str) and ("/" in program or program.startswith("~")) and "{" not in program:
            table["command"] = [str(directory / Path(program).expanduser()), *arguments]
    tls = table.get("tls")
    if isinstance(tls, dict):
        files = cast("dict[str, object]", tls)
        for key in _TLS_PATHS:
            if isinstance(value := files.get(key), str) and value:
                files[key] = str(directory / Path(value).expanduser())
