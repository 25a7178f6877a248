"""Models work with placeholders of secrets, and servers get the values back (issue 22)."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.pipeline.redaction import OVERLAP, SLICE, each_text, redacted, redacted_json
from mcpbridge.pipeline.stages.redact import Placeholders
from mcpbridge.protocol.jsonrpc import Frame
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
KINDS = ("secrets", "pii")


class EchoServer:
    """Its tool returns one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def transport(self) -> ScriptedTransport:
        result = {"content": [{"type": "text", "text": self._text}]}

        def answer(params: Any) -> Any:
            return result

        return ScriptedTransport({**LEGACY_SERVER, "tools/call": answer})


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


async def test_servers_that_may_have_the_secrets_of_another_get_them_and_no_personal_data() -> None:
    """Issue 22: turned back only towards the server they came from or those named in `secrets_to`."""
    a, b, c = Server(), Server(), Server()
    servers: dict[str, Any] = {"a": {"redact": ["secrets", "pii"], "secrets_to": ["b"]}, "b": {}, "c": {}}
    transports = {"a": a.transport(), "b": b.transport(), "c": c.transport()}
    async with bridged(transports, servers=servers) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = json.dumps(await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}), ensure_ascii=False)
        token, mail = re.findall("‹[^›]+›", answer)
        text = {"text": f"{token} {mail}"}
        for name in ("b__echo", "c__echo"):
            await ear.ask("tools/call", {"name": name, "arguments": text})
        assert b.got == [{"text": f"{TOKEN} {mail}"}]
        assert c.got == [text]
        stranger = Ear(bridge.server)
        await stranger.initialize()
        await stranger.ask("tools/call", {"name": "b__echo", "arguments": text})
        assert b.got[1:] == [text]


async def test_by_policy_a_server_does_not_get_the_secrets_of_arguments() -> None:
    """Issue 22: one masker for results and, by policy, arguments."""
    server = Server()
    sent = {"redact_arguments": ["secrets", "pii"]}
    async with bridged({"a": server.transport()}, servers={"a": sent}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        text = f"Deploy with {TOKEN}, then write to ada@example.org."
        given = {"text": text, "deep": [{"password": "hunter2hunter2", "count": 4915112345678}], "same": TOKEN}
        answer = await ear.ask("tools/call", {"name": "a__echo", "arguments": given})
        got = server.got[0]
        shown = json.dumps(got, ensure_ascii=False)
        assert TOKEN not in shown
        assert "ada@example.org" not in shown
        assert "hunter2" not in shown
        assert re.sub("‹[^›]+›", "#", got["text"]) == "Deploy with #, then write to #."
        assert got["same"] == re.findall("‹[^›]+›", got["text"])[0]
        assert got["deep"][0]["count"] == 4915112345678
        assert answer["result"]["_meta"]["mcpbridge/redactedArguments"] == 4
        assert TOKEN in json.dumps(answer), "the results of the server are as they were"


async def test_what_came_from_a_server_goes_back_to_it_whatever_is_redacted_of_arguments() -> None:
    a, b = Server(), Server()
    both: dict[str, Any] = {"redact": ["secrets", "pii"], "redact_arguments": ["secrets", "pii"]}
    async with bridged({"a": a.transport(), "b": b.transport()}, servers={"a": both, "b": both}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = json.dumps(await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}), ensure_ascii=False)
        token, mail = re.findall("‹[^›]+›", answer)
        other = "ghp_" + "Z9y8X7w6V5u4T3s2R1q0" * 2
        given = {"password": token, "text": f"Authorization: Bearer {token} {mail} ‹secret: {other}"}
        await ear.ask("tools/call", {"name": "a__echo", "arguments": given})
        got = a.got[1]
        assert got["password"] == TOKEN
        assert got["text"].startswith(f"Authorization: Bearer {TOKEN} ada@example.org ‹secret: ‹secret:")
        assert other not in got["text"]
        await ear.ask("tools/call", {"name": "b__echo", "arguments": given})
        assert b.got[0]["password"] == token, "a placeholder of another server is no secret"
        echoed = re.findall("‹[^›]+›", got["text"])[-1]
        await ear.ask("tools/call", {"name": "a__echo", "arguments": {"text": echoed}})
        assert a.got[2] == {"text": echoed}, "what a server was not to get is turned back for nobody"


