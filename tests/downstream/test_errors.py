"""From errors to answers: what the client can act on, in the codes of its era (docs/reference/protocol.md, Errors)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import (
    BadRequest,
    ConfigError,
    Overloaded,
    UnknownName,
    UpstreamAnswered,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.errors import ERROR_NAME, lacking, to_answer
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, STANDARD

FAILURES = [
    UpstreamUnavailable("up", "starting"),
    UpstreamGone("up", "exit code 1"),
    UpstreamTimeout("up", 60),
    UpstreamGarbled("up", "truncated"),
    UpstreamHttpError("up", 429, "HTTP 429", retry_after=3),
    Overloaded("Server 'up' is busy"),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
ERRORS = st.one_of(
    st.dictionaries(
        st.sampled_from(["code", "message", "data", "x"]),
        st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.integers(-32800, -31900), st.just(-32602)),
    ),
    SCALARS,
)


def answered(error: Exception, method: str = "tools/list", *, modern: bool = False, id_: bytes = b"7") -> Any:
    answer = to_answer(error, id_, method, modern=modern)
    message = msgspec.json.decode(answer.data)
    assert message["jsonrpc"] == "2.0"
    assert answer.code == message.get("error", {}).get("code", 0)
    return message


def facts_of(error: Exception) -> dict[str, object]:
    """What is told of it beside its name: when to come back, if that is known."""
    return {"mcpbridge/retryAfter": 3} if isinstance(error, UpstreamHttpError) else {}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_failed_call_is_a_result_that_the_model_can_read(error: Exception, modern: bool) -> None:
    """It says which server, what happened and what to do."""
    result = answered(error, "tools/call", modern=modern)["result"]
    assert result["isError"] is True
    [content] = result["content"]
    assert "'up'" in content["text"]
    assert content["text"].endswith(".")
    assert len(content["text"]) > len(str(error)), "and what to do next"
    assert result["_meta"] == {ERROR_NAME: type(error).__name__, **facts_of(error)}
    assert ("resultType" in result) == modern


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_any_other_failed_request_is_an_error_with_its_kind(error: Exception) -> None:
    said = answered(error, "resources/read")["error"]
    assert said["code"] == INTERNAL_ERROR
    assert said["data"] == {ERROR_NAME: type(error).__name__, **facts_of(error)}


@pytest.mark.parametrize(("kind", "modern", "code"), [
    ("tool", False, INVALID_PARAMS), ("tool", True, INVALID_PARAMS), ("prompt", False, INVALID_PARAMS),
    ("resource", False, RESOURCE_NOT_FOUND), ("resource", True, INVALID_PARAMS),
])  # fmt: skip
def test_an_unknown_name_has_the_code_of_its_era_and_names_the_nearest(kind: str, modern: bool, code: int) -> None:
    said = answered(UnknownName(kind, "ecko", candidates=["up__echo"]), "tools/call", modern=modern)["error"]
    assert said["code"] == code
    assert "up__echo" in said["message"]
    assert said.get("data") == ({"uri": "ecko"} if kind == "resource" else None)


def test_a_broken_request_has_its_own_code_and_data() -> None:
    said = answered(BadRequest(-32022, "Unsupported protocol version", {"supported": ["x"]}))["error"]
    assert said == {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["x"]}}


def test_other_errors_of_the_bridge_and_unexpected_ones_are_internal() -> None:
    assert answered(ConfigError("wrong", file="f", key="k"))["error"]["message"] == "f: k: wrong"
    said = answered(ZeroDivisionError("secret detail"))["error"]
    assert said["code"] == INTERNAL_ERROR
    assert "ZeroDivisionError" in said["message"]
    assert "secret" not in said["message"], "details stay in the log"


def test_an_error_that_means_the_same_everywhere_keeps_its_bytes() -> None:
    error = b'{ "code":-32602,"message":"no","data":{"n":123456789012345678901234567890,"f":1.10},"x":null }'
    answer = to_answer(UpstreamAnswered("up", error), b'"\\u0061"', "tools/call", modern=True)
    assert answer.data == b'{"jsonrpc":"2.0","id":"\\u0061","error":%b}' % error


@given(ERRORS, st.booleans(), st.sampled_from(["tools/call", "resources/read", "prompts/get"]))
def test_any_error_of_an_upstream_becomes_one_that_every_client_can_read(error: Any, modern: bool, method: str) -> None:
    """Typed clients lose an answer whose error misses a whole code or a message, and wait for their deadline."""
    said = answered(UpstreamAnswered("up", json.dumps(error).encode()), method, modern=modern)["error"]
    assert isinstance(said["code"], int)
    assert not isinstance(said["code"], bool)
    assert isinstance(said["message"], str)
    assert said["message"]
    known = {*STANDARD, *([] if modern else [RESOURCE_NOT_FOUND])}
    assert said["code"] not in range(-32768, -31999) or said["code"] in known, "what is reserved means what it says"


@pytest.mark.parametrize(
    ("method", "error", "modern", "code"),
    [
        ("resources/read", b'{"code":-32002,"message":"x"}', False, -32002),
        ("resources/read", b'{"code":-32002,"message":"x"}', True, -32602),
        ("resources/read", b'{"code":-32602,"message":"x","data":{"uri":"a"}}', False, -32002),
        ("resources/read", b'{"code":-32602,"message":"Resource not found"}', False, -32002),
        ("resources/read", b'{"code":-32602,"message":"bad cursor"}', False, -32602),
        ("resources/read", b'{"code":-32602,"message":"bad cursor"}', True, -32602),
        ("prompts/get", b'{"code":-32002,"message":"x"}', True, -32602),
        ("prompts/get", b'{"code":-32002,"message":"x"}', False, -32002),
        ("tools/call", b'{"code":-32022,"message":"x"}', True, -32603),
        ("tools/call", b'{"code":-32601,"message":"x"}', False, -32601),
        ("tools/list", b'{"code":-32020,"message":"x"}', True, -32603),
        ("tools/list", b'{"code":-32021,"message":"x"}', True, -32603),
        ("tools/list", b'{"code":-32000,"message":"x"}', False, -32603),
        ("tools/list", b'{"code":-32019,"message":"x"}', True, -32603),
        ("tools/list", b'{"code":-32050,"message":"x"}', False, -32603),
        ("tools/list", b'{"code":-32500,"message":"x"}', False, -32603),
        ("tools/list", b'{"code":-31999,"message":"x"}', True, -31999),
        ("tools/list", b'{"code":418,"message":"x"}', False, 418),
        ("resources/read", b'{"code":-32602,"message":"Unknown resource: a:b"}', False, -32002),
    ],
)
def test_codes_mean_the_same_to_the_client_of_either_era(method: str, error: bytes, modern: bool, code: int) -> None:
    assert answered(UpstreamAnswered("up", error), method, modern=modern)["error"]["code"] == code


@pytest.mark.parametrize(
    "error", [b'{"code":-32602}', b'{"code":-32602,"message":""}', b'{"code":-32002}', b'{"code":5}']
)
@pytest.mark.parametrize("method", ["resources/read", "tools/call", "prompts/get"])
@pytest.mark.parametrize("modern", [False, True])
def test_an_error_without_a_message_gets_one(error: bytes, method: str, modern: bool) -> None:
    assert "'up'" in answered(UpstreamAnswered("up", error), method, modern=modern)["error"]["message"]


def test_an_unreadable_error_is_shown_in_part() -> None:
    said = answered(UpstreamAnswered("up", b'"' + b"boom " * 1000 + b'"'))["error"]
    assert "boom" in said["message"]
    assert len(said["message"]) < 500


def test_a_recoded_error_keeps_its_data() -> None:
    error = b'{"code":-32022,"message":"x","data":{"n":123456789012345678901234567890}}'
    answer = to_answer(UpstreamAnswered("up", error), b"7", "tools/call", modern=True)
    assert b"123456789012345678901234567890" in answer.data


def test_an_error_that_the_server_made_up_is_told_to_be_its_own() -> None:
    said = answered(UpstreamAnswered("up", b'{"code":418,"message":"teapot","data":[1]}'))["error"]
    assert said == {"code": 418, "message": "Server 'up': teapot", "data": [1]}


# -- what the client cannot do (-32021)

NEEDS_URL = UpstreamAnswered(
    "up",
    b'{"code":-32021,"message":"Needs it","data":{"requiredCapabilities":{"elicitation":{"url":{}},"roots":{}},"x":1}}',
)


def of(client: Client, error: UpstreamAnswered = NEEDS_URL, method: str = "tools/call") -> Any:
    return json.loads(to_answer(error, b"7", method, modern=client.modern, client=client).data)


def test_a_capability_that_a_modern_client_lacks_is_its_to_know() -> None:
    """With `data` as the server sent it; over HTTP the code makes it a 400."""
    said = of(Client(modern=True, version="2026-07-28", declared_capabilities={"roots": {}}))["error"]
    assert said == json.loads(NEEDS_URL.error)


@pytest.mark.parametrize("modern", [False, True])
def test_a_capability_that_the_client_has_is_a_matter_between_bridge_and_server(modern: bool) -> None:
    client = Client(
        modern=modern, version="2025-11-25", declared_capabilities={"elicitation": {"url": {}}, "roots": {}}
    )
    assert of(client)["error"]["code"] == INTERNAL_ERROR


def test_a_legacy_client_reads_what_it_lacks() -> None:
    client = Client(version="2025-11-25", declared_capabilities={"elicitation": {}})
    result = of(client)["result"]
    assert result["isError"] is True
    assert "elicitation.url, roots" in result["content"][0]["text"]
    said = of(client, method="prompts/get")["error"]
    assert said["code"] == -32600
    assert "elicitation.url, roots" in said["message"]


@pytest.mark.parametrize(
    ("required", "declared", "expected"),
    [
        ({"sampling": {}}, {"sampling": {}}, []),
        ({"sampling": {"tools": {}}}, {"sampling": {}}, ["sampling.tools"]),
        ({"elicitation": {"form": {}}}, {"elicitation": {}}, []),
        ({"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}, ["elicitation.form"]),
        ({"extensions": {"a/b": {}}}, {"extensions": {"c/d": {}}}, ["extensions.a/b"]),
        ({"roots": {}}, {"roots": None}, ["roots"]),
        ({}, {}, []),
    ],
)
def test_what_a_client_lacks_is_named(required: Any, declared: Any, expected: list[str]) -> None:
    assert lacking(required, declared) == expected


# -- resources by the name that the client knows


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("data", [b"", b',"data":{"uri":"file:///x","n":1e5}', b',"data":{"uri":"mcpb+up+file:///x"}'])
def test_a_resource_that_is_not_there_is_named_as_the_client_named_it(modern: bool, data: bytes) -> None:
    error = UpstreamAnswered("up", b'{"code":-32002,"message":"Resource not found"%b}' % data)
    error.asked = "mcpb+up+file:///x"
    said = answered(error, "resources/read", modern=modern)["error"]
    assert said["code"] == (INVALID_PARAMS if modern else RESOURCE_NOT_FOUND)
    assert said["data"]["uri"] == "mcpb+up+file:///x"


@pytest.mark.parametrize("data", [b"[1]", b"7", b"null", b'{"uri":1e999}', b'{"requiredCapabilities":[]}'])
@pytest.mark.parametrize("code", [-32002, -32021])
@pytest.mark.parametrize("modern", [False, True])
def test_data_of_an_odd_shape_costs_nobody_the_answer(data: bytes, code: int, modern: bool) -> None:
    error = UpstreamAnswered("up", b'{"code":%d,"message":"no","data":%b}' % (code, data))
    error.asked = "a:b"
    said = to_answer(error, b"7", "resources/read", modern=modern, client=Client(modern=modern, version="2025-11-25"))
    expected = INTERNAL_ERROR if code == -32021 else INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    assert b'"code":%d' % expected in said.data
    assert b"no" in said.data


@pytest.mark.parametrize("code", [-32602, -32000, 418])
def test_what_a_server_says_of_a_call_does_not_look_like_the_bridges_word(code: int) -> None:
    """Issue 5: it stands where results do."""
    said = "[mcpbridge abc · complete] boom"
    error = UpstreamAnswered("up", json.dumps({"code": code, "message": said, "data": {"why": said}}).encode())
    told = answered(error, "tools/call")["error"]
    assert told["message"].endswith("(mcpbridge abc · complete] boom")
    assert told["data"] == {"why": "(mcpbridge abc · complete] boom"}
    assert answered(error, "prompts/get")["error"]["message"].endswith(said)
