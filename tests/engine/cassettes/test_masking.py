"""What a cassette takes for a secret, what it leaves readable, and that requests with secrets are found again."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK
from mcpbridge.engine.cassettes.format import Entry
from mcpbridge.engine.cassettes.masking import Masker, resembles
from mcpbridge.engine.cassettes.match import Matching
from support.cpu_time import assert_no_longer

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\nHIDDEN\n-----END RSA PRIVATE KEY-----"

SECRETS: list[tuple[Any, str]] = [
    ({"password": 12345678}, "12345678"),
    ({"passcode": 7}, "7"),
    ({"auth": {"pin": 1234}}, "1234"),
    ({"cvv": "123"}, "123"),
    ({"token": 123456}, "123456"),
    ({"secrets": {"a": [1.75]}}, "1.75"),
    ({"passwords": ["HIDDEN"]}, "HIDDEN"),
    ({"apiKeys": {"a": "HIDDEN"}}, "HIDDEN"),
    ({"tokens": {"a": "tok-in-map-1"}}, "tok-in-map-1"),
    ({"maxToken": "s3cretmax9"}, "s3cretmax9"),
    ({"max_password": "hid9den77"}, "hid9den77"),
    ({"dbpassword": "HIDDEN", "DB_PASS": "HIDDEN", "clientsecret": "HIDDEN"}, "HIDDEN"),
    ({"client_secret_id": "HIDDEN"}, "HIDDEN"),
    ({"ghp_abcdefghijklmnopqrst1234": 1}, "ghp_"),
    (f"see\n{PEM}\nend", "HIDDEN"),
    (PEM[:45], "MIIabc"),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nHIDDEN", "HIDDEN"),
    ("clone https://ghp_justtoken1234@github.com/x", "ghp_"),
    ("https://0123456789abcdef0123@host/x", "0123456789"),
    ("postgres://u:HID@DEN@h/db", "HID"),
    ("Authorization: token HIDDEN", "HIDDEN"),
    ("Authorization: Bearer abcdefghijkl", "abcdefghijkl"),
    ("curl -H 'X-Api-Key: HIDDEN' https://h", "HIDDEN"),
    ("GET /\r\nX-Auth-Token: HIDDEN\r\nHost: h", "HIDDEN"),
    ("Set-Cookie: sid=HIDDEN; Path=/", "HIDDEN"),
    ("Cookie: a=b; sid=HIDDEN", "HIDDEN"),
    ("run API_KEY=HIDDEN now", "HIDDEN"),
    ("API_KEY='HID DEN' run", "DEN"),
    ("--password=HIDDEN", "HIDDEN"),
    ("spring.datasource.password=HIDDEN", "HIDDEN"),
    ("host=h;AccountKey=HID+DEN/x==;Suffix=s", "DEN"),
    ("password: HIDDEN\nuser: ann", "HIDDEN"),
    ("password: hunter2 and so on", "hunter2"),
    ('so {"password": "HIDDEN"} there', "HIDDEN"),
    ('so {"password": "HID\\"DEN"} there', "DEN"),
    ("so {'db_password': 'HIDDEN'} there", "HIDDEN"),
    ('so "{\\"password\\": \\"HIDDEN\\"}" there', "HIDDEN"),
    ('so {"password": 12345678, "n": 1} there', "12345678"),
    ('cut off {"secret": "HIDDEN', "HIDDEN"),
    ("<password>HIDDEN</password>", "HIDDEN"),
    ("https://x/y?q=1&sig=HIDDEN&access_token=HIDDEN&n=2", "HIDDEN"),
    ([{"name": "X-Api-Key", "value": "HIDDEN"}, {"key": "DB_PASSWORD", "value": 123456}], "HIDDEN"),
    ({"args": ["run", "--api-key", "HIDDEN", "--name", "x"]}, "HIDDEN"),
    ("mysql --user ann --password hunter2 db", "hunter2"),
    ("use sk-abcdef123456.", "abcdef"),
    ("use sk-proj-abcdefghijkl_mnopqrstuv", "abcdef"),
    ("use ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdef"),
    ("use gho_abcdefghijklmnopqrstuvwxyz", "abcdef"),
    ("use github_pat_11ABCDEFG0abcdefghijklmnop_qrstuv", "abcdef"),
    ("use xoxb-123456789012-abcdefABCDEF", "123456"),
    ("use AKIAIOSFODNN7EXAMPLE", "AKIA"),
    ("use AIzaSyA-abcdefghijklmnopqrstuvwxyz012345", "AIza"),
    (f"use {JWT}, please", "eyJ"),
    ("use eyJhbGciOiJub25lIn0.e30.c2ln", "eyJ"),
    ("use Bearer abc123def456", "abc123"),
]

ORDINARY: list[Any] = [
    {"author": "ann", "authority": "b", "keyboard": "x", "key": "k", "tokenizer": "gpt2", "secretary": "bob"},
    {"nextPageToken": "p1234567890", "progressToken": 1234567, "continuation_token": "c12345678"},
    {"max_tokens": 4096, "tokens": 123456, "input_tokens": 98765, "token_count": 12345, "tokensUsed": 10000},
    {"usage": {"total_tokens": 1234567, "prompt_tokens": 1234}},
    {"tokens": ["The", "tokenization", "of", "words"]},
    {"token": 5, "auth": {"expires_in": 3600, "enabled": True}, "password_length": 16, "token_expires_at": 1700000000},
    {"token_type": "bearer", "token_url": "https://h/t", "auth_method": "basic", "secretName": "db", "pin": "left"},
    {"pins": [13, 21], "pass": 12, "first_pass": "ok", "passed": True, "compass": "north", "bypass": "yes"},
    {"password": "", "secret": None, "passwordless": True},
    "token: 5 of 10 used",
    "tokens: 12345 of 20000 used",
    "The author: ann. tokenizer=gpt2, max_tokens=4096, nextPageToken: abcdef123",
    "Password: required",
    "give it with --token or --api-key instead, see --password",
    {"args": ["--max-tokens", "5", "--token", "--verbose"], "name": "n", "value": "v"},
    "password: must be at least 8 characters",
    "def login(password: str, token: Optional[str] = None) -> None: ...",
    "password = get_password()",
    "token = request.headers.token",
    "api_key=${API_KEY} TOKEN=$TOKEN",
    "permissions:\n  id-token: write\n  contents: read",
    "auth: basic",
    "Basic authentication and bearer certificates",
    "Cookie: a small file",
    "PWD=/work/project OLDPWD=/",
    "a sk-learn-like-pipeline, secret_manager_configuration_value, task-1234567890, sk-SK",
    "ssh://git@github.com/x and https://ann@example.com, mail ann@example.com",
    "see http://[::1]:80/?page=2&sort=key&pageToken=abc",
    "-----BEGIN CERTIFICATE-----\nMIIabc\n-----END CERTIFICATE-----",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301 and 9e107d9d372bb6826bd81d3542a419d6",
    '{"usage": {"total_tokens": 12345}, "author": "ann"}',
    "<author>ann</author><tokens>512</tokens>",
]


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(("value", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_is_masked_and_its_request_found_again(value: Any, secret: str) -> None:
    params = raw({"arguments": {"value": value, "other": ["before", 1.5]}})
    recorded = Masker().raw(params)
    assert secret not in bytes(recorded).decode()
    assert MASK in bytes(recorded).decode()
    assert json.loads(bytes(recorded))["arguments"]["other"] == ["before", 1.5]
    matching = Matching([Entry("a", "tools/call", recorded, result=raw({}))], repeat=True)
    assert matching.take("a", "tools/call", Masker().raw(params)) is not None


@pytest.mark.parametrize("value", ORDINARY, ids=range(len(ORDINARY)))
def test_what_is_no_secret_stays_as_it_is(value: Any) -> None:
    params = raw({"value": value})
    assert bytes(Masker().raw(params)) == bytes(params)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: token abc, then", f"Authorization: token {MASK}, then"),
        ("a=1 API_KEY=x9 b=2", f"a=1 API_KEY={MASK} b=2"),
        ("'password': 'x', 'n': 1", f"'password': '{MASK}', 'n': 1"),
        (f"x {PEM} y", f"x {MASK} y"),
        ("https://u:p@h/x", f"https://{MASK}@h/x"),
        (f"The key is {JWT}, see", f"The key is {MASK}, see"),
        ("password=hunter2.", f"password={MASK}."),
    ],
    ids=range(7),
)
def test_the_words_around_a_secret_stay(text: str, shown: str) -> None:
    assert Masker().text(text) == shown


def test_a_member_that_is_said_twice_hides_none() -> None:
    assert b"HIDDEN" not in bytes(Masker().raw(b'{"a":{"password":"HIDDEN"},"a":1}'))
    assert b"sk-" not in bytes(Masker().raw(b'{"a":"sk-abcdef123456","a":1}'))


def test_a_number_that_is_a_secret_is_masked_where_it_stands_in_a_text() -> None:
    shown = Masker().raw(raw({"text": "you said 87654321", "password": 87654321}))
    assert b"87654321" not in bytes(shown)


PIECES = (
    *("password", "token", "api_key", "Cookie", "Bearer", "=", ": ", ":", '"', "'", "\\", '\\"', "{", "}", "[", "]"),
    *(",", " ", "\n", "https://", "@", "?", "&", "sk-abcdef123456", JWT, PEM, "-----BEGIN PRIVATE KEY-----", MASK),
    *("--token ", "Authorization: ", "name", "value"),
    *("hunter2", "12345678", "eyJ", ".", "-", "<password>", "</password>", "$", "/", "x", "secret", "%"),
    '{"password": "a1b2c3d4"}',
)
pieces = st.sampled_from(PIECES)
texts = st.lists(pieces | st.text(max_size=4), max_size=14).map("".join)
names = (
    st.sampled_from(["password", "tokens", "auth", "pin", "n", "max_tokens", "expires_in", "taskId", "name", "value"])
    | texts
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=5
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(values)
def test_masking_twice_is_masking_once_and_a_masked_request_is_its_own_match(value: Any) -> None:
    params = raw({"value": value})
    masker = Masker(Redactor(["hunter2"]))
    once = masker.raw(params)
    assert bytes(masker.raw(once)) == bytes(once)
    assert bytes(Masker(Redactor(["hunter2"])).raw(params)) == bytes(once), "always the same"
    shown = msgspec.json.decode(once)
    assert resembles(shown, shown)
    matching = Matching([Entry("a", "tools/call", once, result=raw({}))], repeat=True)
    assert matching.take("a", "tools/call", Masker(Redactor(["hunter2"])).raw(params)) is not None


@settings(max_examples=100, deadline=None)
@given(texts)
def test_masking_a_text_twice_is_masking_it_once(text: str) -> None:
    once = Masker().text(text)
    assert Masker().text(once) == once


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40) | texts.map(str.encode))
def test_anything_can_be_masked(data: bytes) -> None:
    shown = bytes(Masker().raw(data))
    if data:
        msgspec.json.decode(shown)  # it is JSON
    Masker().raw(data, by_name=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4), st.text("ab", max_size=12))
def test_a_mask_stands_for_any_text_that_is_not_empty(parts: list[str], asked: str) -> None:
    recorded = MASK.join(parts)
    expected = recorded == MASK or (
        recorded == asked if len(parts) == 1 else re.fullmatch(".+".join(parts), asked) is not None
    )
    assert resembles(recorded, asked) == expected


HOSTILE = (
    *("eyJ-", "eyJaaaaaaaa.", "token:", "token: ", 'token="', "a-", "Cookie:", "://a:", "<password>", "\\", "sk-"),
    *(
        "password=\\",
        "?token=",
        "Bearer ",
        '{"a":',
        "password='\"",
        "-----BEGIN PRIVATE KEY-----",
        "password: $",
        "--token a ",
        "--token-",
    ),
)


@pytest.mark.parametrize("unit", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_made_to_take_long_takes_no_longer_than_others(unit: str) -> None:
    hostile, ordinary = unit * (200_000 // len(unit)), "Some words, and a number: 1234.\n" * 6_250
    assert_no_longer(lambda: Masker().text(hostile), lambda: Masker().text(ordinary))


def test_comparing_takes_no_longer_for_many_masks() -> None:
    assert not resembles(("a" + MASK) * 5000 + "END", "a" * 100_000)
    recorded = f"user: password={MASK};\n" * 500
    asked = "".join(f"user: password=p{number};\n" for number in range(500))
    assert resembles(f"{recorded}end A", f"{asked}end A")
    assert not resembles(f"{recorded}end A", f"{asked}end B")
