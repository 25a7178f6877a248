"""Reads the arguments of `recall`, and writes its list of kept results."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from mcpbridge.base.suggestions import nearest
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.meta import TRANSFORM
from mcpbridge.results.errors import QueryRefused, clipped
from mcpbridge.results.exact_json import NotReadable, parse_json
from mcpbridge.results.header_line import URI
from mcpbridge.results.kept_results import ResultSummary, searched_words
from mcpbridge.results.query.request import Query, loosened, read_query
from mcpbridge.tools.builtin.recall.definition import ARGUMENTS

MOST = 20
"""Handles of one call."""

_BETWEEN = re.compile(r"[\s,]+(?=[\[{`'\"]{0,2}(?:mcpbridge://results/)?[a-z0-9]{26,32}(?![a-z0-9]))", re.IGNORECASE)
"""Between two handles of a text; pointers may have blanks and commas."""
_BLANK = ", \t\r\n"
_CLOSING = {"[": "]", "{": "}", "(": ")", "`": "`", "'": "'", '"': '"'}
_AROUND = _BLANK + ";" + "".join(_CLOSING) + "".join(_CLOSING.values())
"""What models put around a handle."""

_KNOWN = frozenset((*ARGUMENTS, "handles"))
_MEANT = {
    **dict.fromkeys(("filter", "filters", "condition", "having"), "where"),
    **dict.fromkeys(("columns", "column", "fields", "keys"), "select"),
    **dict.fromkeys(("orderby", "order_by", "order"), "sort"),
    **dict.fromkeys(("query", "text", "grep"), "find"),
    **dict.fromkeys(("count", "top", "max", "max_results"), "limit"),
    **dict.fromkeys(("skip", "start"), "offset"),
    **dict.fromkeys(("script", "expression", "code"), "_transform"),
    **dict.fromkeys(("id", "ref", "result"), "handle"),
}
"""What other query languages call it."""

_QUERIES = ("path", "where", "select", "sort", "aggregate", "group_by", "find", "regex", "lines", "_transform")
_TRUE, _FALSE = (True, "true", "True", 1), (None, False, "false", "False", 0, "")


class Wanted(Struct, frozen=True):
    """What a call wants."""

    handles: tuple[tuple[str, str], ...] = ()
    """Results to read, each with a JSON pointer into it, or an empty one."""
    query: Query = field(default_factory=Query)
    transform: str = ""
    forget: tuple[str, ...] = ()
    search: str = ""


def wanted_of(params: Body, meta: Body | None = None) -> Wanted:
    """Read the params of the call, and its `_meta`, which may bring the script.

    Raises:
        QueryRefused: what is wrong with which argument.
    """
    arguments = dict(_arguments(params))
    if meta is not None and TRANSFORM in meta:
        arguments["_transform"] = _script(meta)
    _refuse_unknown(arguments)
    given = arguments.get("handle", arguments.get("handles"))
    handles = tuple(_handle(text) for text in _texts("handle", given)) if given not in (None, "") else ()
    forget = arguments.get("delete")
    if forget not in _FALSE:
        chosen = handles if forget in _TRUE else [_handle(text) for text in _texts("delete", forget)]
        named = [handle for handle, _ in chosen]
        if not named:
            raise QueryRefused("delete: the handles to forget, such as those that recall without arguments lists")
        return Wanted(forget=tuple(named))
    search = arguments.get("search")
    if search is not None and not isinstance(search, str):
        raise QueryRefused("search: words to look for in tools, arguments and headlines of kept results")
    asked = [name for name in _QUERIES if arguments.get(name) not in (None, "")]
    if not handles and asked:
        raise QueryRefused(f"{asked[0]}: of which result? Give its handle; recall without arguments lists those kept.")
    if arguments.get("list") in _TRUE or search:
        handles = ()
    transform = arguments.get("_transform") or ""
    if not isinstance(transform, str):
        raise QueryRefused("_transform: a JavaScript expression in a string")
    return Wanted(handles, read_query(arguments), transform, search=" ".join(searched_words(search or "")))


def _arguments(params: Body) -> Mapping[str, Any]:
    """The arguments as they came, or as JSON in a string."""
    raw = params.get("arguments")
    try:
        found: Any = loosened(parse_json(str(memoryview(raw), "utf-8"))) if raw is not None else None
    except (NotReadable, UnicodeDecodeError) as error:
        raise QueryRefused(f"arguments: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise QueryRefused('arguments: an object such as {"handle": "…", "where": "state == \'open\'"}')
    return cast("dict[str, Any]", found)


def _script(meta: Body) -> str:
    try:
        return meta.text(TRANSFORM)
    except msgspec.DecodeError:
        raise QueryRefused(f"{TRANSFORM}: a JavaScript expression in a string") from None


def _refuse_unknown(arguments: Mapping[str, Any]) -> None:
    """An argument that nobody looks at would make an answer that looks right and is not."""
    for name in arguments:
        if name in _KNOWN:
            continue
        meant = [_MEANT[name.lower()]] if name.lower() in _MEANT else nearest(clipped(name), ARGUMENTS, limit=1)
        hint = f"; did you mean {meant[0]}?" if meant else "."
        raise QueryRefused(f"{clipped(name)}: no such argument{hint} There are: {', '.join(ARGUMENTS)}")


def _texts(name: str, value: Any) -> list[str]:
    found: Any = loosened(value)
    if isinstance(found, str):
        found = [part for part in _BETWEEN.split(found) if part.strip(_AROUND)]
    values = cast("list[Any]", found) if isinstance(found, list) else [found]
    texts = [text for one in values if (text := _referred(one))]
    if not texts or len(texts) != len(values) or len(texts) > MOST:
        raise QueryRefused(f"{name}: a handle, or a list of at most {MOST}; not {clipped(repr(cast('object', value)))}")
    return texts


def _referred(value: Any) -> str:
    """The text that names a result: itself, or in a reference; empty if it is neither."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("$ref")
    return value.strip() if isinstance(value, str) else ""


