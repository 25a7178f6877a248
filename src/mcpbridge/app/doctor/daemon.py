"""What a running bridge of the same configuration says of itself: whether it is up to date, and how its servers are."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.known_failures import recognise
from mcpbridge.app.doctor.report import ServerReport
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.version import __version__
from mcpbridge.catalog.pins.lock_file import read_lock
from mcpbridge.catalog.upstream_filter import UNAPPROVED
from mcpbridge.core.model import TOOLS
from mcpbridge.upstream.settings import ServerSettings

Status = Mapping[str, Any]
"""What a bridge says of itself; empty: none runs."""

_FAILED = {"retrying", "failed", "unavailable"}
"""States of a server that does not work; it is `starting` with a cause while it is tried once more."""


def running_of(config: str | None, environ: Mapping[str, str]) -> Status:
    """The status of the bridge that serves this configuration; a daemon's, if there are several. Takes a moment."""
    try:
        everyone = ask_all(runtime_directory(environ))
    except ConfigError:
        return {}  # nobody's sockets are believed there; that the directory is open is found elsewhere
    wanted = Path(config).resolve() if config else None
    same: list[Status] = [one for one in everyone if _config_of(one) == wanted and "error" not in one]
    return max(same, key=lambda one: "daemon" in one) if same else {}


def about_daemon(running: Status) -> Iterator[Finding]:
    """What there is to say of it."""
    if not running:
        return
    where = f"process {running.get('pid')}"
    if error := running.get("config_error"):
        what = f"the daemon keeps running the previous configuration, since the file has an error: {_first_line(error)}"
        yield Finding("daemon-config-error", "warn", what, "", where, fix="Correct the file; the daemon reloads it.")
    if running.get("version") != __version__:
        what = f"the daemon is of version {running.get('version')}, and this is {__version__}"
        yield Finding("daemon-version", "warn", what, "", where, fix="Run `mcpbridge restart`.")
    more: object = running.get("daemon")
    if isinstance(more, dict) and (error := cast("Status", more).get("http_error")):
        fix = "Give it another address (`daemon.http`), or end what has this one."
        yield Finding("daemon-http", "warn", f"the daemon serves no HTTP: {error}", "", where, fix=fix)


def running_servers(running: Status) -> list[ServerReport]:
    """How its servers are. What is not running because nobody needs it yet is not known to work."""
    return [_server(one) for one in _servers(running) if one.get("state") != "disabled"]


_MOST_HOSTS = 10


def _refused_connections(running: Status, source: Source) -> Iterator[Finding]:
    """Of servers that may reach a list of hosts: the others that they tried."""
    for one in _servers(running):
        egress = cast("Status", one.get("egress") or {})
        if refused := cast("dict[str, int]", egress.get("refused") or {}):
            name = str(one.get("name"))
            most = sorted(refused, key=lambda host: -refused[host])[:_MOST_HOSTS]
            what = f"it was refused connections: {', '.join(f'{host} ({refused[host]})' for host in most)}"
            where, why = source.where("servers", name, "sandbox"), "They are not on the list of its sandbox."
            fix = f"If it needs one, add it as HOST:PORT to `servers.{name}.sandbox.network`."
            yield Finding("egress-refused", "note", what, name, where, why, fix)


