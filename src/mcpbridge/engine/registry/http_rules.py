"""What may be set over HTTP for a server or tool: nothing that this machine would run or read. Pure.

Programs, Python code and files come only from the user's own files, commands and programs (CVE-2026-42271 and similar:
an endpoint ran the `command` of a request body). The allowed keys are listed one by one. All other keys are refused,
so a new key stays forbidden until somebody has judged it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

from mcpbridge.base.errors import BridgeError
from mcpbridge.base.late_pattern import late
from mcpbridge.base.suggestions import nearest
from mcpbridge.tools.factory import KEYS as KINDS_OF_TOOLS
from mcpbridge.tools.factory import model_of
from mcpbridge.upstream.settings import TRANSPORT_SPELLINGS, ServerSettings

Section = Literal["servers", "tools"]


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


_OFFER = _keys(
    "disabled rate_limit tools results title tags tool trusted permission risk read_only destructive idempotent "
    "arguments inject_defaults call_timeout max_call_timeout late retry cache cache_scope side_effects log_content "
    "redact redact_arguments max_concurrent"
)
_SERVER = _keys(
    "url headers auth transport era questions may_ask question_rate share isolation max_instances instance_idle "
    "start idle_stop init_timeout ping_interval max_queued queue_timeout breaker resources prompts"
)
_TOOL = _OFFER | _keys("description input_schema output_schema annotations examples timeout timeout_s")
_REQUEST = _TOOL | _keys("headers auth max_response")

ALLOWED: Mapping[str, frozenset[str]] = {
    "url": _OFFER | _SERVER,
    "endpoint": _REQUEST | _keys("endpoint method params body input_mapping output_mapping health"),
    "openapi": _REQUEST
    | _keys(
        "openapi base_url server_variables include exclude deprecated output_schemas document_headers max_document "
        "health"
    ),
    "grpc": _TOOL | _keys("grpc service method include exclude metadata tls max_message max_messages"),
    "agent": _REQUEST | _keys("agent skills card url allow_origins stream"),
}
"""The keys that may be said of each kind, by the key that selects the kind."""

KINDS: Mapping[Section, tuple[str, ...]] = {"servers": ("url",), "tools": ("endpoint", "openapi", "grpc", "agent")}
"""The keys that select a kind; one of them must be there."""

INNER: Mapping[tuple[Section, str], frozenset[str]] = {
    # Neither keys out of files, nor what opens a browser or a port here.
    ("servers", "auth"): _keys(
        "type client_id client_secret token_endpoint_auth_method client_metadata_url issuer scopes"
    ),
    ("tools", "auth"): _keys(
        "type token username password key header query cookie token_url client_id client_secret scope audience"
    ),
    ("tools", "tls"): _keys("server_name"),
}
"""What may be in a table of which not everything may be said."""

TOOLS_REFUSED = _keys("labels")
"""What may not be said of single tools (`tool.NAME`): whoever adds a server from afar does not call it harmless."""

_TRANSPORTS = (*sorted(TRANSPORT_SPELLINGS), "streamable-http", "sse", "websocket")
_ADDRESS = late(r"(?:https?|wss?)://[^\s/]", re.IGNORECASE)
_HOST = late(
    r"(?!(?:unix|unix-abstract|vsock|xds|dns|ipv4|ipv6|passthrough|google-c2p):)"  # gRPC reads these as ways, not hosts
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}",
    re.IGNORECASE,
)
_REFERENCE = late(r"\$\$\{|\$\{([^}]*)\}?")
"""As `config/variables.py` finds them; a test holds the two together."""
_VARIABLE = late(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-.*)?", re.DOTALL)
_SLIP = late(r"[A-Za-z_-]{1,60}")
"""What a key looks like that somebody has merely written wrongly."""
_DEEPEST = 32


class RegistryProblem(BridgeError):
    """A change of servers or tools cannot be made. `code` says why, for programs."""

    def __init__(self, code: Literal["unknown", "exists", "forbidden", "invalid"], message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse_over_http(section: Section, table: Mapping[str, Any], *, variables: Collection[str] = ()) -> None:
    """Refuse a table that says what is to be run, or read, on this machine.

    `variables`: names of environment variables that it may refer to.

    Raises:
        RegistryProblem: says which key, and why.
    """
    kinds = KINDS[section]
    given = [key for key in kinds if key in table]
    known = ALLOWED[given[0]] if len(given) == 1 else frozenset[str]().union(*(ALLOWED[key] for key in kinds))
    for key in sorted(table):
        if key not in known:
            raise _refused(section, key, known, given)
        inner, value = INNER.get((section, key)), table[key]
        if inner is not None and isinstance(value, Mapping):
            for name in sorted(cast("Mapping[str, Any]", value)):
                if name not in inner:
                    raise _forbidden(f"{key}.{name}")
    _refuse_of_tools(table.get("tool"))
    if len(given) != 1:
        raise RegistryProblem("invalid", f"exactly one of {', '.join(f'`{key}`' for key in kinds)} is needed")
    _refuse_local(given[0], table[given[0]])
    if "transport" in table and table["transport"] not in _TRANSPORTS:
        raise RegistryProblem("forbidden", "`transport` must be one of HTTP or WebSocket over HTTP")
    _refuse_references(table, frozenset(variables), ())


def _refuse_of_tools(tools: object) -> None:
    for name, own in cast("Mapping[str, object]", tools).items() if isinstance(tools, Mapping) else ():
        for key in sorted(TOOLS_REFUSED):
            if isinstance(own, Mapping) and key in own:
                raise _forbidden(f"tool.{name[:100]}.{key}")


def _refused(section: Section, key: str, known: Collection[str], given: Sequence[str]) -> RegistryProblem:
    """A key that cannot be said: it is of another kind, or of none, or it would run or read something here."""
    kind = given[0] if len(given) == 1 and section == "tools" else ""
    is_elsewhere = any(key in ALLOWED[other] for other in KINDS[section])
    if kind and is_elsewhere and key not in model_of(KINDS_OF_TOOLS[kind]).model_fields:
        return RegistryProblem("invalid", f"`{key}` does not go with `{kind}`")
    if key in _all_keys(section) or _SLIP.fullmatch(key) is None:
        return _forbidden(key)
    close = nearest(key, known, limit=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return RegistryProblem("invalid", f"`{key[:100]}`: unknown key{hint}")


def _all_keys(section: Section) -> Collection[str]:
    """Every key that such a table of the configuration file can have, and the names of the file's sections."""
    from mcpbridge.config.schema import Settings

    if section == "servers":
        return {*Settings.model_fields, *ServerSettings.model_fields}
    return {*Settings.model_fields, *(key for kind in KINDS_OF_TOOLS.values() for key in model_of(kind).model_fields)}


