"""Clients that register themselves, and those named by a URL."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.sign_in import clients as clients_module
from mcpbridge.app.sign_in.clients import Clients, client_of_document, is_document_url
from mcpbridge.app.sign_in.errors import OAuthRefused
from mcpbridge.app.sign_in.rates import network_of
from mcpbridge.app.sign_in.redirect_uris import is_registered, problem_of
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.sandbox.fetch.fetch import Fetched
from mcpbridge.storage.memory_store import MemoryStore

URL = "https://client.example/oauth/metadata.json"
GOOD = {"client_id": URL, "client_name": "A client", "redirect_uris": ["https://client.example/back"]}


def settings(**more: Any) -> SignInSettings:
    return SignInSettings(provider="google", client_id="bridge", **more)


class Fetches:
    """Answers as the web does, and counts."""

    def __init__(self, status: int = 200, body: bytes = b"", error: Exception | None = None) -> None:
        self.status, self.body, self.error, self.asked = status, body, error, list[str]()

    async def fetch(self, url: str, **_: Any) -> Fetched:
        self.asked.append(url)
        if self.error is not None:
            raise self.error
        return Fetched(url, self.status, {}, self.body)


def clients(fetches: Any = None, **more: Any) -> Clients:
    return Clients(settings(**more), MemoryStore(), fetcher=lambda: fetches, clock=lambda: 0.0)


async def test_the_document_of_a_client_is_fetched_once_for_all() -> None:
    fetches = Fetches(body=json.dumps(GOOD).encode())
    known = clients(fetches)
    for _ in range(3):
        client = await known.find(URL)
        assert client is not None
        assert (client.name, client.redirect_uris) == ("A client", ("https://client.example/back",))
        assert not client.is_known
    assert fetches.asked == [URL]


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": "https://client.example/other.json"},
        {"client_id": None},
        {"redirect_uris": []},
        {"redirect_uris": "https://client.example/back"},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": ["http://client.example/back"]},
        {"redirect_uris": [1]},
        {"redirect_uris": [f"https://client.example/{n}" for n in range(21)]},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"client_secret": "x"},
    ],
)
def test_a_document_that_cannot_be_meant_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which of its words it is matters to nobody
        client_of_document(URL, json.dumps({**GOOD, **change}).encode())


@given(st.binary(max_size=200))
def test_any_document_is_a_client_or_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - as above
        client_of_document(URL, data)


@pytest.mark.parametrize(
    "url",
    [
        "http://client.example/a",
        "https://client.example",
        "https://client.example/",
        "https://user@client.example/a",
        "https://client.example/a#b",
        "https://client.example/a?b",
        "https://client.example/a/../b",
        "https://client.example/./a",
        "https://client.example:0/a",
        "https:///a",
        "https://client.example/a b",
        "https://clïent.example/a",
    ],
)
async def test_other_urls_name_no_client_and_nothing_is_fetched(url: str) -> None:
    fetches = Fetches()
    assert not is_document_url(url)
    assert await clients(fetches).find(url) is None
    assert fetches.asked == []


async def test_documents_can_be_switched_off() -> None:
    fetches = Fetches(body=json.dumps(GOOD).encode())
    assert await clients(fetches, documents=False).find(URL) is None
    assert fetches.asked == []


async def test_a_document_on_this_machine_is_not_fetched() -> None:
    """The real fetcher: an address that a stranger names is judged as that of any page (SSRF)."""
    known = Clients(settings(), MemoryStore())
    for url in ("https://127.0.0.1:1/client.json", "https://169.254.169.254/client.json", "https://[::1]:1/c"):
        assert await known.find(url) is None


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://evil.example/back"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a.example/#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["data:text/html,x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["relative"]}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://a.example/"}, "invalid_client_metadata"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
        ({"client_name": "x" * 20_000}, "invalid_client_metadata"),
    ],
)
async def test_a_registration_that_is_not_to_be_had_is_refused(metadata: dict[str, Any], error: str) -> None:
    wanted = {"redirect_uris": ["https://a.example/back"], **metadata}
    with pytest.raises(OAuthRefused) as refused:
        await clients().register(json.dumps(wanted).encode())
    assert refused.value.error == error


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b'{"redirect_uris":["a"],"redirect_uris":["b"]}'])
async def test_what_is_no_registration_is_refused(body: bytes) -> None:
    with pytest.raises(OAuthRefused):
        await clients().register(body)


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "http://127.0.0.1:33418/",  # VS Code
        "https://vscode.dev/redirect",
        "http://localhost:54545/callback",  # Claude Code
        "https://claude.ai/api/mcp/auth_callback",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "http://127.0.0.1:1455/auth/callback",  # Codex
        "com.example.app:/oauth2redirect",
        "http://[::1]:7777/back",
    ],
)
async def test_clients_in_use_can_register(redirect_uri: str) -> None:
    known = clients()
    wanted = {"redirect_uris": [redirect_uri], "application_type": "native", "scope": "", "logo_uri": None}
    answer = await known.register(json.dumps(wanted).encode())
    client = await known.find(answer["client_id"])
    assert client is not None
    assert client.redirect_uri(redirect_uri) == redirect_uri
    assert client.redirect_uri(None) == redirect_uri
    client.check_secret(answer["client_secret"])


WANTED = json.dumps({"redirect_uris": ["https://a.example/back"], "token_endpoint_auth_method": "none"}).encode()


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def refusal(asked: Awaitable[object]) -> tuple[str, int]:
    with pytest.raises(OAuthRefused) as refused:
        await asked
    assert refused.value.retry_after > 0
    return refused.value.error, refused.value.status


TOO_MANY = ("temporarily_unavailable", 429)


async def test_so_many_of_one_network_register_in_a_minute_and_others_still_do() -> None:
    known = clients()
    for _ in range(20):
        await known.register(WANTED, "192.0.2.1")
    assert await refusal(known.register(WANTED, "192.0.2.1")) == TOO_MANY
    await known.register(WANTED, "192.0.2.2")


async def test_registrations_that_nobody_uses_are_refused_in_time_and_push_out_none_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "_MOST_UNUSED", 30)
    monkeypatch.setattr(clients_module, "_MOST_UNUSED_OF_NETWORK", 12)
    known = clients()
    in_use = (await known.register(WANTED, "192.0.2.1"))["client_id"]
    waiting = (await known.register(WANTED, "192.0.2.1"))["client_id"]
    client = await known.find(in_use)
    assert client is not None
    await known.signed_in_with(client)
    for _ in range(11):
        await known.register(WANTED, "192.0.2.1")
    assert await refusal(known.register(WANTED, "192.0.2.1")) == TOO_MANY, "the share of one network"
    for number in range(18):
        await known.register(WANTED, f"198.51.100.{number}")
    assert await refusal(known.register(WANTED, "203.0.113.1")) == TOO_MANY, "all are full"
    for id_ in (in_use, waiting):
        assert await known.find(id_) is not None
    found = await known.find(waiting)
    assert found is not None
    await known.signed_in_with(found)
    await known.register(WANTED, "203.0.113.1")  # there is room again


async def test_what_is_not_to_be_had_is_not_asked_for_again_and_pushes_out_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "_MOST_DOCUMENTS", 4)
    fetches, at = Fetches(body=json.dumps(GOOD).encode()), Time()
    known = Clients(settings(), MemoryStore(), fetcher=lambda: cast("Any", fetches), clock=at)
    assert await known.find(URL, "192.0.2.1") is not None
    for number in range(8):  # what answers there is about another client
        for _ in range(3):
            assert await known.find(f"https://h{number}.example/a", "192.0.2.1") is None
    assert len(fetches.asked) == 9, "each once"
    assert await known.find(URL, "192.0.2.1") is not None
    assert len(fetches.asked) == 9


async def test_fetches_are_few_for_one_network_and_from_one_host() -> None:
    """Strangers name whom the bridge asks: nobody is flooded by way of it, and nobody uses it up for others."""
    fetches, at = Fetches(status=404), Time()
    known = Clients(settings(), MemoryStore(), fetcher=lambda: cast("Any", fetches), clock=at)
    for number in range(20):
        assert await known.find(f"https://h{number}.example/a", "192.0.2.1") is None
    assert await refusal(known.find("https://h20.example/a", "192.0.2.1")) == TOO_MANY
    assert await known.find("https://h20.example/a", "192.0.2.2") is None
    for number in range(20):
        assert await known.find(f"https://victim.example/{number}", f"198.51.100.{number}") is None
    assert await refusal(known.find("https://victim.example/x", "198.51.100.99")) == TOO_MANY
    at.at = 60
    assert await known.find("https://victim.example/x", "198.51.100.99") is None


async def test_so_many_documents_are_fetched_at_a_time() -> None:
    release, full, running, most = asyncio.Event(), asyncio.Event(), 0, 0

    class Slow(Fetches):
        async def fetch(self, url: str, **_: Any) -> Fetched:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            if running == 8:
                full.set()
            await release.wait()
            running -= 1
            return await super().fetch(url)

    fetches = Slow(status=404)
    known = Clients(settings(), MemoryStore(), fetcher=lambda: cast("Any", fetches))
    asking = [
        asyncio.ensure_future(known.find(f"https://h{number}.example/a", f"192.0.2.{number}")) for number in range(72)
    ]
    async with asyncio.timeout(60):
        await full.wait()
        assert await refusal(known.find("https://late.example/a", "192.0.2.99")) == TOO_MANY
        release.set()
        assert await asyncio.gather(*asking) == [None] * 72
    assert most == 8


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("", ""),
        ("unknown", ""),
    ],
)
def test_an_address_counts_as_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_registration_can_be_switched_off() -> None:
    with pytest.raises(OAuthRefused) as refused:
        await clients(registration=False).register(b"{}")
    assert refused.value.status == 403


@given(st.text(max_size=60))
def test_any_text_is_an_address_to_send_people_to_or_not(text: str) -> None:
    if not problem_of(text):
        assert text.isascii()
        assert "#" not in text
        assert is_registered(text, text)


NATIVE = {"token_endpoint_auth_method": "none", "response_types": ["code"]}
DOCUMENTS = {
    # anthropics/claude-code#37767
    "https://claude.ai/oauth/claude-code-client-metadata": {
        "client_name": "Claude Code",
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        **NATIVE,
    },
    # anomalyco/opencode#47737
    "https://opencode.ai/oauth/opencode/client.json": {
        "client_name": "opencode",
        "application_type": "native",
        "redirect_uris": ["http://127.0.0.1/callback", "http://localhost/callback"],
        "token_endpoint_auth_methods_supported": ["none"],
        **NATIVE,
    },
    # microsoft/vscode, src/vs/base/common/oauth.ts
    "https://vscode.dev/oauth/client-metadata.json": {
        "client_name": "Visual Studio Code",
        "redirect_uris": ["http://127.0.0.1:33418/", "http://127.0.0.1/", "https://vscode.dev/redirect"],
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        **NATIVE,
    },
}


@pytest.mark.parametrize(
    ("url", "comes_back_to"),
    [
        ("https://claude.ai/oauth/claude-code-client-metadata", "http://localhost:58135/callback"),
        ("https://claude.ai/oauth/claude-code-client-metadata", "http://127.0.0.1:52163/callback"),
        ("https://opencode.ai/oauth/opencode/client.json", "http://127.0.0.1:19876/callback"),
        ("https://vscode.dev/oauth/client-metadata.json", "http://127.0.0.1:40000/"),
        ("https://vscode.dev/oauth/client-metadata.json", "https://vscode.dev/redirect"),
    ],
)
async def test_clients_in_use_come_back_by_what_their_documents_name(url: str, comes_back_to: str) -> None:
    """Issue 23: works out of the box with Claude Code, Codex, Cursor, VS Code as they do it."""
    client = await clients(Fetches(body=json.dumps({"client_id": url, **DOCUMENTS[url]}).encode())).find(url)
    assert client is not None
    assert client.redirect_uri(comes_back_to) == comes_back_to
    for elsewhere in (
        f"{comes_back_to}x",
        comes_back_to.replace("://", "://evil."),
        "https://vscode.dev:8443/redirect",
    ):
        with pytest.raises(OAuthRefused):
            client.redirect_uri(elsewhere)


async def test_more_grants_than_there_are_can_be_asked_for_and_are_not_given() -> None:
    """RFC 7591, 3.2.1: the answer says what was registered. VS Code asks for device codes as well."""
    known = clients()
    wanted = {
        "client_name": "Visual Studio Code",
        "redirect_uris": ["http://127.0.0.1:33418/", "http://127.0.0.1/", "https://vscode.dev/redirect"],
        "grant_types": [
            "authorization_code",
            "refresh_token",
            "urn:ietf:params:oauth:grant-type:device_code",
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
        ],
        "application_type": "native",
        **NATIVE,
    }
    answer = await known.register(json.dumps(wanted).encode())
    assert answer["grant_types"] == ["authorization_code", "refresh_token"]
    client = await known.find(answer["client_id"])
    assert client is not None
    assert client.redirect_uri("http://127.0.0.1:51000/") == "http://127.0.0.1:51000/"
    assert not client.may_assert


@pytest.mark.parametrize(
    ("given", "registered", "is_so"),
    [
        ("http://localhost:58135/callback", "http://localhost/callback", True),
        ("http://localhost/callback", "http://localhost:1/callback", True),
        ("http://[::1]:7777/back", "http://[::1]/back", True),
        ("http://localhost:58135/callback", "http://127.0.0.1/callback", False),
        ("http://localhost:58135/callback/", "http://localhost/callback", False),
        ("http://localhost:58135@evil.example/callback", "http://localhost/callback", False),
        ("http://localhost.evil.example:1/callback", "http://localhost/callback", False),
        ("https://a.example:8443/back", "https://a.example/back", False),
        ("http://LOCALHOST:1/callback", "http://localhost/callback", False),
        ("http://localhost:1/callback?x=1", "http://localhost/callback", False),
    ],
)
def test_an_address_without_a_port_stands_for_any_on_this_machine(given: str, registered: str, *, is_so: bool) -> None:
    """RFC 8252, 7.3."""
    assert is_registered(given, registered) is is_so


@given(port=st.integers(1, 65535), other=st.integers(1, 65535), path=st.from_regex(r"\A/[a-z/]{0,10}\Z"))
def test_only_the_port_of_a_loopback_address_may_differ(port: int, other: int, path: str) -> None:
    known = f"http://127.0.0.1:{port}{path}"
    assert is_registered(f"http://127.0.0.1:{other}{path}", known)
    assert not is_registered(f"http://127.0.0.1:{other}{path}x", known)
    assert not is_registered(f"https://127.0.0.1:{other}{path}", known)
    assert not is_registered(f"http://127.0.0.2:{other}{path}", known)
    assert not is_registered(f"https://a.example:{other + 1}{path}", f"https://a.example:{other}{path}")
