"""Filters in queries: `server:NAME` and `tag:NAME` in a search, and boolean queries over the fields of tools. Pure.

Examples of boolean queries: `summary AND remote`, `tag:nlp OR server:github`, `NOT "file system"`.

    query  = or
    or     = and { "OR" and }
    and    = not { ["AND"] not }          words beside one another must both hold
    not    = ("NOT" | "-") not | "(" or ")" | term
    term   = [field ":"] (word | phrase)  word may have * and ?

A word without a field is looked for at the beginning of the words of every field. Case never counts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.search.ranker import ServerText

_FILTER = late(r'(?<!\S)(server|tag):(?:"([^"\s][^"]{0,199})"|([^\s"]{1,200}))(?!\S)', re.IGNORECASE)
_MOST = 16
"""Filters of a query that are obeyed."""
_WILDCARDS = 8
"""Wildcards that a glob may have: more are no name, and slow."""


class Scope(Struct, frozen=True):
    """What filters look at in a tool, in lower case."""

    server: str
    tags: frozenset[str]

    @classmethod
    def of(cls, server: ServerText, tags: Iterable[str]) -> "Scope":
        """That of a tool with these tags. A tool has its server's tags too."""
        return cls(server.name.casefold(), frozenset(tag.casefold() for tag in (*server.tags, *tags)))


