"""What the pages of the console share: the bridge that they show, and how a template becomes an answer."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from mcpbridge.app.console.guard import PREFIX, Visitor
from mcpbridge.app.console.hand_calls import HandCalls
from mcpbridge.app.console.live import LiveFeed
from mcpbridge.app.console.shown_text import (
    LONGEST,
    inert_text,
    pretty_json,
    shown_bytes,
    shown_count,
    shown_seconds,
    shown_time,
)
from mcpbridge.app.console.sign_in import SignIns
from mcpbridge.app.fleet.desk import FleetDesk, Pulse
from mcpbridge.app.page_sign_in.sessions import PageSession
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.version import __version__
from mcpbridge.library.bridge import Bridge

T = TypeVar("T")
Tone = Literal["good", "bad", "info"]

PAGES: tuple[tuple[str, str], ...] = (
    ("", "Overview"),
    ("calls", "Calls"),
    ("catalog", "Catalog"),
    ("approvals", "Approvals"),
    ("results", "Results"),
    ("servers", "Servers"),
    ("usage", "Usage"),
    ("savings", "Savings"),
    ("settings", "Settings"),
)
"""The pages of the navigation, in its order: path below `/console`, and title."""

OWN_PAGES = ("calls", "usage")
"""Those that show what is their own to people who may see nothing else."""

_PARTS_OF: Mapping[str, str] = {"sessions": "calls", "timeline": "calls", "configuration": "servers"}
"""Paths without a place of their own in the navigation, and the page that they belong to."""

_FRESH = 1.0
"""Seconds for which one reading of the status serves all pages that are open."""


class ConsoleContext:
    """One bridge as its console shows it."""

    def __init__(
        self,
        bridge: Bridge,
        redact: Redactor,
        sign_ins: SignIns,
        *,
        facts: Callable[[], Mapping[str, object]],
        reload: Callable[..., Awaitable[dict[str, object]]] | None = None,
        fleet: FleetDesk | None = None,
        token_role: "Callable[[str], tuple[Literal['admin', 'read'], str] | None]" = lambda token: None,
    ) -> None:
        """`facts`: what the process says beside what the bridge says of itself (`mcpbridge status`).

        `reload` reads the configuration again; None: there is no file. `fleet`: who asks the other bridges.
        `token_role`: what the holder of a bearer token may do here, and the token's name; None: nothing.
        """
        self.bridge, self.redact, self.sign_ins = bridge, redact, sign_ins
        self.reload, self.token_role, self.fleet = reload, token_role, fleet
        self._facts = facts
        self._status: tuple[float, Mapping[str, Any]] | None = None
        self.live = LiveFeed(bridge, self.forget_status, self._pulses)
        self.hand_calls = HandCalls(bridge)
        """What is tried from forms."""
        self.at_end: list[Callable[[], None]] = []
        """What pages have to end when the bridge stops."""

    @property
    def in_fleet(self) -> bool:
        """There are other bridges, and pages show what all have."""
        return self.fleet is not None and self.fleet.fleet is not None

    @property
    def own_name(self) -> str:
        """What this bridge is called in its fleet; empty: there is none."""
        return self.fleet.name if self.fleet is not None else ""

    async def _pulses(self) -> Sequence[Pulse]:
        return await self.fleet.pulses(of_others=True) if self.fleet is not None and self.in_fleet else ()

    def end(self) -> None:
        """The bridge stops: streams and calls of pages end."""
        self.live.end()
        self.hand_calls.end()
        for end in self.at_end:
            end()

    @cached_property
    def _templates(self) -> Environment:
        environment = Environment(
            loader=PackageLoader("mcpbridge.app.console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_inert,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "text": _text,
            "pretty": _pretty,
            "source": escape,
            "json_text": _json_text,
            "json_line": _json_line,
            "when": shown_time,
            "seconds": shown_seconds,
            "bytes": shown_bytes,
            "count": shown_count,
        }
        environment.globals.update(prefix=PREFIX, version=__version__)  # type: ignore[arg-type] - too narrow
        return environment

    def status(self) -> Mapping[str, Any]:
        """What `mcpbridge status --json` says of this bridge, at most a second old."""
        now = time.monotonic()
        if self._status is None or now - self._status[0] > _FRESH:
            own = {"config": self.bridge.settings.source, **self._facts()}
            self._status = now, {**self.redact.values_of(self.bridge.status()), **own}
        return self._status[1]

    def role_of(self, session: PageSession) -> Literal["admin", "view-all", "view"] | None:
        """What somebody who signed in at the identity provider may do here now: the most of their roles."""
        bridge = self.bridge
        held = set(bridge.approvals.roles_of(session.principal, session.identity))
        found = {role.console for role in bridge.settings.roles if role.name in held}
        return next((role for role in ("admin", "view-all", "view") if role in found), None)

    def forget_status(self) -> None:
        """Something was changed from here: the next page shows it."""
        self._status = None

    def page(self, request: Request, template: str, /, status: int = 200, **values: Any) -> HTMLResponse:
        """A whole page, with the navigation and the banner."""
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        first = request.url.path.removeprefix(PREFIX).strip("/").partition("/")[0]
        sees_all = visitor is not None and visitor.sees_all
        shared = {
            "visitor": visitor,
            "here": _PARTS_OF.get(first, first),
            "pages": PAGES if sees_all else [one for one in PAGES if one[0] in OWN_PAGES],
            "state": self.status() if sees_all else None,
            "approvals_waiting": self.live.approvals_waiting if sees_all else 0,
            "approvals_asked": self.live.approvals_asked if sees_all else 0,
            "pid": os.getpid(),
            "is_part": False,
        }
        # A value of a page that has the name of a shared one is an error: else the navigation would show it.
        return HTMLResponse(self._templates.get_template(template).render(**shared, **values), status)

    def part(self, request: Request, template: str, /, status: int = 200, **values: Any) -> HTMLResponse:
        """A part of a page, which takes the place of the one that is shown."""
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        return HTMLResponse(
            self._templates.get_template(template).render({"visitor": visitor, "is_part": True, **values}), status
        )

    def message(self, request: Request, text: str, tone: Tone = "good", status: int = 200) -> HTMLResponse:
        """What came of an action, in a line; a screen reader reads it out."""
        return self.part(request, "parts/message.html", status, text=text, tone=tone)


def _text(value: object, limit: int = LONGEST) -> Markup:
    """A text of at most so many characters, inert."""
    return escape(inert_text(str(value), limit))


def _pretty(value: bytes | str | object) -> Markup:
    """JSON with indents, whole: forms send it back."""
    return escape(pretty_json(value))


def _json_text(value: bytes | str | object, limit: int = LONGEST) -> Markup:
    """JSON with indents, to be read: of at most so many characters."""
    return escape(inert_text(pretty_json(value), limit))


def _json_line(value: object, *, quoted: bool = False) -> str:
    """A value as JSON on one line; a text as it is, unless it is to be quoted."""
    return value if isinstance(value, str) and not quoted else json.dumps(value, ensure_ascii=False, default=str)


def _inert(value: object) -> object:
    """What a template prints of a text, whoever wrote it; markup of our own passes as it is."""
    return inert_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


async def in_thread(work: Callable[[], T]) -> T:
    """The result of work that reads files, beside the calls that continue meanwhile."""
    return await asyncio.to_thread(work)


STATIC = Path(__file__).with_name("static")
"""The files of the browser's side."""
