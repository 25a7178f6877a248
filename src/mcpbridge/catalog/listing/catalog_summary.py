"""What tools there are, in a line or two: `~150 tools of 20 servers: github (~30: issue, pull request, repo) · … `.

It is in the description of `find_tools`, so it is in every conversation, and clients cache prompts by their
beginning: the same catalog gives the same text, and a tool more or less seldom changes it (counts are rounded, and
what is more common comes first only where it is twice as common). Names come from servers that are not trusted, so
they are cut down to a few letters and digits. Pure.
"""

import re
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mcpbridge.catalog.search.ranker import ServerText
from mcpbridge.catalog.words import object_of, stem, verb_of, words_of
from mcpbridge.results.token_count import Counter, estimated_tokens_of

MAP_TOKENS = 100
"""Tokens of the map, if nothing else is said."""

_LABEL, _WORD = 24, 16
"""Characters of a server's label, and of one word of a topic."""
_TOOLS, _FEWER = 20_000, 16_384
"""Tools of a catalog all of which are looked at, and how many, about, of a larger one: they take 15 µs each."""
_VERBS = 6
_STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 50, 75)
_SAYING_LITTLE = (
    "mcp server tool api info information data detail id status result current new multiple single full list item"
    " object value name type me user all other general main default content"
)
_GENERIC = frozenset(stem(word) for word in _SAYING_LITTLE.split())
"""Stems that say little of what a server is for."""
_FOREIGN = re.compile(r"[^A-Za-z0-9 _-]+")

_FEW, _MANY = 12, 30
"""Servers that are listed one by one, and the number from which on most are listed by topic."""
_LADDER = ((_FEW, 6), (_FEW, 4), (_FEW, 3), (_FEW, 2), (6, 2), (4, 2), (4, 1), (3, 1), (2, 0), (0, 0))
"""Servers that are listed with their topics, and how many of these, from the longest map to the shortest."""
_LADDER_OF_MANY = ((3, 2), (3, 1), (2, 1), (2, 0), (0, 0))


def catalog_map(
    tools: Iterable[tuple[str, str]],
    servers: Mapping[str, ServerText] | None = None,
    *,
    tokens: int = MAP_TOKENS,
    count: Counter = estimated_tokens_of,
) -> str:
    """The map of these tools, each a server and the name of a tool there; empty for none.

    `servers`: what is known of servers, by name; those with the same tag are listed together where there are many.
    `tokens`: how long it may be, about; it is shorter where there is no more to say.
    """
    regions = _regions(tools)
    if not regions:
        return ""
    total = sum(region.tools for region in regions)
    many = f"{len(regions)} servers" if len(regions) > 1 else "1 server"
    head = f"{_about(total)} tools of {many}: "
    tail = f". Mostly: {', '.join(verbs)}." if (verbs := _verbs(regions)) else "."
    told, rest, text = list[str](), regions, ""
    for most, topics in _LADDER if len(regions) <= _FEW else _LADDER_OF_MANY:
        told, rest = [region.label(topics) for region in regions[:most]], regions[most:]
        text = _joined(head, told, rest, [], tail)
        if count(text) <= tokens:
            break
    every = _labels(rest, servers or {})
    for known in range(1, len(every) + 1):
        longer = _joined(head, told, rest, [*every[:known], *(["…"] if known < len(every) else [])], tail)
        if count(longer) > tokens:
            break
        text = longer
    return text


class _Region(Struct, frozen=True):
    """What one server has."""

    server: str
    tools: int
    topics: tuple[str, ...]
    verbs: Mapping[str, int]

    def label(self, topics: int) -> str:
        about = ", ".join(self.topics[:topics])
        return f"{_label(self.server)} ({_about(self.tools)}{f': {about}' if about else ''})"


