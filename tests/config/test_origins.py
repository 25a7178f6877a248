"""Where each value of the running configuration comes from, and what is not shown of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.config.load import read
from mcpbridge.config.origins import effective_values

TEXT = """
[servers.time]
command = "uvx"
env = { API_KEY = "hunter2-hunter2", MODE = "${MODE}" }

[results]
threshold = 5000

[bridge]
name = "${BRIDGE_NAME:-mine}"

[[http.tokens]]
name = "ann"
sha256 = "0f3c7a6d9c2b41e8a5d07f6e3b9c8a1d2e4f60718293a4b5c6d7e8f901234567"
"""


def test_each_value_names_its_origin_and_no_secret_is_shown(tmp_path: Path) -> None:
    """Issue 20, item 8: the effective configuration with where each value comes from (file, variable, default)."""
    import tomllib

    path = tmp_path / "servers.toml"
    path.write_text(TEXT)
    settings = read(path, {"MODE": "secret-mode"}).settings
    values = {one.key: one for one in effective_values(settings, tomllib.loads(TEXT), str)}
    assert (values["results.threshold"].value, values["results.threshold"].origin) == (5000, "file")
    assert (values["bridge.name"].origin, values["bridge.name"].source) == ("variable", "${BRIDGE_NAME:-mine}")
    assert values["daemon.idle_exit"].origin == "default"
    assert values["servers.time.command"].value == "uvx"
    assert values["servers.time.env.MODE"].source == "${MODE}"
    told = json.dumps([(one.key, one.value, one.source) for one in values.values()])
    assert "hunter2" not in told
    assert "secret-mode" not in told
    assert "0f3c7a6d" not in told


LISTS = """
[servers.shop]
command = "shop"

[[permissions]]
tools = "shop/refund_order"
permission = "require_approval"
reason = "it's money"

[[hooks]]
event = "tool_call.before"
command = ["check"]
env = { API_KEY = "hunter2-hunter2" }
"""


def test_tables_of_lists_are_shown_as_they_are_set_without_their_secrets(tmp_path: Path) -> None:
    """Issue 20, item 8: rules and hooks are part of the effective configuration."""
    import tomllib

    path = tmp_path / "servers.toml"
    path.write_text(LISTS)
    values = {one.key: one.value for one in effective_values(read(path, {}).settings, tomllib.loads(LISTS), str)}
    [rule], [hook] = values["permissions"], values["hooks"]
    assert rule == {"tools": ["shop/refund_order"], "permission": "require_approval", "reason": "it's money"}
    assert hook["command"] == ["check"]
    assert "hunter2" not in json.dumps(hook)


@pytest.mark.parametrize(
    ("reference", "origin"),
    [
        ("file:x", "value file"),
        ("cmd:op read op://a/b", "command"),
        ("keyring:a/b", "keyring"),
        ("keyring:a", "secret"),
        ("secret:a", "secret"),
        ("env:A", "variable"),
        ("A:-b", "variable"),
    ],
)
def test_where_a_secret_comes_from_is_shown_and_its_value_is_not(reference: str, origin: str) -> None:
    from mcpbridge.config.schema import Settings

    written = {"servers": {"one": {"headers": {"X": f"Bearer ${{{reference}}}"}}}}
    [value] = [one for one in effective_values(Settings(), written, str) if one.key == "servers.one.headers.X"]
    assert (value.value, value.origin, value.source) == ("[redacted]", origin, f"${{{reference}}}")


@given(st.dictionaries(st.sampled_from(["token", "password", "Authorization", "x_secret"]), st.text(min_size=1)))
def test_what_is_named_like_a_secret_is_never_shown(table: dict[str, str]) -> None:
    from mcpbridge.config.schema import Settings

    values = effective_values(Settings(), {"servers": {"one": {"headers": table}}}, str)
    shown = [one.value for one in values if one.key.startswith("servers.")]
    assert all(value in ("[redacted]", {}) for value in shown)
