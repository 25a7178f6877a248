"""What counts as a secret in a client's file, and what stands in its place afterwards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.client_config.importing.secret_detection import is_secret_name, is_secret_value, masked
from mcpbridge.app.client_config.importing.secrets import without_secrets


def taken(server: dict[str, Any], name: str = "shop") -> tuple[dict[str, Any], dict[str, str]]:
    moved: dict[str, str] = {}

    def take(proposed: str, value: str) -> str:
        moved[proposed] = value
        return f"${{{proposed}}}"

    return without_secrets(name, server, take), moved


GITHUB = "ghp_FAKEfakeFAKEfakeFAKEfake000000000001"


@pytest.mark.parametrize(
    ("server", "cleaned", "moved"),
    [
        ({"env": {"API_KEY": "abcd1234"}}, {"env": {"API_KEY": "${API_KEY}"}}, {"API_KEY": "abcd1234"}),
        ({"env": {"API_KEY": "1f0c5d"}}, {"env": {"API_KEY": "${API_KEY}"}}, {"API_KEY": "1f0c5d"}),
        (
            {"url": "https://h/api/s/OWRjYjAtNGQyNi1hbWFyLXNvbWUtbGV0dGVyc3h5/mcp"},
            {"url": "https://h/api/s/${SHOP_URL_SECRET}/mcp"},
            {"SHOP_URL_SECRET": "OWRjYjAtNGQyNi1hbWFyLXNvbWUtbGV0dGVyc3h5"},
        ),
        (
            {"url": "https://h/api/s/qwertzuiopasdfghjklyxcvbnmqpwoeirutzalsk/mcp"},
            {"url": "https://h/api/s/${SHOP_URL_SECRET}/mcp"},
            {"SHOP_URL_SECRET": "qwertzuiopasdfghjklyxcvbnmqpwoeirutzalsk"},
        ),
        ({"env": {"DB_PASSWORD": "pw"}}, {"env": {"DB_PASSWORD": "${DB_PASSWORD}"}}, {"DB_PASSWORD": "pw"}),
        ({"env": {"ANY": GITHUB}}, {"env": {"ANY": "${ANY}"}}, {"ANY": GITHUB}),
        ({"env": {"DSN_": "postgres://u:pw@h/d"}}, {"env": {"DSN_": "${DSN}"}}, {"DSN": "postgres://u:pw@h/d"}),
        (
            {"headers": {"X-API-Key": "abcd1234"}},
            {"headers": {"X-API-Key": "${SHOP_API_KEY}"}},
            {"SHOP_API_KEY": "abcd1234"},
        ),
        (
            {"headers": {"authorization": "Bearer abc"}},
            {"headers": {"authorization": "Bearer ${SHOP_TOKEN}"}},
            {"SHOP_TOKEN": "abc"},
        ),
        ({"args": ["--api-key", "abcd1234"]}, {"args": ["--api-key", "${SHOP_API_KEY}"]}, {"SHOP_API_KEY": "abcd1234"}),
        ({"args": ["--token=abc"]}, {"args": ["--token=${SHOP_TOKEN}"]}, {"SHOP_TOKEN": "abc"}),
        ({"args": ["-e", "GH_TOKEN=abc"]}, {"args": ["-e", "GH_TOKEN=${GH_TOKEN}"]}, {"GH_TOKEN": "abc"}),
        ({"args": [GITHUB]}, {"args": ["${SHOP_SECRET}"]}, {"SHOP_SECRET": GITHUB}),
        (
            {"args": ["--header", "Authorization: Bearer abc"]},
            {"args": ["--header", "Authorization: Bearer ${SHOP_TOKEN}"]},
            {"SHOP_TOKEN": "abc"},
        ),
        (
            {"args": ["--header=X-Key:abcd1234"]},
            {"args": ["--header=X-Key:${SHOP_KEY}"]},
            {"SHOP_KEY": "abcd1234"},
        ),
        (
            {"args": ["--config", '{"apiKey":"abcd1234","dir":"/x"}']},
            {"args": ["--config", '{"apiKey":"${SHOP_API_KEY}","dir":"/x"}']},
            {"SHOP_API_KEY": "abcd1234"},
        ),
        (
            {"url": "https://h/mcp?api_key=abcd1234&x=1"},
            {"url": "https://h/mcp?api_key=${SHOP_API_KEY}&x=1"},
            {"SHOP_API_KEY": "abcd1234"},
        ),
        (
            {"url": "https://h/s/aB3dE5gH7jK9mN1pQ3sT5v/mcp"},
            {"url": "https://h/s/aB3dE5gH7jK9mN1pQ3sT5v/mcp"},
            {},
        ),
        (
            {"url": "https://h/s/aB3dE5gH7jK9mN1pQ3sT5vX7zB2/mcp"},
            {"url": "https://h/s/${SHOP_URL_SECRET}/mcp"},
            {"SHOP_URL_SECRET": "aB3dE5gH7jK9mN1pQ3sT5vX7zB2"},
        ),
        ({"proxy": "http://u:pw@p:1"}, {"proxy": "http://u:${SHOP_PROXY_PASSWORD}@p:1"}, {"SHOP_PROXY_PASSWORD": "pw"}),
    ],
)
def test_secrets_go_and_the_rest_stays(server: dict[str, Any], cleaned: dict[str, Any], moved: dict[str, str]) -> None:
    assert taken(server) == (cleaned, moved)


@pytest.mark.parametrize(
    "server",
    [
        {"env": {"API_KEY": "${API_KEY}", "A_TOKEN": "x-${B}"}},
        {"env": {"GOOGLE_APPLICATION_CREDENTIALS": "/home/ada/key.json", "KEY_FILE": "abcd1234", "AUTH_MODE": "none"}},
        {
            "env": {
                "MAX_TOKENS": "4000",
                "TOKEN_LIMIT": "100000",
                "AUTH": "oauth",
                "USE_TOKEN": "true",
                "MONKEY": "banana",
            }
        },
        {"env": {"API_URL": "https://example.com/v1", "AUTH_URL": "https://example.com/auth"}},
        {"args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada/Documents", "awslabs.core-mcp@latest"]},
        {
            "args": [
                "--token-file",
                "/run/secrets/token",
                "--key",
                "${KEY}",
                "--read-only",
                "--port=8080",
                "-e",
                "A_TOKEN",
            ]
        },
        {"args": ["https://mcp.example.com/mcp?version=2", "a=b", "x:y", "sha256:0123"]},
        {"url": "https://mcp.example.com/a-name-of-many-words-that-is-long-and-says-what-it-is/mcp"},
        {"env": {"API_KEY": "default", "PUBLIC_KEY": "abc"}},
        {"url": "https://mcp.example.com/api/v2/servers/3f2b1c4d-1111-2222-3333-444455556666/mcp"},
        {"headers": {"Authorization": "Bearer ${T}", "X-Region": "eu", "Accept": "application/json"}},
        {"command": "npx", "tools": {"include": ["get_token"]}, "call_timeout": 30},
    ],
)
def test_what_is_none_stays(server: dict[str, Any]) -> None:
    assert taken(server) == (server, {})


@pytest.mark.parametrize("name", ["API_KEY", "apiKey", "X-Auth-Token", "OPENAI_API_KEY", "githubPAT", "password"])
def test_names_that_tell(name: str) -> None:
    assert is_secret_name(name)


def test_what_is_shown_has_no_secret_in_it() -> None:
    shown = masked({"token": "abc", "list": [GITHUB, "x"], "url": "https://u:pw@h/p", "n": 1, "text": f"use {GITHUB}!"})
    assert shown == {
        "token": "[redacted]",
        "list": ["[redacted]", "x"],
        "url": "[redacted]",
        "n": 1,
        "text": "[redacted]",
    }


VALUE = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789", min_size=16, max_size=40)


@given(VALUE, st.sampled_from(["API_KEY", "ACCESS_TOKEN", "client-secret", "Password"]), st.data())
def test_wherever_a_named_secret_stands_it_goes(value: str, name: str, data: st.DataObject) -> None:
    server = data.draw(
        st.sampled_from(
            [
                {"env": {name: value}},
                {"headers": {name: value}},
                {"headers": {"Authorization": f"Bearer {value}"}},
                {"args": [f"--{name.lower()}", value]},
                {"args": [f"--{name.lower()}={value}"]},
                {"args": ["--header", f"Authorization: Basic {value}"]},
                {"url": f"https://example.com/mcp?{name}={value}"},
                {"auth": {"client_id": "x", "client_secret": value}},
                {"args": [f"mysql://root:{value}@localhost/x"]},
            ]
        )
    )
    if is_secret_value(name, value):
        cleaned, moved = taken(server)
        assert value not in str(cleaned)
        assert value in moved.values()
