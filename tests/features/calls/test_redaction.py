"""Models work with placeholders of secrets, and servers get the values back (issue 22)."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.stages.redact import Placeholders, redacted, redacted_json
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
KINDS = ("secrets", "pii")


class Server:
    """Shows a secret, and keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def answer(self, params: Any) -> Any:
        self.got.append(params["arguments"])
        return {"content": [{"type": "text", "text": f"Use {TOKEN} for ada@example.org."}]}

    def transport(self) -> ScriptedTransport:
        return ScriptedTransport({**LEGACY_SERVER, "tools/call": self.answer})


async def test_a_placeholder_is_turned_back_for_its_server_and_session_alone() -> None:
    a, b = Server(), Server()
    redact = {"redact": ["secrets", "pii"]}
    servers = {"a": redact, "b": redact}
    async with bridged({"a": a.transport(), "b": b.transport()}, servers=servers) as bridge:
        ears = [Ear(bridge.server), Ear(bridge.server)]
        for ear in ears:
            await ear.initialize()
        answer = json.dumps(await ears[0].ask("tools/call", {"name": "a__echo", "arguments": {}}), ensure_ascii=False)
        assert TOKEN not in answer
        assert "ada@example.org" not in answer
        token, mail = re.findall("‹[^›]+›", answer)
        text = {"text": f"{token} {mail}"}
        for ear, name in ((ears[0], "a__echo"), (ears[1], "a__echo"), (ears[0], "b__echo")):
            await ear.ask("tools/call", {"name": name, "arguments": text})
        assert a.got == [{}, {"text": f"{TOKEN} ada@example.org"}, text]
        assert b.got == [text]


@pytest.mark.parametrize(
    "secret",
    [
        TOKEN,
        "AKIAIOSFODNN7EXAMPLQ",
        "+49 30 901820123",
        "DE89 3704 0044 0532 0130 00",
        "4111 1111 1111 1111",
        "ada@b.org",
    ],
)
def test_values_of_known_forms_go_and_come_back(secret: str) -> None:
    placeholders = Placeholders()
    text = f"first {secret} then {secret}"
    hidden = redacted(text, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert secret not in hidden
    assert placeholders.restored("a", hidden) == text
    assert placeholders.restored("b", hidden) == hidden
    assert Placeholders().restored("a", hidden) == hidden


@pytest.mark.parametrize("text", ["4111 1111 1111 1112", "DE89 3704 0044 0532 0130 01", "version 1.2.3", "2026-11-29"])
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert redacted(text, KINDS, lambda kind, value: f"{kind} {value}") == text


def test_a_value_under_the_name_of_a_secret_goes_and_the_rest_stays_as_sent() -> None:
    raw = b'{"structuredContent":{"password":"correct horse","count":12345678901234567890123,"x":1.50}}'
    placeholders = Placeholders()
    hidden = redacted_json(raw, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert b"correct horse" not in hidden
    assert placeholders.restored("a", hidden.decode()) == raw.decode()


def test_a_server_cannot_write_placeholders() -> None:
    placeholders = Placeholders()
    name = placeholders.placeholder("secret", "a", "value")
    shown = redacted(f"see {name}", KINDS, lambda kind, value: "x")
    assert placeholders.restored("a", shown) == shown


PARTS = st.lists(st.text(max_size=20) | st.sampled_from([TOKEN, "password=Tr0ub4dor&3", "ada@example.org", "\n", " "]))


@given(PARTS.map("".join))
def test_redaction_and_restoration_is_the_identity(text: str) -> None:
    if "‹" in text or "[redacted]" in text:
        return
    placeholders = Placeholders()
    hidden = redacted(text, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert placeholders.restored("a", hidden) == text
