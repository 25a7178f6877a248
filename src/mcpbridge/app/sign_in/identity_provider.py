"""The identity provider that people sign in at: OpenID Connect as any client speaks it, and GitHub, which does not.

What the provider gives is checked as OpenID Connect Core 3.1.3.7 says: who signed the ID token, for whom, when, and in
answer to which request (`nonce`). Its tokens are returned, since they alone can be exchanged for others later.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio
from msgspec import Struct

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.grants import Person
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.auth.provider_http import ProviderDown, ask, discover, fetch, is_of
from mcpbridge.downstream.auth.provider_keys import ProviderKeys
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.auth.signed_tokens import (
    Expected,
    InvalidToken,
    SignedToken,
    check_times,
    display_name,
    is_signed_by,
    read_token,
    strict_json,
)
from mcpbridge.downstream.settings import IssuerSettings
from mcpbridge.sandbox.fetch.fetch import Fetched

log = get_logger("mcpbridge.auth")

_METADATA_SECONDS = 3600.0
_UP_SECONDS = 5.0
"""For which an answer of the provider counts as a sign that it is up, however many people sign in."""
_SCOPES: Mapping[str, tuple[str, ...]] = {
    "oidc": ("openid", "profile", "email"),
    "keycloak": ("openid", "profile", "email"),
    "okta": ("openid", "profile", "email", "groups", "offline_access"),
    "entra": ("openid", "profile", "email", "offline_access"),
    "google": ("openid", "profile", "email"),
    "github": ("read:user", "user:email", "read:org"),
}
_MORE: Mapping[str, Mapping[str, str]] = {"google": {"access_type": "offline", "prompt": "consent"}}
"""Parameters of the request, where a provider gives refresh tokens for them alone."""
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
"""The kind of an identity assertion, as RFC 8693 has it."""
_ENDED = frozenset({"invalid_grant", "bad_refresh_token", "interaction_required", "login_required"})
"""What a provider says where a person has to sign in again."""
_REVOKE_SECONDS = 5.0
_LONGEST = 64 * 1024
"""Characters of a token of the provider's."""


class ProviderTokens(Struct, frozen=True):
    """What the provider gave for a person. Kept encrypted, never shown."""

    access: str
    refresh: str = ""
    """Empty: it gave none."""
    id_token: str = ""
    until: float | None = None
    """Of the access token, seconds since 1970; None: the provider does not say."""
    replaced: tuple[str, ...] = ()
    """Refresh tokens of earlier sign-ins of this person, which are of no use but may still work at the provider."""


