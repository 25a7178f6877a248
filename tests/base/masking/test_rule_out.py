"""What is ruled out in one look holds nothing for those who look for secrets."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.rule_out import holds_no_secret
from mcpbridge.pipeline import redaction
from mcpbridge.protocol.jsonrpc import encode
from support.benign_samples import benign_samples
from support.provider_samples import provider_look_alikes, provider_secrets
from support.secret_samples import secret_samples
from support.secret_texts import ORDINARY, SECRETS

TEXTS = [
    *(one.text for one in (*secret_samples(), *provider_secrets(), *benign_samples(), *provider_look_alikes())),
    *(text for text, _ in SECRETS.values()),
    *ORDINARY.values(),
]
KNOWN = Redactor(["abcdefgh"]).known


def values_of(text: str) -> Sequence[object]:
    """JSON values that have a text: as one text, as a name, and in pieces."""
    name, _, value = text.partition(" ")
    return (
        {"content": [{"type": "text", "text": text}]},
        {text: 1},
        {"n": [{name: value}, {"name": name, "value": value}, *text.split()[:40]]},
    )


def is_changed_by_a_search(raw: bytes) -> bool:
    """The detectors find something, or rewrite the value for another reason."""
    keep = re.compile("(?!)")  # with it nothing is ruled out before
    return redaction.redacted_json(raw, ("secrets", "secrets"), lambda _, __: "", KNOWN, keep) is not raw


def test_what_is_ruled_out_has_nothing_of_all_samples() -> None:
    assert is_changed_by_a_search(b'{"password":"vQ7dK2mXp9"}')
    ruled_out = 0
    for text in TEXTS:
        for value in values_of(text):
            raw = encode(value)
            if holds_no_secret(raw, KNOWN):
                ruled_out += 1
                assert not is_changed_by_a_search(raw), text
    assert ruled_out > 20, "it rules nothing out"


WORDS = sorted({word for text in TEXTS for word in re.split(r"(\W+)", text) if 0 < len(word) < 60})


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=12), st.sampled_from(["", " ", "\n", ": ", "="]))
def test_what_is_ruled_out_has_nothing_of_texts_put_together(words: list[str], between: str) -> None:
    for value in values_of(between.join(words)):
        raw = encode(value)
        if holds_no_secret(raw, KNOWN):
            assert not is_changed_by_a_search(raw)


@pytest.mark.parametrize(
    "value",
    [
        {"content": [{"type": "text", "text": "hello 1"}]},
        {"content": [{"type": "text", "text": 'Line 12 says "yes".\nThe application (of 1999) ended;\tall is well.'}]},
        {"rows": [{"id": 7, "name": "Ada"}, {"id": 8, "name": "Grace", "isError": False, "more": None}]},
    ],
)
def test_plain_values_are_ruled_out(value: object) -> None:
    assert holds_no_secret(encode(value), KNOWN)


@pytest.mark.parametrize(
    "raw",
    [
        rb'{"a":"pass\u0077ord"}',
        rb'{"a":"\\nword"}',
        b'{"a":"abcdefgh"}',
        b'{"a":"\xff"}',
        b"[" * 65 + b"]" * 65,
        '{"a":"‹secret:0123456789abcdef›"}'.encode(),
    ],
)
def test_what_may_be_spelled_otherwise_is_not(raw: bytes) -> None:
    assert not holds_no_secret(raw, KNOWN)
