"""The console of a bridge in this process, asked as a browser asks: for tests of its routes, without a browser."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import anyio
import httpx2

from mcpbridge import Bridge
from mcpbridge.app.console.app import make_console
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.sign_in import Role, SignIns, form_token
from mcpbridge.base.masking.known_values import Redactor

ORIGIN = "http://127.0.0.1:7000"
_COOKIE = "mcpbridge-console-test"


@dataclass
class Visiting:
    """Somebody who is signed in."""

    bridge: Bridge
    console: ConsoleContext
    client: httpx2.AsyncClient
    token: str
    htmx: Mapping[str, str] = field(default_factory=lambda: {"hx-request": "true"})

    async def get(self, path: str, *, status: int = 200, **headers: str) -> str:
        """A page below `/console`, as text."""
        answer = await self.client.get(f"{ORIGIN}/console/{path}", headers={**headers})
        assert answer.status_code == status, f"{answer.status_code} {answer.headers}\n{answer.text}"
        return answer.text

    async def post(self, path: str, *, status: int = 200, part: bool = True, **form: str) -> str:
        """Press a button; `part`: as htmx does."""
        headers = {"origin": ORIGIN, "x-form-token": self.token, **(self.htmx if part else {})}
        answer = await self.client.post(f"{ORIGIN}/console/{path}", data=form, headers=headers)
        assert answer.status_code == status, f"{answer.status_code} {answer.headers}\n{answer.text}"
        return answer.text or answer.headers.get("location", "")


@asynccontextmanager
async def visiting(
    config: Mapping[str, Any], folder: Path, *, role: Role = "local", **options: Any
) -> AsyncIterator[Visiting]:
    """A bridge that records all calls with content in a file in `folder`, and somebody who looks at its console."""
    recorded: dict[str, Any] = {
        "store": {"path": str(folder / "store.db")},
        "call_log": {"enabled": True},
        "calls": {"log_content": True},
    }
    with anyio.fail_after(120):
        async with Bridge.open({**recorded, **config}, remember=False, **options) as bridge:
            assert await bridge.settled(60)
            async with visit(bridge, role) as one:
                yield one


@asynccontextmanager
async def visit(bridge: Bridge, role: Role = "local", by: str = "ui") -> AsyncIterator[Visiting]:
    """Somebody who looks at the console of a running bridge."""
    sign_ins = SignIns(lambda: 3600.0)
    console = ConsoleContext(bridge, Redactor(), sign_ins, facts=dict)
    cookie = sign_ins.open(role, by)
    transport = httpx2.ASGITransport(make_console(console, _COOKIE))
    async with httpx2.AsyncClient(transport=transport, cookies={_COOKIE: cookie}) as client:
        yield Visiting(bridge, console, client, form_token(cookie))


def visible(html: str) -> str:
    """What a person reads of a page, roughly: text without tags, blanks as one."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
