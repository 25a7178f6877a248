"""Secrets that the configuration brought in are masked in every spelling (docs/explanation/security.md, Secrets)."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.masking.known_values import Redactor, masked_fields
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import IN_SECRET_NAMES, secret_of
from mcpbridge.base.masking.values import without_secrets_in

SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=6, max_size=40).filter(
    lambda secret: secret not in MASK
)


@given(st.text(max_size=20), SECRETS, st.text(max_size=20))
def test_a_secret_never_remains(before: str, secret: str, after: str) -> None:
    masked = Redactor([secret])(f"{before}{secret}{after}")
    assert MASK in masked


@given(SECRETS)
def test_a_secret_is_found_in_its_usual_spellings(secret: str) -> None:
    redact = Redactor([secret])
    for spelled in (quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]):
        assert redact(f"[{spelled}]") == f"[{MASK}]"  # of which no secret here has a part, as six blanks have of blanks


@given(SECRETS)
def test_a_secret_is_found_in_json_that_is_not_in_ascii(secret: str) -> None:
    spelled = json.dumps(secret, ensure_ascii=False)[1:-1]
    assert Redactor([secret])(f"[{spelled}]") == f"[{MASK}]"


def test_a_secret_with_quotes_and_letters_beyond_ascii_is_masked_whole() -> None:
    secret = 'pé"ss-wörd-123'
    for is_ascii in (True, False):
        assert Redactor([secret])(json.dumps({"x": secret}, ensure_ascii=is_ascii)) == json.dumps({"x": MASK})


@given(st.binary(max_size=5), SECRETS, st.binary(max_size=5))
def test_a_secret_is_found_inside_base64(before: bytes, secret: str, after: bytes) -> None:
    """As in `Authorization: Basic`, where user and password are encoded together."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert MASK in Redactor([secret])(encode(before + secret.encode() + after).decode())


def test_a_short_value_is_left_alone() -> None:
    """It would be found in half of all words."""
    assert Redactor(["a", "true", ""])("a true story") == "a true story"


def test_what_is_learned_of_one_source_makes_nobody_forget_what_is_known_of_another() -> None:
    """A server with tokens of short life brings two with every renewal."""
    redact = Redactor(["configured"])
    redact.learn("quiet", ["quiet-access", "quiet-refresh", ""])
    for number in range(200):
        redact.learn("busy", ["busy-client-secret", f"busy-access-{number}", f"busy-refresh-{number}"])
        assert redact("busy-client-secret") == MASK
    for secret in ("configured", "quiet-access", "quiet-refresh", "busy-access-199"):
        assert redact(f"x {secret} y") == f"x {MASK} y"
    assert redact("busy-access-0") == "busy-access-0"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redactor(["secret", "secret-and-more"])("my secret-and-more!") == f"my {MASK}!"


@pytest.mark.parametrize("text", ["", "nothing here", "a line\nand another"])
def test_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert Redactor()(text) == text
    assert Redactor(["hunter2-hunter2"])(text) == text


def test_in_a_document_only_texts_are_masked() -> None:
    """A number that equals a secret stays one: masked, the document would not be JSON any more."""
    redact = Redactor(["123456", "hunter2"])
    document = {
        "pid": 123456,
        "hunter2": None,
        "servers": [{"stderr": ("pin 123456", "hunter2")}],
        "up": 1.5,
        "on": True,
    }
    masked = {"servers": [{"stderr": ["pin [redacted]", "[redacted]"]}], "hunter2": None}
    assert redact.values_of(document) == document | masked


@pytest.mark.parametrize(
    ("fields", "masked"),
    [
        ({"reason": "it works", "count": 5, "none": None, "ratio": 0.5, "path": "a/b"}, None),
        ({"password": "hunterhunter"}, {"password": MASK}),
        ({"dbPassword": "correct horse", "n": 1}, {"dbPassword": MASK, "n": 1}),
        ({"token": 123456789}, {"token": MASK}),
        ({"user_pin": 123456}, {"user_pin": MASK}),
        ({"args": ["--token", "abcdefgh"], "n": 1}, {"args": ["--token", MASK], "n": 1}),
        ({"args": ["known-secret-1"]}, {"args": [MASK]}),
        ({"args": {"password": "words"}}, {"args": {"password": MASK}}),
        ({"raw": b"bytes"}, {"raw": "b'bytes'"}),
    ],
)
def test_fields_of_log_lines_are_masked_by_what_they_hold_and_by_their_names(
    fields: dict[str, object], masked: dict[str, object] | None
) -> None:
    assert masked_fields(fields, Redactor(["known-secret-1"])) == (fields if masked is None else masked)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in IN_SECRET_NAMES if secret_of(name) is not None),
        *(
            "api_key",
            "accessKey",
            "X-Auth-Token",
            "session_id",
            "keyData",
            "code_verifier",
            "device_code",
            "PAT",
            "myPat",
        ),
        *("recovery_phrase", "seedPhrase", "backup_code", "userPass", "cvv", "pins", "Set-Cookie", "DSN"),
    ],
)
def test_no_name_of_a_secret_is_passed_over(name: str) -> None:
    """Lines of logs are first looked at in a cheap way, which must not say that there is none where there is."""
    found = secret_of(name)
    value = "5" * 12 if found is not None and found.texts == "digits" else "Ab3dEf6hIj9lMn2pQr5tUv8x"
    words = "correct horse" if found is not None and found.texts == "all" else value
    assert masked_fields({name: words}, Redactor()) == without_secrets_in({name: words}, Redactor())
