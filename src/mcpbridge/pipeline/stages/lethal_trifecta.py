"""Notes what each session has touched, and stops the call that could send it out.

A session that has read private data and met untrusted content may follow orders in that content, and give the data
away. So a call that can send something out is asked about, or refused, with the calls that led there. Labels come from
the settings, from a table of known servers and from annotations (`pipeline/trifecta`). A call adds its labels when its
result comes, since nobody has read anything before. Kept results keep the labels of the calls that they came from, in
whatever session they are read.
"""

from collections.abc import Awaitable, Iterable
from itertools import islice
from typing import Literal

from mcpbridge.base.errors import CallRefused, NotPermitted
from mcpbridge.base.late_pattern import late
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import Label, Labels
from mcpbridge.core.model import BRIDGE, Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.trifecta.session_labels import SessionLabels, chain_of, note_labels
from mcpbridge.pipeline.trifecta.tool_labels import ToolLabels
from mcpbridge.protocol.body import Body
from mcpbridge.results.header_line import URI
from mcpbridge.results.kept_results import KeptResults, references_of

log = get_logger("mcpbridge.policy")

RULE = "`trust`: the lethal trifecta"
"""What decides, in words for people."""
_HANDLE = late(rb"(?<![A-Za-z0-9])[a-z2-7]{26}(?![A-Za-z0-9])")
_MOST_HANDLES = 100
"""Names in the arguments of one call that may be handles and are looked for."""
_READ_BY = frozenset({"resources/read", "prompts/get"})


class LethalTrifecta:
    """Makes the stages. `watches`: what happens to the call that would complete the three; `off`: nothing is noted."""

    def __init__(
        self,
        watches: Literal["off", "ask", "deny"],
        labels: ToolLabels,
        sessions: SessionLabels,
        kept_results: KeptResults,
    ) -> None:
        self._watches, self._labels, self._sessions, self._kept_results = watches, labels, sessions, kept_results

    def may_ask(self, tool: Tool) -> bool:
        """Whether a person may have to agree to a call of this tool."""
        return self._watches == "ask" and "sends" in self._labels.of(tool)

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`: for tools with a label, for those that hand out kept results, and for what is read."""
        if self._watches == "off":
            return None
        if tool is None:
            return self._read
        labels = self._labels.of(tool)
        if tool.server == BRIDGE and not labels:
            return self._bridge_tool

        def watched(call: Call, proceed: CallHandler) -> Awaitable[Body]:
            return self._watched(call, proceed, tool.id, labels)

        return watched

    async def _watched(self, call: Call, proceed: CallHandler, tool: str, labels: Labels) -> Body:
        await self._add_kept(call, references_of(call))
        if "sends" in labels:
            self._check(call, tool)
        return await self._noted(call, proceed, tool, labels)

    def _check(self, call: Call, tool: str) -> None:
        known = self._sessions.of(call.caller.session)
        if len(known) < 2:
            return
        chain = chain_of(known, tool)
        call.note("trifecta", chain)
        call.note("rule", RULE)
        if self._watches == "deny":
            call.note("permission", "deny")
            log.info("call denied", tool=tool, client=call.caller.name[:100], why=chain)
            raise NotPermitted(f"{tool} is denied: {chain}")
        call.note("permission", "require_approval")
        call.approval = f"{call.approval}; {chain}" if call.approval else chain

    async def _noted(self, call: Call, proceed: CallHandler, tool: str, labels: Iterable[Label]) -> Body:
        try:
            result = await proceed(call)
        except CallRefused:  # nothing was sent, so nothing was read
            raise
        except BaseException:  # what the server said may be in the error, and a late result is kept for the session
            self._add(call, labels, tool)
            raise
        self._add(call, labels, tool)
        return result

    def _add(self, call: Call, labels: Iterable[Label], tool: str) -> None:
        held: list[Label] = [label for label in labels if label != "sends"]
        if held:
            self._sessions.add(call.caller.session, held, tool)
            note_labels(call, held)

    async def _bridge_tool(self, call: Call, proceed: CallHandler) -> Body:
        """Of `recall` and its like, which hand out kept results."""
        arguments = call.params.fields.get("arguments")
        found = _HANDLE.findall(bytes(arguments)) if arguments is not None else []
        result = await proceed(call)
        await self._add_kept(call, [handle.decode() for handle in found])
        return result

    async def _kept_read(self, call: Call, proceed: CallHandler) -> Body:
        """Of kept results, read as resources."""
        result = await proceed(call)
        await self._add_kept(call, [call.target.removeprefix(URI).partition("/")[0]])
        return result

    async def _add_kept(self, call: Call, handles: Iterable[str]) -> None:
        """The labels of the calls that kept results came from are those of whoever reads them."""
        for handle in islice(dict.fromkeys(handles), _MOST_HANDLES):
            summary = await self._kept_results.summary(handle, principal=call.caller.principal)
            if summary is not None:
                labels = self._labels.of_kept(summary.tool, summary.labels)
                self._sessions.add(call.caller.session, labels, summary.tool, handle)

    def _read(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        if call.method not in _READ_BY:
            return proceed(call)
        if call.upstream == BRIDGE:
            return self._kept_read(call, proceed)
        return self._noted(call, proceed, f"{call.upstream} ({call.method})", self._labels.of_server(call.upstream))
