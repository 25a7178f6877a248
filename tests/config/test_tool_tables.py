"""`[tools]`, spec files and `[builtin]` in the configuration: what is read, and what mistakes are told (issue 8)."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, only_server, read


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> Loaded:
    path = folder / "servers.toml"
    path.write_text(text)
    return read(path, environ or {})


def mistake(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        loaded(folder, text)
    return str(raised.value).replace(str(folder), "DIR")


def test_each_kind_is_told_by_its_key(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
[tools.fn]
function = "mod:greet"
[tools.ls]
command = ["./bin/ls", "{path}"]
cwd = "work"
[tools.api]
endpoint = "https://api.example.com/{city}"
headers = { Authorization = "Bearer ${TOKEN}" }
permission = "require_approval"
[tools.pets]
openapi = "pets.yaml"
""",
        {"TOKEN": "t0ken-value"},
    )
    tools: dict[str, Any] = dict(settings.settings.tools)
    assert tools["fn"].function == "mod:greet"
    assert tools["ls"].command[0] == str(tmp_path / "bin/ls")
    assert tools["ls"].cwd == str(tmp_path / "work")
    assert tools["api"].permission == "require_approval"
    assert tools["pets"].openapi == str(tmp_path / "pets.yaml")
    assert "t0ken-value" in " ".join(settings.secrets)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('tool.slugify.rename = "make_slug"', "it has the name of its table"),
        ('tools = { include = ["x"] }', "`disabled` switches it off"),
    ],
)
def test_what_changes_single_tools_of_a_single_tool_is_refused(tmp_path: Path, line: str, said: str) -> None:
    told = mistake(tmp_path, f'[tools.slugify]\nfunction = "mod:slugify"\n{line}\n')
    assert "tools.slugify" in told
    assert said in told
    assert loaded(tmp_path, f'[tools.pets]\nopenapi = "pets.yaml"\n{line}\n').settings.tools


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("pets", 'servers = ["pets"]'),
        ("texts", 'servers = ["texts"]'),
        ("slugify", 'tools = ["tools/slugify"]'),
    ],
)
def test_who_serves_a_tool_as_a_server_is_told_of_profiles(tmp_path: Path, name: str, chosen: str) -> None:
    text = 'packs = ["own.texts:pack"]\n[tools.slugify]\nfunction = "m:f"\n[tools.pets]\nopenapi = "pets.yaml"\n'
    settings = loaded(tmp_path, text).settings
    with pytest.raises(ConfigError) as refused:
        only_server(settings, name)
    assert chosen in str(refused.value)
    with pytest.raises(ConfigError, match="no server is called"):
        only_server(settings, "other")


def test_a_missing_variable_takes_its_tool_out_and_nothing_else(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[tools.a]\nendpoint = "https://${HOST}/x"\n[tools.b]\nendpoint = "https://e.test"\nheaders = {X = "${NO}"}\n'
        '[tools.c]\nfunction = "m:f"\n',
    ).settings
    assert "missing variable ${HOST}" in (settings.tools["a"].unavailable or "")
    assert "missing variable ${NO}" in (settings.tools["b"].unavailable or "")
    assert settings.tools["c"].unavailable is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[tools.x]\nendpont = "https://e"\n', ["servers.toml:1", "tools.x", "did you mean `endpoint`"]),
        ('[tools.x]\nendpoint = "https://e"\ncommand = ["ls"]\n', ["servers.toml:1", "tools.x", "different kinds"]),
        ('[tools.x]\nendpoint = "https://e"\n\nmethd = "GET"\n', ["servers.toml:4", "tools.x.methd", "`method`"]),
        ("[tools.x]\nfunction = 7\n", ["servers.toml:2", "tools.x.function"]),
        ('[tools."a b"]\nfunction = "m:f"\n', ["servers.toml:1", "name of a tool"]),
        ('[servers.x]\nurl = "https://e"\n[tools.x]\nfunction = "m:f"\n', ["servers.toml:3", "is called so"]),
        ('[servers.tools]\nurl = "https://e"\n', ["servers.toml:1", "the bridge's own tools"]),
        ('[builtin]\nenable = ["web_serch"]\n', ["servers.toml:2", "builtin.enable", "did you mean `web-search`"]),
        ('[builtin.files]\nrots = ["."]\n', ["servers.toml:2", "builtin.files.rots", "`roots`"]),
        ("tools = 3\n", ["servers.toml:1", "tools"]),
        ('spec = ["none.json"]\n', ["none.json", "cannot be read", "servers.toml"]),
    ],
)
def test_a_mistake_is_told_with_line_key_and_what_is_right(tmp_path: Path, text: str, parts: list[str]) -> None:
    """Issue 8: bad specs give errors with file and key."""
    told = mistake(tmp_path, text)
    for part in parts:
        assert part in told, told