class Filters(Struct, frozen=True):
    """The filters of a query: several of a kind are alternatives, both kinds must fit."""

    servers: tuple[re.Pattern[str], ...] = ()
    tags: tuple[re.Pattern[str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.tags)

    def passes(self, scope: Scope) -> bool:
        """Whether a tool is one of those that the query is about."""
        if self.servers and not any(pattern.match(scope.server) for pattern in self.servers):
            return False
        return not self.tags or any(pattern.match(tag) for tag in scope.tags for pattern in self.tags)


def parse_filters(query: str) -> tuple[Filters, str]:
    """The filters of a query, and what it says besides. Globs; cases do not matter; a name with blanks in quotes."""
    if ":" not in query:
        return Filters(), query
    servers: list[re.Pattern[str]] = []
    tags: list[re.Pattern[str]] = []
    for kind, quoted, bare in _FILTER.findall(query):
        if len(servers) + len(tags) < _MOST:
            (servers if kind.lower() == "server" else tags).append(_glob((quoted or bare).casefold()))
    return Filters(tuple(servers), tuple(tags)), _FILTER.sub(" ", query)


@lru_cache(256)
def _glob(text: str) -> re.Pattern[str]:
    if text.count("*") + text.count("?") + text.count("[") > _WILDCARDS:
        return re.compile(re.escape(text) + r"\Z")
    return re.compile(translate(text))


Document = Mapping[str, Sequence[str]]
"""What is known of one thing: texts by field."""

FIELDS: Mapping[str, str] = {
    **{name: name for name in ("id", "name", "server", "type", "description", "schema", "example")},
    **dict.fromkeys(("tag", "tags"), "tag"),
    **dict.fromkeys(("sub_type", "kind"), "sub_type"),
    **dict.fromkeys(("runtime", "runtime_type"), "runtime_type"),
    **dict.fromkeys(("protocol", "protocol_type"), "protocol_type"),
}
"""Names of fields in queries, and the fields of documents."""

_LONGEST, _DEEPEST = 2000, 50
_TOKEN = late(
    r"""\s*(?:(?P<open>\()|(?P<close>\))|(?P<minus>-(?=[^\s)]))
    |(?P<field>[A-Za-z_]+):(?=[^\s)])
    |"(?P<phrase>[^"]*)(?P<end>"?)|(?P<word>[^\s()"]+))""",
    re.VERBOSE,
)
_WORD = late(r"\w+")


class QueryProblem(ValueError):
    """A query that cannot be read; says where and why."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} (at character {at + 1} of the query)")
        self.at = at


class Query(Struct, frozen=True):
    """A query that was read."""

    holds: Callable[[Document], bool]
    """Whether a document answers it."""


def parse_query(text: str) -> Query:
    """Read a query. An empty one holds for everything.

    Raises:
        QueryProblem: it is not one.
    """
    if len(text) > _LONGEST:
        raise QueryProblem(f"the query is longer than {_LONGEST} characters", _LONGEST)
    if not text.strip():
        return Query(lambda document: True)
    return Query(_Parser(text).whole())


class _Token(Struct, frozen=True):
    kind: str
    text: str
    at: int


Holds = Callable[[Document], bool]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next, self._depth, self._end = 0, 0, len(text)

    def whole(self) -> Holds:
        found = self._or()
        if (left := self._look()) is not None:
            raise QueryProblem("this `)` closes nothing" if left.kind == "close" else "unexpected", left.at)
        return found

    def _look(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, keyword: str) -> bool:
        token = self._look()
        if token is not None and token.kind == "word" and token.text == keyword:
            self._next += 1
            return True
        return False

    def _or(self) -> Holds:
        either = [self._and()]
        while self._takes("OR"):
            either.append(self._and())
        return either[0] if len(either) == 1 else lambda document: any(one(document) for one in either)

    def _and(self) -> Holds:
        both = [self._not()]
        while (token := self._look()) is not None and token.kind != "close":
            if token.kind == "word" and token.text == "OR":
                break
            self._takes("AND")
            both.append(self._not())
        return both[0] if len(both) == 1 else lambda document: all(one(document) for one in both)

    def _not(self) -> Holds:
        self._depth += 1
        try:
            token = self._look()
            if token is None:
                raise QueryProblem("something is missing at the end", self._end)
            if self._depth > _DEEPEST:
                raise QueryProblem("the query is nested too deeply", token.at)
            if token.kind == "minus" or self._takes("NOT"):
                self._next += token.kind == "minus"
                inner = self._not()
                return lambda document: not inner(document)
            if token.kind == "open":
                self._next += 1
                within = self._or()
                closing = self._look()
                if closing is None or closing.kind != "close":
                    raise QueryProblem("this `(` is not closed", token.at)
                self._next += 1
                return within
            return self._term()
        finally:
            self._depth -= 1

    def _term(self) -> Holds:
        token = self._look()
        assert token is not None, "the caller looked"
        self._next += 1
        if token.kind == "close" or (token.kind == "word" and token.text in ("AND", "OR")):
            raise QueryProblem(f"something is missing before `{token.text}`", token.at)
        if token.kind != "field":
            return _anywhere(token)
        field = FIELDS.get(token.text.lower())
        if field is None:
            raise QueryProblem(
                f"there is no field `{token.text[:40]}`: there are {', '.join(sorted(FIELDS))}", token.at
            )
        value = self._look()
        if value is None or value.kind not in ("word", "phrase"):
            raise QueryProblem(f"`{token.text}:` needs a word or a phrase", token.at)
        self._next += 1
        matches = _matcher(value, is_whole=field not in ("description", "schema", "example"))
        return lambda document: any(map(matches, document.get(field, ())))


def _tokens(text: str) -> "list[_Token]":
    found: list[_Token] = []
    end = 0
    while text[end:].strip():
        match = _TOKEN.match(text, end)
        if match is None:
            raise QueryProblem("unexpected", end)
        kind = match.lastgroup if match.lastgroup != "end" else "phrase"
        assert kind is not None, "each alternative is a group"
        if kind == "phrase" and not match["end"]:
            raise QueryProblem("this quotation mark is not closed", match.start("phrase") - 1)
        found.append(_Token(kind, match[kind], match.start(kind)))
        end = match.end()
    return found


def _anywhere(token: _Token) -> Holds:
    matches = _matcher(token, is_whole=False)
    return lambda document: any(matches(text) for texts in document.values() for text in texts)


def _matcher(token: _Token, *, is_whole: bool) -> Callable[[str], bool]:
    """Whether a text has the word or the phrase. `is_whole`: a text that is a name is compared as a whole."""
    wanted = token.text.casefold()
    if token.kind == "phrase":
        words = _WORD.findall(wanted)
        return lambda text: _has_run(_WORD.findall(text.casefold()), words)
    if "*" in wanted or "?" in wanted:
        pattern = re.compile(translate(wanted))
        if is_whole:
            return lambda text: pattern.fullmatch(text.casefold()) is not None
        return lambda text: any(pattern.fullmatch(word) for word in (text.casefold(), *_words(text)))
    if is_whole:
        return lambda text: wanted in (text.casefold(), *_words(text))
    parts = _WORD.findall(wanted) or [wanted]
    return lambda text: all(any(word.startswith(part) for word in _words(text)) for part in parts)


def _words(text: str) -> list[str]:
    found = _WORD.findall(text.casefold())
    return [*found, *(part for word in found if "_" in word for part in word.split("_") if part)]


def _has_run(words: Sequence[str], run: Sequence[str]) -> bool:
    length = len(run)
    return bool(run) and any(list(words[at : at + length]) == list(run) for at in range(len(words) - length + 1))
