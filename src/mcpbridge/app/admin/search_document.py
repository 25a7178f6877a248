"""What a search for tools finds, and why, as a JSON document: for `mcpbridge search` and the console.

It is the search that `find_tools` answers from, with the same order; only what is shown of it differs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio.to_thread

from mcpbridge.catalog.search.duplicates import Ability
from mcpbridge.catalog.search.find import Finding, find
from mcpbridge.catalog.search.lexical.bm25 import server_fields, tool_fields
from mcpbridge.catalog.search.ranker import Explanation, Hit, ServerText, ToolText
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.catalog.words import stems_of
from mcpbridge.downstream.client import Client
from mcpbridge.library.bridge import Bridge


async def search_document(
    bridge: Bridge, client: Client, query: str, *, limit: int, detail: str = "names", explains: bool = False
) -> dict[str, Any]:
    """`fits`, and the `tools`, best first; where none seems to fit, the `nearest` instead.

    `explains`: each tool says `why` it has its score, and `text` is what `find_tools` answers. Unlike a call of that
    tool, this leaves no note that somebody searched.

    Raises:
        SearchFailed: tools cannot be searched now.
    """
    seen = bridge.tool_search.visible_to(client)
    feedback = bridge.tool_search.feedback
    if feedback is not None:
        await feedback.recall(client.principal)
    adjust = partial(feedback.adjust, client.principal, query) if feedback is not None else list[Hit]
    ranker = await seen.ranker(query)
    found = find(query, limit, seen, ranker, adjust=adjust)
    tools = [_entry(found, ability, detail) for ability in found.named[:limit]]
    document: dict[str, Any] = {"fits": found.fits, "tools": tools if found.fits else []}
    if not found.fits:
        document["nearest"] = tools
    if explains:
        from mcpbridge.catalog.search.answers import answer_to_search

        explained = await anyio.to_thread.run_sync(partial(ranker.explain, query, found.looked_for, among=seen.by_id))
        for entry in tools:
            ref = seen.by_id.get(entry["id"])
            entry["why"] = _why(bridge, entry, explained.get(entry["id"]), ref if isinstance(ref, ToolRef) else None)
        tokens = bridge.settings.search.tokens
        document["text"] = answer_to_search(found, limit, "" if found.fits else seen.map, tokens=tokens)
    return document


def _entry(finding: Finding, ability: Ability, detail: str) -> dict[str, Any]:
    from mcpbridge.catalog.signatures.signature import signature

    one, hit = finding.tools[ability.id], finding.scores[ability.id]
    entry: dict[str, Any] = {
        "id": ability.id,
        "name": one.tool.wire,
        "score": round(hit.score, 4),
        "is_named": hit.is_named,
        "also": list(ability.also),
    }
    if detail != "names":
        entry["signature"] = signature(one.tool.wire, one.description, one.text.schema).text
    if detail == "schemas":
        entry |= {"description": one.description, "inputSchema": one.text.schema}
    return entry


def _why(bridge: Bridge, entry: Mapping[str, Any], one: Explanation | None, ref: ToolRef | None) -> dict[str, Any]:
    """What made the score, in points that add up to it."""
    if one is None:
        return {"named": True} if entry["is_named"] else {"filters": True}
    search = bridge.tool_search
    places: Mapping[str, frozenset[str]] = {}
    if ref is not None:
        places = places_of(search.says(ref.server), search.search.text_of(ref))
    why: dict[str, Any] = {
        "part": one.part,
        "words": [
            {
                "word": word.word,
                "points": round(word.points, 4),
                "implied": word.is_implied,
                "in": [name for name, stems in places.items() if not stems.isdisjoint(stems_of(word.word))],
            }
            for word in one.words
        ],
        "vectors": {
            "points": round(one.vectors, 4),
            "nearness": round(one.nearness, 4),
            "words": [[word, round(near, 4)] for word, near in one.near_words],
        },
        "asked": round(one.asked, 4),
        "name": round(one.name, 4),
    }
    if one.model_nearness is not None:
        why["model"] = {"points": round(one.model, 4), "nearness": round(one.model_nearness, 4)}
    used_before = entry["score"] - min(1.0, one.score)
    if search.feedback is not None and used_before > _LEAST:
        why["feedback"] = round(used_before, 4)
    return why


_LEAST = 0.002
"""Points that are more than what rounding makes."""


def places_of(server: ServerText, tool: ToolText) -> Mapping[str, frozenset[str]]:
    """The stems of each text that a tool is found by, by what the text is."""
    about, fields = server_fields(server), tool_fields(tool)
    texts: Sequence[tuple[str, str]] = (
        ("name", fields.name),
        ("title and tags", fields.title),
        ("description", fields.description),
        ("parameters", fields.parameters),
        ("parameter descriptions", fields.details),
        ("server", about.name),
        ("server description", about.description),
    )
    return {name: frozenset(stems_of(text)) for name, text in texts}
