"""What `mcpbridge list`, `lock`, `scan`, `search`, `tokens` and `call` ask a bridge about its tools, as JSON documents.

A daemon answers them on its control socket, and a command that runs a bridge of its own asks the same functions, so
both print the same. Each document may have `notes`, lines for the person beside the result, and `failure`, with which
the command ends: `code` (an exit code), `message`, `advice` and `page` (of the docs; empty: the command's own).
"""

import math
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from msgspec import Raw

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.admin.tool_owner import owner_of
from mcpbridge.app.cli.failures import CommandFailed, failure_code, failure_page, page_of_key
from mcpbridge.app.cli.output import first_line, visible
from mcpbridge.app.cli.server_states import absent, changed_definitions, owners_absent
from mcpbridge.app.exit_codes import OK, TOOL_ERROR, USAGE
from mcpbridge.base.errors import ConfigError, UnknownName
from mcpbridge.base.json_values import decoded
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.pins.definition import Pin
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.downstream.client import Client
from mcpbridge.engine.audit_trail import LOCK_APPROVED, LOCK_WRITTEN, UNKNOWN_TOOL
from mcpbridge.engine.wiring.tools import ConfiguredBackend
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.open_options import STARTUP_SECONDS
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.results.token_count import Tokenizer
from mcpbridge.upstream.session.listings import LIST_SECONDS
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # loaded by who asks for pins
    from mcpbridge.engine.pins.current_pins import ServerPins

_METHODS = {
    "tools": ("tools/list", "name"),
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
    "prompts": ("prompts/list", "name"),
}
"""By the member of the answer that holds the list: the method, and the member that identifies an entry."""

_SPOKEN = ("notes", "failure")
"""Members that describe failures, in which secrets are masked; the rest is what tools are, as clients get it."""

_LONGEST = 200
"""Characters of a description in a list that is for people; they are shown fewer."""


def tool_answers(bridge: Bridge, redact: Redactor) -> Mapping[str, Callable[[Document], Awaitable[Document]]]:
    """The answers of this bridge by `do`, such as `list`: all of `_ANSWERS`, `approve`, `lock` and `lock_written`."""

    def safe(answer: Callable[[Bridge, Document], Awaitable[Document]]) -> Callable[[Document], Awaitable[Document]]:
        async def answered(request: Document) -> Document:
            try:
                document = await answer(bridge, request)
            except (CommandFailed, ConfigError) as error:
                is_ours = isinstance(error, CommandFailed)
                code, page = (
                    (error.code, error.page) if is_ours else (USAGE, page_of_key(error.key or "") or error.docs_page)
                )
                document = {"failure": {"code": code, "message": str(error), "advice": error.advice, "page": page}}
            return {**document, **redact.values_of({key: document[key] for key in _SPOKEN if key in document})}

        return answered

    answers = {**_ANSWERS, "lock": partial(_lock, redact=redact), "approve": _approve, "lock_written": _lock_written}
    return {name: safe(answer) for name, answer in answers.items()}


PATIENCE = 10.0
"""Seconds that a call waits for the servers to start where the tools of all of them are meant."""


async def settled(bridge: Bridge, server: str = "", *, most: float = math.inf) -> None:
    """Return when the servers (or this one) are ready, known from before, or have failed once.

    `most`: seconds after which it returns in any case.
    """
    servers = bridge.settings.servers
    if server:
        require_server(bridge.settings, server)
    enabled = [one for name, one in servers.items() if not one.disabled and server in ("", name)]
    longest = max([STARTUP_SECONDS, *(one.init_timeout for one in enabled)]) + 1
    if not server:
        await bridge.settled(min(longest, most))
        return
    with anyio.move_on_after(min(longest, most)):
        while (upstream := bridge.pool.upstreams.get(server)) is not None and not upstream.has_settled:
            await upstream.connection.stepped()
    bridge.catalog.flush()


def require_server(settings: Settings, name: str, *, hint: str = "") -> ServerSettings:
    """The server of this name. `hint`: what to do if there is none; empty: the nearest name, or all, are shown.

    Raises:
        ConfigError: there is none.
    """
    known = settings.servers
    if name not in known:
        if name in settings.tools:
            hint = (
                hint or f"It is a table of [tools]: `mcpbridge list --query 'server:{name} OR name:{name}'` shows it."
            )
        close = nearest(name, known, limit=1)
        hint = hint or (f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known) or 'none'}.")
        raise ConfigError(f"no server is called {name!r}", file=settings.source, hint=hint)
    return known[name]


