"""Rules for entries of the registry: how tables are read, what is refused, and what is masked when shown. Pure.

Tables are read like those of the file. The keys that may be shown are listed, so a new key is masked until somebody has
judged it.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.suggestions import nearest
from mcpbridge.config.check import Checked, check
from mcpbridge.config.schema import Settings
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.core.model import TOOLS
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.engine.registry.format import Entry
from mcpbridge.engine.registry.http_rules import RegistryProblem, Section, refuse_over_http
from mcpbridge.engine.registry.overlay import is_local, other_section, section_of
from mcpbridge.tools.settings import pack_name


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PRIVATE = _keys("env headers document_headers metadata auth params body constructor_args server_variables proxy tls")
"""Tables and texts that may hold credentials."""
_PLAIN = _keys(
    "title tags description method transport era questions may_ask question_rate share start service include exclude "
    "deprecated permission risk arguments late cache_scope side_effects rate_limit tools tool resources prompts "
    "results retry breaker input_schema output_schema annotations examples input_mapping output_mapping card health "
    "allow_origins command cwd function executor_class descriptor roots inherit_env grpc sandbox"
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
    return {key: _masked_setting(key, value, redact) for key, value in said.items()}


def _masked_setting(key: str, value: Any, redact: Callable[[str], str]) -> Any:
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


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table as JSON has it.

    Raises:
        RegistryProblem: `invalid`: JSON cannot have it.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(table)))
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise RegistryProblem("invalid", f"the table is no JSON: {type(error).__name__}") from error


def read(
    base: Settings,
    section: Section,
    name: str,
    table: dict[str, Any],
    environ: Mapping[str, str],
    *,
    providers: Providers | None = None,
) -> Checked:
    """What a table comes to, variables filled in, as if it stood in the file. What is wrong names no secret.

    `providers`: as for `check`.

    Raises:
        ConfigError: it is wrong.
    """
    path = Path(base.source) if base.source else Path("servers.toml").absolute()
    try:
        return check({section: {name: table}}, path, environ, lambda key: None, providers=providers)
    except ConfigError as error:
        told = str(error).replace(f"{path}: ", "")
        for text in private_texts(table):
            told = told.replace(repr(text), "'…'")  # however short
        raise ConfigError(Redactor(private_texts(table))(told)) from None


def require(now: Settings, section: Section, name: str) -> OfferSettings:
    """What is set of a server or tool.

    Raises:
        RegistryProblem: `unknown`.
    """
    known = section_of(now, section)
    if name not in known:
        close = nearest(name, known, limit=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RegistryProblem("unknown", f"there is no {noun(section)} {name[:100]!r}{hint}")
    return known[name]


def owner(now: Settings, section: Section, name: str, tool: str = "") -> tuple[Section, str, str]:
    """Whose setting it is to switch what a name means; see `Registry.owner`.

    Raises:
        RegistryProblem: `unknown`.
    """
    if tool or name in section_of(now, section):
        return section, name, tool
    head, _, rest = name.partition("/")
    if head == TOOLS and rest in now.tools:
        return "tools", rest, ""
    if rest and head in now.servers:
        return "servers", head, rest
    if rest and head in now.tools:
        return "tools", head, rest
    require(now, section, name)
    return section, name, tool


def refuse_clash(base: Settings, now: Settings, section: Section, name: str) -> None:
    """Refuse a name that something else has.

    Raises:
        RegistryProblem: `exists`.
    """
    other = other_section(section)
    if name in section_of(now, other):
        raise RegistryProblem("exists", f"there is a {noun(other)} {name[:100]!r}: give this one another name")
    if name in map(pack_name, base.packs):
        raise RegistryProblem("exists", f"there is a pack {name[:100]!r}: give this one another name")


def refuse_local(base: Settings, section: Section, name: str, *, removes: bool = False) -> None:
    """Refuse to put something from elsewhere in the place of what the file `base` runs, or reads, on this machine.

    `removes`: it is to be taken out of the file instead.

    Raises:
        RegistryProblem: `forbidden`.
    """
    written = section_of(base, section).get(name)
    if written is not None and is_local(section, written):
        what = f"{name!r} is run on this machine, by its user's configuration"
        other = "give what comes over HTTP another name"
        if removes:
            other = "only who can change that file can take it out of it (`mcpbridge remove`)"
        raise RegistryProblem("forbidden", f"{what}: {other}")


def refuse_switching_on(base: Settings, section: Section, name: str, tool: str) -> None:
    """Refuse to switch on from elsewhere what the user's own file switches off.

    Raises:
        RegistryProblem: `forbidden`.
    """
    written = section_of(base, section).get(name)
    if written is None:
        return
    own = written.tool.get(tool)
    if written.disabled or (tool and own is not None and own.disabled):
        what = "the configuration file switches it off, and only who can change that file can switch it on"
        raise RegistryProblem("forbidden", f"{what} (`mcpbridge enable`)")


def refuse_keeping(base: Settings, entry: Entry) -> None:
    """Refuse what must not come out of a store, which others may be able to write to.

    Raises:
        RegistryProblem: `forbidden`, or `invalid`.
    """
    section, name = entry.section, entry.name
    try:
        if entry.table is not None:
            refuse_over_http(section, entry.table, variables=base.http.api_variables)
            refuse_local(base, section, name)
        if entry.disabled is False or entry.table is not None:
            refuse_switching_on(base, section, name, "")
        for tool, is_off in entry.tools.items():
            if not is_off:
                refuse_switching_on(base, section, name, tool)
    except RegistryProblem as problem:
        if entry.by.startswith("api:") or problem.code != "forbidden":
            raise
        told = f"{name!r} is not kept in the store, which others may write to ({problem}): write it to the file"
        raise RegistryProblem("forbidden", told) from problem


def noun(section: Section) -> str:
    """What one of its members is, for people."""
    return "server" if section == "servers" else "tool"
