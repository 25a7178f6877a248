"""The card of a remote agent (A2A): where it may be, and what of it we use. Pure.

A card says where messages go, and with them our credentials: so that has to be a place that the configuration names.
Cards of A2A 1.0 and of 0.2 and 0.3 are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct

from mcpbridge.tools.http.request import origin_of

Version = Literal["1.0", "0.3"]
"""Ways to write messages; 0.2 writes them as 0.3 does."""

_WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_JSON_RPC = "JSONRPC"
_LONGEST = 4000
"""Characters of a description that are taken over."""
_MOST_SKILLS = 200


class CardUnusableError(Exception):
    """It is no card, or offers no way that we go; the message says why and what to do."""


class Interface(Struct, frozen=True):
    """Where and how to talk to an agent."""

    url: str
    version: Version
    tenant: str = ""
    """Names one of several agents at the same address; empty: there is but one."""


class Skill(Struct, frozen=True):
    """What an agent can do."""

    id: str
    name: str
    description: str
    examples: tuple[str, ...] = ()


class Card(Struct, frozen=True):
    """What we need of a card."""

    name: str
    description: str
    interface: Interface
    streams: bool
    skills: tuple[Skill, ...] = ()


def places_of_card(agent: str, card: str | None) -> list[str]:
    """Addresses at which the card may be, the likeliest first. `card`: a path or an address that is known."""
    if card is not None:
        return [urljoin(agent, card)]
    parts = urlsplit(agent)
    if parts.path.endswith(".json"):
        return [agent]
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    bases = dict.fromkeys([f"{origin}{path}", origin])
    return [f"{base}{place}" for place in _WELL_KNOWN for base in bases]


def read_card(data: bytes, card_url: str, *, allowed: Sequence[str], url: str | None = None) -> Card:
    """What a card says. `allowed`: where it may send us; `url`: where to send in place of what it says.

    Raises:
        CardUnusableError: it is none, or leads nowhere.
    """
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CardUnusableError(f"what {card_url} answers is no agent card: no JSON") from error
    card = _table(value)
    if not _text(card, "name"):
        raise CardUnusableError(f"what {card_url} answers is no agent card: it has no `name`")
    capabilities = _table(card.get("capabilities"))
    skills = [_skill(_table(one)) for one in _list(card.get("skills"))[:_MOST_SKILLS]]
    return Card(
        _text(card, "name")[:200],
        _text(card, "description")[:_LONGEST],
        _chosen(card, card_url, url, allowed),
        capabilities.get("streaming") is True,
        tuple(skill for skill in skills if skill.id),
    )


def _chosen(card: Mapping[str, Any], card_url: str, url: str | None, allowed: Sequence[str]) -> Interface:
    offered = list(_offered(card, card_url))
    usable = [one for binding, one in offered if binding == _JSON_RPC]
    usable.sort(key=lambda one: one.version != "1.0")
    if url is not None:
        version, tenant = (usable[0].version, usable[0].tenant) if usable else (_guess(card), "")
        return Interface(url, version, tenant)
    if not usable:
        others = ", ".join(dict.fromkeys(binding for binding, _ in offered if binding)) or "nothing"
        raise CardUnusableError(f"the agent offers {others}, and we speak JSON-RPC of A2A 0.2 to 1.0")
    wanted = {_origin(one) for one in allowed}
    for one in usable:
        if _is_http(one.url) and _origin(one.url) in wanted:
            return one
    raise CardUnusableError(
        f"its card, found at {card_url}, sends us to {usable[0].url[:200]}, which is elsewhere: our credentials would "
        "go there. If that is right, allow it with `allow_origins`, or set `url` to where messages go"
    )


def _offered(card: Mapping[str, Any], card_url: str) -> Iterator[tuple[str, Interface]]:
    """What the card offers: the binding, and where it is."""
    for one in map(_table, _list(card.get("supportedInterfaces"))):  # 1.0
        version = _version(_text(one, "protocolVersion") or "1.0")
        if version is not None:
            binding = _text(one, "protocolBinding").upper()
            yield binding, Interface(_joined(card_url, one), version, _text(one, "tenant"))
    if _text(card, "url"):  # 0.2, 0.3
        binding = (_text(card, "preferredTransport") or _JSON_RPC).upper()
        yield binding, Interface(_joined(card_url, card), "0.3")
        for one in map(_table, _list(card.get("additionalInterfaces"))):
            yield _text(one, "transport").upper(), Interface(_joined(card_url, one), "0.3")


def _joined(card_url: str, table: Mapping[str, Any]) -> str:
    try:
        return urljoin(card_url, _text(table, "url"))
    except ValueError:
        return ""


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        return origin_of(url)
    except ValueError:
        return None


def _version(version: str) -> Version | None:
    major, _, minor = version.partition(".")
    if major == "1":
        return "1.0"
    return "0.3" if major == "0" and minor[:1] in ("2", "3") else None


def _guess(card: Mapping[str, Any]) -> Version:
    return "1.0" if "supportedInterfaces" in card else "0.3"


def _skill(skill: Mapping[str, Any]) -> Skill:
    examples = [one for one in _list(skill.get("examples")) if isinstance(one, str)]
    return Skill(
        _text(skill, "id"),
        _text(skill, "name")[:200],
        _text(skill, "description")[:_LONGEST],
        tuple(one[:300] for one in examples[:5]),
    )


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value.strip() if isinstance(value, str) else ""
