"""A client that sends nonsense gets an error that says so, and is served on (issue 2; JSON-RPC 2.0, section 5).

The tests share one bridge: what one message spoils, the next test sees.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.harness import Place, python_server
from support.rpc import StdioClient

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """A client in session with the bridge that the tests share."""
    place = Place(tmp_path_factory.mktemp("requests"))
    async with place.bridge({"plain": python_server("plain")}, limits={"max_frame": 1_000_000}) as client:
        await client.initialize()
        await client.tools_with("plain__echo")
        yield client
    place.clean()


def call(id_: str, arguments: str = '{"text":"hello"}') -> str:
    """A good call, as text."""
    return request(id_, "tools/call", f'{{"name":"plain__echo","arguments":{arguments}}}')


def request(id_: str, method: str, params: str) -> str:
    """A request whose id and params are any text."""
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{params}}}'


REFUSED: list[tuple[str, str, Any, list[int]]] = [
    ("no JSON", "hello?", None, [PARSE_ERROR]),
    ("a lone brace", "}", None, [PARSE_ERROR]),
    ("a number", "42", None, [INVALID_REQUEST]),
    ("null", "null", None, [INVALID_REQUEST]),
    ("an empty object", "{}", None, [INVALID_REQUEST]),
    ("an empty batch", "[]", None, [INVALID_REQUEST]),
    ("a batch in a revision without", f"[{call('70')}]", None, [INVALID_REQUEST]),
    ("malformed, with an id", call("71", "{oops}"), 71, [PARSE_ERROR]),
    ("truncated", call("72")[:-1], 72, [PARSE_ERROR]),
    ("method is a number", '{"jsonrpc":"2.0","id":73,"method":7}', 73, [INVALID_REQUEST]),
    ("no method", '{"jsonrpc":"2.0","id":74}', 74, [INVALID_REQUEST]),
    ("unknown method", '{"jsonrpc":"2.0","id":75,"method":"no/such"}', 75, [NO_METHOD]),
    ("no params", '{"jsonrpc":"2.0","id":76,"method":"tools/call"}', 76, [INVALID_PARAMS]),
    ("params are a list", request("77", "tools/call", "[1]"), 77, [INVALID_PARAMS]),
    ("params are a text", request("78", "tools/call", '"x"'), 78, [INVALID_REQUEST]),
    ("no name", request("79", "tools/call", "{}"), 79, [INVALID_PARAMS]),
    ("name is a list", request("80", "tools/call", '{"name":[]}'), 80, [INVALID_PARAMS]),
    ("unknown tool", request("81", "tools/call", '{"name":"x"}'), 81, [INVALID_PARAMS]),
    ("arguments are a list", call("82", "[1]"), 82, [INVALID_PARAMS]),
    ("100,000 levels", call("83", "[" * 100_000 + "]" * 100_000), 83, [INVALID_REQUEST]),
    ("over the limit", call("84", f'{{"text":"{"x" * 2_000_000}"}}'), 84, [INVALID_REQUEST]),
    ("bad utf-8", call("88", '{"text":"h\udcffllo"}'), 88, [PARSE_ERROR]),
    ("not a number", call("89", '{"text":"hello","n":NaN}'), 89, [PARSE_ERROR]),
    ("no version", call("90").replace('"jsonrpc":"2.0",', ""), 90, [INVALID_REQUEST]),
    ("two on a line", '{"jsonrpc":"2.0","method":"no/such/notification"}' + call("91"), None, [PARSE_ERROR]),
    ("bad cursor", request("85", "tools/list", '{"cursor":"?"}'), 85, [INVALID_PARAMS]),
    ("cursor is a number", request("86", "tools/list", '{"cursor":1}'), 86, [INVALID_PARAMS]),
    ("unknown log level", request("87", "logging/setLevel", '{"level":"x"}'), 87, [INVALID_PARAMS]),
]


@pytest.mark.parametrize(("line", "id_", "codes"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
async def test_what_cannot_be_served_is_refused_and_named(
    client: StdioClient, line: str, id_: Any, codes: list[int]
) -> None:
    client.forget(id_)
    client.expect(id_)
    await client.write(line.encode("utf-8", "surrogateescape") + b"\n")
    error = (await client.answer_to(id_)).message["error"]
    assert error["code"] in codes
    assert error["message"]
    assert (await client.request("ping")).result == {}
    assert (await client.call("plain__echo", text="and on")).text == "and on"


SERVED: list[tuple[str, bytes, str]] = [
    ("byte order mark", b"\xef\xbb\xbf" + call("90").encode(), "hello"),
    ("carriage return", call("90").encode() + b"\r", "hello"),
    ("pretty printed", json.dumps(json.loads(call("90")), indent=2).encode(), "hello"),
    ("lone surrogate", call("90").encode().replace(b"hello", b"h\\udc00llo"), "h\ufffdllo"),
    ("unknown members", call("90").encode()[:-1] + b',"extra":{"n":1}}', "hello"),
]


@pytest.mark.parametrize(("line", "text"), [case[1:] for case in SERVED], ids=[case[0] for case in SERVED])
async def test_what_an_indulgent_reader_can_make_out_is_served(client: StdioClient, line: bytes, text: str) -> None:
    client.forget(90)
    client.expect(90)
    await client.write(line + b"\n")
    assert (await client.answer_to(90)).text == text
    assert (await client.request("ping")).result == {}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        '{"jsonrpc":"2.0","method":"no/such/notification","params":[1,2]}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}',
        '{"jsonrpc":"2.0","id":123456,"result":{}}',
        '{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}',
    ],
)
async def test_what_asks_for_no_answer_gets_none(client: StdioClient, line: str) -> None:
    await client.write(line.encode() + b"\n")
    assert (await client.request("ping")).result == {}
    assert not client.unreadable


async def test_a_batch_is_answered_as_one_in_the_revision_that_has_them(place: Place) -> None:
    async with place.bridge({"plain": python_server("plain")}) as client:
        await client.initialize("2025-03-26")
        await client.tools_with("plain__echo")
        note = '{"jsonrpc":"2.0","method":"notifications/progress"}'
        broken = '{"jsonrpc":"2.0","id":3,"method":5}'
        await client.write(f"[{call('1001')},{note},{call('1002')},{broken}]\n".encode())
        assert (await client.request("ping")).result == {}
        answers = {answer["id"]: answer for answer in await client.batch()}
        assert answers[1001]["result"]["content"][0]["text"] == "hello"
        assert answers[1002]["result"]["content"][0]["text"] == "hello"
        assert answers[3]["error"]["code"] == INVALID_REQUEST
        assert len(answers) == 3


async def test_a_client_that_asks_before_the_handshake_is_told_or_served_and_can_go_on(place: Place) -> None:
    async with place.bridge({"plain": python_server("plain")}) as client:
        reply = await client.request("tools/list", {})
        assert "result" in reply.message or reply.message["error"]["code"] == INVALID_REQUEST
        assert (await client.request("ping")).result == {}
        await client.initialize()
        assert "plain__echo" in await client.tools_with("plain__echo")