def _handle(text: str) -> tuple[str, str]:
    """The handle in a text or URI, and the JSON pointer behind it."""
    closing = _CLOSING.get(text[:1], "")
    text = text.lstrip(_AROUND)
    if text[: len(URI)].lower() == URI:
        text = text[len(URI) :]
    handle, _, pointer = text.partition("#")
    pointer = pointer.strip(_BLANK)
    return handle.partition("/")[0].strip(_AROUND).lower(), pointer.removesuffix(closing)


LOOKED_AT = 500
"""Kept results that are looked at, the newest."""


class LoggedCall(Struct, frozen=True):
    """A call of the call log."""

    tool: str
    outcome: str
    error: str
    at: str
    """ISO 8601."""


def with_logged(text: str, calls: Sequence[LoggedCall], room: int) -> str:
    """The listing, and below it calls from the log, the newest first, as many as fit."""
    lines = ["Calls in the log, whether or not their result is kept:"]
    space = room - len(text) - len(lines[0]) - 2
    for call in calls:
        line = " · ".join(part for part in (call.tool, call.outcome, call.error, call.at) if part)
        space -= len(line) + 1
        if space < 0:
            break
        lines.append(line)
    return "\n".join([text, *lines]) if len(lines) > 1 else text


def listing(summaries: Sequence[ResultSummary], wanted: Wanted, room: int) -> str:
    """One line for each kept result, the newest first, as many as fit."""
    if not summaries:
        return "Nothing is kept" + (" that has all these words." if wanted.search else ".")
    start = wanted.query.offset or 0
    end = len(summaries) if wanted.query.limit is None else min(len(summaries), start + wanted.query.limit)
    many = f"{len(summaries)}{' or more' if len(summaries) == LOOKED_AT else ''}"
    space = room - len(f"[{len(summaries)}-{len(summaries)} of {many}; offset={len(summaries)} for the next]")
    lines = list[str]()
    for summary in summaries[start:end]:
        line = _line(summary)
        space -= len(line) + 1
        if space < 0 and lines:
            break
        lines.append(clipped(line, max(room - 80, 40)))
    at = start + len(lines)
    which = (
        f"all {many}" if not start and at == len(summaries) else f"{start}-{at - 1} of {many}" if lines else f"{many}"
    )
    rest = f"; offset={at} for the next" if at < len(summaries) else ""
    return "\n".join([*lines, f"[{which}{rest}]"])


def _line(summary: ResultSummary) -> str:
    at = datetime.fromtimestamp(max(0, summary.at), UTC).strftime("%Y-%m-%d %H:%MZ")
    called = " ".join(part for part in (summary.tool, clipped(summary.arguments, 100)) if part)
    outcome = "" if summary.outcome == "ok" else summary.outcome
    size = f"{summary.chars:,} chars" if summary.chars else ""
    return " · ".join(
        part for part in (summary.handle, called, clipped(summary.headline, 80), size, outcome, at) if part
    )
