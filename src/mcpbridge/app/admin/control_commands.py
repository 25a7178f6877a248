"""What every running bridge answers on its control socket, by the `do` of the request.

`status`, `stats`, `usage`, `calls`, `reload`, `command`, `cache`, `clear_cache`, `users.list`, `users.revoke`,
`approvals`, `decide`, and what `tool_documents.py` has. A daemon answers a few more (`daemon/daemon.py`). How requests
come and answers go is the business of `control_socket.py`.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import anyio.to_thread
import msgspec

from mcpbridge.app.admin.approvals import decide, list_approvals
from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.admin.control_socket import Answers
from mcpbridge.app.admin.errors import Problem
from mcpbridge.base.errors import BridgeError, StoreFailed, UnknownName
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor, known_only, masked
from mcpbridge.core.model import TOOLS
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.storage.sqlite.database import may_exist

_LIVE_CALLS = 30
"""Calls under way, and calls that have ended, that are reported at once."""

Reload = Callable[..., Awaitable[dict[str, object]]]
"""Reads the configuration again, and says what came of it."""


def control_answers(
    bridge: Bridge, redact: Redactor, facts: Callable[[], Document], reload: Reload | None, more: Answers
) -> Answers:
    """All answers. `facts`: what the status says beside what the bridge says of itself.

    `reload` is None where there is no file. `more`: what this process answers besides.
    """

    async def status(_: Document) -> Document:
        from mcpbridge.app.admin.usage import quotas_status

        own = {
            "config": bridge.settings.source,
            **facts(),
        }  # paths in it are used, not only shown: they stay as they are
        return {**redact.values_of({**bridge.status(), "quotas": await quotas_status(bridge)}), **own}

    async def stats(_: Document) -> Document:
        from mcpbridge.app.admin.stats import stats_of

        await bridge.results.ledger.flush()  # who asks reads it in the store
        await bridge.list_ledger.flush()
        return redact.values_of(stats_of(bridge.metrics))

    async def calls(_: Document) -> Document:
        return redact.values_of({"pid": os.getpid(), **await live_calls(bridge)})

    async def reload_file(request: Document) -> Document:
        if reload is None:
            return {"pid": os.getpid(), "ok": False, "error": "it has no configuration file"}
        is_of_edit = bool(request.get("may_be_empty"))  # a command wrote it; that is no wish for other secrets
        done = await reload(may_be_empty=is_of_edit, anew=not is_of_edit)
        return redact.values_of({"pid": os.getpid(), "config": bridge.settings.source, **done})

    def cache(_: Document) -> Document:
        return {"pid": os.getpid(), **bridge.cache_status()}

    def clear_cache(request: Document) -> Document:
        server, tool = (str(request.get(key) or "") for key in ("server", "tool"))
        if server and server not in bridge.settings.servers:
            return _failed("unknown", f"there is no server {server[:40]!r}")
        return {"pid": os.getpid(), "cleared": bridge.clear_cache(server=server, tool=tool)}

    async def command(request: Document) -> Document:
        return await management_command(bridge, redact, request)

    async def usage(request: Document) -> Document:
        from mcpbridge.app.admin.usage import requested_usage

        asked = {name: str(request[name]) for name in ("by", "since", "until", "user", "price") if request.get(name)}
        try:
            return redact.values_of({"pid": os.getpid(), **await requested_usage(bridge, asked)})
        except Problem as problem:
            return _failed(problem.code, str(problem))

    own: Answers = {
        "status": status,
        "stats": stats,
        "usage": usage,
        "calls": calls,
        "reload": reload_file,
        "command": command,
        "cache": cache,
        "clear_cache": clear_cache,
        "users.list": partial(list_sign_ins, bridge),
        "users.revoke": partial(revoke_user, bridge),
    }
    return {**own, **_tool_answers(bridge, redact), **approval_answers(bridge.approvals), **more}


async def list_sign_ins(bridge: Bridge, _: Document) -> Document:
    """Who is signed in at this bridge, and with how many programs (`[auth.sign_in]`)."""
    bridge.audit.write_soon()  # whoever asks reads the call log next
    sign_ins = bridge.user_accounts.sign_ins
    people: Mapping[str, int] = {}
    try:
        if sign_ins is not None:
            people = await sign_ins.people()
    except StoreFailed as error:
        get_logger("mcpbridge.auth").warning("who is signed in cannot be read", reason=str(error))
    return {"pid": os.getpid(), "people": people}


async def revoke_user(bridge: Bridge, request: Document) -> Document:
    """Disconnect a user from every server, end sign-ins of the user, and what the user's calls wait for."""
    user, accounts = str(request.get("user") or ""), bridge.user_accounts
    ended, has_tokens = await accounts.put_out(user)
    servers = await accounts.all.revoke(user) if accounts.are_open else []
    calls = bridge.server.parking.end_of_user(user)
    done = {"servers": servers, "calls": calls, "sign_ins": ended, "tokens": has_tokens}
    return {"pid": os.getpid(), **done, "signs_in": accounts.sign_ins is not None}


