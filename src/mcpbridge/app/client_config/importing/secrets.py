"""Take the secrets out of a server, so that others may read its description; and name what they are moved to. Pure.

Where each one stood, a reference is put: whoever calls says which. Only the secret itself goes, so that people still
see what it belongs to: `Bearer ${STRIPE_TOKEN}`, `postgresql://shop:${DB_PASSWORD}@localhost/shop`.

A secret is called what the server's own variable or option is called. Where two servers have different secrets under
one name, each gets the server's name before it; so does one whose name means something else on this machine already.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast
from urllib.parse import unquote

from mcpbridge.app.client_config.discover.variables import variable_name
from mcpbridge.app.client_config.importing.secret_detection import (
    ISSUED,
    URL_PASSWORD,
    has_secret_shape,
    is_opaque,
    is_secret_name,
    is_secret_value,
)

Json = dict[str, object]
Take = Callable[[str, str], str]
"""Gets the name that a secret would have as a variable, and the secret; returns what to put in its place."""

_REFERENCE = re.compile(r"(?<!\$)\$\{")
_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|key)\s+")
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):\s*")
_MEMBER = re.compile(r'"([A-Za-z0-9_-]+)"(\s*:\s*)"((?:[^"\\]|\\.)+)"')


def without_secrets(name: str, server: Json, take: Take) -> Json:
    """The same server with each secret handed to `take`, and what that returned in its place.

    `name`: of the server; it distinguishes what many servers have (`Authorization`).
    """
    return _Taking(variable_name(name), take).server(server)


class _Taking:
    def __init__(self, prefix: str, take: Take) -> None:
        self._prefix, self._hand_over = prefix, take

    def server(self, server: Json) -> Json:
        cleaned = dict(server)
        if isinstance(env := server.get("env"), dict):
            cleaned["env"] = {key: self._variable(key, value) for key, value in cast("Json", env).items()}
        if isinstance(args := server.get("args"), list):
            cleaned["args"] = self._arguments(cast("list[object]", args))
        if isinstance(headers := server.get("headers"), dict):
            cleaned["headers"] = {key: self._header(key, value) for key, value in cast("Json", headers).items()}
        if isinstance(url := server.get("url"), str):
            cleaned["url"] = self._query(url)
        if isinstance(proxy := server.get("proxy"), str):
            cleaned["proxy"] = self._password(proxy, "PROXY_PASSWORD")
        for section, keys in (("auth", ("client_secret", "private_key")), ("tls", ("key_password",))):
            if isinstance(table := server.get(section), dict):
                members = cast("Json", table)
                cleaned[section] = {
                    key: self._whole(self._own(key), value) if key in keys else value for key, value in members.items()
                }
        return cleaned

    def _take(self, name: str, value: str) -> str:
        return self._hand_over(name, value.replace("$${", "${"))

    def _own(self, name: str) -> str:
        """The name with the server's before it, unless that stands there already."""
        name = variable_name(re.sub(r"^[Xx]-", "", name))
        return name if name.startswith(self._prefix) else f"{self._prefix}_{name}"

    def _whole(self, name: str, value: object) -> object:
        if not isinstance(value, str) or not value or _REFERENCE.search(value):
            return value
        return self._take(name, value)

    def _variable(self, name: str, value: object) -> object:
        if isinstance(value, str) and is_secret_value(name, value):
            return self._whole(variable_name(name), value)
        return value

    def _header(self, name: str, value: object) -> object:
        if not isinstance(value, str) or _REFERENCE.search(value):
            return value
        scheme = _SCHEME.match(value)
        rest = value[scheme.end() :] if scheme else value
        is_credential = name.lower() in ("authorization", "proxy-authorization", "cookie")
        if not rest or not (is_credential or is_secret_name(name) or has_secret_shape(rest)):
            return value
        proposal = self._own("token") if name.lower() == "authorization" else self._own(name)
        return (scheme[0] if scheme else "") + self._take(proposal, rest)

    def _arguments(self, args: list[object]) -> list[object]:
        cleaned: list[object] = []
        before = ""
        for argument in args:
            cleaned.append(self._argument(argument, before) if isinstance(argument, str) else argument)
            before = argument if isinstance(argument, str) else ""
        return cleaned

    def _argument(self, argument: str, before: str) -> str:
        if _REFERENCE.search(argument):
            return argument
        option, equals, value = argument.partition("=")
        if equals and value and re.fullmatch(r"-*[A-Za-z_][\w.-]*", option):
            cleaned = self._argument(value, "") if option.startswith("-") else value
            if cleaned == value and is_secret_value(option, value):
                name = variable_name(option)
                return f"{option}={self._take(self._own(name) if option.startswith('-') else name, value)}"
            return f"{option}={cleaned}"
        if before.startswith("-") and "=" not in before and not argument.startswith("-"):
            known_as = before.lstrip("-")
            if len(known_as) > 1 and is_secret_value(known_as, argument) and not _has_parts(argument):
                return self._take(self._own(known_as), argument)
        if header := _HEADER.match(argument):
            given = argument[header.end() :]
            if not given.startswith("//"):
                return argument[: header.end()] + str(self._header(header[1], given))
        return self._parts(argument)

    def _parts(self, text: str) -> str:
        """A text of any kind, without what in it looks like a secret."""
        if re.match(r"[a-z][a-z0-9+.-]*://", text):
            return self._query(self._password(text, "PASSWORD"))

        def member(match: re.Match[str]) -> str:
            name, colon, value = match.groups()
            if not is_secret_value(name, value):
                return match[0]
            return f'"{name}"{colon}"{self._take(self._own(name), value)}"'

        text = _MEMBER.sub(member, text)
        if has_secret_shape(text) and not _has_parts(text):
            return self._take(self._own("secret"), text)
        return ISSUED.sub(lambda found: self._take(self._own("secret"), found[0]), text)

    def _password(self, url: str, name: str) -> str:
        def password(match: re.Match[str]) -> str:
            if not match[2] or _REFERENCE.search(match[2]):
                return match[0]
            return f"{match[1]}:{self._take(self._own(name), match[2])}"

        return URL_PASSWORD.sub(password, url)

    def _query(self, url: str) -> str:
        """Secrets among the names of the path, and in the query."""
        path, mark, query = url.partition("?")

        def parameter(match: re.Match[str]) -> str:
            name, value = match[1], match[2]
            if _REFERENCE.search(value) or not is_secret_value(unquote(name), value):
                return match[0]
            return f"{name}={self._take(self._own(unquote(name)), value)}"

        def segment(match: re.Match[str]) -> str:
            text = match[0]
            is_secret = not _REFERENCE.search(text) and (has_secret_shape(text) or is_opaque(text))
            return self._take(self._own("url_secret"), match[0]) if is_secret else match[0]

        host = re.match(r"[a-z0-9+.-]*://[^/]*", path, re.IGNORECASE)
        start = host.end() if host else 0
        return (
            path[:start]
            + re.sub(r"[^/]+", segment, path[start:])
            + mark
            + re.sub(r"([^&=#]+)=([^&#]*)", parameter, query)
        )


