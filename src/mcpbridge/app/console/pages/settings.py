"""The settings: what is in effect and where it comes from, tokens for HTTP, the clients it is installed in, paths."""

import hashlib
import os
import platform
import re
import secrets
import sys
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.client_config.clients import find_client
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment
from mcpbridge.app.client_config.install import (
    all_targets,
    carry_out,
    plan_install,
    plan_uninstall,
    target_of,
)
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.drafts import Drafts
from mcpbridge.app.console.guard import PREFIX, form_of
from mcpbridge.base.directories import cache_directory, config_directory, runtime_directory, state_directory
from mcpbridge.base.errors import BridgeError, ConfigError
from mcpbridge.base.version import __version__
from mcpbridge.config.edit_servers_toml import add_http_token, remove_http_token
from mcpbridge.config.files.backups import Backups
from mcpbridge.config.origins import Value, effective_values
from mcpbridge.downstream.settings import HttpSettings, TokenSettings

_NAME = re.compile(r"[\w.@-]{1,64}")
_LOCAL_ONLY = "Only a person who signed in by `mcpbridge ui` on this machine may change this."


class ClientHere(Struct, frozen=True):
    """A client on this machine, and whether the bridge is in its file."""

    id: str
    title: str
    file: str
    is_installed: bool
    problem: str = ""


class TokenHere(Struct, frozen=True):
    """A token for HTTP, and whether it counts."""

    name: str
    sha256: str
    admin: bool
    console: bool
    note: str = ""
    """When it begins or ceases to count, if that is not now."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/settings` and below."""
    pages = _Pages(console)
    return [
        Route("/settings", pages.show, methods=["GET"]),
        Route("/settings/tokens", pages.add_token, methods=["POST"]),
        Route("/settings/tokens/revoke", pages.revoke_token, methods=["POST"]),
        Route("/settings/clients/{client}/{action}", pages.change_client, methods=["POST"]),
    ]


class _Pages:
    def __init__(self, console: ConsoleContext) -> None:
        self._console, self._drafts = console, Drafts(console)

    async def show(self, request: Request) -> Response:
        """All of it."""
        return self._console.page(request, "settings.html", **await self._values(request))

    async def _values(self, request: Request, **more: Any) -> dict[str, Any]:
        bridge = self._console.bridge
        document = await self._document()
        values: list[Value] = effective_values(bridge.settings, document, bridge.redact)
        only = request.query_params.get("only", "set")
        shown = [one for one in values if only != "set" or one.origin != "default"]
        clients: list[ClientHere] = await in_thread(_clients) if request.state.visitor.visit.is_local else []
        return {
            "values": shown,
            "only": only,
            "tokens": _tokens(bridge.settings.http.tokens, document),
            "clients": clients,
            "about": self._about(),
            "new_token": "",
            "problem": "",
            **more,
        }

    async def _document(self) -> Mapping[str, Any]:
        """The tables of the file; none where it is not TOML, as the JSON of another program."""
        try:
            return tomllib.loads(await self._drafts.text())
        except (ConfigError, tomllib.TOMLDecodeError):
            return {}

    def _about(self) -> list[tuple[str, str]]:
        status, environ = self._console.status(), os.environ
        daemon: Mapping[str, Any] = status.get("daemon") or {}
        return [
            ("Version", f"mcpbridge {__version__}, Python {platform.python_version()}, {sys.platform}"),
            ("Process", str(os.getpid())),
            ("Front", str(status.get("front") or "")),
            ("Configuration", str(status.get("config") or "none")),
            ("Log", str(daemon.get("log") or "standard error")),
            ("Socket", str(daemon.get("socket") or "–")),
            ("Configuration directory", str(config_directory(environ))),
            ("State (store, call log, sign-ins)", str(state_directory(environ))),
            ("Cache (what servers offered last)", str(cache_directory(environ))),
            ("Sockets", str(runtime_directory(environ))),
        ]

    async def add_token(self, request: Request) -> Response:
        """Make a token, which is shown this once; the file gets its digest."""
        form = await form_of(request)
        name, role = str(form.get("name", "")).strip(), str(form.get("role", ""))
        try:
            self._require_local(request)
            if not _NAME.fullmatch(name):
                raise ConfigError("a name has letters, digits, and . _ @ -", key="name")
            token = f"mcpb_{secrets.token_urlsafe(32)}"
            digest = hashlib.sha256(token.encode()).hexdigest()
            draft = await self._drafts.make(
                f"{name} gets a token",
                lambda text: add_http_token(text, name, digest, admin=role == "admin", console=role == "console"),
            )
            await self._drafts.write(draft.id)
        except BridgeError as error:
            return await self._refused(request, error)
        return self._console.page(request, "settings.html", **await self._values(request, new_token=token))

    async def revoke_token(self, request: Request) -> Response:
        """Take a token out of the file."""
        name = str((await form_of(request)).get("name", ""))
        try:
            self._require_local(request)
            draft = await self._drafts.make(f"{name} loses a token", lambda text: remove_http_token(text, name))
            await self._drafts.write(draft.id)
        except BridgeError as error:
            return await self._refused(request, error)
        return RedirectResponse(f"{PREFIX}/settings", 303)

    async def change_client(self, request: Request) -> Response:
        """Put the bridge into a client's file, or take it out; as `mcpbridge install` and `uninstall` do."""
        client, action = request.path_params["client"], request.path_params["action"]
        try:
            self._require_local(request)
            await in_thread(lambda: _change_client(client, action, self._console.bridge.settings.source))
        except BridgeError as error:
            return await self._refused(request, error)
        return RedirectResponse(f"{PREFIX}/settings#clients", 303)

    def _require_local(self, request: Request) -> None:
        if not request.state.visitor.visit.is_local:
            raise ConfigError(_LOCAL_ONLY)

    async def _refused(self, request: Request, error: BridgeError) -> Response:
        values = await self._values(request, problem=error.full_message())
        return self._console.page(request, "settings.html", 422, **values)


