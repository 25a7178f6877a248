"""Secrets leave all that a failure says: every text of it, and nothing that is data or an address to open."""

import json
from typing import Any

import pytest

from mcpbridge.base.errors import UpstreamAnswered
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.text import without_secrets
from mcpbridge.core.failure_masking import masked_error, masked_result
from support.secret_texts import ISSUED

KEY = ISSUED["github"]


def masked(result: dict[str, Any]) -> Any:
    return json.loads(bytes(masked_result(json.dumps({"isError": True, **result}).encode(), without_secrets)))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": f"key {KEY}"},
        {"type": "text", "text": f"key {KEY}", "data": "", "uri": "x:y"},
        {"type": "resource", "resource": {"uri": "x:y", "text": f"key {KEY}"}},
        {"type": "unheard-of", "words": [f"key {KEY}"]},
    ],
    ids=["text", "text with more", "resource", "unknown"],
)
def test_every_text_of_a_failure_is_masked(block: dict[str, Any]) -> None:
    (shown,) = masked({"content": [block]})["content"]
    assert KEY not in json.dumps(shown)
    assert MASK in json.dumps(shown)
    assert shown.keys() == block.keys()


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": KEY, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:y", "blob": KEY}},
        {"type": "resource_link", "uri": f"x:{KEY}", "name": "a"},
    ],
    ids=["image", "blob", "link"],
)
def test_data_stays(block: dict[str, Any]) -> None:
    assert masked({"content": [block]})["content"] == [block]


def test_what_is_said_beside_a_failure_is_masked_but_for_names_of_the_protocol() -> None:
    related = {"io.modelcontextprotocol/related-task": {"taskId": KEY}, "progressToken": KEY}
    assert masked({"_meta": {**related, "vendor/why": f"key {KEY}"}})["_meta"] == {
        **related,
        "vendor/why": f"key {MASK}",
    }


def test_an_error_that_asks_for_a_page_keeps_its_address_alone() -> None:
    page = {"mode": "url", "url": f"https://h/x?token={KEY}", "elicitationId": KEY, "message": f"key {KEY}"}
    error = {"code": -32042, "message": f"key {KEY}", "data": {"elicitations": [page], "more": f"key {KEY}"}}
    answered = masked_error(UpstreamAnswered("up", json.dumps(error).encode()), without_secrets)
    told = json.loads(answered.error)
    assert told["data"]["elicitations"] == [{**page, "message": f"key {MASK}"}]
    assert told["message"] == told["data"]["more"] == f"key {MASK}"
    assert masked_error(answered, without_secrets) is answered
