"""One live MCP session with an upstream: agree on a revision, list, call, hear notices.

It knows both eras of the protocol and hides them: whoever calls `request` need not know whether the server
gets an envelope in `_meta` or had a handshake. It does not reconnect; the supervisor does.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import BridgeError, UpstreamAnswered, UpstreamError, UpstreamGone, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.error_codes import METHOD_NOT_FOUND, code_of
from mcpbridge.protocol.extensions import declared_to_servers
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.meta import RequestMeta
from mcpbridge.protocol.peer import Peer, Sent
from mcpbridge.protocol.revisions import LATEST_LEGACY, LATEST_MODERN, LEGACY
from mcpbridge.protocol.transport import Channel
from mcpbridge.upstream.session.negotiation import (
    LATE_PROBE_SECONDS,
    PROBE_SECONDS,
    Discovered,
    ProbeKilled,
    Unsupported,
    Verdict,
    judge,
)

log = get_logger("mcpbridge.session")

LIST_METHODS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
"""The kinds of things a server lists, and the method for each."""

_MEMBER = {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resourceTemplates"}
_CAPABILITY = {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resources"}

MAX_PAGES = 1000
MAX_ENTRIES = 20_000
"""More of one kind than this is a fault of the server; the rest is left out."""

PING_SECONDS = 10.0
_EVERYTHING: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] | None = None
    server_info: dict[str, Any] = {}
    instructions: Any = None


_decode_initialize = msgspec.json.Decoder(_InitializeResult).decode


class Listing(Struct, frozen=True):
    """What came of listing one kind."""

    entries: tuple[bytes, ...]
    """The definitions, each as it came; those before the trouble when there was some."""
    trouble: str
    """Why the list is not whole; empty when it is."""
    ttl_ms: int | None = None
    """Milliseconds that the server says the list stays fresh, the least of its pages; None: it says nothing."""


class UpstreamSession:
    """Opened by `open`, then used until its channel ends."""

    def __init__(
        self,
        name: str,
        peer: Peer,
        channel: Channel,
        *,
        is_plain: bool,
        client_info: dict[str, str],
        profile: Callable[[], ClientCapabilities] = lambda: NO_CAPABILITIES,
    ) -> None:
        """`is_plain`: the channel has no statuses of its own that say more than the protocol.

        `profile` returns what to declare, at the moment of the handshake.
        """
        self._name = name
        self._peer = peer
        self.send = peer.send_request
        """See `Peer.send_request`. Bound here, as every call would pay for one more function."""
        self._channel = channel
        self._is_plain = is_plain
        self._client_info = client_info
        self._meta = RequestMeta("", client_info)
        self._wanted_profile = profile
        self.profile = NO_CAPABILITIES
        """What this session declared that its client can be asked; a modern one declares it with each request."""
        self._listen_numbers = itertools.count(1)
        self.modern = False
        self.version = ""
        """The agreed protocol revision."""
        self.capabilities: dict[str, Any] = {}
        self.server_info: dict[str, Any] = {}
        self.instructions = ""
        self.standing_requests = 0
        """Requests that wait by design: open listen streams."""

    def __repr__(self) -> str:
        waiting = self._peer.in_flight - self.standing_requests
        return f"<UpstreamSession {self._name!r} {self.version or 'not open'}, {waiting} in flight>"

    async def open(self, era: str, seconds: float) -> None:
        """Agree on a revision. `era` is `auto`, `legacy` or `modern`.

        Raises:
            ProbeKilled: the server ended, or refuses everything, since it was probed: restart it as legacy.
            UpstreamError: no agreement.
        """
        limits = Timeouts(seconds, seconds)
        if era == "legacy":
            await self._handshake(limits)
        elif era == "modern":
            self._adopt_discovered(await self._discover(limits))
        elif self._is_plain:
            await self._find_out_on_plain_channel(limits)
        else:
            await self._find_out_over_http(limits)

    @property
    def lists(self) -> list[str]:
        """The kinds that this server can list, by what it declared."""
        return [kind for kind in LIST_METHODS if self._declares(_CAPABILITY[kind])]

    def offers_changes(self, capability: str) -> bool:
        """The server says it announces changes of this list."""
        declared = self.capabilities.get(capability)
        return isinstance(declared, dict) and bool(declared.get("listChanged"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON

    @property
    def has_subscriptions(self) -> bool:
        """The server takes subscriptions to resources."""
        declared = self.capabilities.get("resources")
        return isinstance(declared, dict) and bool(declared.get("subscribe"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON

    def declares(self, capability: str) -> bool:
        """The server declared this capability."""
        return self._declares(capability)

    def relay(self, call: Call, timeouts: Timeouts, capabilities: bytes) -> Awaitable[Raw]:
        """Send the call of a client. Its params may be changed: their `_meta` is made anew.

        `capabilities` is what the client behind it declared, for a modern server. A call whose result may be a task
        gets the progress token that the server names later.

        Raises: as `Peer.request`.
        """
        peer = self._peer
        if call.needs_task or call.takes_task:
            call.progress_token = peer.next_id()
        id_ = call.sent_as = call.progress_token or peer.next_id()
        if call.meta is None and not self.modern and not call.wants_progress:
            params = call.params.data  # there is nothing for `_meta`, and every call would enter `put`
        else:
            params = self._meta.put(
                call.params,
                call.meta,
                token=id_ if call.wants_progress else b"",
                log_level=call.log_level,
                capabilities=capabilities,
            )
        return peer.request(
            call.method,
            params,
            timeouts,
            name=call.target,
            headers=call.headers,
            update=call.update,
            id_=id_,
            context=call,
        )

    def named_in_meta(self, sent: Sent, call: Call, capabilities: bytes = b"") -> bytes | Raw:
        """The params of a call that `send` is about to send, with their `_meta` made anew, as `relay` makes it."""
        token = b""
        if call.wants_progress:
            token = sent.id_ = call.sent_as = self._peer.next_id()
        return self._meta.put(call.params, call.meta, token=token, capabilities=capabilities)

    def answer_to(self, sent: Sent, timeouts: Timeouts) -> Awaitable[Raw]:
        """Wait for the answer to what `send` sent, as `relay` does. Raises: as `Peer.request`."""
        return self._peer.request(sent.method, b"", timeouts, sent=sent)

    def withdraw(self, sent: Sent) -> None:
        """Nobody waits for the answer to what `send` sent."""
        self._peer.withdraw(sent)

    def body_of(self, result: Raw) -> Body:
        """What `relay` just returned, as a body; see `Peer.body_of`."""
        return self._peer.body_of(result)

    def request(self, method: str, params: Body, timeouts: Timeouts) -> Awaitable[Raw]:
        """Send a request of the bridge's own. `params` may be changed: their `_meta` is made anew.

        Raises: as `Peer.request`.
        """
        return self._peer.request(method, self._meta.put(params, None), timeouts)

    def cancel_task(self, task_id: str) -> None:
        """Notify the server that nobody wants the outcome of a task any more. Does not wait for the server."""
        params = self._meta.put(Body(encode({"taskId": task_id})), None)
        self._peer.send_unanswered("tasks/cancel", params, name=task_id)

    async def list_all(self, kind: str, timeouts: Timeouts) -> "Listing":
        """Every entry of one kind over all pages, each as it came. A cursor seen before ends the list."""
        entries: list[bytes] = []
        cursor: str | None = None
        seen: set[str] = set()
        hints: list[int] = []
        method = LIST_METHODS[kind]
        for _ in range(MAX_PAGES):
            params = Body() if cursor is None else Body(encode({"cursor": cursor}))
            try:
                result = Body(await self.request(method, params, timeouts))
                page = _decode_entries(result.fields[_MEMBER[kind]])
                cursor = _decode_cursor(result.fields["nextCursor"]) if "nextCursor" in result else None
                hints += _freshness(result)
            except UpstreamAnswered as error:
                if code_of(error.error) == METHOD_NOT_FOUND and not entries:
                    return Listing((), "")  # declared, and yet there is no such list
                return Listing(tuple(entries), f"{method}: {error.error[:200].decode('utf-8', 'replace')}")
            except UpstreamGone:
                raise
            except BridgeError as error:
                return Listing(tuple(entries), f"{method}: {error}")
            except (msgspec.DecodeError, KeyError) as error:
                return Listing(tuple(entries), f"{method}: its answer has the wrong shape: {error}")
            entries += [bytes(entry) for entry in page]
            if cursor is None:
                break
            if cursor in seen or len(entries) >= MAX_ENTRIES:
                log.warning("list cut short", upstream=self._name, kind=kind, entries=len(entries))
                break
            seen.add(cursor)
        return Listing(tuple(entries[:MAX_ENTRIES]), "", min(hints, default=None))

    async def ping(self) -> None:
        """Ask for a sign of life.

        Raises:
            UpstreamError: there was none. An error answer is a sign of life too.
        """
        method = "server/discover" if self.modern else "ping"
        try:
            await self.request(method, Body(), Timeouts(PING_SECONDS, PING_SECONDS))
        except UpstreamAnswered:
            return

    async def listen(
        self,
        kinds: dict[str, bool],
        uris: list[str],
        heard: Callable[[str, Raw], None],
        *,
        tasks: Sequence[str] = (),
    ) -> None:
        """Hold one `subscriptions/listen` stream open (modern); returns when the server ends it. `tasks` are ids."""
        wanted: dict[str, object] = {f"{kind}ListChanged": True for kind, on in kinds.items() if on}
        if uris:
            wanted["resourceSubscriptions"] = uris
        if tasks:
            wanted["taskIds"] = tasks
        params = self._meta.put(Body(encode({"notifications": wanted})), None)
        # Some servers take "7" and 7 for the same id: a listen stream must not share a number with a request.
        id_ = b'"listen-%d"' % next(self._listen_numbers)
        self.standing_requests += 1
        try:
            await self._peer.request("subscriptions/listen", params, Timeouts(0, 0), update=heard, id_=id_)
        finally:
            self.standing_requests -= 1

    async def subscribe(self, uri: str, seconds: float) -> None:
        """Legacy: subscribe to changes of one resource."""
        await self.request("resources/subscribe", Body(encode({"uri": uri})), Timeouts(seconds, seconds))

    async def unsubscribe(self, uri: str, seconds: float) -> None:
        """Legacy: not any more."""
        await self.request("resources/unsubscribe", Body(encode({"uri": uri})), Timeouts(seconds, seconds))

    def roots_changed(self) -> None:
        """Legacy: what `roots/list` would answer is another now."""
        self._peer.notify("notifications/roots/list_changed")

    async def set_log_level(self, level: str, seconds: float) -> None:
        """Legacy: the least severe messages to be sent."""
        await self.request("logging/setLevel", Body(encode({"level": level})), Timeouts(seconds, seconds))

    # -- opening

    async def _find_out_over_http(self, limits: Timeouts) -> None:
        verdict = judge(answer := await self._probe(limits))
        if verdict is Verdict.UNKNOWN:
            assert isinstance(answer, BridgeError)
            raise answer
        if verdict is Verdict.LEGACY:
            await self._handshake(limits)
        else:
            self._adopt_discovered(verdict)

    async def _find_out_on_plain_channel(self, limits: Timeouts) -> None:
        """Probe, and where that is met by silence, ask in the old way too. It ends in one of four ways.

        1. The probe is answered by a modern server. 2. It is answered by a legacy one: the handshake decides.
        3. The handshake succeeds while the probe has no answer. 4. The handshake fails while the probe has none: a
        server that answers one request leaves no other unanswered for long, so it is not worth the time of a start.
        """
        handshake: asyncio.Task[BridgeError | None] | None = None
        failure: BridgeError | None = None
        answer: Raw | BridgeError | None = None
        verdict: Discovered | Unsupported | Verdict | None = None
        async with TaskGroup() as tasks:
            probe = tasks.create_task(self._probe(limits))
            await asyncio.wait([probe], timeout=min(PROBE_SECONDS, limits.total))
            if not probe.done():
                # Silent, or still starting: ask in the old way too, the first useful answer decides.
                handshake = tasks.create_task(self._try_handshake(limits))
                await asyncio.wait([probe, handshake], return_when=asyncio.FIRST_COMPLETED)
                if handshake.done() and (failure := handshake.result()) is None:
                    probe.cancel()
                    return
                await asyncio.wait([probe], timeout=LATE_PROBE_SECONDS if handshake.done() else None)
            if probe.done():
                verdict = judge(answer := probe.result())
                if handshake is not None:
                    if isinstance(verdict, Verdict):
                        failure = await handshake
                    else:
                        handshake.cancel()
            else:
                probe.cancel()
        if verdict is None:
            assert failure is not None
            raise _after_probe(failure)
        if not isinstance(verdict, Verdict):
            self._adopt_discovered(verdict)
            return
        if handshake is None:
            if verdict is Verdict.UNKNOWN and isinstance(answer, BridgeError):
                failure = answer
            else:
                failure = await self._try_handshake(limits)
        if failure is not None:
            raise _after_probe(failure)

    async def _probe(self, limits: Timeouts) -> Raw | BridgeError:
        meta = RequestMeta(LATEST_MODERN, self._client_info, _CAPABILITIES)
        try:
            return await self._peer.request("server/discover", meta.put(Body(), None), limits, cancellable=False)
        except UpstreamError as error:
            return error

    async def _discover(self, limits: Timeouts) -> Discovered | Unsupported:
        verdict = judge(answer := await self._probe(limits))
        if isinstance(verdict, Verdict):
            if isinstance(answer, BridgeError):
                raise answer
            raise UpstreamUnavailable(self._name, 'it does not speak a modern revision; set era = "legacy" or "auto"')
        return verdict

    def _adopt_discovered(self, discovered: Discovered | Unsupported) -> None:
        if isinstance(discovered, Unsupported):
            versions = ", ".join(discovered.versions) or "unknown revisions"
            raise UpstreamUnavailable(self._name, f"it speaks only {versions}")
        self._meta = RequestMeta(discovered.version, self._client_info, _CAPABILITIES)
        self.modern, self.version = True, discovered.version
        # A server that only answered with a modern error has told nothing: ask it for everything.
        self.capabilities = discovered.capabilities or _EVERYTHING
        self.server_info, self.instructions = discovered.server_info, discovered.instructions
        self._channel.negotiated(discovered.version)

    async def _try_handshake(self, limits: Timeouts) -> BridgeError | None:
        try:
            await self._handshake(limits)
        except UpstreamError as error:
            return error
        return None

    async def _handshake(self, limits: Timeouts) -> None:
        profile = self._wanted_profile()
        declared = profile.capabilities(modern=False) | {"extensions": declared_to_servers({})}
        params = encode({"protocolVersion": LATEST_LEGACY, "capabilities": declared, "clientInfo": self._client_info})
        result = await self._peer.request("initialize", params, limits, cancellable=False)
        try:
            answer = _decode_initialize(result)
        except msgspec.DecodeError as error:
            raise UpstreamUnavailable(self._name, f"its answer to initialize is not valid: {error}") from error
        if answer.protocol_version not in LEGACY:
            raise UpstreamUnavailable(
                self._name,
                f"it wants protocol revision {answer.protocol_version[:40]!r}, which the bridge does not speak",
            )
        self.version, self.profile = answer.protocol_version, profile
        # A server that says nothing of its capabilities breaks the protocol: ask it for everything.
        self.capabilities = _EVERYTHING if answer.capabilities is None else answer.capabilities
        self.server_info = answer.server_info
        self.instructions = answer.instructions if isinstance(answer.instructions, str) else ""
        self._channel.negotiated(self.version)
        self._peer.notify("notifications/initialized")

    def _declares(self, capability: str) -> bool:
        return self.capabilities.get(capability) is not None


_CAPABILITIES = encode({"extensions": declared_to_servers({}, tasks=True)})
"""What a modern server gets with requests that belong to no client, such as those for its lists."""

_decode_entries = msgspec.json.Decoder(list[Raw]).decode
_decode_cursor = msgspec.json.Decoder(str | None).decode
_decode_whole = msgspec.json.Decoder(int).decode


def _freshness(page: Body) -> list[int]:
    """The caching hint of a page, if it has one that can be read (MCP 2026-07-28, caching)."""
    try:
        return [max(0, _decode_whole(page.fields["ttlMs"]))] if "ttlMs" in page else []
    except msgspec.DecodeError:
        return []  # a hint, and no reason to refuse the list


def _after_probe(error: BridgeError) -> BaseException:
    """What a failure after the probe means: if the server ended or answers with refusals, the probe may be why."""
    if isinstance(error, (UpstreamGone, UpstreamAnswered)):
        return ProbeKilled(str(error))
    return error
