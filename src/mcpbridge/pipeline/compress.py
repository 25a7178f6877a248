"""Large results out of the way: the model gets what fits, the original is kept, and nothing is lost.

Stands above everything that runs or repeats a call, so that the cache, late results and hooks have whole results. What
becomes of a large one is told in `pipeline/rewriting.py`; here is the look at every result whether it is one. It also
takes `_transform` out of the arguments, a script over the result that any call may bring.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from mcpbridge.catalog.apps import app_uris
from mcpbridge.conduct import Conduct
from mcpbridge.model import BRIDGE, Call, Plan, Tool
from mcpbridge.pipeline.driving import needs_driving
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.task_states import is_task
from mcpbridge.result_settings import ResultConduct
from mcpbridge.results.ledger import Ledger, Line
from mcpbridge.wire.body import Body
from mcpbridge.wire.envelope import TRANSFORM, WHOLE

if TYPE_CHECKING:  # loaded with the first large result
    from mcpbridge.pipeline.rewriting import Rewriter, Rewritten

__all__ = ["ARGUMENT", "Compress"]

log = structlog.get_logger("mcpbridge.results")

ARGUMENT = "_transform"
"""The argument that any call may have, whatever the tool's schema says; a tool's own of that name wins."""

_QUOTED = b'"_transform"'
_MOST_LINES = 1000
"""Client names that one stage remembers the line of; names are the clients' to choose."""
_decode_text = msgspec.json.Decoder(str).decode

Told = Callable[[Call, "Rewritten"], None]
"""Hears of every result that was rewritten."""


class Compress:
    """Concern: what becomes of large results."""

    def __init__(self, rewriter: "Callable[[], Rewriter]", ledger: Ledger, told: Told) -> None:
        """`rewriter`: made with the first large result."""
        self._rewriter, self._ledger, self._told = rewriter, ledger, told

    def stage(self, tool: Tool | None, conduct: Conduct) -> Stage | None:
        """For all tools but the bridge's own, unless their results pass as they come and no script may be brought."""
        how = conduct.results
        if tool is None or tool.server == BRIDGE or (how.strategy == "off" and not how.transforms):
            return None
        return _Compress(tool, how, self._rewriter, self._ledger, self._told)


class _Compress:
    """The stage of one tool."""

    def __init__(
        self, tool: Tool, how: ResultConduct, rewriter: "Callable[[], Rewriter]", ledger: Ledger, told: Told
    ) -> None:
        self._tool, self._how = tool, how
        self._rewriter, self._ledger, self._told = rewriter, ledger, told
        self._is_off = how.strategy == "off"
        self._threshold = how.threshold
        self._lines: dict[str, Line] = {}
        self._day = 0
        has_own, self._is_app = _known_of(tool)
        self._takes_script = how.transforms and not has_own
        self._server, self._id = tool.server, tool.id

    async def __call__(self, call: Call, proceed: Plan) -> Body:
        """The result of the call, or what fits of it."""
        arguments, expression, meta = call.params.fields.get("arguments"), "", call.meta
        if self._takes_script and arguments is not None and _QUOTED in bytes(arguments):
            expression = _taken_from(call)
        if meta is not None and TRANSFORM in meta.fields and self._how.transforms:
            expression = _text_in(meta, TRANSFORM) or expression
        result = await proceed(call)
        if self._is_off:
            return await self._large(call, result, expression) if expression else result
        raw = result.data
        size = len(raw)
        if size > self._threshold or expression or b"mcpbridge" in (data := bytes(raw)) or b"\\u00" in data:
            return await self._large(call, result, expression)
        line = self._line(call.caller.name)
        line.calls += 1
        line.passed += size
        return result

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

    async def _large(self, call: Call, result: Body, expression: str) -> Body:
        """A result that needs a look: most are large."""
        if needs_driving(result) or is_task(result):
            return result  # not the final one
        line = self._line(call.caller.name)
        line.calls += 1
        rewritten = None
        if call.meta is None or _text_in(call.meta, WHOLE) != "whole":
            try:
                rewritten = await self._rewriter().rewrite(
                    call, result, self._how, expression=expression, is_app=self._is_app
                )
            except Exception as error:
                log.error("a result cannot be rewritten, so it is passed whole", tool=self._id, exc_info=error)
        if rewritten is None:
            line.passed += len(result.data)
            return result
        line.rewritten += 1
        line.came += rewritten.came
        line.shown += rewritten.shown
        line.stored += rewritten.stored
        call.note("result", rewritten.form)
        self._told(call, rewritten)
        return rewritten.result


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


def _taken_from(call: Call) -> str:
    """The script among the arguments, which the tool does not get."""
    arguments = call.params.inner("arguments")
    if arguments is None or ARGUMENT not in arguments:
        return ""
    expression = _text_in(arguments, ARGUMENT)
    arguments.drop(ARGUMENT)
    call.params.put("arguments", arguments)
    return expression


def _text_in(body: Body, name: str) -> str:
    raw = body.get(name)
    try:
        return _decode_text(raw).strip() if raw is not None else ""
    except msgspec.DecodeError:
        return ""
