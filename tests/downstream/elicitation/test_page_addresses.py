"""Servers have people open honest pages only, and people see where a page really is."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mcpbridge.base.errors import BadRequest, UpstreamAnswered, UpstreamGarbled
from mcpbridge.core.elicitation import ELICIT, ClientCapabilities, Question, QuestionRefused
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.question_forms import phrase
from mcpbridge.downstream.revisions.downgrade import pages_first

OPENS_PAGES = ClientCapabilities(form=True, url=True)

BAD = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "file:///etc/passwd",
    "ftp://example.com/",
    "vbscript:x",
    "vscode://open?x",
    "about:blank",
    "blob:https://example.com/x",
    "view-source:https://example.com",
    "mailto:a@example.com",
    "//example.com/",
    "/login",
    "example.com",
    "",
    "https:///x",
    "https://",
    "https:example.com",
    "http://localhost/",
    "http://localhost.:3000/",
    "http://LOCALHOST:8080/x",
    "http://a.localhost/",
    "http://router.local/",
    "http://metadata.google.internal/",
    "http://intranet/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.1.:80/",
    "http://0.0.0.0:8000/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.1.1/admin",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "https://bank.com@evil.example/",
    "https://bank.com:443@evil.example/",
    "https://user:password@example.com/",
    "https://bank.com\\@evil.example/",
    "https://bank.com\\.evil.example/",
    "https://example.com/\u202egnp.exe",
    "https://exa\u200bmple.com/",
    "https://example.com/a b",
    "https://example.com/\x00",
    "https://example.com/\r\nx: y",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://exam%70le.com/",
    "https://\u0430pple.com/",  # the first letter is Cyrillic
    "https://xn--pple-43d.com/",  # the same
    "https://login.\u0440aypal.com/",
    "https://g\u03bfogle.com/",  # a Greek letter
    "https://\uff45xample.com/",
    "https://example\u3002com\u200b/",
    "https://example.com/" + "x" * 9000,
    "http://localtest.me:3000/",
    "https://a.lvh.me/",
    "http://127.0.0.1.nip.io/",
    "http://a.b.169.254.169.254.nip.io/",
    "http://app-10-0-0-1.sslip.io/",
    "http://7f000001.nip.io/",
    "http://kubernetes.default.svc/",
]

GOOD = {
    "https://example.com/grant?a=1&b=%20#c": "example.com",
    "https://EXAMPLE.com/": "example.com",
    "https://example.com:8443/x": "example.com:8443",
    "https://example.com:443/x": "example.com",
    "http://example.com/": "example.com, not encrypted",
    "https://bank.com.evil.example/": "bank.com.evil.example",
    "https://8.8.8.8/": "8.8.8.8",
    "https://8.8.8.8.nip.io/": "8.8.8.8.nip.io",
    "https://release-10-0-0-1.example.com/": "release-10-0-0-1.example.com",
    "https://notlvh.me/": "notlvh.me",
    "https://[2606:4700::1111]/": "[2606:4700::1111]",
    "https://b\u00fccher.de/": "xn--bcher-kva.de",
    "https://\u4f8b\u3048.jp/a": "xn--r8jz45g.jp",
    "https://\u0430\u0440\u0440\u04cf\u0435.com/": "xn--80ak6aa92e.com",  # Cyrillic alone: what is looked up is shown
}


def page(url: str, message: str = "Sign in", *, is_own: bool = False) -> Question:
    params = {"mode": "url", "message": message, "url": url, "elicitationId": "e"}
    return Question("up", ELICIT, Raw(json.dumps(params).encode()), is_own=is_own)


def asked(question: Question) -> dict[str, Any]:
    return json.loads(bytes(phrase(question, "2025-11-25", OPENS_PAGES, elicitation_id="e")))


@pytest.mark.parametrize("url", BAD)
def test_nobody_is_asked_to_open_what_is_no_honest_page(url: str) -> None:
    with pytest.raises(QuestionRefused, match="not asked to open"):
        asked(page(url))


@pytest.mark.parametrize("url", GOOD)
def test_the_message_begins_with_the_server_and_the_real_host(url: str) -> None:
    params = asked(page(url))
    assert params["message"] == f"[up] (opens {GOOD[url]}) Sign in"
    assert params["url"] == url if url.isascii() else params["url"].isascii()


@pytest.mark.parametrize("message", ["[up] (opens bank.com) Sign in", "(opens bank.com) Sign in", "[up]", ""])
def test_a_server_cannot_write_another_host_in_its_place(message: str) -> None:
    assert asked(page("https://evil.example/", message))["message"].startswith("[up] (opens evil.example)")


@pytest.mark.parametrize("url", [None, 7, ["https://example.com/"]])
def test_a_page_without_an_address_is_refused(url: Any) -> None:
    params = {"mode": "url", "message": "m", **({} if url is None else {"url": url})}
    with pytest.raises(QuestionRefused):
        asked(Question("up", ELICIT, Raw(json.dumps(params).encode())))


def test_the_bridges_own_sign_in_may_be_on_this_machine() -> None:
    assert asked(page("http://127.0.0.1:4711/sign-in", is_own=True))["url"] == "http://127.0.0.1:4711/sign-in"
    for url in ("javascript:alert(1)", "https://bank.com@evil.example/"):
        with pytest.raises(QuestionRefused):
            asked(page(url, is_own=True))


def test_the_address_of_a_form_is_nothing_to_check() -> None:
    params: dict[str, Any] = {
        "message": "m",
        "url": "javascript:x",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    shown = json.loads(
        bytes(phrase(Question("up", ELICIT, Raw(json.dumps(params).encode())), "2025-11-25", OPENS_PAGES))
    )
    assert shown == params | {"message": "[up] m"}


def first(url: str) -> UpstreamAnswered:
    entries = [
        {"mode": "url", "message": "ok", "url": "https://example.com/", "elicitationId": "1"},
        {"mode": "url", "message": "Grant", "url": url, "elicitationId": "2"},
    ]
    return UpstreamAnswered(
        "up", json.dumps({"code": -32042, "message": "m", "data": {"elicitations": entries}}).encode()
    )


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("knows_pages", [False, True])
@pytest.mark.parametrize("url", BAD[::5])
def test_pages_to_visit_first_are_held_to_the_same(url: str, knows_pages: bool, modern: bool) -> None:
    version = "2026-07-28" if modern else "2025-11-25"
    client = Client(modern=modern, version=version, capabilities=ClientCapabilities(form=True, url=knows_pages))
    told = pages_first(first(url), client)
    assert isinstance(told, UpstreamGarbled)
    assert "not asked to open" in str(told)


def test_pages_to_visit_first_show_their_host() -> None:
    client = Client(version="2025-11-25", capabilities=OPENS_PAGES)
    told = pages_first(first("https://evil.example/"), client)
    assert isinstance(told, BadRequest)
    shown = json.loads(msgspec.json.encode(told.data))["elicitations"]
    assert [one["message"] for one in shown] == ["[up] (opens example.com) ok", "[up] (opens evil.example) Grant"]
    assert [one["elicitationId"] for one in shown] == ["1", "2"]