async def _list(bridge: Bridge, request: Document) -> Document:
    """`kinds`: members of `_METHODS`. `server`: only its, and the bridge's own. `whole`: definitions, not rows.

    `project`: URI of the directory that the person works in.
    """
    server, kinds = _text(request, "server"), [str(kind) for kind in cast("list[object]", request["kinds"])]
    await settled(bridge, server)
    told = absent(bridge, only_servers=bool(server) or "tools" not in kinds, server=server)
    if "failure" in told:
        return told
    client = Client(version=LATEST_LEGACY, started_in=_text(request, "project"))
    lists: dict[str, list[dict[str, Any]]] = {}
    for kind in kinds:
        method, name = _METHODS[kind]
        entries = await _all_pages(bridge, client, kind, method)
        if server:
            whose = _owners(bridge, kind)
            entries = [one for one in entries if whose(str(one.get(name))) in ("", server)]
        lists[kind] = entries if request.get("whole") else [_row(one, name) for one in entries]
    if fault := bridge.pins.lock.fault:
        told["notes"].append(visible(f"what servers show is held unless it was agreed to before: {fault}"))
    return {**told, "lists": lists}


def _row(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    told = entry.get("description") or entry.get("title") or (entry.get("name") if name != "name" else "") or ""
    return {"name": str(entry.get(name, "")), "description": first_line(str(told), _LONGEST)}


def _owners(bridge: Bridge, kind: str) -> Callable[[str], str]:
    """Which server has what clients see under a name; empty: none of the configured ones."""
    snapshot, servers = bridge.catalog.snapshot, bridge.settings.servers
    refs: Mapping[str, Any] = {
        "tools": snapshot.by_wire,
        "resources": snapshot.resources,
        "resourceTemplates": snapshot.templates,
        "prompts": snapshot.prompts,
    }[kind]

    def owner(name: str) -> str:
        ref = refs.get(name)
        return ref.server if ref is not None and ref.server in servers else ""

    return owner


async def _all_pages(bridge: Bridge, client: Client, kind: str, method: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    params: dict[str, str] = {}
    for number in range(100_000):  # so many pages there are not
        frame = Frame(id=Raw(b"%d" % number), method=method, params=Raw(encode(params)))
        message = decoded(bytes((await bridge.server.answer(client, frame, lambda _: None)).data))
        if "error" in message:
            error = message["error"]
            data = error.get("data")
            raise CommandFailed(failure_code(data), visible(str(error.get("message"))), page=failure_page(data))
        page = message["result"]
        entries += page.get(kind, [])
        if not page.get("nextCursor"):
            break
        params = {"cursor": page["nextCursor"]}
    return entries


async def _originals(bridge: Bridge, request: Document) -> Document:
    """`kinds`, `server`: as `list` has them. The definitions as servers sent them, beside what clients are given."""
    server, kinds = _text(request, "server"), [str(kind) for kind in cast("list[object]", request["kinds"])]
    await settled(bridge, server)
    told = absent(bridge, only_servers=True, server=server)
    if "failure" in told:
        return told
    wanted = {"templates" if kind == "resourceTemplates" else kind for kind in kinds}
    found = [one for one in bridge.originals(server) if one.kind in wanted]
    return {**told, "definitions": [msgspec.to_builtins(one) for one in found]}


async def _query(bridge: Bridge, request: Document) -> Document:
    """`query`: a boolean query over tools; `server`: only its, and those of no server."""
    from mcpbridge.catalog.search.query_filters import QueryProblem

    server = _text(request, "server")
    await settled(bridge, server)
    told = absent(bridge, only_servers=bool(server), server=server)
    if "failure" in told:
        return told
    await bridge.startup.settled()
    try:
        found = bridge.representations(_text(request, "query"))
    except QueryProblem as problem:
        raise CommandFailed(USAGE, str(problem)) from problem
    others = bridge.settings.servers.keys() - {server} if server else set[str]()
    return {**told, "tools": [one.as_json() for one in found if one.server not in others]}


async def _scan(bridge: Bridge, request: Document) -> Document:
    """`server`: suspicious texts of it alone."""
    from mcpbridge.app.doctor.suspicious_texts import texts_of

    server = _text(request, "server")
    await settled(bridge, server)
    told = absent(bridge, only_servers=bool(server), server=server)
    if "failure" in told:
        return told
    await bridge.startup.settled()
    return {**told, "findings": [msgspec.to_builtins(one) for one in texts_of(bridge, server)]}


async def _lock(bridge: Bridge, request: Document, redact: Redactor) -> Document:
    """`servers`: for each that is asked, its pins, or the `fault` for which there are none; and all names `configured`.

    `unapproved`: what it shows and nobody agreed to, as the bridge compares it: without a lock, with its first sight.
    `ignore`: globs on names of which the wording may change.
    `server`: this one alone.
    """
    from mcpbridge.engine.pins.current_pins import current_pins

    server = _text(request, "server")
    backends = pinned_backends(bridge)
    await settled(bridge, "" if server in backends else server)
    await bridge.startup.settled()
    wanted = [server] if server else list(bridge.settings.servers)
    longest = max([STARTUP_SECONDS, *(one.init_timeout for one in bridge.settings.servers.values())])
    found = {
        **await current_pins(bridge.pool, wanted, redact, longest + LIST_SECONDS),
        **{name: _backend_pins(one, redact) for name, one in backends.items() if server in ("", name)},
    }
    servers = {
        name: {
            "fault": one.fault,
            "pins": [_pin(pin) for pin in one.pins],
            "unapproved": bridge.pins.status(name)["unapproved"],
            "ignore": bridge.pins.ignored(name),
        }
        for name, one in found.items()
    }
    return {"servers": servers, "configured": [*bridge.settings.servers, *backends]}


def _backend_pins(backend: ConfiguredBackend, redact: Callable[[str], str]) -> "ServerPins":
    from mcpbridge.catalog.pins.server_pins import pins_of
    from mcpbridge.engine.pins.current_pins import ServerPins

    condition = backend.condition
    if condition.state != "ready":
        return ServerPins(fault=redact(condition.reason or "it is starting"))
    return ServerPins(pins_of({"tools": backend.offered}, "", {}))


def pinned_backends(bridge: Bridge) -> Mapping[str, ConfiguredBackend]:
    """Tables of `[tools]` whose definitions are pinned as those of servers are."""
    return {name: one for name, one in bridge.backends.names().items() if one.is_pinned}


async def _approve(bridge: Bridge, request: Document) -> Document:
    """Agree to what `server` shows under `name` (empty: to all) where there is no lock. `approved`: it changed that."""
    server, name = _text(request, "server"), _text(request, "name")
    backend, upstream, is_approved = pinned_backends(bridge).get(server), bridge.pool.upstreams.get(server), False
    if backend is None:
        require_server(bridge.settings, server)
    if not bridge.pins.lock.exists:
        if backend is not None:
            is_approved = bridge.pins.approve_tools(server, backend.offered, name)
        elif upstream is not None:
            is_approved = bridge.pins.approve(upstream, name)
    if is_approved:
        bridge.review_pins()
        bridge.catalog.flush()
        bridge.trail.note(
            LOCK_APPROVED, {"server": server, "who": _text(request, "who"), "detail": name or "all of it"}
        )
    return {"approved": is_approved}


async def _lock_written(bridge: Bridge, request: Document) -> Document:
    """A command has written the lock: it is read at once, and the next list is decided by it.

    `who` has agreed to something by that; empty: nobody has. `server` and `detail`: to what; empty: to all.
    """
    if bridge.pins.lock.look():
        bridge.review_pins()
        bridge.catalog.flush()
    server, detail, who = (_text(request, key) for key in ("server", "detail", "who"))
    if who:
        bridge.trail.note(LOCK_APPROVED if server else LOCK_WRITTEN, {"server": server, "who": who, "detail": detail})
    return {"digest": bridge.pins.lock.digest}


def _pin(pin: Pin) -> dict[str, str]:
    """A definition crosses in base64: not a byte of it may change, whatever it is."""
    return {"kind": pin.kind, "name": pin.name, "definition": b64encode(pin.definition).decode()}


async def _search(bridge: Bridge, request: Document) -> Document:
    """`query`, `limit`, `detail`, `server`, `profile`: as `find_tools` has them. `text` is its answer.

    `explain`: also what made the score of each tool.
    """
    from mcpbridge.app.admin.search_document import search_document

    server, profile, detail = (_text(request, key) for key in ("server", "profile", "detail"))
    _check_profile(bridge.settings, profile)
    await settled(bridge, server)
    told = absent(bridge, only_servers=bool(server), server=server)
    if "failure" in told:
        return told
    query = _text(request, "query")
    asked = f"server:{server} {query}" if server else query
    limit = int(str(request.get("limit") or bridge.settings.search.limit))
    client = Client(version=LATEST_LEGACY, profile_name=profile)
    explains = bool(request.get("explain"))
    found = await search_document(bridge, client, asked, limit=limit, detail=detail, explains=explains)
    text = await answer_of_find_tools(bridge, client, {"query": asked, "limit": limit, "detail": detail})
    return {**told, **found, "text": text, "code": OK if found["fits"] else TOOL_ERROR}


async def answer_of_find_tools(bridge: Bridge, client: Client, arguments: Mapping[str, Any]) -> str:
    """The text of its answer. Nothing is logged or counted of it as a call."""
    name = "find_tools"
    call = Call("tools/call", BRIDGE, name, Body(encode({"name": name, "arguments": arguments})))
    call.caller = client
    result = await bridge.tool_search.builtins[name].run(call)
    return result.value()["content"][0]["text"]


def _check_profile(settings: Settings, name: str) -> None:
    if name and name not in settings.profiles:
        close = nearest(name, settings.profiles, limit=1)
        known = ", ".join(sorted(settings.profiles)) or "none"
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {known}."
        raise ConfigError(f"no profile is called {name!r}", key="--profile", hint=hint)


async def _tokens(bridge: Bridge, request: Document) -> Document:
    """`tokenizer`: how tokens are counted; empty: as the configuration says. `server`: only its tools."""
    from mcpbridge.app.admin.token_costs import costs_document

    server = _text(request, "server")
    await settled(bridge, server)
    told = absent(bridge, only_servers=bool(server), server=server)
    if "failure" in told:
        return told
    others = bridge.settings.servers.keys() - {server} if server else set[str]()
    asked: Any = _text(request, "tokenizer")
    tokenizer: Tokenizer = asked or bridge.settings.results.tokenizer
    return {**told, **costs_document(bridge.catalog.snapshot, tokenizer, leave_out=others)}


async def _tool(bridge: Bridge, request: Document) -> Document:
    """`schema`: of the arguments of the tool that `name` means; left out: there is none yet, the call tells why.

    `waits` False: servers that start were waited for already.
    """
    name = _text(request, "name")
    try:
        owner = owner_of(bridge.settings, name)
    except CommandFailed:  # the command ends here, so no call is made that would be audited
        bridge.trail.note(UNKNOWN_TOOL, {"tool": name, "outcome": "refused"})
        raise
    if (known := _known(bridge, name)) is not None:
        return known
    if is_ambiguous(bridge, name):
        return {"notes": []}
    for server in owner.servers or ():
        await settled(bridge, server)
    if owner.servers is None and not owner.is_own and request.get("waits", True):
        await settled(bridge, most=PATIENCE)
    bridge.catalog.flush()
    return _known(bridge, name) or owners_absent(bridge, name)


def _known(bridge: Bridge, name: str) -> Document | None:
    """The schema of the tool that this name means, and what changed of it unagreed; None: there is none, or several."""
    if (schema := schema_of(bridge, name)) is None:
        return None
    ref = bridge.catalog.snapshot.tool(name)
    return {"schema": schema, "notes": changed_definitions(bridge, ref.server, ref.name)}


async def _explain(bridge: Bridge, request: Document) -> Document:
    """Whether `user`, with a token that says `claims`, may call `tool` with `arguments`; and what decides."""
    from mcpbridge.library.access import explain_access

    name, claims, arguments = _text(request, "tool"), request.get("claims"), request.get("arguments")
    await _tool(bridge, {"name": name})
    said = cast("dict[str, Any]", claims) if isinstance(claims, dict) else None
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    return {"notes": [], **explain_access(bridge, _text(request, "user"), name, claims=said, arguments=given)}


async def _break_glass(bridge: Bridge, request: Document) -> Document:
    """`user` takes the role `role` for `seconds`, for this `reason`."""
    from mcpbridge.library.access import take_role

    user, role, reason = (_text(request, key) for key in ("user", "role", "reason"))
    seconds: Any = request.get("seconds")
    grant = take_role(bridge, user, role, reason, float(seconds) if isinstance(seconds, int | float) else 0.0, "cli")
    return {"notes": [], "user": user, "role": role, "reason": grant.reason, "until": grant.until}


def schema_of(bridge: Bridge, name: str) -> dict[str, Any] | None:
    """The input schema of the tool that this name means; None: it means none, or several."""
    try:
        definition = bridge.catalog.snapshot.tool(name).definition
    except UnknownName:
        return None
    schema: Any = msgspec.json.decode(definition).get("inputSchema")
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def is_ambiguous(bridge: Bridge, name: str) -> bool:
    """Whether several servers have a tool of this name, so that none is meant, whoever else still starts."""
    try:
        bridge.catalog.snapshot.tool(name)
    except UnknownName as unknown:
        return unknown.is_ambiguous
    return False


_ANSWERS: Mapping[str, Callable[[Bridge, Document], Awaitable[Document]]] = {
    "break_glass": _break_glass,
    "explain": _explain,
    "list": _list,
    "originals": _originals,
    "query": _query,
    "scan": _scan,
    "search": _search,
    "tokens": _tokens,
    "tool": _tool,
}


def _text(request: Document, key: str) -> str:
    value = request.get(key)
    return value if isinstance(value, str) else ""
