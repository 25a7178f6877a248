"""Take secrets out of JSON values: what is under the name of a secret, and what texts hold. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from msgspec import Raw

from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import NEVER, Secret, is_about, secret_of
from mcpbridge.base.masking.no_values import says_nothing

LEVELS = 64
"""Levels of nesting that are looked into; what is deeper is masked as a whole."""


def _masked(_text: str) -> str:
    return MASK


def without_secrets_in(
    value: object,
    redact: Callable[[str], str],
    under: Secret | None = None,
    levels: int = LEVELS,
    mask: Callable[[str], str] = _masked,
) -> object:
    """The same value without secrets; the very same object if nothing in it changes.

    `redact` masks what a text holds. `under`: what is a secret in it, by the names that it is under. `mask`: what takes
    the place of a text that is a secret by its name.
    """
    if isinstance(value, str):
        is_one = under is not None and not says_nothing(value) and under.has(value)
        new = mask(value) if is_one else redact(value)
        return value if new == value else new
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float | Raw):  # a number as it was written
        number = bytes(value).decode() if isinstance(value, Raw) else str(value)
        return MASK if under is not None and under.has(number, is_number=True) else value
    if not levels:
        return MASK
    if isinstance(value, Mapping):
        return _members(cast("Mapping[str, object]", value), redact, under, levels - 1, mask)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        befores = [None, *items]
        masked = [
            without_secrets_in(item, redact, _of_option(before, item) or under, levels - 1, mask)
            for before, item in zip(befores, items, strict=False)
        ]
        return masked if any(new is not old for new, old in zip(masked, items, strict=True)) else items
    return redact(str(value))


def _members(
    members: Mapping[str, object],
    redact: Callable[[str], str],
    under: Secret | None,
    levels: int,
    mask: Callable[[str], str],
) -> Mapping[str, object]:
    label = next((str(members[name]) for name in ("name", "key") if isinstance(members.get(name), str)), "")
    masked: dict[str, object] = {}
    for name, value in members.items():
        own = secret_of(label if name == "value" else str(name))
        inner = own or (under._replace(digits=NEVER) if under is not None and is_about(str(name)) else under)
        masked[redact(str(name))] = without_secrets_in(value, redact, inner, levels, mask)
    is_same = masked.keys() == members.keys() and all(masked[name] is members[name] for name in members)
    return members if is_same else masked


def _of_option(before: object, item: object) -> Secret | None:
    """What is a secret after this item of a command line."""
    if not (isinstance(before, str) and isinstance(item, str)) or item[:1] == "-":
        return None
    return secret_of(before) if before.startswith("--") and len(before) < 80 and "=" not in before else None
