"""Shorten large results: the model gets what fits, the original is kept, and nothing is lost.

Here every result is looked at whether it is large; what becomes of a large one is decided in
`pipeline/compress_result.py`. The stage also takes `_transform` out of the arguments, a script over the result that any
call may bring.

`LargeTools` remembers, over restarts, which tools had large results: their definitions say what helps with those.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.hidden_json import may_hide
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions, ResultOptions
from mcpbridge.core.model import BRIDGE, Call, CallHandler, Tool
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.result_cache import MarkedResult
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.task_results import is_task
from mcpbridge.protocol.apps import app_uris
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_text
from mcpbridge.protocol.meta import TRANSFORM, WHOLE
from mcpbridge.results.header_line import may_hold_header_line, words_may_hold_header_line
from mcpbridge.results.token_ledger import Line, TokenLedger
from mcpbridge.storage.store import Store

if TYPE_CHECKING:
    from mcpbridge.pipeline.compress_result import Rewriter, Rewritten


log = get_logger("mcpbridge.results")

ARGUMENT = "_transform"
"""The argument that any call may have, whatever the tool's schema says; a tool's own of that name wins."""

_QUOTED = b'"_transform"'
_LARGE = 1024**2
"""Bytes of a result that is not searched on the way of its call."""
_REWRITER = "mcpbridge.pipeline.compress_result"
_MOST_LINES = 1000
"""Client names that one stage remembers the line of; names are the clients' to choose."""

OnRewritten = Callable[[Call, "Rewritten"], None]
"""Hears of every result that was rewritten."""


class Compress:
    """Makes the stages: what becomes of large results."""

    def __init__(
        self,
        rewriter: "Callable[[], Rewriter]",
        ledger: TokenLedger,
        on_rewritten: OnRewritten,
        *,
        is_used: bool = True,
        shows_hidden: bool = False,
    ) -> None:
        """`rewriter`: made with the first large result. `is_used`: results of some tool may be rewritten.

        `shows_hidden`: hidden characters of results of some tool are shown, and so of what programs answer.
        """
        self._rewriter, self._ledger, self._on_rewritten, self._is_used = rewriter, ledger, on_rewritten, is_used
        self._shows_hidden = shows_hidden

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For all tools but the bridge's own, unless no result is rewritten: else none may look as if it were."""
        how = options.results
        if tool is None or _is_own(tool) or not (self._is_used or how.transforms):
            return None
        if self._shows_hidden and tool.server == BRIDGE:
            how = replace(how, hidden_characters="show")
        return _Compress(tool, how, self._rewriter, self._ledger, self._on_rewritten, is_guarded=self._is_used)


def _is_own(tool: Tool) -> bool:
    """A tool of the bridge, whose answers are short by themselves; what programs answer is not."""
    return tool.server == BRIDGE and tool.name != "run_code"


class _Compress:
    """The stage of one tool."""

    def __init__(
        self,
        tool: Tool,
        how: ResultOptions,
        rewriter: "Callable[[], Rewriter]",
        ledger: TokenLedger,
        on_rewritten: OnRewritten,
        *,
        is_guarded: bool,
    ) -> None:
        """`is_guarded`: nothing may pretend to be the bridge's word."""
        self._tool, self._how = tool, how
        self._rewriter, self._ledger, self._on_rewritten = rewriter, ledger, on_rewritten
        self._is_off = how.strategy == "off"
        # An image may be too large though a text of that size is not.
        self._smallest = _LARGE if self._is_off else min(how.threshold, how.media_limit)
        self._is_guarded = is_guarded
        self._shows_hidden = how.hidden_characters == "show"
        self._needs_look = _may_hide_or_hold_header_line if self._shows_hidden else may_hold_header_line
        self._lines: dict[str, Line] = {}
        self._day = 0
        has_own, self._is_app = _known_of(tool)
        self._takes_script = how.transforms and not has_own
        self._server, self._id = tool.server, tool.id

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        """The result of the call, or what fits of it."""
        arguments, expression, problem, meta = call.params.fields.get("arguments"), "", "", call.meta
        if self._takes_script and arguments is not None and bytes(arguments).find(_QUOTED) >= 0:
            expression, problem = _take_script(call)
        if meta is not None and TRANSFORM in meta.fields and self._how.transforms:
            expression = _text_in(meta, TRANSFORM) or expression
        result = await proceed(call)
        raw = result.data
        size = len(raw)
        if (
            size > self._smallest
            or expression
            or problem
            or (
                self._is_guarded
                and self._needs_look(bytes(raw))
                and (self._shows_hidden or type(result) is not MarkedResult or raw is not result.looked_at)
            )
        ):
            return await self._looked_at(call, result, expression, problem)
        if self._is_guarded:
            client = call.caller.name
            line = self._lines.get(client) if self._ledger.day == self._day else None
            if line is None:
                line = self._line(client)
            line.calls += 1
            line.passed += size
        return result

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        return not (self._takes_script and bytes(arguments).find(_QUOTED) >= 0)

    def express_end(self, call: Call, result: Raw, seconds: float) -> bool:
        """See `pipeline/stage.py`."""
        size = len(result)
        if size > self._smallest or (self._is_guarded and self._needs_look(bytes(result))):
            return False
        # As in `__call__`: to share this would be one function more for every call of either lane.
        if self._is_guarded:
            client = call.caller.name
            line = self._lines.get(client) if self._ledger.day == self._day else None
            if line is None:
                line = self._line(client)
            line.calls += 1
            line.passed += size
        return True

    def _line(self, client: str) -> Line:
        """Where calls of this client are counted. Looked up once a day: that takes as long as all the rest here."""
        ledger = self._ledger
        if ledger.day != self._day or len(self._lines) > _MOST_LINES:
            self._day = ledger.day
            self._lines.clear()
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = ledger.line(self._server, self._id, client)
            self._day = ledger.day
        return line

    async def _looked_at(self, call: Call, result: Body, expression: str, problem: str) -> Body:
        """A result that needs a look: most are large."""
        if needs_driving(result) or is_task(result):
            return result  # not the final one
        call.original = call.original or result.data
        size, rewritten = len(result.data), None
        is_wanted_whole = call.meta is not None and _text_in(call.meta, WHOLE) == "whole"
        is_rewritten = bool(expression or problem) or (not is_wanted_whole and (self._shows_hidden or not self._is_off))
        is_checked = self._is_guarded and not _says_nothing_in_our_name(result)
        try:
            if (is_rewritten or is_checked) and _REWRITER not in sys.modules:
                from mcpbridge.base.short_turns import short_turns

                with short_turns():  # it takes 40 ms, in which others have turns
                    await anyio.to_thread.run_sync(_load_rewriter)
            if is_rewritten:
                rewritten = await self._rewriter().rewrite(
                    call, result, self._how, expression=expression, problem=problem, is_app=self._is_app
                )
            if rewritten is None and is_checked:
                result = await self._rewriter().honest(result)
        except Exception as error:
            log.error("a result cannot be shortened; passing it whole", tool=self._id, exc_info=error)
        if rewritten is None and not self._is_guarded:
            return result
        line = self._line(call.caller.name)
        line.calls += 1
        if rewritten is None:
            line.passed += size
            return result
        line.rewritten += 1
        line.came += rewritten.came
        line.sent += rewritten.sent
        line.stored += rewritten.stored
        call.note("result", rewritten.form)
        self._on_rewritten(call, rewritten)
        return rewritten.result


