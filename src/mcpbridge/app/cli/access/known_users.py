"""Who the users of the bridges of this machine are: all who called, used a quota, have accounts, or are signed in.

What the bridge keeps of somebody goes with its retention, so nobody stays in the list for longer than that. The local
user is in it only with accounts. Nothing here needs a bridge that runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from mcpbridge.app.admin.usage import kept_quotas
from mcpbridge.base.errors import StoreFailed
from mcpbridge.config.schema import Settings
from mcpbridge.pipeline.roles.quota_stage import user_subject
from mcpbridge.storage.call_log.usage import UserCalls, read_users
from mcpbridge.storage.settings import StoreSettings, call_log_path
from mcpbridge.storage.sqlite.database import may_exist
from mcpbridge.storage.vault import Row

T = TypeVar("T")


class KnownUser(Struct, frozen=True):
    """One user."""

    user: str
    """The principal; empty: the local user."""
    origin: str
    """What lets them in, as a key of the configuration; empty: nothing does any more."""
    name: str = ""
    """For people, as the provider last said; it decides nothing."""
    last_seen: float | None = None
    """Seconds since 1970 of the last call that is recorded."""
    calls: int = 0
    """Calls that are recorded."""
    accounts: Sequence[Row] = ()
    sign_ins: int = 0


def known_users(
    settings: Settings, accounts: Mapping[str, Sequence[Row]], sign_ins: Mapping[str, int], now: float
) -> tuple[list[KnownUser], list[str]]:
    """All of them by name, and what could not be read. It reads files, so it belongs into a thread.

    `accounts`, `sign_ins`: by user.
    """
    problems: list[str] = []
    called = _read(lambda: _callers(call_log_path(settings.call_log, settings.store)), problems) or []
    of = {one.user: one for one in called}
    roles = [role.name for role in settings.roles if role.quota]
    counted = _read(lambda: _counted(settings.store, roles, now), problems) if roles else None
    found: list[KnownUser] = []
    for user in sorted({*filter(None, of), *(counted or ()), *accounts, *sign_ins}):
        log = of.get(user) or UserCalls(user, "", None, 0)
        own = accounts.get(user, ())
        found.append(
            KnownUser(user, origin_of(settings, user), log.name, log.last_seen, log.calls, own, sign_ins.get(user, 0))
        )
    return found, problems


def origin_of(settings: Settings, user: str) -> str:
    """What lets this user in, as a key of the configuration; empty: nothing does."""
    if not user:
        return "local"
    if any(token.name == user for token in settings.http.tokens):
        return "http.tokens"
    issuer, mark, _ = user.partition("#")
    if mark:
        sign_in = settings.auth.sign_in
        if sign_in is not None and issuer == sign_in.provider_issuer:
            return "auth.sign_in"
        for name, one in settings.auth.issuers.items():
            if one.issuer == issuer:
                return f"auth.issuers.{name}"
    return ""


def document_of(user: KnownUser, show_time: Callable[[float], str]) -> dict[str, Any]:
    """As JSON."""
    return {
        "user": user.user,
        "name": user.name,
        "origin": user.origin,
        "last_seen": None if user.last_seen is None else show_time(user.last_seen),
        "calls": user.calls,
        "accounts": [
            {"server": row.server, "kind": row.kind, "issuer": row.issuer, "since": show_time(row.since)}
            for row in user.accounts
        ],
        "sign_ins": user.sign_ins,
    }


def _callers(path: Path) -> list[UserCalls]:
    return read_users(path) if may_exist(path) else []


def _counted(store: StoreSettings, roles: Iterable[str], now: float) -> set[str]:
    """Who has used something of a quota that still counts."""
    subjects = {subject for subject, *_ in kept_quotas(store, now)}
    begins = [user_subject(role, "") for role in roles]
    return {subject.removeprefix(begin) for subject in subjects for begin in begins if subject.startswith(begin)} - {""}


def _read(read: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return read()
    except StoreFailed as failed:
        problems.append(str(failed))
        return None
