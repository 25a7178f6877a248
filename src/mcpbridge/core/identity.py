"""Who somebody is whose token was checked: what an identity provider says of a person or a program.

A **principal** is one text that names one person or program, at every place where something belongs to somebody (kept
results, sessions, approvals, budgets, logs). It is empty for the local user, the name of the token for an entry of
`http.tokens`, and `ISSUER#SUBJECT` for everybody whom a provider vouches for: a subject is unique at its issuer only
(RFC 7519, 4.1.2; OpenID Connect Core, 5.7).
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct


class Identity(Struct, frozen=True, eq=False):
    """What one checked token says. A person may have several at a time, with other scopes or groups."""

    principal: str
    """See above; made by `principal_of`."""
    issuer: str
    """The `iss` of the token, as the provider spells it."""
    subject: str
    """The `sub` of the token."""
    claims: Mapping[str, Any]
    """All claims of the token, or all that the introspection said. Never logged."""
    scopes: frozenset[str] = frozenset()
    client_id: str = ""
    """The OAuth client that the token was issued to (`client_id` or `azp`); empty: the token does not say."""
    name: str = ""
    """For people: the e-mail address, else a user name, else the subject. Never decides anything."""
    expires_at: float | None = None
    """Seconds since 1970 from which on the token is not accepted (its `exp`, and the leeway); None: it does not say."""


def application_of(identity: Identity | None) -> str:
    """The OAuth client that somebody comes by way of; empty: by none, or the token does not say.

    What one client of a person has begun is no other client's: it may have been trusted with less.
    """
    return "" if identity is None else identity.client_id


_OF_THE_TOKEN = frozenset({"aio", "at_hash", "auth_time", "exp", "iat", "jti", "nbf", "nonce", "rh", "sid", "uti"})
"""Claims about the token, or about how somebody signed in: another one in each token of the same person."""


def is_news(identity: Identity, before: Identity) -> bool:
    """Whether one token says something else of a person than another one by way of the same OAuth client.

    An older one says nothing new.
    """
    if identity.principal != before.principal or application_of(identity) != application_of(before):
        return False
    issued, issued_before = identity.claims.get("iat", 0), before.claims.get("iat", 0)
    if isinstance(issued, int | float) and isinstance(issued_before, int | float) and issued < issued_before:
        return False
    return _of_the_person(identity) != _of_the_person(before)


def _of_the_person(identity: Identity) -> Mapping[str, Any]:
    return {name: value for name, value in identity.claims.items() if name not in _OF_THE_TOKEN}


_RIGHTS = "\x1f"
"""Between a principal and the rights of a token; in no principal, as subjects are printable."""


def with_rights(principal: str, identity: Identity | None) -> str:
    """Somebody, by way of one OAuth client with certain scopes; the principal alone without a token of an issuer.

    For what is won with a token, such as one that it is exchanged for: it is for this client with these rights, and no
    other client of the same person gets it.
    """
    if identity is None:
        return principal
    rights = repr((identity.client_id, sorted(identity.scopes)))
    return f"{principal}{_RIGHTS}{sha256(rights.encode()).hexdigest()[:32]}"


def without_rights(user: str) -> str:
    """The principal of `with_rights`."""
    return user.partition(_RIGHTS)[0]


def principal_of(issuer: str, subject: str) -> str:
    """The principal of a subject of an issuer."""
    return f"{issuer}#{subject}"
