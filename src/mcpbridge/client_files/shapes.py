"""The shapes that single clients give to a server, laid over that of `mcpServers` JSON: other keys, other nesting.

Sources: Codex's `config.toml` fields (measured with its strict check), goose's "Configuration Overview" (`cmd`, `envs`,
`env_keys`, `uri`, `available_tools`), OpenCode's "MCP servers" (`command` as a list, `environment`; a `timeout` for
listing tools), Zed's older `command: {path, args, env}`, Cline's command line (`transport: {…}`), Continue's reference
of `config.yaml` (`requestOptions`, `connectionTimeout`), LibreChat's "MCP Servers Object Structure" (milliseconds).
"""

import json
from typing import cast

from mcpbridge.client_files.table import Dialect

__all__ = ["common_shape"]

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
