"""The cast of `mcpbridge demo`: five servers that the package brings itself, with data in a temporary directory."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import tomlkit
from anyio.streams.text import TextReceiveStream

from mcpbridge.app.demo.cast import Cast, ToolCall
from mcpbridge.app.demo.servers.orders_data import all_orders

_NOTES = {
    "Monday meeting": "# Monday meeting\nThe new desks arrive in week 12.\nAsk Grace about the invoice of March.\n",
    "Suppliers": "# Suppliers\nLamps come from Lyon, desks from Aarhus.\n",
    "Ideas": "# Ideas\nA discount for whoever orders three chairs.\n",
}

PROGRAMS = ("calendar", "files", "notes", "shop", "web")
"""The servers; `web` is reached over HTTP."""

_REFUND = {"amount": 39.9, "reason": "damaged"}


@asynccontextmanager
async def own_cast(directory: Path) -> AsyncGenerator[Cast]:
    """The cast, with its data in an empty directory. The server over HTTP runs for the time of the context."""
    async with web_server() as url:
        config = directory / "servers.toml"
        servers = stdio_servers(directory)
        document = {
            "bridge": {"startup_wait": "20s"},
            "expose": {"mode": "search"},
            "servers": {
                **servers,
                "shop": {**servers["shop"], "tool": {"refund_order": {"permission": "require_approval"}}},
                "web": {"url": url},
            },
        }
        config.write_text(tomlkit.dumps(document), "utf-8")  # pyright: ignore[reportUnknownMemberType] - its types are too vague
        yield cast_of(directory, config)


def cast_of(directory: Path, config: Path) -> Cast:
    """The calls of the scenes on these servers."""
    refunds = directory / "shop/refunds.json"
    damaged = next(one for one in all_orders() if one["total"] == _REFUND["amount"] and "damaged" in one["note"])
    return Cast(
        config=config,
        environment={},
        orders=all_orders(),
        request="how many working days lie between two dates",
        found_call=ToolCall("calendar__working_days", {"start": "2026-03-02", "end": "2026-03-31"}),
        answer=lambda said: said if said.startswith("22 working days") else "",
        large=ToolCall("shop__list_orders", {}),
        take=lambda text: ToolCall("files__write_file", {"path": "backup/orders.json", "content": text}),
        written_file=directory / "files/backup/orders.json",
        mended=ToolCall("shop__find_orders", {"State": "OPEN", "limit": "2"}),
        refused=ToolCall("shop__find_orders", {"state": "open", "limit": "a few"}),
        fix='"type":"integer"',
        approved=ToolCall("shop__refund_order", {"order_id": damaged["id"], **_REFUND}),
        has_happened=lambda: refunds.exists() and str(damaged["id"]) in refunds.read_text("utf-8"),
        slow=ToolCall("shop__reconcile_payments", {"months": 12}),
        killed=ToolCall("notes__search_notes", {"words": "desks"}),
    )


def stdio_servers(directory: Path) -> dict[str, dict[str, Any]]:
    """How those over stdio are started, and their data in the directory."""
    for name in ("files", "notes", "shop"):
        (directory / name).mkdir(parents=True)
    for name, text in _NOTES.items():
        (directory / "notes" / f"{name}.md").write_text(text, "utf-8")
    (directory / "files/README.md").write_text("# Files of the shop\n", "utf-8")
    return {
        "calendar": {"command": sys.executable, "args": program("calendar")},
        **{
            name: {"command": sys.executable, "args": [*program(name), str(directory / name)]}
            for name in ("files", "notes", "shop")
        },
    }


def program(name: str) -> list[str]:
    """How Python starts one of the servers; no module of the working directory is taken for ours."""
    return ["-P", "-m", f"mcpbridge.app.demo.servers.{name}_main"]


@asynccontextmanager
async def web_server() -> AsyncGenerator[str]:
    """The server over HTTP, for the time of the context; gives its URL. It ends with us, however that comes about."""
    # In a session of its own: Ctrl-C at the terminal is for us, and we end it.
    command = [sys.executable, *program("web")]
    async with await anyio.open_process(command, stderr=None, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            with anyio.fail_after(30):
                said = ""
                async for piece in TextReceiveStream(process.stdout):
                    said += piece
                    if said.endswith("\n"):
                        break
            yield said.strip()
        finally:
            process.kill()
