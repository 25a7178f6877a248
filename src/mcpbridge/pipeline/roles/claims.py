"""Reads the claims of a token for selectors: hostile data of any shape and size.

A claim that cannot be read is `Unreadable`, which is no "no": a role then opens nothing, and what it denies is denied.
"""

from collections.abc import Mapping
from typing import cast

from mcpbridge.core.identity import Identity

MOST_GROUPS = 2000
"""Groups that are looked at. A token that names more is not read."""
LONGEST = 1000
"""Characters of a group, an address, a scope or a client id."""
MOST_VALUES, DEEPEST, MOST_CHARACTERS = 10_000, 32, 1_000_000
"""Members and items of all claims, how deeply they are nested, and their characters, for conditions."""


class Unreadable(Exception):
    """A claim that cannot be read; says why, without a value of it."""


def groups_of(identity: Identity, claim: str = "groups") -> list[str]:
    """The groups that the token names in this claim; a claim within others is named with dots.

    Raises:
        Unreadable: they are of another type, too many, or elsewhere: providers leave long lists out of the token.
    """
    value, elsewhere = _claim(identity.claims, claim), identity.claims.get("_claim_names")
    is_elsewhere = isinstance(elsewhere, Mapping) and (claim in elsewhere or claim.partition(".")[0] in elsewhere)
    if is_elsewhere or (value is None and claim == "groups" and identity.claims.get("hasgroups")):
        raise Unreadable(f"the provider left `{claim}` out of the token, as there are too many")
    if value is None:
        return []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        raise Unreadable(f"`{claim}` is no list of texts")
    items = cast("list[object]", value)
    if len(items) > MOST_GROUPS:
        raise Unreadable(f"`{claim}` names more than {MOST_GROUPS} groups")
    if any(not isinstance(item, str) or len(item) > LONGEST for item in items):
        raise Unreadable(f"`{claim}` has something in it that is no name of a group")
    return cast("list[str]", items)


def email_of(identity: Identity) -> tuple[str, bool]:
    """The e-mail address in lower case, and whether the provider has verified it; an empty one if there is none.

    Raises:
        Unreadable: it is no text.
    """
    value: object = identity.claims.get("email")
    if value is None:
        return "", False
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        raise Unreadable("`email` is no address")
    verified: object = identity.claims.get("email_verified")
    return value.lower(), verified is True or verified == "true"


def for_conditions(identity: Identity) -> Mapping[str, object]:
    """The claims, if a condition can look at all of them in a moment.

    Raises:
        Unreadable: they are too many, too long or nested too deeply.
    """
    rest: list[tuple[object, int]] = [(dict(identity.claims), 0)]
    values = characters = 0
    while rest:
        one, depth = rest.pop()
        if isinstance(one, str):
            characters += len(one)
        elif isinstance(one, Mapping):
            members = cast("Mapping[object, object]", one)
            values += len(members)
            characters += sum(len(name) if isinstance(name, str) else MOST_CHARACTERS for name in members)
            rest += [(inner, depth + 1) for inner in members.values()] if values <= MOST_VALUES else []
        elif isinstance(one, list | tuple):
            items = cast("list[object]", one)
            values += len(items)
            rest += [(inner, depth + 1) for inner in items] if values <= MOST_VALUES else []
        if values > MOST_VALUES or characters > MOST_CHARACTERS or depth > DEEPEST:
            raise Unreadable("the claims are too many, too long or nested too deeply for a condition")
    return identity.claims


def _claim(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name, or by the names of those around it with dots between them. Raises Unreadable."""
    if name in claims:
        return claims[name]
    outer, dot, rest = name.partition(".")
    inner = claims.get(outer) if dot else None
    if inner is None:
        return None
    if not isinstance(inner, Mapping):
        raise Unreadable(f"`{outer}` has no claims in it")
    return _claim(cast("Mapping[str, object]", inner), rest)
