"""The configuration file as it is written: the line of a key, secrets written out, trust given away.

Values are never repeated in a finding.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from mcpbridge.app.client_config.importing.secret_detection import is_secret_name, is_secret_value
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.base.process.environment import withheld_variables
from mcpbridge.config import line_numbers as position
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.error_messages import place
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.http.host_and_origin import is_loopback
from mcpbridge.upstream.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Source:
    """One file that has been loaded before, so that it can be read."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: str) -> "Source":
        """The file as it is now. One that has gone since is empty."""
        try:
            return cls(Path(path), Path(path).read_text("utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            return cls(Path(path), "")

    @property
    def is_toml(self) -> bool:
        """It is of our own kind; else it is another program's JSON."""
        return self.path.suffix.lower() not in (".json", ".jsonc")

    def where(self, *key: str) -> str:
        """File and line of a key, or of the table that would hold it."""
        if self.is_toml:
            return place(str(self.path), position.toml_line(self.text, key))
        try:
            plain = foreign.plain_json(self.text)
            lines = (position.json_line(plain, [top, *key[1:]]) for top in ("mcpServers", "servers"))
            return place(str(self.path), next(filter(None, lines), None))
        except (ValueError, IndexError, RecursionError):
            return str(self.path)

    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables of the servers as they are written; empty when that cannot be read."""
        try:
            parsed: object = tomllib.loads(self.text) if self.is_toml else json.loads(foreign.plain_json(self.text))
        except (ValueError, RecursionError):
            return {}
        document = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        found: object = document.get("servers") or document.get("mcpServers")
        tables = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {name: cast("dict[str, Any]", table) for name, table in tables.items() if isinstance(table, dict)}


_VARIABLE = re.compile(r"(?<!\$)\$\{")
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


def about_withheld(settings: Settings, environ: Mapping[str, str], source: Source) -> Iterator[Finding]:
    """Proxies and package indexes of this machine that servers do not get, since they carry a password."""
    withheld = withheld_variables(environ)
    for name, server in settings.servers.items():
        if server.command is None or server.disabled or server.inherit_env is True:
            continue
        inherited = server.inherit_env or []
        if missing := [one for one in withheld if one not in inherited and one not in server.env]:
            listed = ", ".join(f'"{one}"' for one in [*inherited, *missing])
            what = f"it does not get {', '.join(missing)}: a password or a token is in there"
            why = "What only says how to reach the network is handed on; a server could send a password elsewhere."
            fix = f"If it needs them to start, and you trust it: inherit_env = [{listed}]."
            yield Finding("variable-withheld", "note", what, name, source.where("servers", name), why, fix)


def about_configuration(settings: Settings, source: Source) -> Iterator[Finding]:
    """All of it, server by server."""
    written = source.servers()
    for name, server in settings.servers.items():
        if not server.disabled:
            yield from _literal(name, written.get(name, {}), source)
            yield from _in_arguments(name, server, source)
            yield from _careless(name, server, source)
    if settings.daemon.http is not None and not settings.http.tokens and not _is_local(settings.daemon.http):
        fix = "Make a token with `mcpbridge token new`, and write it below `[[http.tokens]]`."
        why = "Other machines can reach the address, and without a token they could call every tool."
        where = source.where("daemon", "http")
        yield Finding("http-open", "warn", "HTTP is not served: there is no token for it", "", where, why, fix)
    if written and any(_literals(table) for table in written.values()) and _is_readable_by_others(source):
        fix = f"Run `chmod 600 {source.path}`."
        why = "It contains secrets."
        yield Finding(
            "config-readable", "warn", "other users can read the configuration", "", str(source.path), why, fix
        )


def _is_local(address: str) -> bool:
    """Only this machine gets there, or only this user; there the token of this user is asked for."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or not host or is_loopback(host)


def secret_arguments(args: Sequence[str]) -> Iterator[str]:
    """Values among the arguments of a program that look like secrets."""
    option = ""
    for word in args:
        found = _OPTION.fullmatch(word)
        value = (found[2] or "") if found else word
        name = found[1] if found else option
        if value and is_secret_value(name, value):
            yield value
        option = found[1] if found and found[2] is None else ""


def _literal(name: str, table: Mapping[str, Any], source: Source) -> Iterator[Finding]:
    for section, key in _literals(table):
        where = source.where("servers", name, section, key)
        variable = re.sub(r"\W", "_", key).upper()
        scheme = next((word for word in ("Bearer ", "Basic ") if str(table[section][key]).startswith(word)), "")
        line = f'{section}.{key} = "{scheme}${{{variable}}}"'
        fix = f"Put it into the environment of the bridge, and write {line}."
        why = "Whoever gets the file, a copy of it or the repository that it is in has the secret."
        yield Finding("secret-written-out", "warn", f"{section}.{key} is a secret, written out", name, where, why, fix)


def _literals(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Section and key of every secret that stands in a server's table as it is."""
    found: list[tuple[str, str]] = []
    for section in ("env", "headers"):
        members: object = table.get(section)
        for key, value in cast("dict[str, object]", members).items() if isinstance(members, dict) else ():
            if not isinstance(value, str) or _VARIABLE.search(value):
                continue
            if is_secret_value(key, value.removeprefix("Bearer ").removeprefix("Basic ")):
                found.append((section, key))
    return found


def _in_arguments(name: str, server: ServerSettings, source: Source) -> Iterator[Finding]:
    where = source.where("servers", name, "args" if server.is_started else "url")
    if any(secret_arguments(server.args)):
        fix = "Hand it over through `env`, if the server takes it there; most do."
        why = "Every user of this machine sees the arguments of all processes."
        yield Finding("secret-in-args", "warn", "there is a secret among its arguments", name, where, why, fix)
    query = urlsplit(server.url).query if server.url else ""
    if any(is_secret_value(key, value) for key, value in parse_qsl(query)):
        fix = 'Send it as a header, if the server takes it there: headers = { Authorization = "Bearer ${TOKEN}" }.'
        yield Finding("secret-in-url", "warn", "there is a secret in its URL", name, where, "URLs end up in logs.", fix)


def _careless(name: str, server: ServerSettings, source: Source) -> Iterator[Finding]:
    if not server.tls.verify:
        where = source.where("servers", name, "tls", "verify")
        fix = 'Name the authority that it trusts instead: tls = { ca = "/path/ca.pem" }.'
        why = "Whoever sits between can read and change everything."
        yield Finding("tls-not-verified", "warn", "its certificate is not checked", name, where, why, fix)
    parts = urlsplit(server.url or "")
    goes_openly = parts.scheme in ("http", "ws") and not _is_here(parts.hostname)
    if goes_openly and any(map(is_secret_name, server.headers)):
        where, why = source.where("servers", name, "url"), "Whoever sits between can read it."
        yield Finding("secret-unprotected", "warn", "secrets go to it without TLS", name, where, why, "Use https.")
    if server.inherit_env is True:
        where = source.where("servers", name, "inherit_env")
        why = "All secrets among them are then the server's too."
        fix = 'Name those that it needs: inherit_env = ["NAME"].'
        yield Finding("environment-handed-over", "note", "it gets all your variables", name, where, why, fix)


def _is_here(host: str | None) -> bool:
    return host in ("localhost", "::1") or (host or "").startswith("127.")


def _is_readable_by_others(source: Source) -> bool:
    try:
        return bool(source.path.stat().st_mode & 0o044)
    except OSError:
        return False
