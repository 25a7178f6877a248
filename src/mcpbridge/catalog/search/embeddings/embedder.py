"""The `Embedder` protocol, the texts that embedding models get of tools and queries, and the file of vectors.

Only the direction of a vector counts here, so it is stored as a signed byte a dimension: of the 1,500 bytes of a small
model's vector 384 are left, and the order of the results stays the same.

The file is keyed by digests of texts and holds no texts, so a model reads each text once, however often bridges start.
It is a cache: it may be removed at any time, a damaged one is begun anew, and where it cannot be used vectors are made
again.
"""

import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from math import isfinite, sqrt
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mcpbridge.base.errors import BridgeError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.search.lexical.bm25 import server_fields, tool_fields
from mcpbridge.catalog.search.lexical.needs import clauses
from mcpbridge.catalog.search.query_filters import parse_filters
from mcpbridge.catalog.search.ranker import ServerText, ToolText
from mcpbridge.catalog.words import runs_of
from mcpbridge.storage.sqlite.database import Database, Schema, give_back_room

if TYPE_CHECKING:
    from sqlite3 import Connection


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
    """The embedding model gave no vectors. The message names no secret."""


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
    """What a model gets of a tool: what it is called, where, what it says it does, and what it takes."""
    about, fields = server_fields(server), tool_fields(tool)
    name = " ".join(word for run in runs_of(fields.name) for word in run.plain)
    parts = [f"{about.name.strip()}: {name}", fields.title, fields.description[:_DESCRIPTION], fields.parameters]
    said = [trimmed for part in parts if (trimmed := part.strip(" .\n"))]
    return _clean(". ".join(said), _TEXT)


def texts_of_query(query: str) -> list[str]:
    """What a model gets of a query: the whole of it, then its parts if it has several needs. No filters."""
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


log = get_logger("mcpbridge.routing")

_SCHEMA = Schema(
    0x6D637076,  # "mcpv"
    [
        [
            "CREATE TABLE vector (key BLOB PRIMARY KEY, used INTEGER NOT NULL, body BLOB NOT NULL)",
            "CREATE INDEX vector_by_use ON vector (used)",
        ]
    ],
)
_MAX_BYTES = 128 * 1024**2
_ROOM = 100
"""Bytes that a vector takes besides its own, about."""
_SLACK = 16
"""Room is looked after when so much of all of it was written since the last time, and one part is made free beyond."""
_AT_ONCE = 500
"""Vectors that are read or written in one transaction."""
_DAY = 86400
_DAMAGED = (11, 26)
"""SQLite's codes for a file that is malformed, or no database at all."""


def cache_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file of this user's bridges. It may not exist yet."""
    asked = environ.get("XDG_CACHE_HOME")
    if asked:
        return Path(asked) / "mcpbridge" / "vectors.db"
    if sys.platform.startswith("linux"):  # as it says there, without the 10 ms that asking takes
        return Path.home() / ".cache" / "mcpbridge" / "vectors.db"
    from platformdirs import user_cache_path

    return user_cache_path("mcpbridge", appauthor=False) / "vectors.db"


def key_of(model: str, text: str) -> bytes:
    """What a vector is kept under: who made it (`Embedder.name`), and of what."""
    return sha256(f"{model}\0{text}".encode("utf-8", "replace")).digest()


class VectorCache:
    """One file, which processes share; made when there is something to keep. For one event loop."""

    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """`max_bytes`: of all vectors; beyond that those go that were not used for longest, by days."""
        self._path, self._max_bytes, self._clock = path, max_bytes, clock
        self._database = Database(path, _SCHEMA)
        self._written = max_bytes  # so the first that is written looks how much there is
        self._has_complained = False

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Those that there are."""
        found: dict[bytes, Vector] = {}
        today = int(self._clock() // _DAY)
        for some in _parts(keys):
            try:
                found |= await self._database.run(lambda connection, some=some: _read(connection, some, today))
            except StoreFailed as error:
                await self._failed(error)
                break
        return found

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors. They are lost if the file cannot be used, which is said once."""
        today = int(self._clock() // _DAY)
        self._written += sum(map(len, vectors.values())) + _ROOM * len(vectors)
        limit = self._max_bytes if self._written > self._max_bytes // _SLACK else None
        try:
            for some in _parts(list(vectors)):
                rows = [(key, today, vectors[key]) for key in some]
                await self._database.run(lambda connection, rows=rows: _write(connection, rows))
            if limit is not None:
                self._written = 0
                await self._database.run(lambda connection: _make_room(connection, limit))
        except StoreFailed as error:
            await self._failed(error)

    async def close(self) -> None:
        """Finish what is under way, within seconds, and close the file."""
        await self._database.close()

    async def _failed(self, error: StoreFailed) -> None:
        if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            log.warning("the vector cache was damaged; starting with an empty one", file=str(self._path))
            await self._database.close()
            for path in (self._path, *(self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))):
                try:
                    path.unlink(missing_ok=True)
                except OSError:
                    pass  # then it goes on without a cache, which is said below the next time
            self._database = Database(self._path, _SCHEMA)
        elif not self._has_complained:
            self._has_complained = True
            log.warning("vectors cannot be stored; they are computed at each start", file=error.file, reason=error.what)


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(keys), _AT_ONCE):
        yield keys[first : first + _AT_ONCE]


def _read(connection: "Connection", keys: Sequence[bytes], today: int) -> dict[bytes, Vector]:
    marks = ",".join("?" * len(keys))
    rows = connection.execute(f"SELECT key, body, used FROM vector WHERE key IN ({marks})", keys).fetchall()  # noqa: S608 - only marks
    stale = [(today, key) for key, _, used in rows if used != today]
    connection.executemany("UPDATE vector SET used = ? WHERE key = ?", stale)
    return {bytes(key): bytes(body) for key, body, _ in rows if isinstance(body, bytes)}


def _write(connection: "Connection", rows: Sequence[tuple[bytes, int, Vector]]) -> None:
    connection.executemany("INSERT OR REPLACE INTO vector (key, used, body) VALUES (?, ?, ?)", rows)


def _make_room(connection: "Connection", max_bytes: int) -> None:
    count, size = connection.execute("SELECT count(*), total(length(body)) FROM vector").fetchone()
    room = size + _ROOM * count
    if room > max_bytes:
        kept = int(count * (max_bytes - max_bytes // _SLACK) / room)
        connection.execute(
            "DELETE FROM vector WHERE rowid IN (SELECT rowid FROM vector ORDER BY used, rowid LIMIT ?)",
            (count - kept,),
        )
        give_back_room(connection)
