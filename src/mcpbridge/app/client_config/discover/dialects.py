"""One server as a client describes it, in the words of `servers.toml`; unchecked, with its secrets as they are.

The shapes of single clients (other keys, other nesting) are first laid over the common one, `mcpServers` JSON, which
`config/mcp_servers_json.py` knows. Whatever has no counterpart is handed back beside the server, so that it can be
shown. Variables that a client reads from a file for one server (`envFile` of Cursor and VS Code) are put into its
`env`.

Sources: Codex's `config.toml` fields (measured with its strict check), goose's "Configuration Overview" (`cmd`, `envs`,
`env_keys`, `uri`, `available_tools`), OpenCode's "MCP servers" (`command` as a list, `environment`; a `timeout` for
listing tools), Zed's older `command: {path, args, env}`, Cline's command line (`transport: {…}`), Continue's reference
of `config.yaml` (`requestOptions`, `connectionTimeout`), LibreChat's "MCP Servers Object Structure" (milliseconds).
"""

import base64
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from mcpbridge.app.client_config.clients import Dialect
from mcpbridge.app.client_config.discover.read import read_text
from mcpbridge.app.client_config.discover.variables import PROJECT, Variables
from mcpbridge.base.errors import ConfigError
from mcpbridge.config import mcp_servers_json as foreign

Json = dict[str, object]

_RENAMED = {
    "cmd": "command",
    "envs": "env",
    "environment": "env",
    "http_headers": "headers",
    "uri": "url",
    "workingDirectory": "cwd",
    "working_directory": "cwd",
    "available_tools": "includeTools",
    "enabled_tools": "includeTools",
    "disabled_tools": "disabledTools",
    "startup_timeout_sec": "init_timeout",
    "tool_timeout_sec": "call_timeout",
    "display_name": "title",
    "displayName": "title",
}
_MILLISECONDS = {
    "startup_timeout_ms": "init_timeout",
    "initTimeout": "init_timeout",
    "connectionTimeout": "init_timeout",
}
_SIGN_IN = {
    **dict.fromkeys(("clientId", "client_id", "CLIENT_ID"), "client_id"),
    **dict.fromkeys(("clientSecret", "client_secret", "CLIENT_SECRET"), "client_secret"),
    **dict.fromkeys(("redirectUri", "redirect_uri"), "redirect_uri"),
    **dict.fromkeys(("scope", "scopes"), "scopes"),
}


def common_shape(given: Json, dialect: Dialect, left_out: Json) -> Json:
    """The same server with the keys of `mcpServers` JSON and our own. What has no place there goes to `left_out`."""
    shaped: Json = {}
    for key, value in _unfolded(given, dialect).items():
        known_as = _RENAMED.get(key, key)
        if value is None or (key == "available_tools" and not value):  # no names there mean all
            continue
        if (name := _milliseconds(key, dialect)) and _is_number(value):
            shaped[name] = cast("float", value) / 1000
        elif key == "tools" and _says_how_each_is_treated(value):
            left_out[key] = value
        elif known_as in ("oauth", "auth"):
            _sign_in(key, value, shaped, left_out)
        elif known_as in ("env", "headers"):
            _texts(key, known_as, value, shaped, left_out)
        else:
            shaped.setdefault(known_as, value)
    _listed(shaped)
    if dialect == "continue":
        _continue(shaped, left_out)
    if dialect == "codex" and isinstance(scopes := shaped.pop("scopes", None), list):
        shaped["auth"] = {"scopes": scopes}
    _title(shaped, left_out)
    return shaped


def _milliseconds(key: str, dialect: Dialect) -> str | None:
    """What a key with a time in milliseconds is called here; None for any other key."""
    if key == "timeout" and dialect == "opencode":
        return "init_timeout"  # how long it waits for the list of tools
    if key == "timeout" and dialect in ("gemini", "librechat"):
        return "call_timeout"
    return _MILLISECONDS.get(key)


def _unfolded(given: Json, dialect: Dialect) -> Json:
    """Without the nesting that some have."""
    unfolded = dict(given)
    if isinstance(inner := unfolded.get("transport"), dict):  # Cline's command line
        unfolded |= {**cast("Json", inner), "transport": None}
    if dialect == "goose" and isinstance(inner := unfolded.get("config"), dict):
        unfolded |= {**cast("Json", inner), "config": None}
    if isinstance(inner := unfolded.get("command"), dict):  # Zed until 2025
        inside = dict(cast("Json", inner))
        unfolded |= {**inside, "command": inside.pop("path", None), "path": None}
    if dialect in ("continue", "goose"):
        unfolded.pop("name", None)  # the name it has, which `named_servers` knows
    if dialect == "zed" and unfolded.get("source") == "custom":
        del unfolded["source"]
    return unfolded