def about_running_servers(
    running: Status, servers: Mapping[str, ServerSettings], source: Source, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """What is wrong with its servers, going by what it says."""
    for one in _servers(running):
        name, state = str(one.get("name")), one.get("state")
        settings = servers.get(name)
        if refused := int(one.get("questions_refused") or 0):
            what = f"{refused} of its questions to clients {'was' if refused == 1 else 'were'} refused"
            why = "It asks for what `may_ask` does not have, or more often than `question_rate` allows."
            fix = f"If it is to ask more, raise servers.{name}.question_rate, or add to servers.{name}.may_ask."
            yield Finding("questions-refused", "warn", what, name, source.where("servers", name), why, fix)
        if not _has_failed(one) or settings is None:
            continue
        where, cause = source.where("servers", name), str(one.get("cause") or one.get("reason") or state)
        words = "\n".join([*map(str, one.get("stderr") or ()), cause])
        known = recognise(name, settings, words, environ) if settings.command is not None else None
        if known is not None:
            why = f"{known.why} ({cause})" if known.why else cause
            yield Finding(known.code, "fail", known.what, name, where, why, known.fix, known.edit)
        else:
            fix = f"`mcpbridge doctor {name}` starts it, and shows more."
            yield Finding("server-failed", "fail", cause, name, where, fix=fix)
    yield from _about_changes(running, source)
    yield from _refused_connections(running, source)
    dropped: list[Status] = list(running.get("dropped") or ())
    for lost in dropped:
        if str(lost.get("reason")).startswith(UNAPPROVED):
            continue  # it was said as a change
        what = f"{lost.get('kind')}: {lost.get('name') or 'one without a name'}: {lost.get('reason')}"
        name = str(lost.get("server"))
        yield Finding("not-in-full", "note", what, name, source.where("servers", name))
    for warning in cast("list[object]", running.get("warnings") or ()):
        yield Finding("matches-nothing", "warn", str(warning), "", str(source.path), "It has no effect.")


def _about_changes(running: Status, source: Source) -> Iterator[Finding]:
    """What servers show and nobody agreed to."""
    lock: Status = running.get("lock") or {}
    if fault := lock.get("fault"):
        yield broken_lock(str(lock.get("file")), str(fault))
    yield from _changed_definitions(_servers(running), "", source)


def about_changed_tables(running: Status, source: Source) -> Iterator[Finding]:
    """The same of tables of `[tools]` whose definitions come from another machine."""
    backends: list[Status] = list(running.get("backends") or ())
    return _changed_definitions(backends, TOOLS, source)


def _changed_definitions(owners: Iterable[Status], section: str, source: Source) -> Iterator[Finding]:
    for one in owners:
        found: list[Status] = list(one.get("unapproved") or ())
        for change in found:
            text, command = str(change.get("text")), str(change.get("approve"))
            yield changed_definition(str(one.get("name")), text, command, source, section)


def broken_lock(file: str, why: str) -> Finding:
    """The lock cannot be used: it is broken, or no trusted key has signed it, or it has to be signed and is missing."""
    try:
        is_there = read_lock(Path(file)) is not None
    except ConfigError:
        what = "servers.lock is not understood, so it agrees to nothing"
        fix = "Restore it from version control, or write it anew with `mcpbridge lock --anew` and review it."
    else:
        what, fix = "servers.lock has no signature that counts here, so it agrees to nothing", f"{_SIGN} Or {_REMOVE}"
        if not is_there:
            what = "there is no signed servers.lock here, and keys are trusted, so all that servers show is held"
            fix = f"Write it with `mcpbridge lock` and review it. {_SIGN} Or {_REMOVE}"
    return Finding("lock-broken", "fail", what, "", file, why, fix)


_SIGN = "Sign it with `mcpbridge lock sign` if you agree to it."
_REMOVE = "remove the keys from `lock-keys` in your configuration directory, if locks need no signature."


def changed_definition(server: str, text: str, command: str, source: Source, section: str = "") -> Finding:
    """Something that a server shows and nobody agreed to. `section`: `tools` if it is a table of `[tools]`."""
    fix = f"Look at it with `mcpbridge lock diff {server}`, then agree to it with `{command}`."
    why = "What a server shows is an instruction to the model."
    where = source.where(section or "servers", server)
    if section:
        return Finding("changed-definition", "warn", text, f"{section}/{server}", where, why, fix, about="tools")
    return Finding("changed-definition", "warn", text, server, where, why, fix)


def _server(one: Status) -> ServerReport:
    state, counts = str(one.get("state")), {key: int(one.get(key) or 0) for key in _KINDS}
    has_failed = _has_failed(one)
    return ServerReport(
        str(one.get("name")),
        state == "ready",
        state=str(one.get("cause") or state) if has_failed else "",
        transport=str(one.get("transport") or ""),
        era=str(one.get("era") or ""),
        revision=str(one.get("protocol") or ""),
        tools=counts["tools"],
        prompts=counts["prompts"],
        resources=counts["resources"],
        templates=counts["templates"],
        stderr=tuple(map(str, one.get("stderr") or ())) if has_failed else (),
    )


def _has_failed(one: Status) -> bool:
    return one.get("state") in _FAILED or (one.get("state") == "starting" and bool(one.get("cause")))


_KINDS = ("tools", "prompts", "resources", "templates")


def _servers(running: Status) -> list[Status]:
    return list(running.get("servers") or ())


def _config_of(status: Mapping[str, object]) -> Path | None:
    config = status.get("config")
    return Path(config).resolve() if isinstance(config, str) else None


def _first_line(error: object) -> str:
    """The first line of what is wrong, however it is put."""
    if isinstance(error, dict):
        members = cast("dict[str, object]", error)
        error = members.get("message") or members.get("what") or members
    return str(error).partition("\n")[0]