def _regions(tools: Iterable[tuple[str, str]]) -> list[_Region]:
    """Those of all servers, the larger ones first."""
    names: dict[str, list[str]] = defaultdict(list)
    for server, name in tools:
        names[server].append(name)
    is_small = sum(map(len, names.values())) <= _TOOLS
    looked_at = _TOOLS if is_small else max(8, _FEWER >> len(names).bit_length())
    found = [_region(server, own, looked_at) for server, own in names.items()]
    return sorted(found, key=lambda region: (-_band(region.tools), region.server))


def _region(server: str, names: Sequence[str], most: int) -> _Region:
    without = frozenset(stem(word) for word in words_of(server)) | _GENERIC
    looked_at = sorted(names)[:most]
    objects = [object_of(words_of(name), without) for name in looked_at]
    verbs = Tally(verb for name in looked_at if (verb := verb_of(words_of(name))))
    return _Region(server, len(names), _topics(objects), verbs)


def _topics(objects: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """What most tools are about, in a word or two each."""
    ones: Tally[str] = Tally()
    pairs: dict[str, Tally[str]] = defaultdict(Tally)
    written: dict[str, str] = {}
    for words in objects:
        stems = [stem(word) for word in words[:2]]
        for key, word in zip(stems, words, strict=False):
            shorter = min(written.get(key, word), word, key=lambda form: (len(form), form))
            written[key] = shorter
        if stems:
            ones[stems[0]] += 1
            pairs[stems[0]].update(stems[1:])
    ranked = sorted(ones, key=lambda key: (-_band(ones[key]), written[key]))
    found: list[str] = []
    for key in ranked[:12]:
        second = max(pairs[key].items(), key=lambda item: (item[1], item[0]), default=("", 0))
        is_pair = second[1] * 5 >= ones[key] * 3
        words = [written[key], written[second[0]]] if is_pair else [written[key]]
        plain = [cut for word in words if (cut := _FOREIGN.sub("", word)[:_WORD])]
        found += [" ".join(plain)] if plain else []
    return tuple(dict.fromkeys(found))


def _verbs(regions: Sequence[_Region]) -> list[str]:
    """The most common ones, by the alphabet: which is the first would change more often than which they are."""
    tally: Tally[str] = Tally()
    for region in regions:
        tally.update(region.verbs)
    return sorted(sorted(tally, key=lambda verb: (-_band(tally[verb]), verb))[:_VERBS])


def _labels(regions: Sequence[_Region], servers: Mapping[str, ServerText]) -> list[str]:
    """What the rest of the servers are for: their tags, else their names, or of many what they are about."""
    found: Tally[str] = Tally()
    for region in regions:
        text = servers.get(region.server)
        if text is not None and text.tags:
            found[_label(text.tags[0])] += 1
        elif len(regions) < _MANY:
            found[_label(region.server)] += 1
        else:
            found.update(region.topics[:3])
    return [label for label in sorted(found, key=lambda label: (-_band(found[label]), label)) if label]


def _joined(head: str, texts: Sequence[str], rest: Sequence[_Region], labels: Sequence[str], tail: str) -> str:
    parts = list(texts)
    if rest:
        more = f"{len(rest)} more servers" if texts else "among them"
        parts.append(f"{more}: {', '.join(labels)}" if labels else more)
    return f"{head}{' · '.join(parts)}{tail}"


def _label(text: str) -> str:
    """A name as it is, if it is short; otherwise its first words that say something."""
    plain = " ".join(_FOREIGN.sub(" ", text[: _LABEL * 4]).split())
    if len(plain) <= _LABEL:
        return plain
    label = ""
    for word in words_of(plain):
        if stem(word) not in _GENERIC and len(label) + len(word) < _LABEL:
            label = f"{label}-{word}" if label else word
    return label or plain[:_LABEL].strip()


def _about(count: int) -> str:
    """A number, roughly: most changes of a catalog are not seen in it."""
    if count <= 3:
        return str(count)
    scale = 1
    while count > 75 * scale:
        scale *= 10
    nearest = min((step * scale for step in _STEPS), key=lambda step: (abs(step - count), step))
    return f"~{nearest}"


def _band(count: int) -> int:
    """What is equal for all numbers of about one size."""
    return count.bit_length()
