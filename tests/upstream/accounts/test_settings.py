"""Whose account calls use: what goes with what is decided when the bridge starts (issue 23)."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import SignInNeeded
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import ClientCapabilities
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.errors import to_answer
from support.token_issuer import EVERYBODY

URL = {"url": "https://x.example/mcp"}
EXCHANGE = {"as": "exchange", "issuer": "https://as.example", "client_id": "bridge"}

ID_JAG = {"as": "id-jag", "client_id": "bridge", "client_secret": "s"}
RESOURCE = "https://b.example/mcp"


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({**URL, "auth": {"as": "id-jag"}}, "needs `client_id` and `client_secret`"),
        ({**URL, "auth": ID_JAG}, "needs the ID token of each user"),
        ({**URL, "auth": {**ID_JAG, "token_endpoint": "https://as.example/token"}}, "`token_endpoint` goes with"),
        ({**URL, "auth": {**ID_JAG, "audience": "https://as.example"}}, "needs `issuer`"),
        ({**URL, "auth": EXCHANGE}, "names one"),
        ({**URL, "auth": {"as": "exchange", "client_id": "a"}}, "needs `issuer` or `token_endpoint`"),
        ({**URL, "auth": {"as": "user", "type": "none"}}, "goes with type"),
        ({**URL, "auth": {"as": "user"}, "share": "shared"}, "does not go with"),
        ({**URL, "auth": {"as": "user"}, "headers": {"Authorization": "Bearer x"}}, "would be everybody's"),
        ({**URL, "auth": {"as": "user", "variables": ["A"]}}, "gets no environment"),
        ({**URL, "auth": {"audience": "x"}}, "goes with `as"),
        ({"command": "x", "auth": {"as": "user"}}, "variables"),
        ({"command": "x", "auth": {"as": "user", "variables": ["LD_PRELOAD"]}}, "users may set"),
    ],
)
def test_pairs_that_cannot_work_are_refused(server: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"servers": {"up": server}})


ENTRA = {"provider": "entra", "issuer": "https://login.microsoftonline.com/t/v2.0"}


@pytest.mark.parametrize(
    ("auth", "provider", "message"),
    [
        (EXCHANGE, {"provider": "github"}, "GitHub exchanges no tokens"),
        (EXCHANGE, {"provider": "google"}, "Google exchanges no tokens"),
        (ID_JAG, {"provider": "github"}, "GitHub exchanges no tokens"),
        (ID_JAG, {"provider": "google"}, "Google exchanges no tokens"),
        (ID_JAG, ENTRA, "on behalf of users"),
    ],
)
def test_providers_that_exchange_nothing_are_refused(
    auth: dict[str, Any], provider: dict[str, Any], message: str
) -> None:
    section = {"resource": RESOURCE, "sign_in": {"client_id": "x", **provider}}
    roles = [{"name": "all", "emails": "*@example.com", "servers": "*"}]
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"servers": {"up": {**URL, "auth": auth}}, "auth": section, "roles": roles})


def test_entra_exchanges_on_behalf_of_users_for_named_scopes() -> None:
    """Issue 23: Entra has on-behalf-of instead of RFC 8693, and refuses a foreign `resource`."""
    section = {"resource": RESOURCE, "sign_in": {"client_id": "x", **ENTRA}}
    roles = [{"name": "all", "emails": "*@example.com", "servers": "*"}]
    auth: dict[str, Any] = {"as": "exchange", "issuer": ENTRA["issuer"], "client_id": "x", "client_secret": "s"}

    def settings_with(**more: Any) -> Settings:
        servers = {"up": {**URL, "auth": {**auth, **more}}}
        return Settings.model_validate({"servers": servers, "auth": section, "roles": roles})

    with pytest.raises(ValidationError, match="named scopes"):
        settings_with()
    with pytest.raises(ValidationError, match="no `audience`"):
        settings_with(scopes=["api://up/.default"], audience="up")
    assert settings_with(scopes=["api://up/.default"]).servers["up"].auth.is_on_behalf_of
    assert not settings_with(exchange="rfc8693").servers["up"].auth.is_on_behalf_of
    with pytest.raises(ValidationError, match="goes with"):
        Settings.model_validate({"servers": {"up": {**URL, "auth": {"exchange": "rfc8693"}}}})


def test_a_bridge_that_only_checks_tokens_holds_no_id_token() -> None:
    section: dict[str, Any] = {"resource": RESOURCE, "issuers": {"a": {"issuer": "https://as.example"}}}
    servers = {"up": {**URL, "auth": ID_JAG}}
    with pytest.raises(ValidationError, match="where people sign in at the bridge itself"):
        Settings.model_validate({"servers": servers, "auth": section})
    section["sign_in"] = {"provider": "okta", "issuer": "https://as.example", "client_id": "x"}
    settings = Settings.model_validate({"servers": servers, "auth": section, "roles": EVERYBODY})
    assert (settings.servers["up"].share, settings.servers["up"].auth.is_per_user) == ("user", True)


def test_users_with_accounts_of_their_own_are_kept_apart() -> None:
    issuers = {"resource": "https://b.example/mcp", "issuers": {"a": {"issuer": "https://as.example"}}}
    for auth in ({"as": "user"}, EXCHANGE):
        servers = {"up": {**URL, "auth": auth}}
        settings = Settings.model_validate({"servers": servers, "auth": issuers, "roles": EVERYBODY})
        assert settings.servers["up"].share == "user"
    client = {"as": "client", "client_id": "a", "client_secret": "b"}
    settings = Settings.model_validate({"servers": {"up": {**URL, "auth": client}}})
    assert (settings.servers["up"].share, settings.servers["up"].auth.type) == ("shared", "client-credentials")


@pytest.mark.parametrize(("version", "is_able", "code"), [("2025-11-25", True, -32042), ("2025-06-18", True, 0)])
def test_a_client_that_could_not_be_asked_gets_the_page_with_the_error(version: str, is_able: bool, code: int) -> None:
    """MCP 2025-11-25, Elicitation, URL Elicitation Required Error."""
    client = Client(version=version, capabilities=ClientCapabilities(url=is_able))
    page = "https://b.example/connections/up/start?ask=x"
    needed = SignInNeeded("up", page=page)
    answer = to_answer(needed, b"1", "tools/call", modern=False, client=client)
    assert answer.code == code
    assert page in bytes(answer.data).decode()  # type: ignore[arg-type] - bytes here
    if code:
        [entry] = json.loads(answer.data)["error"]["data"]["elicitations"]  # type: ignore[arg-type] - as above
        assert (entry["mode"], entry["url"]) == ("url", page)
    needed.was_asked = True
    assert to_answer(needed, b"1", "tools/call", modern=False, client=client).code == 0