def _has_parts(text: str) -> bool:
    """Whether a text is more than one word, so that only a part of it can be the secret."""
    return bool(re.search(r"\s|://", text))


@dataclass(frozen=True, slots=True)
class Proposed:
    """A secret of a server, and the name that it would have."""

    server: str
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Moved:
    """A secret that is somewhere else now."""

    variable: str
    """The variable, or the file, that holds it."""

    servers: tuple[str, ...]
    value: str = field(repr=False)
    """Never shown."""

    is_set: bool = False
    """It holds that already."""


def name_secrets(
    proposed: Sequence[Proposed], held: Callable[[str], str | None]
) -> tuple[dict[Proposed, str], list[Moved]]:
    """The name of each secret, and what is moved. `held`: what a name holds on this machine by now; None: nothing."""
    values: dict[str, set[str]] = {}
    for one in proposed:
        values.setdefault(one.name, set()).add(one.value)
    taken: dict[str, str] = {}
    names: dict[Proposed, str] = {}
    for one in proposed:
        candidates = _candidates(one, is_shared=len(values[one.name]) > 1)
        name = next(name for name in candidates if taken.get(name, held(name)) in (None, one.value))
        taken[name] = one.value
        names[one] = name
    moved = [
        Moved(
            name,
            tuple(dict.fromkeys(one.server for one, known_as in names.items() if known_as == name)),
            value,
            is_set=held(name) == value,
        )
        for name, value in taken.items()
    ]
    return names, moved


def _candidates(one: Proposed, *, is_shared: bool) -> Iterator[str]:
    prefix = variable_name(one.server)
    longer = one.name if one.name.startswith(prefix) else f"{prefix}_{one.name}"
    if not is_shared or longer == one.name:
        yield one.name
    yield longer
    for number in count(2):
        yield f"{longer}_{number}"