async def test_a_call_that_fails_says_that_its_arguments_were_redacted() -> None:
    def fail(params: Any) -> Any:
        return {"content": [{"type": "text", "text": "wrong password"}], "isError": True}

    transport = ScriptedTransport({**LEGACY_SERVER, "tools/call": fail})
    async with bridged({"a": transport}, servers={"a": {"redact_arguments": ["secrets"]}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = await ear.ask("tools/call", {"name": "a__echo", "arguments": {"password": "hunter2hunter2"}})
        texts = [block["text"] for block in answer["result"]["content"]]
        assert texts[0] == "wrong password"
        assert "redact_arguments" in texts[1]
        assert "hunter2" not in json.dumps(answer)
        clean = await ear.ask("tools/call", {"name": "a__echo", "arguments": {"text": "hello"}})
        assert len(clean["result"]["content"]) == 1
        assert "_meta" not in clean["result"] or "mcpbridge/redactedArguments" not in clean["result"]["_meta"]


@given(st.text(max_size=200), st.booleans())
def test_arguments_without_a_secret_are_not_touched(text: str, has_placeholder: bool) -> None:
    mark = "‹secret:0123456789abcdef›" if has_placeholder else ""
    raw = json.dumps({"t": text + mark}, ensure_ascii=False).encode()
    pattern = re.compile(r"‹secret:[0-9a-f]{16}›")
    seen: list[str] = []

    def placeholder(kind: str, value: str) -> str:
        seen.append(value)
        return "‹secret:ffffffffffffffff›"

    changed = redacted_json(raw, ("secrets",), placeholder, keep=pattern)
    assert seen or changed == raw
    assert mark in changed.decode()


async def test_resources_and_prompts_have_placeholders_that_prompts_and_tools_turn_back() -> None:
    got: list[Any] = []

    def read(params: Any) -> Any:
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": f"token {TOKEN}"}]}

    def prompt(params: Any) -> Any:
        got.append(params.get("arguments"))
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Use {TOKEN}"}}]}

    server: dict[str, Any] = {
        **LEGACY_SERVER,
        "initialize": {**LEGACY_SERVER["initialize"], "capabilities": {"tools": {}, "resources": {}, "prompts": {}}},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/list": {"resources": [{"uri": "a:b", "name": "b"}]},
        "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "x"}]}]},
        "resources/read": read,
        "prompts/get": prompt,
    }
    async with bridged({"a": ScriptedTransport(server)}, servers={"a": {"redact": ["secrets"]}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        uri = (await ear.ask("resources/list"))["result"]["resources"][0]["uri"]
        name = (await ear.ask("prompts/list"))["result"]["prompts"][0]["name"]
        shown = json.dumps(await ear.ask("resources/read", {"uri": uri}), ensure_ascii=False)
        assert TOKEN not in shown
        [token] = re.findall("‹[^›]+›", shown)
        shown = json.dumps(await ear.ask("prompts/get", {"name": name, "arguments": {"x": token}}), ensure_ascii=False)
        assert TOKEN not in shown
        assert re.findall("‹[^›]+›", shown) == [token]
        assert got == [{"x": TOKEN}]


async def test_a_kept_result_has_placeholders_too() -> None:
    """Issue 22: `recall` is masked too."""
    text = "\n".join(f"line {number} of a long log" for number in range(20_000)) + f"\ntoken {TOKEN}"
    servers = {"a": {"redact": ["secrets"]}}
    async with bridged({"a": EchoServer(text).transport()}, servers=servers, results={}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = json.dumps(await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))
        handle = re.findall(r'"handle": "([^"]+)"', answer)[0]
        whole = await ear.ask("resources/read", {"uri": f"mcpbridge://results/{handle}"})
        shown = json.dumps(whole, ensure_ascii=False)
        assert "line 19999 of" in shown
        assert TOKEN not in answer + shown
        assert re.search("‹secret:github-token:[0-9a-f]{16}›", shown)


@pytest.mark.parametrize("spelled", ["‹", "\\u2039"])
async def test_numbers_beside_a_placeholder_reach_the_server_as_they_are_written(spelled: str) -> None:
    server = Server()
    async with bridged({"a": server.transport()}, servers={"a": {"redact": ["secrets"]}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = json.dumps(await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}), ensure_ascii=False)
        [token] = re.findall("‹[^›]+›", answer)
        arguments = f'{{"text":"{token.replace("‹", spelled)}","n":1e400,"m":{2**70}}}'
        params = f'{{"name":"a__echo","arguments":{arguments}}}'
        await ear.raw(Frame(id=Raw(b"2"), method="tools/call", params=Raw(params.encode())))
        assert server.got[-1] == {"text": TOKEN, "n": float("inf"), "m": 2**70}


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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ghp_" + "a1B2" * 9, "‹secret:github-token:[0-9a-f]{16}›"),
        ("ada@b.org", "‹pii:mail:[0-9a-f]{16}›"),
        ("4111 1111 1111 1111", "‹pii:card:[0-9a-f]{16}›"),
    ],
)
def test_a_placeholder_says_what_kind_of_value_it_is_for(value: str, shown: str) -> None:
    """Issue 22: `‹secret:github-token:…›`."""
    placeholders = Placeholders()
    hidden = redacted(f"It is {value} now", KINDS, lambda kind, text: placeholders.placeholder(kind, "a", text))
    assert re.fullmatch(f"It is {shown} now", hidden)
    assert placeholders.restored("a", hidden) == f"It is {value} now"


@pytest.mark.parametrize("text", ["4111 1111 1111 1112", "DE89 3704 0044 0532 0130 01", "version 1.2.3", "2026-11-29"])
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert redacted(text, KINDS, lambda kind, value: f"{kind} {value}") == text


def test_a_value_under_the_name_of_a_secret_goes_and_the_rest_stays_as_sent() -> None:
    raw = b'{"structuredContent":{"password":"correct horse","count":12345678901234567890123,"x":1.50}}'
    placeholders = Placeholders()
    hidden = redacted_json(raw, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert b"correct horse" not in hidden
    assert placeholders.restored("a", hidden.decode()) == raw.decode()


@pytest.mark.parametrize(
    "members",
    [
        {"phone": 4915112345678},
        {"phone": "4915112345678"},
        {"contact": {"mobileNumber": 4915112345678}},
        {"phones": [4915112345678, 12]},
        {"telephone": {"value": 4915112345678, "type": "home"}},
        {"home_phone": "030 4915112345678"},
        {"whatsapp": 4915112345678},
        {"ssn": 4915112345678},
        {"taxId": "4915112345678"},
        {"national_id": 4915112345678},
        {"passportNo": 4915112345678},
        {"bank_account": 4915112345678},
        {"credit_card": 4915112345678},
        {"fax_nr": 4915112345678},
    ],
)
def test_a_number_under_the_name_of_a_phone_or_an_id_goes(members: Any) -> None:
    """Issue 22: also where nothing but the name of the JSON member says what it is."""
    raw = json.dumps({"structuredContent": members}).encode()
    placeholders = Placeholders()
    hidden = redacted_json(raw, ("pii",), lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert b"4915112345678" not in hidden
    assert b"4915112345678" in placeholders.restored("a", hidden.decode()).encode()
    assert b"4915112345678" in redacted_json(raw, ("secrets",), lambda kind, value: "x") or "ssn" in str(members)


@pytest.mark.parametrize(
    "members",
    [
        {"count": 4915112345678},
        {"id": 4915112345678},
        {"phone_id": 4915112345678},
        {"phoneNumberId": 4915112345678},
        {"mobile_count": 4915112345678},
        {"cell": 4915112345678},
        {"number": 4915112345678},
        {"account": 4915112345678},
        {"timestamp": 4915112345678, "hotel": 4915112345678},
        {"phone": 12345},
        {"phone": 4915112345.678},
        {"mobile": True},
        {"phone": {"verified_at": 4915112345678}},
        {"phone": "Pixel 9 Pro"},
        {"order_number": 4915112345678},
        {"microphone": 4915112345678},
    ],
)
def test_a_number_under_another_name_stays(members: Any) -> None:
    raw = json.dumps({"structuredContent": members}).encode()
    assert redacted_json(raw, ("pii",), lambda kind, value: "x") == raw


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


LOOKING_ALIKE = st.sampled_from(
    [
        *(
            "‹secret:0123456789abcdef›",
            "‹pii:mail:0123456789abcdef›",
            "‹secret:",
            "‹pii:",
            "‹",
            "›",
            "‹\\secret:",
            "\\",
        ),
        *("[redacted]", "‹secret:github-token:", "0123456789abcdef›", "‹\\\\pii:"),
    ]
)


def escaped(text: str) -> str:
    """What becomes of a text that only looks as if it had placeholders: it is escaped, unless it is too short."""
    return re.sub("‹(?=(?:secret|pii):)", "‹\\\\", text) if len(text) >= 6 else text


@given(st.lists(st.text(max_size=10) | LOOKING_ALIKE | st.sampled_from([TOKEN, "ada@example.org", " "])).map("".join))
def test_what_looks_like_a_placeholder_is_escaped_and_the_rest_comes_back(text: str) -> None:
    """No text of a server is turned into a value, whatever it writes; of all else restoration gives what was there."""
    placeholders = Placeholders()
    placeholders.placeholder("secret", "a", "a value of the session")
    hidden = redacted(text, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert placeholders.restored("a", hidden) == escaped(text)
    assert placeholders.restored("b", hidden) == hidden


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | PARTS.map("".join),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.just("password"), inner),
    max_leaves=12,
)


@given(VALUES)
def test_of_json_redaction_and_restoration_is_the_identity(value: Any) -> None:
    """Of texts and names; a number that only its name makes a secret or personal comes back as a text or not at all."""
    raw = json.dumps({"structuredContent": value}).encode()
    if "\\u2039" in raw.decode() or "[redacted]" in raw.decode():
        return
    placeholders = Placeholders()
    hidden = redacted_json(raw, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    numberless = re.sub(rb"\[redacted\]", b"", hidden)
    if numberless == hidden:  # a number under the name of a secret is masked, and does not come back
        restored = each_text(json.loads(hidden), lambda text: placeholders.restored("a", text))
        assert restored == {"structuredContent": value}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([TOKEN, "password=Tr0ub4dor&3", "ada@example.org", " ", "\n", "word ", ","]), max_size=20),
    st.integers(SLICE - 200, 3 * SLICE),
    st.sampled_from(["w", "word ", "a line of a log\n", "w,"]),
)
def test_of_huge_texts_redaction_and_restoration_is_the_identity(parts: list[str], size: int, filler: str) -> None:
    """Longer than a slice, with the secrets anywhere around its border."""
    fill = (filler * size)[:size]
    hidden_and_back(fill + "".join(parts) + fill)


async def test_what_is_streamed_comes_back_too() -> None:
    """Progress of a call has placeholders, and they are turned back in arguments of the next call."""
    got: list[Any] = []

    def answer(params: Any) -> Any:
        got.append(params["arguments"])
        token = params.get("_meta", {}).get("progressToken")
        transport.line.says("notifications/progress", progressToken=token, progress=1, message=f"using {TOKEN}")
        return {"content": [{"type": "text", "text": "done"}]}

    transport = ScriptedTransport({**LEGACY_SERVER, "tools/call": answer})
    async with bridged({"a": transport}, servers={"a": {"redact": ["secrets"]}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        params = {"name": "a__echo", "arguments": {}, "_meta": {"progressToken": "p"}}
        await ear.ask("tools/call", params)
        heard = json.dumps(ear.meanwhile, ensure_ascii=False)
        assert TOKEN not in heard
        [token] = re.findall("‹secret:github-token:[0-9a-f]{16}›", heard)
        await ear.ask("tools/call", {"name": "a__echo", "arguments": {"text": token}, "_meta": {"progressToken": "q"}})
        assert got[-1] == {"text": TOKEN}


def hidden_and_back(text: str, known: Callable[[str], str] = lambda text: text) -> str:
    """The text as models see it, which servers get back as it was."""
    placeholders = Placeholders()
    hidden = redacted(text, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value), known)
    assert placeholders.restored("a", hidden) == text
    return hidden


@pytest.mark.parametrize("filler", ["word \n", "word ", "w,", "w"])
@pytest.mark.parametrize("secret", [f"token {TOKEN} ", " ada@example.org ", " 4111 1111 1111 1111 ", " 123-45-6789 "])
def test_what_lies_across_the_border_of_two_slices_is_found(secret: str, filler: str) -> None:
    value = secret.removeprefix("token").strip()
    for place in (SLICE, 2 * SLICE - OVERLAP):
        for shift in range(-len(secret), 2, 7):
            text = (filler * SLICE)[: place + shift] + secret + filler * 9000
            assert value not in hidden_and_back(text)


def test_a_private_key_longer_than_what_slices_share_goes_whole() -> None:
    kind = "RSA PRIVATE KEY-----"
    lines = [f"{line:064x}" for line in range(400)]
    text = "line\n" * 6000 + "\n".join([f"-----BEGIN {kind}", *lines, f"-----END {kind}"]) + "\nafter"
    hidden = hidden_and_back(text)
    assert not any(line in hidden for line in lines)
    assert hidden.endswith("\nafter")


def test_values_of_the_configuration_go_in_all_their_spellings() -> None:
    value = "correct horse battery"
    known = Redactor([value]).known
    for spelled in (value, quote(value), base64.b64encode(value.encode()).decode().rstrip("=")):
        assert spelled[:-2] not in hidden_and_back(f"It was {spelled}.", known)


async def test_a_value_that_the_configuration_brought_in_does_not_reach_the_model() -> None:
    value = "correct horse battery"
    async with bridged(
        {"a": EchoServer(value).transport()}, servers={"a": {"redact": ["secrets"]}}, redact=Redactor([value])
    ) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = json.dumps(await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}), ensure_ascii=False)
        assert value not in answer
        assert re.search("‹secret:[0-9a-f]{16}›", answer)


@pytest.mark.parametrize(
    "block",
    [
        {"data": f"{TOKEN} " + "x" * 5000},
        {"type": "text", "mimeType": "image/png", "data": f"{TOKEN}" + "x" * 5000},
        {"type": "image", "data": TOKEN},
        {"type": "image", "mimeType": "image/png", "data": f"no base64: {TOKEN}"},
        {"uri": "a:b", "mimeType": "text/plain", "text": TOKEN},
        {TOKEN: 1},
        {"a": [{f"of {TOKEN}": {"b": 1}}]},
    ],
)
def test_only_the_data_of_media_is_not_read(block: Any) -> None:
    raw = json.dumps({"content": [block]}).encode()
    placeholders = Placeholders()
    hidden = redacted_json(raw, KINDS, lambda kind, value: placeholders.placeholder(kind, "a", value))
    assert TOKEN.encode() not in hidden
    assert json.loads(placeholders.restored("a", hidden.decode())) == json.loads(raw)


@pytest.mark.parametrize("kinds", [("secrets",), ("pii",), KINDS])
def test_the_data_of_media_stays_byte_for_byte(kinds: tuple[str, ...]) -> None:
    data = base64.b64encode(bytes(range(256)) * 40).decode()
    image = {"type": "image", "mimeType": "image/png", "data": data}
    blob = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "image/png", "blob": data}}
    raw = json.dumps({"content": [image, blob, {"type": "text", "text": f"{TOKEN} ada@example.org"}]}).encode()
    hidden = json.loads(redacted_json(raw, kinds, lambda kind, value: "x"))
    assert hidden["content"][:2] == [image, blob]


async def test_others_have_their_turn_while_a_large_result_is_redacted() -> None:
    """Counted in turns of the event loop, of which a result that is redacted on it would leave none."""
    turns = 0
    text = f"{TOKEN} for ada@example.org\n" + "2026-11-29 INFO key value of some line of a log\n" * 20_000

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0.001)
            turns += 1

    async with bridged({"a": EchoServer(text).transport()}, servers={"a": {"redact": ["secrets"]}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/call", {"name": "a__echo", "arguments": {}})
        async with anyio.create_task_group() as group:
            group.start_soon(count)
            await ear.ask("tools/call", {"name": "a__echo", "arguments": {}})
            group.cancel_scope.cancel()
    assert turns >= 20