def _load_rewriter() -> None:
    import_module(_REWRITER).warm_up()


def _may_hide_or_hold_header_line(data: bytes) -> bool:
    return may_hide(data) or may_hold_header_line(data)


def _says_nothing_in_our_name(result: Body) -> bool:
    """Whether that is known of a large result without another look."""
    return result.words is not None and not words_may_hold_header_line(result.words)


def _known_of(tool: Tool) -> tuple[bool, bool]:
    """Whether it has a parameter of its own called `_transform`, and whether an app shows its results."""
    has_own = is_app = False
    if _QUOTED in tool.definition or b'"_meta"' in tool.definition:
        definition = Body(tool.definition)
        schema, meta = definition.inner("inputSchema"), definition.inner("_meta")
        properties = schema.inner("properties") if schema is not None else None
        has_own = properties is not None and ARGUMENT in properties
        is_app = meta is not None and bool(app_uris(meta.value()))
    return has_own, is_app


def _take_script(call: Call) -> tuple[str, str]:
    """The script among the arguments, which the tool does not get; or what is wrong with it."""
    arguments = call.params.inner("arguments")
    raw = arguments.get(ARGUMENT) if arguments is not None else None
    if arguments is None or raw is None:
        return "", ""
    expression = _text_in(arguments, ARGUMENT)
    is_text = bytes(memoryview(raw)[:1]) == b'"'
    arguments.drop(ARGUMENT)
    call.params.put("arguments", arguments)
    return expression, "" if is_text or bytes(raw) == b"null" else 'it must be a text, such as "result.length"'


def _text_in(body: Body, name: str) -> str:
    raw = body.get(name)
    try:
        return decode_text(raw).strip() if raw is not None else ""
    except msgspec.DecodeError:
        return ""


_KIND = "large_tool"
_SECONDS = 90 * 86400.0
"""How long that is remembered of a tool; each large result begins it anew, once a run of the bridge."""
MOST = 5000
MOST_OF_SERVER = 200
"""Servers name their tools, as many and as they like; each new one here is a new catalog."""
_LONGEST = 300
"""Characters of an id; longer ones are not looked at."""


class LargeTools:
    """The ids of these tools (`server/tool`, the server's own name), for everybody."""

    def __init__(self, store: Store, tasks: OwnedTasks, changed: Callable[[frozenset[str]], None]) -> None:
        """`changed` gets all of them when there are more."""
        self._store, self._tasks, self._changed = store, tasks, changed
        self._known: frozenset[str] = frozenset()
        self._of_server = Counter[str]()
        self._met = set[str]()

    async def load(self) -> None:
        """Take those of earlier runs."""
        try:
            entries = await self._store.entries(_KIND, principal="", limit=MOST)
        except StoreFailed as error:
            log.debug("records of tools with large results cannot be read", reason=str(error))
            return
        self._learn(entry.handle for entry in entries)

    def met(self, tool: str) -> None:
        """A result of this tool was large. Beyond the bounds nothing more is learnt."""
        if tool in self._met:
            return
        self._learn((tool,))
        if tool in self._known:
            self._met.add(tool)
            self._tasks.spawn(self._remember(tool))

    def _learn(self, tools: Iterable[str]) -> None:
        known = set(self._known)
        for tool in tools:
            server = tool.partition("/")[0]
            is_full = len(known) >= MOST or self._of_server[server] >= MOST_OF_SERVER
            if tool not in known and not is_full and len(tool) <= _LONGEST:
                known.add(tool)
                self._of_server[server] += 1
        if len(known) > len(self._known):
            self._known = frozenset(known)
            self._changed(self._known)

    async def _remember(self, tool: str) -> None:
        try:
            await self._store.put(_KIND, b"", principal="", expires_in=_SECONDS, handle=tool)
        except StoreFailed as error:
            log.debug("record of a tool with large results cannot be stored", tool=tool, reason=str(error))