def _tokens(running: Sequence[TokenSettings], document: Mapping[str, Any]) -> list[TokenHere]:
    """The tokens that count now, and those that the file has: what is edited there counts after a restart."""
    try:
        written = HttpSettings.model_validate({"tokens": document.get("http", {}).get("tokens", [])}).tokens
    except (ValidationError, AttributeError):  # the banner says what is wrong with the file
        written = list(running)
    now, then = {one.sha256 for one in running}, {one.sha256 for one in written}
    found = [_token(one, "" if one.sha256 in now else "counts after a restart") for one in written]
    return found + [_token(one, "counts until a restart") for one in running if one.sha256 not in then]


def _token(one: TokenSettings, note: str) -> TokenHere:
    return TokenHere(one.name, one.sha256, one.admin, one.console, note)


def _around() -> ClientEnvironment:
    home = Path(os.environ.get("HOME") or Path.home()).absolute()
    return ClientEnvironment(os.environ, home, sys.platform, None)


def _clients() -> list[ClientHere]:
    """The clients of this user on this machine."""
    backups, found = Backups(os.environ), list[ClientHere]()
    for target in all_targets(_around()):
        try:
            is_installed, problem = plan_uninstall(target, backups).outcome != "absent", ""
        except BridgeError as error:
            is_installed, problem = False, str(error)
        client = target.client
        found.append(ClientHere(client.id, client.title, str(target.visible_path), is_installed, problem))
    return found


def _change_client(client: str, action: str, source: str | None) -> None:
    """Raises ConfigError where it cannot be done."""
    from mcpbridge.app.cli.clients.launch_command import launching

    around, backups = _around(), Backups(os.environ)
    target = target_of(find_client(client), around)
    if action == "install":
        launched = launching(source, None, None, around.environ)
        carry_out(lambda: plan_install(target, launched.from_file(target, around), backups), backups, datetime.now())
    elif action == "uninstall":
        carry_out(lambda: plan_uninstall(target, backups), backups, datetime.now())
    else:
        raise ConfigError("there is no such action")