def _says_how_each_is_treated(tools: object) -> bool:
    """Codex; ours is a filter."""
    return isinstance(tools, dict) and not cast("Json", tools).keys() <= {"include", "exclude"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def _texts(key: str, known_as: str, value: object, shaped: Json, left_out: Json) -> None:
    """Variables or headers, whose values are texts; what is none is left out."""
    if not isinstance(value, dict):
        left_out[key] = value
        return
    texts = cast("Json", shaped.setdefault(known_as, {}))
    for name, text in cast("Json", value).items():
        if isinstance(text, str):
            texts[name] = text
        elif isinstance(text, bool | int | float):
            texts[name] = json.dumps(text)
        elif text is not None:
            left_out[f"{key}.{name}"] = text


def _listed(shaped: Json) -> None:
    """`command` as a list (OpenCode), and arguments that are numbers."""
    if isinstance(words := shaped.get("command"), list) and words:
        program, *args = cast("list[object]", words)
        after = shaped.get("args")
        shaped["command"] = program
        shaped["args"] = [*args, *(cast("list[object]", after) if isinstance(after, list) else [])]
    if isinstance(args := shaped.get("args"), list):
        shaped["args"] = [
            one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in cast("list[object]", args)
        ]
    if isinstance(args, str):
        shaped["args"] = [args]


def _sign_in(key: str, value: object, shaped: Json, left_out: Json) -> None:
    """A registration by hand, as ours; that a server wants a sign-in need not be said here."""
    if value is False:
        shaped["auth"] = {"type": "none"}
    elif isinstance(value, str):
        if value == "oauth":
            return
        left_out[key] = value
    elif isinstance(value, dict):
        auth: Json = {}
        for name, member in cast("Json", value).items():
            if (known_as := _SIGN_IN.get(name)) and member:
                auth[known_as] = member.split() if known_as == "scopes" and isinstance(member, str) else member
            elif member is not None and (name, member) != ("enabled", True):
                left_out[f"{key}.{name}"] = member
        if auth:
            shaped["auth"] = auth


def _continue(shaped: Json, left_out: Json) -> None:
    """Headers of Continue stand in `requestOptions`, and a bearer token in `apiKey`."""
    headers = dict(cast("Json", shaped.get("headers") or {}))
    if isinstance(options := shaped.pop("requestOptions", None), dict):
        for name, value in cast("Json", options).items():
            if name == "headers" and isinstance(value, dict):
                headers |= cast("Json", value)
            else:
                left_out[f"requestOptions.{name}"] = value
    if isinstance(key := shaped.pop("apiKey", None), str) and key:
        headers.setdefault("Authorization", f"Bearer {key}")
    if headers:
        shaped["headers"] = headers


def _title(shaped: Json, left_out: Json) -> None:
    title = shaped.get("title")
    if title is not None and not (isinstance(title, str) and 0 < len(title) <= 200):
        left_out["title"] = shaped.pop("title")


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
    """What has no counterpart here, as it is in the file."""

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
            return "is on the client's hub; it says neither command nor url"
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
            notes.append(f"what the client keeps in the keyring is in variables: {', '.join(missing)}")


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
    notes.append("user and password of its address are in a header here")


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
    notes.append("the command held arguments; they are in `args` here")


_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*")
_MOST = 500
"""Variables of one file that are taken."""


def with_env_file(done: Translated, directory: Path, home: Path) -> Translated:
    """The server with the variables of its `envFile`, below those that it has itself.

    `directory`: where a relative path starts that belongs to no project.
    """
    named = done.left_out.get("envFile")
    if not isinstance(named, str) or not named or "command" not in done.server:
        return done
    base = done.server.get("cwd")
    path = Path(base if isinstance(base, str) else directory) / Path(named.replace("${HOME}", str(home)))
    if "${" in str(path):
        done.notes.append("its `envFile` depends on the project: set its variables some other way")
        return done
    try:
        given = variables_of(read_text(path))
    except FileNotFoundError:
        done.notes.append(f"its `envFile` {path} is not there")
    except ConfigError as error:
        done.notes.append(f"its `envFile` {path}: {error.what}")
    else:
        own = done.server.get("env")
        done.server["env"] = {**given, **(cast("dict[str, object]", own) if isinstance(own, dict) else {})}
        done.notes.append(f"the content of its `envFile` {path} is now in `env`")
        del done.left_out["envFile"]
    return done


def variables_of(text: str) -> dict[str, object]:
    """The variables of a `.env` file: `NAME=value` in lines, with or without quotes; `#` begins a comment."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        if (match := _LINE.fullmatch(line)) and len(found) < _MOST:
            name, value = match.groups()
            if quoted := re.match(r"""(["'])(.*?)\1\s*(?:#.*)?$""", value):
                value = quoted[2]
            else:
                value = re.sub(r"(^|\s+)#.*$", "", value)
            found[name] = value.replace("${", "$${")
    return found