async def live_calls(bridge: Bridge) -> Document:
    """`running`: the calls under way, oldest first. `ended`: the last ones, newest first, as far as they are recorded.

    Raises:
        StoreFailed: the call log cannot be read.
    """
    from mcpbridge.storage.call_log.reader import Filter, read_page

    file = bridge.audit.path
    bridge.audit.write_soon()

    def read() -> list[Any]:
        return list(read_page(file, Filter(), limit=_LIVE_CALLS).rows) if may_exist(file) else []

    return {
        "running": [msgspec.to_builtins(call) for call in bridge.running_calls()[:_LIVE_CALLS]],
        "ended": await anyio.to_thread.run_sync(read),
    }


def _tool_answers(bridge: Bridge, redact: Redactor) -> Answers:
    """What commands ask about tools; loaded with the first such question, which is not at the start."""

    def answering(do: str) -> Callable[[Document], Awaitable[Document]]:
        async def answer(request: Document) -> Document:
            from mcpbridge.app.admin.tool_documents import tool_answers

            return await tool_answers(bridge, redact)[do](request)

        return answer

    asked = (
        "approve",
        "break_glass",
        "explain",
        "list",
        "lock",
        "lock_written",
        "originals",
        "query",
        "scan",
        "search",
    )
    asked += ("tokens", "tool")
    return {do: answering(do) for do in asked}


async def management_command(bridge: Bridge, redact: Callable[[str], str], request: Document) -> Document:
    """Have the backend `name` do the management command `command` with the object `data`.

    The answer has its `result`, or an `error` with a `code`: `invalid`, `unknown`, `timeout`, `failed`. Cancelling
    does not take back what the backend has done.
    """
    name, data = str(request.get("name") or "").removeprefix(f"{TOOLS}/"), request.get("data")
    if not isinstance(data, dict):
        return _failed("invalid", redact("`data` has to be an object"))
    try:
        result = await bridge.command(name, str(request.get("command") or ""), cast("dict[str, object]", data))
    except UnknownName as error:
        return _failed("unknown", redact(error.full_message()))
    except BridgeError as error:
        return _failed("timeout" if isinstance(error, TimeoutError) else "failed", redact(str(error)))
    return {"pid": os.getpid(), "result": masked(result, known_only(redact))}


def approval_answers(desk: PendingApprovals) -> Answers:
    """`approvals`: the calls that wait for a person. `decide`: answer one."""

    async def approvals(_: Document) -> dict[str, Any]:
        return {"pid": os.getpid(), "approvals": await list_approvals(desk)}

    async def answer(request: Document) -> dict[str, Any]:
        try:
            return await decide(desk, str(request.get("id")), request, str(request.get("by") or "cli"))
        except Problem as problem:
            return _failed(problem.code, str(problem))

    return {"approvals": approvals, "decide": answer}


def _failed(code: str, error: str) -> dict[str, Any]:
    return {"pid": os.getpid(), "code": code, "error": error}
