"""Who a token belongs to, and who may administer the bridge: every way in which tokens are given, one by one."""

import hashlib
from typing import Any

import pytest

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.auth.resource_server import ResourceServer
from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.settings import ResourceServerSettings, TokenSettings


def settings(name: str, token: str, *, admin: bool = False) -> TokenSettings:
    return TokenSettings(name=name, sha256=hashlib.sha256(token.encode()).hexdigest(), admin=admin)


TOKENS = [settings("ann", "ann-token"), settings("root", "root-token", admin=True)]


def who(authenticator: Authenticator, token: str | None) -> str | None:
    """The principal; None: refused."""
    try:
        return authenticator.principal(None if token is None else f"Bearer {token}".encode())
    except Refused as refused:
        return None if refused.status == 401 else f"refused with {refused.status}"


@pytest.mark.parametrize(
    ("given", "expected", "admins"),
    [
        ({}, {None: "", "x": ""}, set[str]()),
        ({"tokens": TOKENS}, {None: None, "x": None, "ann-token": "ann", "root-token": "root"}, {"root-token"}),
        ({"extra_token": "e"}, {None: None, "x": None, "e": "token"}, set[str]()),
        ({"local_token": "l"}, {None: None, "x": None, "l": ""}, set[str]()),
        ({"admin_token": "a"}, {None: "", "x": "", "a": ""}, {"a"}),
        ({"admin_token": "a", "extra_token": "e"}, {None: None, "e": "token", "a": "admin", "x": None}, {"a"}),
        ({"admin_token": "a", "local_token": "l"}, {None: None, "l": "", "a": "admin"}, {"a"}),
        ({"tokens": TOKENS, "admin_token": "a"}, {"ann-token": "ann", "a": "admin", None: None}, {"a", "root-token"}),
        ({"tokens": TOKENS[:1], "extra_token": "e", "local_token": "l", "admin_token": "a"},
         {"ann-token": "ann", "e": "token", "l": "", "a": "admin", None: None, "": None}, {"a"}),
    ],
)  # fmt: skip
def test_each_token_is_somebodys_and_only_some_administer(
    given: dict[str, Any], expected: dict[str | None, str | None], admins: set[str]
) -> None:
    authenticator = Authenticator(given.pop("tokens", ()), **given)
    assert {token: who(authenticator, token) for token in expected} == expected
    for token in (*expected, "ann-token", "e", "l", "a", "root-token"):
        header = None if token is None else f"Bearer {token}".encode()
        assert authenticator.is_admin(header) is (token in admins)
    assert authenticator.is_open is (expected[None] == "")


@pytest.mark.parametrize(
    ("header", "principal"),
    [
        (b"Bearer ann-token", "ann"),
        (b"bearer ann-token", "ann"),
        (b"BEARER  ann-token ", "ann"),
        (b" Bearer ann-token", "ann"),
        (b"Basic ann-token", None),
        (b"Bearerann-token", None),
        (b"ann-token", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"", None),
        (b"Bearer ann-token x", None),
        (b"Bearer ANN-TOKEN", None),
        (b"Bearer \xff\xfe", None),
    ],
)
def test_a_token_is_sent_as_a_bearer(header: bytes, principal: str | None) -> None:
    authenticator = Authenticator(TOKENS)
    if principal is None:
        with pytest.raises(Refused, match="not valid here"):
            authenticator.principal(header)
    else:
        assert authenticator.principal(header) == principal
    assert authenticator.is_admin(header.replace(b"ann-token", b"root-token")) is (principal is not None)


def test_an_empty_digest_opens_nothing() -> None:
    """What is no bearer token has an empty digest, which none of the known ones equals."""
    authenticator = Authenticator([], extra_token="", admin_token="")
    for header in (b"", b"Basic x", b"x"):
        with pytest.raises(Refused):
            authenticator.principal(header)
        assert not authenticator.is_admin(header)


@pytest.mark.parametrize("local", [None, "l"])
def test_who_sends_no_token_is_told_where_a_local_one_is(local: str | None) -> None:
    with pytest.raises(Refused) as refused:
        Authenticator(TOKENS, local_token=local).principal(None)
    assert ("mcpbridge status" in str(refused.value)) is (local is not None)
    assert dict(refused.value.headers) == {b"www-authenticate": b"Bearer"}


def test_the_administrators_token_counts_where_people_sign_in() -> None:
    """Beside the issuers of `[auth]` it may be the only static one."""
    settings = ResourceServerSettings.model_validate(
        {"resource": "https://b.example/mcp", "issuers": {"acme": {"issuer": "https://login.example.com"}}}
    )
    server = ResourceServer(settings, path="/mcp")
    authenticator = Authenticator((), admin_token="a" * 16, resource_server=server)
    assert server.holder(hashlib.sha256(b"a" * 16).digest()) == "admin"
    assert server.holder(hashlib.sha256(b"b" * 16).digest()) is None
    assert authenticator.is_admin(b"Bearer " + b"a" * 16)
    assert not authenticator.is_open
