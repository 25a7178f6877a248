"""Texts as vectors by a model: the `Embedder` protocol, what models are told of tools, and vectors as they are kept.

Only the direction of a vector counts here, so it is kept as a signed byte a dimension: of the 1,500 bytes of a small
model's vector 384 are left, and the order of what is found stays the same.
"""

import sys
from array import array
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import isfinite, sqrt
from operator import mul
from typing import Any, NamedTuple, Protocol

from mcpbridge.errors import BridgeError
from mcpbridge.routing.clauses import clauses
from mcpbridge.routing.fields import server_fields, tool_fields
from mcpbridge.routing.filters import parse_filters
from mcpbridge.routing.tool_text import ServerText, ToolText
from mcpbridge.routing.words import runs_of

__all__ = [
    "Embedder",
    "EmbedderFailed",
    "Prefixes",
    "Vector",
    "direction",
    "prefixes_of",
    "similarities",
    "texts_of_query",
    "tool_text",
]

Vector = bytes
"""A direction: a signed byte a dimension, the largest of them ±127. Empty: there is none for this text."""

_DIMENSIONS = 16_384
"""Numbers of a vector that are believed."""
_DESCRIPTION = 700
_TEXT = 1200
"""Characters that a model is given of a tool; small models read the first 250 words at most."""
_QUERY = 2000
_CLAUSES = 4
"""Parts of a request that get vectors of their own."""


class EmbedderFailed(BridgeError):
    """No vectors can be had from a model now. The message names no secret."""


class Embedder(Protocol):
    """Makes vectors of texts. Cancelled, it stops at the next occasion."""

    @property
    def name(self) -> str:
        """The model and its version: vectors of two embedders are comparable if these are the same."""
        ...

    @property
    def prefixes(self) -> "Prefixes":
        """What its texts begin with."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float] | Vector]:
        """A vector each, in order; an empty one for a text that the model does not take. Any number of texts.

        Raises:
            EmbedderFailed: it does not work, or not now.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and memory."""
        ...


class Prefixes(NamedTuple):
    """What a model wants texts to begin with."""

    query: str = ""
    tool: str = ""


_SEARCHING = "Represent this sentence for searching relevant passages: "
_KNOWN: Sequence[tuple[str, Prefixes]] = [
    ("*e5-mistral*", Prefixes("Instruct: Find the tool that does what is asked for\nQuery: ")),
    ("*e5-*-instruct*", Prefixes("Instruct: Find the tool that does what is asked for\nQuery: ")),
    ("*qwen3-embedding*", Prefixes("Instruct: Find the tool that does what is asked for\nQuery:")),
    ("*e5-*", Prefixes("query: ", "passage: ")),
    ("*nomic-embed-text*", Prefixes("search_query: ", "search_document: ")),
    ("*embeddinggemma*", Prefixes("task: search result | query: ", "title: none | text: ")),
    ("*snowflake-arctic-embed*2*", Prefixes("query: ")),
    ("*arctic-embed*", Prefixes(_SEARCHING)),
    ("*mxbai-embed-large*", Prefixes(_SEARCHING)),
    ("*bge-*-en*", Prefixes(_SEARCHING)),
]
"""By globs on names of models, as their authors describe them; the first that matches."""


def prefixes_of(model: str) -> Prefixes:
    """What this model wants texts to begin with; nothing for a model that is not known."""
    name = model.casefold()
    return next((prefixes for glob, prefixes in _KNOWN if fnmatchcase(name, glob)), Prefixes())


def tool_text(server: ServerText, tool: ToolText) -> str:
    """What a model is told of a tool: what it is called, where, what it says it does, and what it takes."""
    about, fields = server_fields(server), tool_fields(tool)
    name = " ".join(word for run in runs_of(fields.name) for word in run.plain)
    parts = [f"{about.name.strip()}: {name}", fields.title, fields.description[:_DESCRIPTION], fields.parameters]
    said = [trimmed for part in parts if (trimmed := part.strip(" .\n"))]
    return _clean(". ".join(said), _TEXT)


def texts_of_query(query: str) -> list[str]:
    """What a model is told of a query: the whole of it, then its parts if it has several needs. No filters."""
    text = _clean(parse_filters(query[: 4 * _QUERY])[1], _QUERY)
    return [text, *clauses(text)[:_CLAUSES]] if text else []


def direction(numbers: Sequence[float]) -> Vector:
    """The direction of a model's vector.

    Raises:
        ValueError: it is no direction: too long, empty, zero, or with what is no number.
    """
    if not 0 < len(numbers) <= _DIMENSIONS:
        raise ValueError(f"a vector of {len(numbers)} numbers")
    largest = max(map(abs, numbers))
    if not isfinite(sum(numbers)) or not isfinite(largest) or largest < 1e-30:
        raise ValueError("a vector without a direction")
    scale = 127 / largest
    return array("b", [round(number * scale) for number in numbers]).tobytes()


def similarities(query: Vector, vectors: Sequence[Vector]) -> list[float]:
    """The cosine between a query and each of some vectors; 0 where they are of different models."""
    fitting = [vector if len(vector) == len(query) else bytes(len(query)) for vector in vectors]
    if "numpy" in sys.modules and fitting and query:  # what works with it has loaded it; to load it takes 0.1 s
        return _by_numpy(query, fitting)
    asked = memoryview(query).cast("b")
    own = sum(map(mul, asked, asked))
    found: list[float] = []
    for vector in fitting:
        numbers = memoryview(vector).cast("b")
        lengths = own * sum(map(mul, numbers, numbers))
        found.append(sum(map(mul, asked, numbers)) / sqrt(lengths) if lengths else 0.0)
    return found


def _by_numpy(query: Vector, vectors: Sequence[Vector]) -> list[float]:
    numpy: Any = sys.modules["numpy"]
    asked = numpy.frombuffer(query, numpy.int8).astype(numpy.float32)
    table = numpy.frombuffer(b"".join(vectors), numpy.int8).reshape(len(vectors), len(query)).astype(numpy.float32)
    lengths = numpy.sqrt((table * table).sum(axis=1) * (asked * asked).sum())
    return (table @ asked / numpy.where(lengths > 0, lengths, 1)).tolist()


def _clean(text: str, limit: int) -> str:
    """On one line, and with a UTF-8 form: a lone surrogate has none."""
    return " ".join(text[:limit].encode("utf-8", "replace").decode().replace("\0", " ").split())
