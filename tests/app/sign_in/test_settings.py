"""Which roles go with people who sign in at the bridge: not those that anybody can have who likes."""

import re
import tomllib
from typing import Any

import pytest
from pydantic import ValidationError

from mcpbridge.config.schema import Settings

RESOURCE = "https://bridge.example.com/mcp"


def settings(provider: str, *roles: dict[str, Any]) -> Settings:
    sign_in = {"provider": provider, "client_id": "x", "issuer": "https://login.example.com"}
    if provider in ("google", "github"):
        del sign_in["issuer"]
    return Settings.model_validate({"auth": {"resource": RESOURCE, "sign_in": sign_in}, "roles": list(roles)})


@pytest.mark.parametrize("provider", ["google", "github"])
def test_where_anybody_can_sign_in_there_must_be_roles(provider: str) -> None:
    with pytest.raises(ValidationError, match="anybody in the world"):
        settings(provider)
    assert settings(provider, {"name": "staff", "emails": "*@example.com", "servers": "*"}).roles


@pytest.mark.parametrize(
    "auth",
    [
        {"sign_in": {"provider": "okta", "client_id": "x", "issuer": "https://login.example.com"}},
        {"issuers": {"acme": {"issuer": "https://login.example.com"}}},
    ],
)
def test_people_sign_in_only_where_roles_say_who_may_use_what(auth: dict[str, Any]) -> None:
    """Issue 23: default deny for unknown users where auth is on. What the error says to add is enough."""
    with pytest.raises(ValidationError, match=r"put this line on top of the file") as refused:
        Settings.model_validate({"auth": {"resource": RESOURCE, **auth}})
    [line] = re.findall(r"roles = \[.*?\]", str(refused.value))
    assert Settings.model_validate({"auth": {"resource": RESOURCE, **auth}, **tomllib.loads(line)}).roles
    assert Settings.model_validate({"auth": {"tool_scopes": {"*": ["a"]}}}).roles == [], "nobody signs in there"


@pytest.mark.parametrize("selector", [{"scopes": "admin"}, {"clients": "c-*"}, {"scopes": "a", "clients": "b"}])
def test_a_role_for_whoever_asks_is_refused(selector: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="whoever asks"):
        settings("okta", {"name": "admins", "servers": "*", **selector})
    assert settings("okta", {"name": "admins", "servers": "*", "groups": "admins", **selector}).roles


@pytest.mark.parametrize("group", ["eng-*", "*", "eng-?/core", "[ab]cme/core"])
def test_an_organization_that_anybody_may_found_is_no_group(group: str) -> None:
    with pytest.raises(ValidationError, match="in full"):
        settings("github", {"name": "staff", "groups": group, "servers": "*"})
    assert settings("github", {"name": "staff", "groups": "acme/*", "servers": "*"}).roles