SPEC = [
    {
        "tool_id": "weather",
        "tool_description": "The weather of a city",
        "tool_execution_mode": "remote",
        "tool_custom_config": {
            "schema": {"input": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
        },
        "tool_calling_config": {
            "protocol": "http",
            "endpoint": "https://api.example.com/weather/{city}",
            "method": "GET",
            "headers": {"Authorization": "Bearer ${KEY}"},
            "timeout_s": 7,
            "retry": {"tries": 2, "backoff_s": 0.5},
        },
    },
    {
        "function_id": "tally",
        "function_description": "Count",
        "function_calling_config": {
            "protocol": "local",
            "executor_class": "counting.Counter",
            "constructor_args": {"from": 1},
        },
    },
]


def test_a_spec_file_loads_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "agent-capabilities.json").write_text(json.dumps(SPEC))
    settings = loaded(tmp_path, 'spec = ["agent-capabilities.json"]\n', {"KEY": "k"}).settings
    tools: dict[str, Any] = dict(settings.tools)
    assert tools["weather"].endpoint == "https://api.example.com/weather/{city}"
    assert tools["weather"].call_timeout == 7
    assert tools["weather"].retry.tries == 2
    assert tools["weather"].headers == {"Authorization": "Bearer k"}
    assert tools["weather"].input_schema["required"] == ["city"]
    assert tools["tally"].executor_class == "counting.Counter"


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"endpoint": 7}, ["spec.json", "tool_calling_config.endpoint"]),
        ({"timeout_s": "soon"}, ["spec.json", "tool_calling_config.timeout_s"]),
        ({"protocol": "smoke-signals"}, ["spec.json", "tool_calling_config.protocol", "smoke-signals"]),
    ],
)
def test_what_is_wrong_in_a_spec_is_told_with_file_and_key(tmp_path: Path, change: Any, parts: list[str]) -> None:
    item = json.loads(json.dumps(SPEC[0]))
    item["tool_calling_config"] |= change
    (tmp_path / "spec.json").write_text(json.dumps([item]))
    told = mistake(tmp_path, 'spec = ["spec.json"]\n')
    for part in parts:
        assert part in told, told


def test_the_same_tool_twice_is_told_with_both_places(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(SPEC[1:]))
    told = mistake(tmp_path, 'spec = ["a.json", "b.json"]\n')
    assert "a.json" in told
    assert "b.json" in told


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[tools.x]\ncommand = "ls -l"\n', 'command = ["ls", "-l"]'),
        ('[tools.x]\nfunction = "mycode.fn"\n', "pkg.mod:name"),
        ('[tools.x]\nexecutor_class = "a b"\n', "pkg.mod.Class"),
    ],
)
def test_what_is_right_is_shown_in_the_form_of_its_kind(tmp_path: Path, text: str, part: str) -> None:
    assert part in mistake(tmp_path, text)


def test_rules_name_packs_by_what_their_tools_come_under(tmp_path: Path) -> None:
    """`mycode:texts` comes under `texts`: a rule about anything else would deny nothing."""
    rules = '[[permissions]]\nservers = ["{}"]\npermission = "deny"\n'
    assert loaded(tmp_path, f'packs = ["mycode:texts"]\n{rules.format("texts")}').settings.permissions
    assert "no server is called" in mistake(tmp_path, f'packs = ["mycode:texts"]\n{rules.format("mycode:texts")}')
