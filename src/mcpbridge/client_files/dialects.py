"""One server as a client describes it, in the words of our `servers.toml`; unchecked, with its secrets as they stand.

The shapes of single clients are first laid over the common one (`mcpServers` JSON), which `config/foreign.py` knows.
Whatever has no counterpart is handed back beside the server, so that it can be told. Pure.
"""

import base64
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote

from mcpbridge.client_files.shapes import common_shape
from mcpbridge.client_files.variables import PROJECT, Variables
from mcpbridge.config import foreign

__all__ = ["Translated", "named_servers", "translate"]

Json = dict[str, object]

_ORDER = ["command", "args", "env", "inherit_env", "cwd", "url", "transport", "headers", "auth"]
"""First in a server's table."""
_NEVER_OURS = {"goose": ("builtin", "platform", "frontend", "inline_python")}
"""What is no server of its own, by the `type` that it has there."""


@dataclass(slots=True)
class Translated:
    """What became of one server of a file."""

    server: Json = field(default_factory=dict[str, object])
    """In our words; empty if it cannot be served."""

    left_out: Json = field(default_factory=dict[str, object])
    """What has no counterpart here, as it stands in the file."""

    notes: list[str] = field(default_factory=list[str])
    """What was assumed; for people."""

    skipped: str = ""
    """Why it cannot be served."""


def named_servers(table: object) -> Iterator[tuple[str, str, object]]:
    """Name, key and description of each server of a table or list of servers; nothing for anything else."""
    if isinstance(table, dict):
        for name, given in cast("Json", table).items():
            yield name, name, given
    elif isinstance(table, list):
        for index, given in enumerate(cast("list[object]", table)):
            member = cast("Json", given) if isinstance(given, dict) else {}
            name = member.get("name") or member.get("id") or member.get("uses")
            yield str(name or f"server-{index + 1}"), str(index), given


def translate(given: object, variables: Variables) -> Translated:
    """One server of a file in our words. `variables` knows how that file writes them, and gets new notes."""
    if not isinstance(given, dict):
        return Translated(skipped="expected an object that describes a server")
    done = Translated()
    shaped = common_shape(cast("Json", given), variables.dialect, done.left_out)
    if reason := _reason_to_skip(shaped, variables.dialect):
        done.skipped = reason
        return done
    variables.notes.clear()
    shaped = {key: variables.of(value, is_argument=key == "args") for key, value in shaped.items()}
    _refer_to_variables(shaped, done.notes)
    server, unknown = foreign.translate_server(shaped)
    done.left_out |= {key: shaped[key] for key in unknown if shaped[key] not in ({}, [], "")}
    done.notes += variables.notes
    if variables.project is None and variables.expands:  # Claude Desktop has no projects
        _start_in_project(server, done.notes)
    done.server = _tidied(server, shaped, done)
    return done


def _reason_to_skip(shaped: Json, dialect: str) -> str:
    kind = shaped.get("type")
    if kind in _NEVER_OURS.get(dialect, ()):
        return f"a part of the client itself (`{kind}`)"
    url = shaped.get("url") or shaped.get("httpUrl") or shaped.get("serverUrl")
    if isinstance(url, str) and (found := re.match(r"(unix|pipe)://", url)):
        return f"{found[1]}:// addresses are not supported yet"
    if not url and not shaped.get("command"):
        if "uses" in shaped:
            return "stands on the client's hub; it says neither command nor url"
        return "an extension of the client starts it" if dialect == "zed" else "it says neither command nor url"
    return ""


def _refer_to_variables(shaped: Json, notes: list[str]) -> None:
    """Keys that name variables in place of using them (Codex, goose)."""
    headers: Json = {}
    if isinstance(name := shaped.pop("bearer_token_env_var", None), str):
        headers["Authorization"] = f"Bearer ${{{name}}}"
    if isinstance(by_name := shaped.pop("env_http_headers", None), dict):
        headers |= {header: f"${{{name}}}" for header, name in cast("Json", by_name).items()}
    if headers:
        given = shaped.get("headers")
        shaped["headers"] = {**(cast("Json", given) if isinstance(given, dict) else {}), **headers}
    if isinstance(passed := shaped.pop("env_vars", None), list):  # names, or tables with a name
        given = cast("list[object]", passed)
        names = [cast("Json", one).get("name") if isinstance(one, dict) else one for one in given]
        shaped["inherit_env"] = [str(name) for name in names if name]
    if isinstance(kept := shaped.pop("env_keys", None), list) and kept:
        env = cast("Json", shaped.get("env") or {})
        missing = [str(one) for one in cast("list[object]", kept) if str(one) not in env]
        shaped["env"] = {**env, **{one: f"${{{one}}}" for one in missing}}
        if missing:
            notes.append(f"what the client keeps in the keyring stands in variables: {', '.join(missing)}")