def _forbidden(key: str) -> RegistryProblem:
    what = f"`{key[:100]}` cannot be set over HTTP: what runs or is read on this machine comes from its user's own"
    return RegistryProblem("forbidden", f"{what} files and commands (`mcpbridge add`)")


def _refuse_local(key: str, value: object) -> None:
    """Files, sockets and modules look otherwise than addresses."""
    if not isinstance(value, str):
        raise RegistryProblem("invalid", f"`{key}` must be text")
    if key == "grpc":
        if _HOST.fullmatch(value) is None:
            raise RegistryProblem("forbidden", "`grpc` must be HOST:PORT over HTTP")
    elif _ADDRESS.match(value) is None:
        raise RegistryProblem("forbidden", f"`{key}` must be an http:// or https:// address, not a file or a module")


def _refuse_references(value: object, variables: frozenset[str], key: tuple[str, ...]) -> None:
    if len(key) > _DEEPEST:
        raise RegistryProblem("invalid", f"`{key[0]}` is nested too deeply")
    if isinstance(value, str):
        for found in _REFERENCE.finditer(value):
            if found[0] == "$${":
                continue
            variable = _VARIABLE.fullmatch(found[1] or "") if found[0].endswith("}") else None
            if variable is None or variable[1] not in variables:
                what = f"`{'.'.join(key)[:200]}` refers to what this machine knows (`${{…}}`)"
                how = "name the variable in `http.api_variables`, or send the value; `$${` stands for a plain `${`"
                raise RegistryProblem("forbidden", f"{what}: {how}")
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            _refuse_references(name, variables, (*key, name))
            _refuse_references(inner, variables, (*key, name))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[object]", value)):
            _refuse_references(inner, variables, (*key, str(number)))
