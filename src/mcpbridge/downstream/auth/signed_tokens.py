"""Access tokens that are JWTs: how they are read, and which claims let somebody in (RFC 7519, 8725, 9068). Pure.

A token is read strictly: what two readers could read differently (members that come twice, padding, unused bits) is
refused. Whoever signed it is found out before a claim means anything, but for `iss`, which says whose key to use.

Refused besides what RFC 8725 demands: keys inside the token or addresses of them, critical headers, nested and
encrypted tokens, tokens that are bound to a key (`cnf`: no proof of possession is checked here), times that are no
whole numbers, tokens that live for more than a year, and ID tokens, which are for a client and not for a server.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from msgspec import Struct

from mcpbridge.core.identity import Identity, principal_of
from mcpbridge.downstream.auth.resources import canonical

LONGEST_TOKEN = 16 * 1024
"""Bytes of a token."""
_LONGEST_SIGNATURE = 1024
_LONGEST_NAME = 255
"""Characters of a subject (OpenID Connect Core, 2), of a key's id, and of a client's."""
LONGEST_LIFE = 366 * 86400
"""Seconds."""
_MOST_KEYS = 100
_SHORTEST_RSA = 2048
"""Bits (RFC 7518, 3.3)."""
_PART = re.compile(rb"[A-Za-z0-9_-]+")
_FOREIGN_KEYS = ("jwk", "jku", "x5u", "x5c")
_UNKNOWN_MEANING = ("crit", "b64", "zip", "enc", "cty")
_ACCESS_TYPES = frozenset({"at+jwt", "application/at+jwt"})
_NO_TYPES = frozenset({"", "jwt", "application/jwt"})
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash", "s_hash", "events")
"""Claims that ID tokens and logout tokens have, and access tokens have not."""
_OF_ACCESS_TOKENS = ("scope", "scp", "client_id", "cid", "azp", "appid", "roles")
_CURVES: Mapping[str, str] = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}

Key = RSAKey | ECKey | OKPKey


class InvalidToken(Exception):
    """The token does not let anybody in. `reason`: a constant phrase for the log, in which nothing of it is."""

    def __init__(self, reason: str, *, is_expired: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_expired = reason, is_expired


class SignedToken(Struct, frozen=True):
    """A JWT that was read, and whose signature nobody has checked."""

    alg: str
    kid: str
    """Empty: it names no key."""
    typ: str
    """In lower case; empty: it has none."""
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def is_jose(token: bytes) -> bool:
    """Whether it looks like a JWT, however broken: then nobody else is asked about it."""
    head, dot, _ = token.partition(b".")
    if not dot:
        return False
    try:
        return "alg" in _object(head)
    except InvalidToken:
        return head.startswith(b"eyJ")


def read_token(token: bytes) -> SignedToken:
    """What a JWT says.

    Raises:
        InvalidToken: it is none, or one of a kind that is not taken.
    """
    if len(token) > LONGEST_TOKEN:
        raise InvalidToken("too long")
    parts = token.split(b".")
    if len(parts) != 3:
        raise InvalidToken("no signed token")
    header, claims = _object(parts[0]), _object(parts[1])
    signature = _bytes(parts[2])
    if any(name in header for name in _FOREIGN_KEYS):
        raise InvalidToken("brings its own key")
    if any(name in header for name in _UNKNOWN_MEANING):
        raise InvalidToken("has headers that are not understood")
    alg, kid, typ = header.get("alg"), header.get("kid", ""), header.get("typ", "")
    if not isinstance(alg, str) or not isinstance(kid, str) or not isinstance(typ, str) or len(kid) > _LONGEST_NAME:
        raise InvalidToken("malformed header")
    if len(signature) > _LONGEST_SIGNATURE:
        raise InvalidToken("malformed signature")
    return SignedToken(alg, kid, typ.lower(), claims, b"%b.%b" % (parts[0], parts[1]), signature)


def read_keys(document: object) -> list[Key]:
    """The keys of a set that signatures can be checked with (RFC 7517); others are left out.

    Raises:
        ValueError: it is no set of keys.
    """
    keys: object = cast("dict[str, object]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("no set of keys (RFC 7517)")
    members = cast("list[object]", keys)[:_MOST_KEYS]
    found = (_read_key(cast("dict[str, Any]", member)) for member in members if isinstance(member, dict))
    return [key for key in found if key is not None]


def _read_key(member: dict[str, Any]) -> Key | None:
    if member.get("use", "sig") != "sig" or "verify" not in (member.get("key_ops") or ["verify"]):
        return None
    kinds = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    kind = kinds.get(str(member.get("kty")))
    if kind is None:  # symmetric keys are nobody's to publish
        return None
    public = {name: member[name] for name in ("kty", "kid", "alg", "n", "e", "crv", "x", "y") if name in member}
    if kind is RSAKey and len(str(member.get("n"))) * 6 < _SHORTEST_RSA:
        return None
    try:
        return kind.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def fitting(keys: Sequence[Key], token: SignedToken) -> list[Key]:
    """Those of the keys that may have signed a token: its id and its algorithm fit (RFC 8725, 3.1 and 3.2)."""
    return [key for key in keys if _has_id(key, token.kid) and _fits(key, token.alg)]


def _has_id(key: Key, kid: str) -> bool:
    return not kid or key.dict_value.get("kid") == kid


def _fits(key: Key, alg: str) -> bool:
    declared = key.dict_value.get("alg")
    if declared is not None and declared != alg:
        return False
    if alg in _CURVES:
        return isinstance(key, ECKey) and key.dict_value.get("crv") == _CURVES[alg]
    if alg in ("EdDSA", "Ed25519"):
        return isinstance(key, OKPKey) and key.dict_value.get("crv") == "Ed25519"
    return alg[:2] in ("RS", "PS") and isinstance(key, RSAKey)


def is_signed_by(token: SignedToken, key: Key) -> bool:
    """Whether this key, which fits, has signed the token."""
    model = JWSRegistry.algorithms["Ed25519" if token.alg == "EdDSA" else token.alg]
    try:
        return model.verify(token.signed, token.signature, key)
    except (JoseError, ValueError, TypeError):
        return False


class Expected(Struct, frozen=True):
    """What the claims of a token must be."""

    issuer: str
    leeway: float
    require_at_jwt: bool = False


def check_type(token: SignedToken, expected: Expected) -> None:
    """Refuse what is no access token.

    Raises:
        InvalidToken: see above.
    """
    claims = token.claims
    if token.typ in _ACCESS_TYPES:
        return
    if expected.require_at_jwt or token.typ not in _NO_TYPES:
        raise InvalidToken("wrong type")
    if any(name in claims for name in _OF_ID_TOKENS):
        raise InvalidToken("an ID token")
    kinds = {str(claims.get("typ", "bearer")).lower(), str(claims.get("token_use", "access")).lower()}
    if not kinds <= {"bearer", "access", "at+jwt"}:  # as Keycloak and Cognito say it
        raise InvalidToken("no access token")
    if not any(name in claims for name in _OF_ACCESS_TOKENS):
        raise InvalidToken("looks like an ID token")
    client = client_of(claims)
    if client and client in audiences_of(claims):
        raise InvalidToken("an ID token")


def check_times(claims: Mapping[str, Any], expected: Expected, now: float, *, needs_end: bool = True) -> None:
    """Refuse what is not valid now.

    Raises:
        InvalidToken: see above.
    """
    times: dict[str, int] = {}
    for name in ("exp", "nbf", "iat"):
        value: object = claims.get(name)
        if value is None and name not in claims:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
            raise InvalidToken("a time is no whole number")
        times[name] = value
    end = times.get("exp")
    if end is None:
        if needs_end:
            raise InvalidToken("has no end")
    elif now >= end + expected.leeway:
        raise InvalidToken("expired", is_expired=True)
    elif end > now + LONGEST_LIFE:
        raise InvalidToken("lives for too long")
    if max(times.get("nbf", 0), times.get("iat", 0)) > now + expected.leeway:
        raise InvalidToken("not valid yet")


def audiences_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Whom a token is for, in canonical form.

    Raises:
        InvalidToken: it does not say so, or not in a way that can be read.
    """
    aud: object = claims.get("aud")
    values: list[object] = cast("list[object]", aud) if isinstance(aud, list) else [aud]
    if not values or not all(isinstance(value, str) and value for value in values):
        raise InvalidToken("no audience")
    return frozenset(canonical(value) for value in cast("list[str]", values))


