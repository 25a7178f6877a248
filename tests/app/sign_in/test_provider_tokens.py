"""The identity provider's own tokens: one that ends soon is renewed before it is exchanged for another."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.grants import Person
from mcpbridge.app.sign_in.identity_provider import IdentityProvider, ProviderTokens, SignedIn
from mcpbridge.app.sign_in.provider_tokens import ProviderTokenStore
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.storage.token_store import MemorySecrets
from support.token_issuer import Issuer


class Provider(Issuer):
    """A provider that gives each refresh token once, as many do."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, list[str]]] = []
        """What was posted to its token endpoint."""
        self.ended = False
        """It lets nobody renew any more."""
        self.revoked: list[dict[str, list[str]]] = []
        """What was posted to its revocation endpoint."""

    def document(self, path: str, body: bytes) -> object:
        if path == "/revoke":
            self.revoked.append(parse_qs(body.decode()))
            return {}
        if path != "/token":
            return super().document(path, body)
        self.forms.append(form := parse_qs(body.decode()))
        number = len(self.forms)
        if self.ended or form["refresh_token"] != [f"refresh-{number - 1}"]:
            self.status = 400
            return {"error": "invalid_grant"}
        id_token = self.token(header={"typ": "JWT"}, aud="bridge", groups=["eng"], nonce=...)
        return {
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "token_type": "Bearer",
            "expires_in": 600,
            "id_token": id_token,
        }


class Place:
    """The tokens of Ann, who signed in a moment ago, and a clock."""

    def __init__(self, issuer: Provider) -> None:
        self.issuer, self.ahead = issuer, 0.0
        issuer.metadata = {
            "token_endpoint": f"{issuer.url}/token",
            "revocation_endpoint": f"{issuer.url}/revoke",
        }
        settings = SignInSettings(issuer=issuer.url, client_id="bridge", client_secret="s3cret")
        self.provider = IdentityProvider(settings, "https://bridge.example.com/oauth/callback", now=self.now)
        self.store = ProviderTokenStore(MemorySecrets(), self.provider, self.now)
        self.ann = Person(issuer.url, "ann", "Ann", {"sub": "ann"})

    def now(self) -> float:
        return time.time() + self.ahead

    async def signs_in(self, **tokens: Any) -> None:
        given = {"access": "access-0", "refresh": "refresh-0", "until": self.now() + 600, **tokens}
        await self.store.keep(SignedIn(self.ann, ProviderTokens(**given)))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    issuer = Provider()
    await issuer.start()
    here = Place(issuer)
    yield here
    await here.provider.close()
    await issuer.stop()


async def test_a_token_that_ends_soon_is_renewed_before_it_is_exchanged(place: Place) -> None:
    await place.signs_in()
    assert (await place.store.subject_token(place.ann)).access == "access-0"
    place.ahead = 300
    assert (await place.store.subject_token(place.ann)).access == "access-0"
    assert place.issuer.forms == [], "it is good for long"
    place.ahead = 570
    both = await asyncio.gather(*(place.store.subject_token(place.ann) for _ in range(2)))
    assert [tokens.access for tokens in both] == ["access-1", "access-1"], "renewed once"
    assert place.issuer.forms == [{"grant_type": ["refresh_token"], "refresh_token": ["refresh-0"]}]
    assert both[0].until == pytest.approx(place.now() + 600, abs=60)
    place.ahead = 2000
    assert (await place.store.subject_token(place.ann)).access == "access-2", "by the refresh token that came last"
    assert place.issuer.forms[1]["refresh_token"] == ["refresh-1"]


async def test_a_token_that_has_ended_is_not_exchanged_where_the_provider_gives_no_other(place: Place) -> None:
    await place.signs_in(refresh="")
    assert (await place.store.subject_token(place.ann)).access == "access-0"
    place.ahead = 601
    with pytest.raises(ProviderRefused, match="has ended"):
        await place.store.subject_token(place.ann)
    assert place.issuer.forms == []


async def test_a_token_that_does_not_end_is_taken_as_it_is(place: Place) -> None:
    await place.signs_in(until=None)
    place.ahead = 86_400
    assert (await place.store.subject_token(place.ann)).access == "access-0"
    assert place.issuer.forms == []


async def test_who_may_sign_in_no_more_has_nothing_to_exchange(place: Place) -> None:
    await place.signs_in()
    place.ahead, place.issuer.ended = 3600, True
    with pytest.raises(ProviderRefused):
        await place.store.subject_token(place.ann)
    await place.issuer.stop()
    with pytest.raises(ProviderDown):
        await place.store.subject_token(place.ann)


async def test_what_is_forgotten_is_revoked_with_what_an_earlier_sign_in_brought(place: Place) -> None:
    """RFC 7009: nobody uses it any more, so nobody is to be able to."""
    await place.signs_in(refresh="refresh-old")
    await place.signs_in()
    assert place.issuer.revoked == [], "the provider may take one away with the other"
    assert await place.store.people() == [place.ann.principal]
    assert await place.store.forget(place.ann.principal)
    assert [one["token"] for one in place.issuer.revoked] == [["refresh-0"], ["refresh-old"]]
    assert place.issuer.revoked[0]["token_type_hint"] == ["refresh_token"]
    assert await place.store.people() == []
    with pytest.raises(ProviderRefused, match="nothing of the provider's is kept"):
        await place.store.subject_token(place.ann)
    await place.store.forget(place.ann.principal)
    assert len(place.issuer.revoked) == 2, "once"


async def test_what_was_renewed_is_revoked_by_the_refresh_token_that_came_last(place: Place) -> None:
    await place.signs_in()
    place.ahead = 570
    await place.store.subject_token(place.ann)
    await place.store.forget(place.ann.principal)
    assert [one["token"] for one in place.issuer.revoked] == [["refresh-1"]]


async def test_an_access_token_is_revoked_where_the_provider_gave_nothing_else(place: Place) -> None:
    await place.signs_in(refresh="")
    await place.store.forget(place.ann.principal)
    assert place.issuer.revoked == [{"token": ["access-0"], "token_type_hint": ["access_token"]}]


async def test_what_is_needed_after_all_stays(place: Place) -> None:
    async def is_needed(_: str) -> bool:
        return True

    await place.signs_in()
    assert not await place.store.forget(place.ann.principal, unless=is_needed)
    assert place.issuer.revoked == []
    assert (await place.store.subject_token(place.ann)).access == "access-0"


@pytest.mark.parametrize("wrong", ["is down", "refuses", "names none", "names an unsafe one"])
async def test_what_cannot_be_revoked_is_forgotten_all_the_same(
    place: Place, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.signs_in()
    match wrong:
        case "is down":
            await place.issuer.stop()
        case "refuses":
            await place.store.renewed(place.ann, 0)  # it knows the metadata by now
            place.issuer.status = 503
        case "names none":
            del place.issuer.metadata["revocation_endpoint"]
        case _:
            place.issuer.metadata["revocation_endpoint"] = "http://169.254.169.254/revoke"
    assert await place.store.forget(place.ann.principal)
    assert await place.store.people() == []
    log = capsys.readouterr().out
    assert "refresh-" not in log
    assert ("did not revoke" in log) == (wrong != "names none")
