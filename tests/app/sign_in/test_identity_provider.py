"""What the page of the identity provider is asked for, preset by preset (docs/how-to/sign-people-in.md)."""

from typing import Any

import pytest

from mcpbridge.app.sign_in.identity_provider import IdentityProvider, challenge_of
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from support.identity_providers import answer_in
from support.token_issuer import issuing

BACK = "https://bridge.example.com/oauth/callback"
VERIFIER = "v" * 64


@pytest.mark.parametrize(
    ("preset", "scopes", "more"),
    [
        ("oidc", "openid profile email", {}),
        ("okta", "openid profile email groups offline_access", {}),
        ("entra", "openid profile email offline_access", {}),
        ("google", "openid profile email", {"access_type": "offline", "prompt": "consent"}),
        ("keycloak", "openid profile email", {}),
    ],
)
@pytest.mark.parametrize("own", [(), ("openid", "mine", "offline_access")])
async def test_what_each_preset_asks_its_provider_for(
    preset: Any, scopes: str, more: dict[str, str], own: tuple[str, ...]
) -> None:
    """Each asks for what brings e-mail addresses, groups and a refresh token there; scopes of the settings count."""
    async with issuing() as issuer:
        issuer.metadata = {
            "authorization_endpoint": f"{issuer.url}/authorize?tenant=1",
            "token_endpoint": f"{issuer.url}/token",
        }
        settings = SignInSettings(provider=preset, issuer=issuer.url, client_id="the-bridge", scopes=list(own))
        provider = IdentityProvider(settings, BACK)
        page = await provider.page("its state", "its nonce", VERIFIER)
        for_pages = answer_in(await provider.page("its state", "its nonce", VERIFIER, is_renewed=False))
        await provider.close()
        assert page.startswith(f"{issuer.url}/authorize?tenant=1&")
        assert answer_in(page) == {
            "tenant": "1",
            "response_type": "code",
            "client_id": "the-bridge",
            "redirect_uri": BACK,
            "scope": " ".join(own) or scopes,
            "state": "its state",
            "nonce": "its nonce",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            **more,
        }
        assert "offline_access" not in for_pages["scope"].split(), "nobody keeps a refresh token of pages"
        assert for_pages["scope"].split()[0] == "openid"
        assert for_pages.keys() == answer_in(page).keys() - more.keys()


def test_providers_that_there_is_one_of_need_no_address() -> None:
    for preset, address in (("google", "https://accounts.google.com"), ("github", "https://github.com")):
        settings = SignInSettings.model_validate({"provider": preset, "client_id": "x"})
        assert IdentityProvider(settings, BACK).issuer == address