def _start_in_project(server: Json, notes: list[str]) -> None:
    """Clients start a user's servers in the project that is opened, and relative paths start there."""
    command, cwd, args = server.get("command"), server.get("cwd"), server.get("args")
    if not isinstance(command, str) or (isinstance(cwd, str) and not _is_relative(cwd, is_sure=True)):
        return
    words = [word for word in cast("list[object]", args) if isinstance(word, str)] if isinstance(args, list) else []
    is_path = "/" in command and " " not in command and _is_relative(command, is_sure=True)
    if not (cwd or is_path or any(_is_relative(word.rpartition("=")[2]) for word in words)):
        return
    inside = str(cwd or "").removeprefix("./").strip("/.")
    server["cwd"] = f"{PROJECT}/{inside}" if inside else PROJECT
    if is_path:
        server["command"] = f"{PROJECT}/{command.removeprefix('./')}"
    notes.append("it has relative paths, so that it starts in the project that is opened, as with the client")


def _is_relative(text: str, *, is_sure: bool = False) -> bool:
    """Whether a text is a path that starts where the program does. `is_sure`: that it is a path."""
    if is_sure:
        return not re.match(r"[/~$\\]|[A-Za-z]:", text)
    return bool(re.match(r"\.{1,2}(/|$)", text))


def _tidied(server: Json, shaped: Json, done: Translated) -> Json:
    """The same server as people would write it, without what contradicts itself."""
    if server.get("url") and server.get("command"):
        is_remote = server.get("transport") not in (None, "stdio")
        for key in ("command", "args", "env", "cwd", "inherit_env") if is_remote else ("url", "headers", "auth"):
            if key in server:
                done.left_out[key] = server.pop(key)
    elif server.get("url"):
        for key in ("args", "env", "cwd", "inherit_env"):
            if server.pop(key, None):
                done.left_out[key] = shaped.get(key)
    else:
        for key in ("headers", "auth", "proxy", "tls"):
            if server.pop(key, None):
                done.left_out[key] = shaped.get(key)
    if "url" in server and server.get("transport") == "stdio":
        del server["transport"]
    if "command" in server:
        if server.get("transport") not in (None, "stdio"):
            done.left_out["transport"] = server["transport"]
        server.pop("transport", None)
        _split_command(server, done.notes)
    if isinstance(url := server.get("url"), str):
        _credentials_apart(url, server, done.notes)
    if PROJECT in str(list(server.values())):
        server.setdefault("share", "project")
    if isinstance(tools := server.get("tools"), dict):
        server["tools"] = {key: names for key, names in cast("Json", tools).items() if names or key == "include"}
    said = {key: value for key, value in server.items() if value not in ([], {}, "", None)}
    if said.get("disabled") is False:
        del said["disabled"]
    first = {key: said[key] for key in _ORDER if key in said}
    return first | {key: value for key, value in said.items() if key not in first}


def _credentials_apart(url: str, server: Json, notes: list[str]) -> None:
    """User and password of an address become a header, since URLs show in logs."""
    found = re.match(r"([A-Za-z]+://)([^/?#\s@]*)@", url)
    given = server.get("headers")
    headers = cast("Json", given) if isinstance(given, dict) else {}
    if found is None or "${" in found[2] or any(name.lower() == "authorization" for name in headers):
        return
    credentials = unquote(found[2])
    credentials = credentials if ":" in credentials else f"{credentials}:"
    encoded = base64.b64encode(credentials.encode(errors="replace")).decode()
    server["url"] = found[1] + url[found.end() :]
    server["headers"] = {**headers, "Authorization": f"Basic {encoded}"}
    notes.append("user and password of its address stand in a header here")


def _split_command(server: Json, notes: list[str]) -> None:
    """Some clients hand the command to a shell, so that it may hold the arguments too; we start a program."""
    command = server["command"]
    if not isinstance(command, str) or len(command.split()) < 2 or set(command.split()[0]) & set("/\\"):
        return
    try:
        program, *args = shlex.split(command)
    except ValueError:
        return
    after = server.get("args")
    server["command"] = program
    server["args"] = [*args, *(cast("list[object]", after) if isinstance(after, list) else [])]
    notes.append("the command held arguments; they stand in `args` here")
