"""What may be said of servers and tools over HTTP: nothing that is run, or read, here (issue 8; CVE-2026-42271)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mcpbridge.config.variables import Expansion
from mcpbridge.core.source_settings import ToolSettings
from mcpbridge.engine.registry.http_rules import ALLOWED, INNER, KINDS, TOOLS_REFUSED, RegistryProblem, refuse_over_http
from mcpbridge.tools.factory import KEYS, model_of
from mcpbridge.upstream.settings import ServerSettings

URL = {"url": "https://x.example/mcp"}
ENDPOINT = {"endpoint": "https://x.example/{city}"}

REFUSED = {
    "url": "command args env inherit_env cwd image container tls proxy roots memory_limit sandbox unavailable "
    "project_texts text_trust accept_findings labels pin pin_ignore "
    "written secrets_to",
    "endpoint": "tls proxy unavailable text_trust accept_findings labels",
    "openapi": "tls proxy unavailable text_trust accept_findings labels",
    "grpc": "descriptor unavailable text_trust accept_findings labels",
    "agent": "tls proxy unavailable text_trust accept_findings labels",
}
"""What somebody judged to be nothing for HTTP, by kind. Whoever adds a server from afar does not accept its texts,
nor what it changes."""

INNER_REFUSED = {
    # Whoever adds a server from afar gets neither the tokens of users exchanged for it, nor their variables.
    ("servers", "auth"): "private_key redirect_uri interactive account variables audience exchange token_endpoint",
    ("tools", "auth"): "",
    ("tools", "tls"): "ca cert key",
}

HARMLESS = {
    "BreakerSettings": "failures open max_open",
    "NameFilter": "include exclude",
    "OperationFilter": "tags operations paths methods",
    "ResultSettings": "strategy budget threshold preview_items auto_store code_transform media_limit image_side "
    "hidden_characters",
    "RetrySettings": "tries backoff max_backoff",
    "ToolSettings": "rename description disabled max_concurrent rate_limit results tags permission risk read_only "
    "destructive idempotent arguments inject_defaults call_timeout max_call_timeout late retry cache cache_scope "
    "side_effects log_content trusted redact redact_arguments",
}
"""Tables within tables, of which everything may be said."""


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from models_in(inner)
    if (aliased := getattr(annotation, "__value__", None)) is not None:
        yield from models_in(aliased)


def kinds() -> Iterator[tuple[str, Any, type[BaseModel]]]:
    yield "url", "servers", ServerSettings
    for key in KINDS["tools"]:
        yield key, "tools", model_of(KEYS[key])


@pytest.mark.parametrize(("key", "section", "model"), list(kinds()), ids=[kind for kind, *_ in kinds()])
def test_every_setting_is_judged(key: str, section: Any, model: type[BaseModel]) -> None:
    """A new one stays forbidden; who adds it says here whether anything is run or read by it on this machine."""
    refused = set(REFUSED[key].split())
    assert not refused & ALLOWED[key]
    unjudged = model.model_fields.keys() - refused - ALLOWED[key]
    assert not unjudged, "add them to `over_http.ALLOWED`, or to REFUSED here"
    assert refused <= model.model_fields.keys()
    seen: set[type[BaseModel]] = set()
    for name in ALLOWED[key] & model.model_fields.keys():
        inner = set(models_in(model.model_fields[name].annotation))
        if (section, name) in INNER:
            judged = INNER[section, name] | set(INNER_REFUSED[section, name].split())
            assert {field for one in inner for field in one.model_fields} <= judged, name
        else:
            seen |= inner
    while seen:
        one = seen.pop()
        refused = TOOLS_REFUSED if one is ToolSettings else frozenset[str]()
        assert one.model_fields.keys() - refused == set(HARMLESS[one.__name__].split()), one.__name__
        seen |= {found for field in one.model_fields.values() for found in models_in(field.annotation)} - {one}


def test_kinds_that_run_something_have_no_keys_here() -> None:
    assert set(KEYS) - set(ALLOWED) == {"function", "executor_class", "command"}


ALLOWED_TABLES: list[tuple[Any, dict[str, Any]]] = [
    ("servers", URL),
    ("servers", {"url": "wss://x.example/mcp", "transport": "websocket", "headers": {"Authorization": "Bearer x"}}),
    ("servers", {**URL, "auth": "oauth", "tool": {"a": {"disabled": True}}, "retry": 3}),
    ("servers", {**URL, "auth": {"type": "client-credentials", "client_id": "a", "client_secret": "b"}}),
    ("servers", {**URL, "headers": {"X": "${GIVEN}"}}),
    ("servers", {**URL, "headers": {"X": "${env:GIVEN:-else}", "Y": "$${plain}", "Z": "$5 {x}"}}),
    ("tools", {**ENDPOINT, "method": "POST", "body": {"a": "{city}"}, "timeout": "5s", "retry": {"tries": 2}}),
    ("tools", {**ENDPOINT, "auth": {"type": "bearer", "token": "x"}, "examples": [1], "input_schema": {"a": [{}]}}),
    ("tools", {"openapi": "https://x.example/openapi.json", "include": {"tags": ["a"]}}),
    ("tools", {"grpc": "x.example:443", "tls": True, "metadata": {"a": "b"}}),
    ("tools", {"grpc": "[::1]:443", "tls": {"server_name": "x"}}),
    ("tools", {"agent": "https://x.example", "skills": True}),
]


@pytest.mark.parametrize("labels", [[], ["private"]])
def test_nobody_says_from_afar_that_a_tool_is_harmless(labels: list[str]) -> None:
    for table in ({**URL, "labels": labels}, {**URL, "tool": {"a": {"disabled": True}, "send": {"labels": labels}}}):
        with pytest.raises(RegistryProblem, match="labels"):
            refuse_over_http("servers", table)


@pytest.mark.parametrize(("section", "table"), ALLOWED_TABLES)
def test_what_is_elsewhere_may_be_said(section: Any, table: dict[str, Any]) -> None:
    refuse_over_http(section, table, variables=["GIVEN"])


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: list[tuple[Any, dict[str, Any]]] = [
    *(("servers", {**URL, key: "x"}) for key in REFUSED["url"].split()),
    *(("tools", {**ENDPOINT, key: "x"}) for key in ("tls", "proxy", "unavailable", "cwd", "env", "sandbox", "args")),
    *(("tools", {**ENDPOINT, key: "x"}) for key in ("spec", "packs", "descriptor", "constructor_args", "nonsense")),
    *(("tools", {"grpc": "x:1", "tls": {key: "/x"}}) for key in ("ca", "cert", "key")),
    *(("servers", {**URL, "auth": {key: "x"}}) for key in ("private_key", "redirect_uri", "interactive", "later")),
    *(("servers", {**URL, "transport": value}) for value in ("stdio", "later", None, [], {}, ["http"], 1)),
    *(("servers", {"url": value}) for value in ("file:///etc/passwd", "stdio:sh", "", "x", "http://", " http://x")),
    *(("servers", {"url": value}) for value in (1, None, ["https://x"], {"a": 1}, True)),
    *(("tools", {"openapi": v}) for v in ("openapi.json", "/etc/passwd", "file:///etc/passwd", "~/x", "data://x")),
    *(("tools", {"agent": value}) for value in ("os:system", "os.path:join", "file://x", "http:x", "a:b\nhttp://x")),
    *(("tools", {"grpc": value}) for value in ("unix:/run/x", "unix:///run/x", "dns:///x:1", "x", "x:1\n", "/x:1", "")),
    *(("tools", {key: "x.y:z"}) for key in ("function", "executor_class")),
    ("tools", {"command": ["sh", "-c", "id"]}),
    ("servers", {"command": "sh"}),
    ("servers", {}),
    ("tools", {}),
    ("tools", {**ENDPOINT, "command": ["sh"]}),
    ("tools", {**ENDPOINT, "function": "os:system"}),
    ("tools", {**ENDPOINT, "agent": ""}),
    ("tools", {**ENDPOINT, "openapi": "https://x.example"}),
    ("tools", {**ENDPOINT, "service": "x"}),
    ("tools", {**ENDPOINT, "Command": "sh"}),
    ("tools", {**ENDPOINT, "input_schema": deep(200)}),
    *(
        ("servers", {**URL, "headers": {"X": text}})
        for text in (
            "${SECRET}",
            "${env:SECRET}",
            "${SECRET:-x}",
            "${file:/etc/passwd}",
            "${file:~/.ssh/id_rsa}",
            "${cmd:id}",
            "${keyring:x}",
            "${secret:x}",
            "a${GIVEN}${secret:x}",
            "${PROJECT_ROOT}",
            "a${GIVEN}${SECRET}",
            "$${x}${SECRET}",
            "$$${SECRET}${SECRET}",
            "${GIVEN:-${file:/etc/passwd}${SECRET}",
            "${",
            "${}",
            "${GIVEN",
            "${ GIVEN}",
            "${GIVEN }",
        )
    ),
    ("servers", {"url": "https://x.example/${SECRET}"}),
    ("servers", {**URL, "tool": {"a": {"description": "${SECRET}"}}}),
    ("servers", {**URL, "tool": {"${SECRET}": {}}}),
    ("tools", {**ENDPOINT, "body": {"a": [{"b": ["${SECRET}"]}]}}),
    ("tools", {**ENDPOINT, "params": {"a": "${SECRET}"}}),
]


@pytest.mark.parametrize(("section", "table"), HOSTILE, ids=lambda one: repr(one)[:60])
def test_what_runs_or_reads_here_may_not(section: Any, table: dict[str, Any]) -> None:
    with pytest.raises(RegistryProblem) as problem:
        refuse_over_http(section, table, variables=["GIVEN"])
    assert problem.value.code in ("forbidden", "invalid")


@pytest.mark.parametrize(
    ("section", "table", "code", "told"),
    [
        ("servers", {**URL, "heders": {}}, "invalid", "unknown key; did you mean `headers`?"),
        ("tools", {**ENDPOINT, "foo": 1}, "invalid", "`foo`: unknown key"),
        ("tools", {**ENDPOINT, "service": "x"}, "invalid", "`service` does not go with `endpoint`"),
        ("tools", {**ENDPOINT, "cwd": "/"}, "forbidden", "cannot be set over HTTP"),
        ("servers", {**URL, "command": "sh"}, "forbidden", "cannot be set over HTTP"),
    ],
)
def test_a_slip_is_told_apart_from_what_may_not_be_said(
    section: Any, table: dict[str, Any], code: str, told: str
) -> None:
    with pytest.raises(RegistryProblem) as problem:
        refuse_over_http(section, table)
    assert (problem.value.code, told in str(problem.value)) == (code, True), problem.value


class Watched(dict[str, str]):
    """An environment that has everything, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return "brought in"


@given(st.lists(st.sampled_from(["$", "{", "}", "${", "$${", "A", "B", ":-", "env:", "file:", "/x", " ", "cmd:", "}"])))
def test_what_passes_brings_in_nothing_but_the_variables_that_were_named(parts: list[str]) -> None:
    """The configuration fills in references; both must find the same ones."""
    text = "".join(parts)
    try:
        refuse_over_http("servers", {**URL, "headers": {"X": text}}, variables=["A"])
    except RegistryProblem:
        return
    environ = Watched()
    expansion = Expansion(environ, Path("/nowhere"))
    expansion.of({"x": text})
    assert environ.asked <= {"A"}
    assert {one.reference.removeprefix("env:").partition(":-")[0] for one in expansion.resolved} <= {"A"}
    assert not expansion.missing
    assert not expansion.of_project