def identity_from(claims: Mapping[str, Any], expected: Expected) -> Identity:
    """Who the claims are about.

    Raises:
        InvalidToken: another provider's, or nobody's; or it takes a proof that is not checked here.
    """
    if claims.get("iss") != expected.issuer:
        raise InvalidToken("another issuer's")
    if "cnf" in claims:
        raise InvalidToken("bound to a key, which is not supported")
    subject: object = claims.get("sub")
    if not _is_name(subject):
        raise InvalidToken("no subject")
    assert isinstance(subject, str)
    end: object = claims.get("exp")
    return Identity(
        principal_of(expected.issuer, subject),
        expected.issuer,
        subject,
        claims,
        scopes=scopes_of(claims),
        client_id=client_of(claims),
        name=display_name(claims, subject),
        expires_at=end + expected.leeway if isinstance(end, int) else None,
    )


def client_of(claims: Mapping[str, Any]) -> str:
    """The client that a token was issued to, as providers spell it; empty: it does not say."""
    for name in ("client_id", "azp", "cid", "appid"):
        if _is_name(value := claims.get(name)):
            return str(value)
    return ""


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of a token: `scope`, or `scp` as Okta and Entra have it; one text, or a list."""
    value: object = claims.get("scope", claims.get("scp"))
    if isinstance(value, str):
        return frozenset(value.split())
    words = cast("list[object]", value) if isinstance(value, list) else []
    return frozenset(word for word in words if isinstance(word, str) and word)


def display_name(claims: Mapping[str, Any], subject: str) -> str:
    """What people are shown of somebody; it decides nothing."""
    for name in ("email", "preferred_username", "username", "name"):
        if _is_name(value := claims.get(name)):
            return str(value)
    return subject


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable() and bool(value.strip())


def _bytes(part: bytes) -> bytes:
    """The bytes that a part of a token stands for, in the one spelling that there is for them (RFC 7515, 2)."""
    if not _PART.fullmatch(part) or len(part) % 4 == 1:
        raise InvalidToken("malformed")
    whole = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    unused = {2: 0x0F, 3: 0x03}.get(len(part) % 4, 0)
    if unused and _ALPHABET.index(part[-1:]) & unused:
        raise InvalidToken("malformed")
    return whole


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _object(part: bytes) -> dict[str, Any]:
    try:
        found: object = strict_json(_bytes(part))
    except ValueError:
        raise InvalidToken("malformed") from None
    if not isinstance(found, dict):
        raise InvalidToken("malformed")
    return cast("dict[str, Any]", found)


def strict_json(data: bytes) -> object:
    """JSON without members that come twice, and without numbers that JSON does not have.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_single, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a member comes twice")
    return found


def _no_number(_: str) -> object:
    raise ValueError("no number of JSON")
