"""The pure rules of cassettes: lines and their order, what makes requests equal, what is masked."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.errors import (
    BridgeError,
    ConfigError,
    RateLimited,
    SignInNeeded,
    ToolInactive,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK
from mcpbridge.engine.cassettes.format import HEADER, Entry, Failure, Step, as_line, in_order, read_entries
from mcpbridge.engine.cassettes.masking import Masker, resembles
from mcpbridge.engine.cassettes.match import Matching
from mcpbridge.engine.cassettes.plain_form import alias, as_error, as_failure, minted_in, of_request, of_step
from mcpbridge.engine.cassettes.replay import Script

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=4
)
objects = st.dictionaries(st.text(), values, max_size=3)


def loaded(data: bytes | str | Raw) -> Any:
    return json.loads(bytes(data) if isinstance(data, Raw) else data)


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    server, params = draw(st.sampled_from(["a", "b"])), raw(draw(objects))
    steps = tuple(
        Step(tell="notifications/message", params=raw(draw(objects)), after=draw(st.booleans()))
        if draw(st.booleans())
        else Step(ask="roots/list", answer=raw({"roots": []}))
        for _ in range(draw(st.integers(0, 2)))
    )
    method = draw(st.sampled_from(["tools/call", "tools/list", "initialize"]))
    if draw(st.booleans()):
        return Entry(server, method, params, meanwhile=steps, result=raw(draw(objects)))
    return Entry(server, method, params, meanwhile=steps, failed=Failure("UpstreamGone", draw(st.text()), {"n": 1}))


def lines(some: list[Entry]) -> list[bytes]:
    return [as_line(entry) for entry in some]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(entries(), max_size=3))
def test_a_line_says_all_of_its_entry(some: list[Entry]) -> None:
    data = b"\n".join([HEADER, *lines(some)])
    assert lines(read_entries(data, "x")) == lines(some)
    for line in lines(some):
        assert len(line.splitlines()) == 1
        loaded(line)


GOOD = (
    b'{"server":"a","request":"tools/call","params":{"name":"x"},'
    b'"meanwhile":[{"tell":"n","params":{}}],"result":{"a":1}}'
)
odd_values = st.sampled_from(["a", "", 1, True, None, 1e400, [], {}, [{}], {"tell": 1}, "\ud800", ["x"]])
odd_members = st.sampled_from([*Entry.__struct_fields__, *Step.__struct_fields__, "kind", "message", "facts", "x"])
odd_objects = st.recursive(odd_values, lambda inner: st.dictionaries(odd_members, inner, max_size=5), max_leaves=8)


@st.composite
def cut_lines(draw: st.DrawFn) -> bytes:
    """A good line with something else in its middle."""
    start, end = sorted((draw(st.integers(0, len(GOOD))), draw(st.integers(0, len(GOOD)))))
    return GOOD[:start] + draw(st.binary(max_size=6)) + GOOD[end:]


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.binary(max_size=30) | cut_lines() | odd_objects.map(lambda it: json.dumps(it).encode()), max_size=3))
@example([b'{"server":"a","request":"x","params":{"a":"\xff"},"result":{}}'])
@example([b'{"server":"a","request":"x","params":{"a":' + b"[" * 5000 + b"]" * 5000 + b'},"result":{}}'])
@example([b"[" * 100_000])
def test_garbage_is_refused_with_its_line_and_what_is_read_can_be_replayed(some: list[bytes]) -> None:
    found, told = list[Entry](), "some.jsonl:2: not a line of a cassette: "
    try:
        found = read_entries(b"\n".join([HEADER, *some]), "some.jsonl")
    except ConfigError as refused:
        told = str(refused)
    assert re.match(r"some\.jsonl:[0-9]+: not a line of a cassette: ", told)
    script = Script("some.jsonl", found, Masker(), repeat=True)
    for entry in found:
        as_line(entry)
        if entry.request:
            assert isinstance(script.take(entry.server, entry.request, entry.params), Entry | str)
        if entry.failed is not None:
            as_error(entry.failed, "a").full_message()


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(entries(), max_size=4, unique_by=lambda one: (one.server, one.request, bytes(one.params))), st.randoms()
)
def test_the_order_of_different_requests_is_not_the_order_in_which_they_came(
    some: list[Entry], chance: random.Random
) -> None:
    distinct = {(entry.server, entry.request, json.dumps(loaded(entry.params), sort_keys=True)) for entry in some}
    shuffled = list(some)
    chance.shuffle(shuffled)
    if len(distinct) == len(some) and not any(entry.request == "initialize" for entry in some):
        assert lines(in_order(shuffled)) == lines(in_order(some))


def test_equal_requests_keep_their_order() -> None:
    some = [Entry("a", "tools/call", raw({"n": number % 2}), result=raw({"at": number})) for number in range(6)]
    assert [loaded(entry.result)["at"] for entry in in_order(some)] == [0, 2, 4, 1, 3, 5]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(objects)
def test_a_request_is_found_however_its_params_are_spelled(params: dict[str, Any]) -> None:
    turned = dict(reversed(params.items()))
    matching = Matching([Entry("a", "tools/call", raw(params), result=raw({}))], repeat=True)
    spaced = Raw(json.dumps(turned, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if b"\xed" not in bytes(spaced):
        assert matching.take("a", "tools/call", spaced) is not None
    assert matching.take("b", "tools/call", raw(params)) is None
    assert matching.take("a", "tools/call", raw({**params, "one more": 1})) is None


SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=6).filter(
    lambda secret: secret not in MASK
)
"""None of which the mask itself would be masked again."""


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(objects, st.lists(SECRETS, max_size=3))
def test_what_was_masked_when_recorded_is_found_when_it_is_asked_again(
    params: dict[str, Any], secrets: list[str]
) -> None:
    params = {**params, "secrets": secrets, "text": f"before {secrets} after"}
    recorder, replayer = Masker(Redactor(secrets)), Masker(Redactor(secrets))
    recorded = recorder.raw(raw(params))
    assert bytes(recorder.raw(recorded)) == bytes(recorded), "masking twice is masking once"
    matching = Matching([Entry("a", "tools/call", recorded, result=raw({}))], repeat=True)
    assert matching.take("a", "tools/call", replayer.raw(raw(params))) is not None


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(objects, st.text(alphabet="abcdefghijklmnop", min_size=8, max_size=20))
def test_no_known_secret_is_left(params: dict[str, Any], secret: str) -> None:
    params = {**params, "a": secret, f"x{secret}": [f"--{secret}--"], "b": json.dumps({"in": secret})}
    shown = bytes(Masker(Redactor([secret])).raw(raw(params))).decode()
    assert secret not in shown
    loaded(shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "hunter2"}, {"password": MASK}),
        ({"apiKey": "x", "API_KEY": "x", "x-api-key": "x"}, {"apiKey": MASK, "API_KEY": MASK, "x-api-key": MASK}),
        ({"Authorization": "Bearer x"}, {"Authorization": MASK}),
        ({"credentials": {"user": "a", "n": 1}}, {"credentials": {"user": MASK, "n": 1}}),
        ({"token": ["a", "b"]}, {"token": [MASK, MASK]}),
        ({"author": "ann", "key": "k", "tokens": 5, "keyboard": "x", "nextPageToken": "p"}, None),
        ({"token_url": "https://example.com", "secret": ""}, None),
        ({"max_tokens": 5, "token": 5, "token_count": 7, "passwordless": True}, None),
        ({"url": "https://u:p%40ss@h/p?x=1"}, {"url": f"https://{MASK}@h/p?x=1"}),
        ({"url": "http://h/?q=1&access_token=abc&n=2#f"}, {"url": f"http://h/?q=1&access_token={MASK}&n=2#f"}),
        ({"h": "Authorization: Basic dXNlcjpwYXNz"}, {"h": f"Authorization: Basic {MASK}"}),
        ({"text": '{"password": "hunter2", "n": 1.50}'}, {"text": f'{{"password":"{MASK}","n":1.50}}'}),
        ({"text": "see http://example.com/a?b=c and http://[::1]:80/"}, None),
        ({"taskId": "t", "createdAt": "2025-01-01T00:00:00Z"}, {"taskId": "t", "createdAt": "1970-01-01T00:00:00Z"}),
    ],
    ids=range(14),
)
def test_what_is_masked_by_its_name_or_place(value: dict[str, Any], shown: dict[str, Any] | None) -> None:
    found = bytes(Masker().raw(raw(value)))
    assert loaded(found) == (value if shown is None else shown)
    if shown is None:
        assert found == bytes(raw(value)), "the very same bytes"


def test_a_secret_once_seen_under_its_name_is_masked_everywhere() -> None:
    masker = Masker()
    masker.raw(raw({"password": "hunter22"}))
    assert loaded(masker.raw(raw({"text": "it is hunter22."}))) == {"text": f"it is {MASK}."}
    masker.raw(raw({"auth": "required"}))
    ordinary = raw({"required": ["x"], "text": "it is required"})
    assert bytes(masker.raw(ordinary)) == bytes(ordinary), "an ordinary word"


def test_a_number_and_a_member_said_twice_hide_no_secret() -> None:
    masker = Masker(Redactor(["12345678", "s3cret-x"]))
    assert loaded(masker.raw(b'{"n": 12345678, "f": 12345678.5}')) == {"n": MASK, "f": MASK}
    assert b"s3cret-x" not in bytes(masker.raw(b'{"a": "s3cret-x", "a": "other"}'))
    assert b"s3cret-x" not in bytes(masker.raw(b'{"a": "\\u0073\\u0033cret-x"}'))


def test_definitions_are_no_data() -> None:
    schema = {"properties": {"password": {"type": "string", "default": "x"}}}
    definition = {"tools": [{"name": "x", "description": "As http://user:pass@host", "inputSchema": schema}]}
    assert bytes(Masker().raw(raw(definition), by_name=False)) == bytes(raw(definition))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_what_was_masked_stands_for_any_text_and_nothing_else(value: Any) -> None:
    assert resembles({"a": MASK, "b": value}, {"a": "anything", "b": value})
    assert resembles(f"x {MASK} y", "x anything y")
    assert not resembles(f"x {MASK} y", "x anything z")
    assert not resembles({"a": MASK, "b": value}, {"a": "anything", "b": value, "c": 1})
    assert not resembles([value], [value, value])


def test_what_belongs_to_one_hop_is_not_written_down() -> None:
    envelope = "io.modelcontextprotocol/"
    meta = {"progressToken": 7, "traceparent": "x", "mcpbridge/run": "r", f"{envelope}protocolVersion": "v"}
    asked = {"name": "x", "arguments": {"_meta": 1}, "_meta": meta}
    assert loaded(of_request("tools/call", raw(asked))) == {"name": "x", "arguments": {"_meta": 1}}
    asked["_meta"] = {**meta, "vendor/key": 1, f"{envelope}related-task": {"taskId": "t"}}
    kept = {"vendor/key": 1, f"{envelope}related-task": {"taskId": "t"}}
    assert loaded(of_request("tools/call", raw(asked)))["_meta"] == kept
    assert bytes(of_request("initialize", raw({"clientInfo": {"version": "1"}}))) == b"{}"
    assert loaded(of_step(raw({"progressToken": 7, "progress": 1}))) == {"progress": 1}
    assert bytes(of_request("tools/list", b"")) == b"{}"


def test_minted_names_are_found_where_a_server_mints_and_nowhere_else() -> None:
    made = {
        "task": {"taskId": "1"},
        "requestState": "2",
        "content": [{"taskId": "3"}],
        "structuredContent": {"taskId": 4},
    }
    assert minted_in(raw(made)) == [("task", "1"), ("state", "2")]
    assert minted_in(b'{"taskId": tru') == []
    key = ("a", "tools/call", b"{}")
    assert alias("task", key, 1) != alias("task", key, 2) != alias("task", ("b", *key[1:]), 2)


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnavailable("a", "it is away"),
        UpstreamGone("a", "it crashed"),
        UpstreamHttpError("a", 503, "HTTP 503", retry_after=2.5),
        UpstreamTimeout("a", 3),
        RateLimited("Server 'a'", "30/min", 4),
        ToolInactive("web-search", "no key", "Set one."),
        SignInNeeded("a", "it said so", scope="b"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_was(error: BridgeError) -> None:
    failed = as_failure(error)
    line = as_line(Entry("a", "tools/call", failed=failed))
    (entry,) = read_entries(HEADER + b"\n" + line, "x")
    assert entry.failed is not None
    again = as_error(entry.failed, "a")
    assert type(again) is type(error)
    assert again.full_message() == error.full_message()
    assert vars(again) == vars(error)


def test_an_error_of_a_kind_that_is_gone_says_the_same() -> None:
    error = as_error(Failure("NoSuchError", "it was so"), "a")
    assert isinstance(error, BridgeError)
    assert str(error) == "it was so"


@pytest.mark.parametrize(
    "kind",
    ["os", "SystemExit", "__builtins__", "nearest", "UpstreamGone", "RateLimited", "SignInNeeded", "UpstreamAnswered"],
    ids=str,
)
def test_a_failure_makes_an_error_of_the_bridge_and_nothing_else(kind: str) -> None:
    facts = {
        "full_message": "x",
        "__class__": "x",
        "__reduce__": "x",
        "args": ["x"],
        "upstream": 5,
        "_hidden": 1,
        "retry_after": "x",
    }
    facts |= {"by_asking": 5, "advice": 5, "facts": 5}
    error = as_error(Failure(kind, "it was so", facts), "a")
    assert isinstance(error, BridgeError)
    assert "it was so" in error.full_message()
    assert not any(name.startswith("_") or name == "full_message" for name in vars(error))
    assert not getattr(error, "by_asking", None), "nobody signs in"
    assert not isinstance(getattr(error, "retry_after", None), str)