class SignedIn(Struct, frozen=True):
    """A person, and the provider's tokens."""

    person: Person
    tokens: ProviderTokens


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier (RFC 7636, 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class IdentityProvider:
    """The provider of one bridge."""

    def __init__(
        self,
        settings: SignInSettings,
        redirect_uri: str,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`redirect_uri`: of the bridge, as it is registered at the provider."""
        self._settings, self.redirect_uri, self._now, self._clock = settings, redirect_uri, now, clock
        self.issuer = settings.provider_issuer
        self._is_github = settings.provider == "github"
        self.scopes = tuple(settings.scopes) or _SCOPES[settings.provider]
        self._keys: ProviderKeys | None = None
        self._metadata: dict[str, Any] = {}
        self._read_at = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.issuer}>"

    async def page(self, state: str, nonce: str, verifier: str, *, is_renewed: bool = True) -> str:
        """The page at the provider where the person signs in.

        `is_renewed`: the provider is to be asked about the person later on; else no refresh token is asked for, which
        nobody would use or revoke.

        Raises:
            ProviderDown: it cannot be asked where that is.
        """
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(scope for scope in self.scopes if is_renewed or scope != "offline_access"),
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **(_MORE.get(self._settings.provider, {}) if is_renewed else {}),
        }
        if not self._is_github:
            parameters["nonce"] = nonce
            await self._check_up()
        url = await self._endpoint("authorization_endpoint")
        return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(parameters)}"

    async def finish(self, code: str, nonce: str, verifier: str, spelled_issuer: str | None) -> SignedIn:
        """Who signed in. `spelled_issuer`: the `iss` of the answer, if it had one (RFC 9207).

        Raises:
            ProviderRefused: the provider vouches for nobody.
            ProviderDown: it cannot be asked.
        """
        if not self._is_github:
            metadata = await self._discovered()
            needs_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
            if (spelled_issuer is not None or needs_issuer) and spelled_issuer != self.issuer:
                raise ProviderRefused("the answer came from another provider")
        answer = await self._token_request(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self.redirect_uri,
                "code_verifier": verifier,
            }
        )
        tokens = self._tokens_in(answer, ProviderTokens(""))
        if self._is_github:
            return SignedIn(await self._github_person(tokens.access), tokens)
        claims = await self._claims_in(tokens.id_token, nonce)
        return SignedIn(await self._person(claims, tokens.access), tokens)

    async def renew(self, before: Person, tokens: ProviderTokens) -> SignedIn:
        """The person once more, as the provider knows them now.

        Raises:
            ProviderRefused: the person has to sign in again, or may no more.
            ProviderDown: it cannot be asked.
        """
        if self._is_github and not tokens.refresh:  # its tokens do not end by themselves
            return SignedIn(self._same(before, await self._github_person(tokens.access)), tokens)
        if not tokens.refresh:
            return SignedIn(before, tokens)
        answer = await self._token_request({"grant_type": "refresh_token", "refresh_token": tokens.refresh})
        new = self._tokens_in(answer, tokens)
        if self._is_github:
            return SignedIn(self._same(before, await self._github_person(new.access)), new)
        if "id_token" not in answer:
            person = self._person_of(await self._claims_anew(before, new.access))
        else:
            person = await self._person(await self._claims_in(new.id_token, None), new.access)
        return SignedIn(self._same(before, person), new)

    async def assertion(self, id_token: str, audience: str, resource: str, scope: str) -> str:
        """An assertion about a person for the authorization server `audience` (ID-JAG, by RFC 8693).

        Raises:
            ProviderRefused: it gives none.
            ProviderDown: it cannot be asked.
        """
        form = {
            "grant_type": _EXCHANGE,
            "requested_token_type": ID_JAG,
            "subject_token": id_token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            **({"scope": scope} if scope else {}),
        }
        answer = await self._token_request(form)
        given, kind = answer.get("access_token"), answer.get("issued_token_type")
        if kind != ID_JAG or not isinstance(given, str) or not 0 < len(given) <= _LONGEST or given == id_token:
            raise ProviderRefused("the provider gives no identity assertions")
        return given

    async def revoke(self, tokens: ProviderTokens) -> int:
        """Have the provider end what it gave for a person (RFC 7009); returns how many of the tokens it took back.

        It is asked once for each, all within `_REVOKE_SECONDS`. A provider that names no `revocation_endpoint`, as
        GitHub, is not asked.
        """
        refresh = [(token, "refresh_token") for token in (tokens.refresh, *reversed(tokens.replaced)) if token]
        taken = 0
        try:
            with anyio.fail_after(_REVOKE_SECONDS):
                if self._is_github or (await self._discovered()).get("revocation_endpoint") is None:
                    return 0
                url = await self._endpoint("revocation_endpoint")
                for token, hint in refresh or [(tokens.access, "access_token")]:
                    status = (await self._post(url, {"token": token, "token_type_hint": hint})).status
                    taken += status == 200
                    if status != 200:
                        log.warning("the provider did not revoke a token", provider=self.issuer, status=status)
        except (ProviderDown, TimeoutError) as error:
            reason = error.reason if isinstance(error, ProviderDown) else f"no answer in {_REVOKE_SECONDS:g} s"
            log.warning("the provider did not revoke a token", provider=self.issuer, reason=reason)
        return taken

    async def close(self) -> None:
        """Ask for nothing any more."""
        if self._keys is not None:
            await self._keys.close()

    async def _claims_anew(self, before: Person, access: str) -> dict[str, Any]:
        """What the provider says of the person now, where it renews without an ID token. Old groups count no more."""
        if (await self._discovered()).get("userinfo_endpoint") is None:
            return dict(before.claims)
        found = await self._user_info(access, before.subject)
        if not found:
            raise ProviderDown("it says nothing of the person")
        return {"iss": before.issuer, **found, "sub": before.subject}

    @property
    def needs_refresh_tokens(self) -> bool:
        """Without one it cannot be asked whether a person still may sign in."""
        return not self._is_github

    def _same(self, before: Person, now: Person) -> Person:
        if now.principal != before.principal:
            raise ProviderRefused("the provider renewed the sign-in of somebody else")
        return now

    # -- who it is

    async def _claims_in(self, id_token: str, nonce: str | None) -> dict[str, Any]:
        """The claims of an ID token. `nonce` None: it answers no request of ours, so it needs none."""
        try:
            token = read_token(id_token.encode("ascii", "replace"))
            claims = dict(token.claims)
            await self._check_signature(token)
            check_times(claims, Expected(self.issuer, 60), self._now())
        except InvalidToken as invalid:
            log.warning("an ID token was refused", reason=invalid.reason)
            raise ProviderRefused(f"its ID token is not valid ({invalid.reason})") from None
        if not self._is_issuer(claims.get("iss"), claims):
            raise ProviderRefused("its ID token is another provider's")
        audience: object = claims.get("aud")
        audiences = cast("list[object]", audience) if isinstance(audience, list) else [audience]
        ours = self._settings.client_id
        if ours not in audiences or claims.get("azp", ours) != ours or (len(audiences) > 1 and "azp" not in claims):
            raise ProviderRefused("its ID token is for another client")
        if nonce is not None and claims.get("nonce") != nonce:
            raise ProviderRefused("its ID token answers another sign-in")
        return claims

    def _is_issuer(self, spelled: object, claims: Mapping[str, Any]) -> bool:
        """Entra's address for all organizations has ID tokens that name the person's own (`{tenantid}`)."""
        if spelled == self.issuer:
            return True
        template: object = self._metadata.get("issuer")
        tenant: object = claims.get("tid")
        if self._settings.provider != "entra" or not isinstance(template, str) or not isinstance(tenant, str):
            return False
        return "{tenantid}" in template and spelled == template.replace("{tenantid}", tenant) and tenant.isascii()

    async def _check_signature(self, token: SignedToken) -> None:
        metadata = await self._discovered()
        if self._keys is None:
            named: object = metadata.get("jwks_uri")
            if not isinstance(named, str):
                raise ProviderDown("its metadata names no keys (`jwks_uri`)")
            if not is_of(self.issuer, named) and urlsplit(named).scheme != "https":
                raise ProviderDown("its keys are not at a safe address")
            self._keys = ProviderKeys(IssuerSettings(issuer=self.issuer, jwks_uri=named))
        allowed: object = metadata.get("id_token_signing_alg_values_supported")
        if isinstance(allowed, list) and token.alg not in allowed:
            raise InvalidToken("an algorithm that the provider does not announce")
        keys = await self._keys.fitting(token)
        if not any(is_signed_by(token, key) for key in keys):
            raise InvalidToken("signature does not fit")

    async def _person(self, claims: dict[str, Any], access: str) -> Person:
        """Who the claims of an ID token are about, with what else the provider says of them."""
        if "_claim_names" in claims:  # Entra: more than 200 groups are left out of the token
            log.warning("the provider leaves groups out of its ID token; give the bridge roles by app roles instead")
        groups = self._settings.groups_claim
        wanted = ("email", "name", groups if groups in claims else groups.partition(".")[0])
        missing = [name for name in wanted if name not in claims]
        if missing:
            more = await self._user_info(access, claims.get("sub"))
            if "email" in claims:
                more.pop("email_verified", None)  # it may be about another address
            claims = {**more, **claims}
        return self._person_of(claims)

    def _person_of(self, claims: Mapping[str, Any]) -> Person:
        subject: object = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise ProviderRefused("its ID token names nobody")
        kept = {name: value for name, value in claims.items() if name not in _NOT_KEPT}
        spelled: object = claims.get("iss", self.issuer)
        return Person(str(spelled), subject, display_name(kept, subject), kept)

    async def _user_info(self, access: str, subject: object) -> dict[str, Any]:
        """What the provider says beside the ID token; nothing where it has no such address, or speaks of another."""
        url: object = (await self._discovered()).get("userinfo_endpoint")
        if not isinstance(url, str) or not access:
            return {}
        try:
            found = await ask(url, is_trusted=is_of(self.issuer, url), headers={"authorization": f"Bearer {access}"})
        except ProviderDown as down:
            log.info("what the provider says of a person could not be read", reason=down.reason)
            return {}
        return found if found.get("sub") == subject else {}

    async def _github_person(self, access: str) -> Person:
        """Who holds a token of GitHub. Organizations are `groups`, teams as `organization/team`."""
        api = "https://api.github.com" if self.issuer == "https://github.com" else f"{self.issuer}/api/v3"
        user = await self._github(f"{api}/user", access)
        found = cast("dict[str, Any]", user) if isinstance(user, dict) else {}
        id_, login = found.get("id"), found.get("login")
        if not isinstance(id_, int) or isinstance(id_, bool) or not isinstance(login, str):
            raise ProviderRefused("GitHub names nobody")
        groups: list[str] = []
        email = ""
        if "read:org" in self.scopes:
            groups += [_text(one, "login") for one in await self._github_list(f"{api}/user/orgs?per_page=100", access)]
            for team in await self._github_list(f"{api}/user/teams?per_page=100", access):
                inner = team.get("organization")
                organization = _text(cast("dict[str, Any]", inner), "login") if isinstance(inner, dict) else ""
                groups.append(f"{organization}/{_text(team, 'slug')}")
        if "user:email" in self.scopes or "user" in self.scopes:
            for one in await self._github_list(f"{api}/user/emails", access):
                if one.get("primary") is True and one.get("verified") is True:
                    email = _text(one, "email")
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": str(id_),
            "preferred_username": login,
            "groups": [group for group in groups if group],
        }
        if len(groups) >= _PAGE:
            claims["hasgroups"] = True  # there are more than one page: which, is not known
        if email:
            claims |= {"email": email, "email_verified": True}
        return Person(self.issuer, str(id_), email or login, claims)

    async def _github_list(self, url: str, access: str) -> list[dict[str, Any]]:
        found = await self._github(url, access)
        members = cast("list[object]", found)[:_PAGE] if isinstance(found, list) else []
        return [cast("dict[str, Any]", one) for one in members if isinstance(one, dict)]

    async def _github(self, url: str, access: str) -> object:
        headers = {"authorization": f"Bearer {access}", "accept": "application/vnd.github+json"}
        fetched = await fetch(url, is_trusted=True, headers=headers)
        if fetched.status in (401, 403, 404):
            raise ProviderRefused("GitHub does not know this sign-in any more")
        if fetched.status != 200:
            raise ProviderDown(f"it answers with status {fetched.status}")
        return _json(fetched.body)

    # -- asking

    async def _discovered(self) -> dict[str, Any]:
        if not self._metadata or self._clock() > self._read_at + _METADATA_SECONDS:
            try:
                self._metadata = await discover(self.issuer)
            except ProviderDown:
                if not self._metadata:
                    raise
            self._read_at = self._clock()
        return self._metadata

    async def _check_up(self) -> None:
        """Nobody is sent to a provider that does not answer: what is known of it says nothing of now.

        Raises:
            ProviderDown: it does not.
        """
        if self._clock() > self._read_at + _UP_SECONDS:
            self._metadata = await discover(self.issuer)
            self._read_at = self._clock()

    async def _endpoint(self, name: str) -> str:
        if self._is_github:
            path = {"authorization_endpoint": "authorize", "token_endpoint": "access_token"}[name]
            return f"{self.issuer}/login/oauth/{path}"
        url: object = (await self._discovered()).get(name)
        if not isinstance(url, str) or not (url.startswith("https://") or is_of(self.issuer, url)):
            raise ProviderDown(f"its metadata names no safe `{name}`")
        return url

    async def _token_request(self, form: dict[str, str]) -> dict[str, Any]:
        fetched = await self._post(await self._endpoint("token_endpoint"), form)
        status = fetched.status
        found = _json(fetched.body) if status < 500 else None
        answer = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        error = answer.get("error")
        if isinstance(error, str) and (status != 200 or self._is_github):  # GitHub refuses with 200
            word = error if error.isascii() and error.isprintable() else "an error"
            if error in _ENDED:
                raise ProviderRefused("the sign-in at the provider has ended")
            raise ProviderRefused(f"the provider refuses: {word[:60]}")
        if status != 200 or not answer:
            raise ProviderDown(f"it answers with status {status}")
        return answer

    async def _post(self, url: str, form: dict[str, str]) -> Fetched:
        """Send a form to the provider, as the client that the bridge is there."""
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        secret = self._settings.client_secret
        methods: object = self._metadata.get("token_endpoint_auth_methods_supported")
        takes_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        if secret and takes_basic and not self._is_github:
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form = {**form, "client_id": self._settings.client_id, **({"client_secret": secret} if secret else {})}
        content = urlencode(form).encode()
        return await fetch(url, is_trusted=True, method="POST", headers=headers, content=content)

    def _tokens_in(self, answer: Mapping[str, Any], before: ProviderTokens) -> ProviderTokens:
        access, refresh, id_token = (answer.get(name) for name in ("access_token", "refresh_token", "id_token"))
        if not isinstance(access, str) or not 0 < len(access) <= _LONGEST:
            raise ProviderRefused("the provider gave no token")
        seconds = answer.get("expires_in")
        until = self._now() + float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None
        return ProviderTokens(
            access,
            refresh if isinstance(refresh, str) and refresh else before.refresh,
            id_token if isinstance(id_token, str) and len(id_token) <= _LONGEST else before.id_token,
            until,
            before.replaced,
        )


_PAGE = 100
"""Entries of one answer of GitHub's."""
_NOT_KEPT = frozenset({"nonce", "at_hash", "c_hash", "s_hash", "aud", "azp", "exp", "iat", "nbf", "jti", "sid"})
"""Claims that are about the ID token, not about the person."""


def _json(body: bytes) -> object:
    try:
        return strict_json(body)
    except ValueError:
        return None


def _text(members: Mapping[str, Any], name: str) -> str:
    value: object = members.get(name)
    return value if isinstance(value, str) and len(value) <= 200 and value.isprintable() else ""
