"""Arguments of `mcpbridge call`, and addresses of `mcpbridge serve`."""

from pathlib import Path

import pytest

from mcpbridge.app.cli.access.http_address import Address, parse_address
from mcpbridge.app.cli.tools.arguments import from_words
from mcpbridge.base.errors import ConfigError

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "either": {"type": ["string", "integer"]},
        "count": {"type": "integer"},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=1", "1"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ('text="x"', '"x"'),
        ("maybe=null", "null"),
        ("either=1", 1),
        ("count=1", 1),
        ("count=many", "many"),
        ("odd=true", True),
        ('other=["a", {"b": null}]', ["a", {"b": None}]),
        ("other=hello", "hello"),
        (f"other={'[' * 10_000}", "[" * 10_000),
    ],
)
def test_a_value_is_text_where_text_is_wanted_and_json_where_it_can_be(word: str, value: object) -> None:
    assert from_words([word], SCHEMA) == {word.partition("=")[0]: value}


@pytest.mark.parametrize(
    "schema", [{}, {"properties": None}, {"properties": {"a": None}}, {"properties": {"a": {"type": 7}}}]
)
def test_a_schema_that_says_nothing_useful_is_no_obstacle(schema: dict[str, object]) -> None:
    assert from_words(["a=1"], schema) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8808", Address("127.0.0.1", 8808)),
        ("localhost:0", Address("localhost", 0)),
        (":80", Address("127.0.0.1", 80)),
        ("9000", Address("127.0.0.1", 9000)),
        ("[::1]:8808", Address("::1", 8808)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_a_socket_in_the_file_system_is_an_address_too() -> None:
    assert parse_address("unix:/run/mcp.sock") == Path("/run/mcp.sock")
    assert parse_address("unix:here.sock") == Path.cwd() / "here.sock"


@pytest.mark.parametrize("text", ["", "unix:", "localhost", "::1:80", "a:b", "a:99999", "a:-1", "http://localhost:80"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an address to listen on"):
        parse_address(text)
