"""Install the bridge into a client's file, and take it out again; and which of a client's files that is.

An edit is planned from what the file holds and made only if the file still holds that. Taking out is an edit too, not
a return to the copy: what people changed meanwhile stays.
"""

import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, cast

from mcpbridge.app.client_config.clients import CLIENTS, ClientFile, KnownClient, Place, Scope, places
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment
from mcpbridge.app.client_config.entry import NAME, Launch, blank_document, entry_for, runs_bridge, with_choices
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.backups import Backups, Record, digest
from mcpbridge.config.files.edit import Editor, NotEditable, Put, Splice, Spot, entries, entry, put, take_out
from mcpbridge.config.files.edit_json import JsonEditor
from mcpbridge.config.files.edit_toml import TomlEditor
from mcpbridge.config.files.masked_diff import masked_diff
from mcpbridge.config.files.write_file import ChangedMeanwhile, decoded, encoded, read_bytes, replace_file


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write into."""

    client: KnownClient
    file: ClientFile
    path: Path
    """Links resolved: what they lead to is edited, and they stay."""
    visible_path: Path
    """As people know it."""
    table: tuple[str, ...]
    is_used: bool
    """Whether the client is on this machine (or in this project): its file, its folder or its program is there."""

    @property
    def spot(self) -> Spot:
        """Where in the file the bridge is."""
        return Spot(self.table, NAME, in_list=self.file.dialect == "continue")


def target_of(client: KnownClient, around: ClientEnvironment, scope: Scope | None = None) -> Target:
    """The file of a client. `scope` None: the user's, or the project's where there is no other.

    Raises:
        ConfigError: the client has no file of this scope.
    """
    files = [file for file in client.files if not file.reads_only]
    scopes = list(dict.fromkeys(file.scope for file in files))
    wanted = scope or ("user" if "user" in scopes else scopes[0])
    there = [_target(place, around) for place in _places(client, around) if place.file.scope == wanted]
    if not there:
        kinds = " or ".join(scopes)
        raise ConfigError(f"{client.title} has no file for the scope {wanted!r}", hint=f"Say --scope {kinds}.")
    existing = next((target for target in there if target.path.is_file()), None)
    return existing or next((target for target in there if target.is_used), there[0])


def all_targets(around: ClientEnvironment, scope: Scope | None = None) -> list[Target]:
    """Those of all clients that are used here."""
    found: list[Target] = []
    for client in CLIENTS:
        if any(place.file.scope == (scope or "user") for place in _places(client, around)):
            target = target_of(client, around, scope or "user")
            is_ours = target.file.scope == "user" or target.path.is_file() or target.path.parent != around.project
            if target.is_used and is_ours and (target.path.parent.is_dir() or _is_on_path(client, around)):
                found.append(target)
    return found


def editor_for(target: Target) -> Editor:
    """What edits the file."""
    if target.file.format == "yaml":
        from mcpbridge.config.files.edit_yaml import YamlEditor  # few files need it

        return YamlEditor()
    return TomlEditor() if target.file.format == "toml" else JsonEditor()


def _places(client: KnownClient, around: ClientEnvironment) -> Iterator[Place]:
    for place in places(client, around.environ, around.platform, around.home, around.project):
        if not place.file.reads_only:
            yield place


def _target(place: Place, around: ClientEnvironment) -> Target:
    table = tuple(str(around.project) if key == "*" else key for key in place.file.key)
    return Target(place.client, place.file, place.path.resolve(), place.path, table, _is_used(place, around))


def _is_used(place: Place, around: ClientEnvironment) -> bool:
    path, home = place.path, around.home
    if path.is_file():
        return True
    if place.file.scope == "project":
        return around.project is not None and around.project.is_dir()
    if _is_on_path(place.client, around):  # it was never started, so it has no files yet
        return True
    if path.parent == home:  # is there anyway
        return (home / f".{place.client.id.split('-')[0]}").is_dir()
    return path.parent.is_dir() or (place.client.id in path.parent.parent.name and path.parent.parent.is_dir())


def _is_on_path(client: KnownClient, around: ClientEnvironment) -> bool:
    return bool(client.command) and shutil.which(client.command, path=around.environ.get("PATH", "")) is not None


Outcome = Literal["installed", "updated", "unchanged", "removed", "restored", "absent"]

_TRIES = 3
_HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done to one file, or was."""

    target: Target
    outcome: Outcome
    before: bytes | None = field(repr=False, default=None)
    after: bytes | None = field(repr=False, default=None)
    """None: no file."""
    diff: str = field(repr=False, default="")
    """Without values of others."""
    copy: bytes | None = field(repr=False, default=None)
    """What a backup has to hold; None: none is made."""
    record: Record | None = None
    """What to remember; None: nothing more."""
    backup: str = ""
    """The path of a copy of the file as it was."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Look:
    """What a file holds now."""

    data: bytes | None
    text: str
    editor: Editor
    spot: Spot
    is_second: bool
    """Of OpenCode 2, which has its servers one level deeper."""
    others: dict[str, object]
    """All that stands in the table, by name."""
    record: Record | None

    @property
    def is_installed(self) -> bool:
        return self.spot.name in self.others


def plan_install(
    target: Target, launch: Launch, backups: Backups, removed: Sequence[str] = (), *, takes_place: bool = False
) -> Change:
    """Write the bridge into a file. `removed`: names of servers that are taken out of it.

    `takes_place`: also where something else goes by the bridge's name.

    Raises:
        ConfigError: the file cannot be read or edited, or something else goes by the bridge's name.
    """
    with _named(target):
        now = _look(target, backups)
        if _is_strangers(now) and not takes_place:
            what = f"another server is called {now.spot.name!r} there"
            hint = "Call it otherwise, or say `mcpbridge install CLIENT --force`: a copy of the file is kept."
            raise ConfigError(what, file=str(target.visible_path), hint=hint)
        value = entry_for(target.file.dialect, target.client.id, launch, second_version=now.is_second)
        value = with_choices(value, now.others.get(now.spot.name))
        base = now.text if now.text.strip() else now.text + blank_document(target.file.dialect)
        for name in removed:
            base = take_out(now.editor, base, replace(now.spot, name=name))
        done, base = _put(now, base, value)
        notes = tuple(_remarks(now, removed))
        if done.text == now.text and now.data is not None:
            backup = now.record.backup if now.record else ""
            return Change(target, "unchanged", now.data, now.data, backup=backup, notes=notes)
        after = encoded(done.text, now.data or b"")
        shown = _diff(target, now, base, done)
        shown = shown.replace(launch.token, _HIDDEN) if launch.token else shown
        old = _lasting(now, removed)
        copy = None if old or now.data is None else encoded(_without_us(now), now.data)
        replaced = (*(now.record.replaced if now.record and now.is_installed else ()), *removed)
    return Change(
        target,
        "updated" if now.is_installed else "installed",
        now.data,
        after,
        shown,
        copy,
        Record(target.client.id, str(target.path), now.spot.table, digest(after), old, done.undo, replaced),
        notes=notes,
    )


def plan_uninstall(target: Target, backups: Backups, *, restore: bool = False) -> Change:
    """Take the bridge out of a file. `restore`: by putting the copy back.

    Raises:
        ConfigError: the file cannot be read or edited; or not restored, because it was changed since.
    """
    with _named(target):
        now = _look(target, backups)
        data, record = now.data, now.record
        if data is None:
            return Change(target, "absent")
        edited = take_out(now.editor, now.text, now.spot, record.undo if record else None)
    if restore:
        return _plan_restore(target, data, edited, record)
    if not now.is_installed:
        return Change(target, "absent", data, data)
    after = encoded(edited, data)
    if record and edited.strip("\ufeff\r\n\t ") in ("", blank_document(target.file.dialect).strip()):
        after = _before_anything(record, after)
    diff = masked_diff(str(target.visible_path), now.text, edited)
    notes = (
        [f"its other servers ({', '.join(record.replaced)}) stay in servers.toml"] if record and record.replaced else []
    )
    return Change(target, "removed", data, after, diff, backup=record.backup if record else "", notes=tuple(notes))


def carry_out(plan: Callable[[], Change], backups: Backups, at: datetime) -> Change:
    """Plan a change and make it, again if somebody else wrote the file in between.

    Raises:
        ConfigError: it cannot be planned or written, or somebody else writes it all the time.
    """
    for _ in range(_TRIES):
        change = plan()
        if change.after == change.before:
            _forget_absent(change, backups)
            return change
        target, record = change.target, change.record
        copy = str(backups.keep(target.client.id, target.path, change.copy, at)) if change.copy is not None else ""
        try:
            replace_file(target.path, change.before, change.after, private=target.file.scope != "project")
        except BaseException as error:
            backups.drop(copy)
            if isinstance(error, ChangedMeanwhile):
                continue
            raise
        if record is not None:
            record = replace(record, backup=copy or record.backup)
            backups.remember(record)
            return replace(change, record=record, backup=record.backup)
        return _settle(change, backups)
    raise ConfigError(
        "changed again and again while it was being edited",
        file=str(change.target.visible_path),  # pyright: ignore[reportPossiblyUnboundVariable] - the loop runs at least once
        hint="Another program writes it; end that one, and try again.",
    )


def _look(target: Target, backups: Backups) -> _Look:
    data = read_bytes(target.path)
    text = decoded(data, target.path) if data else ""
    editor = editor_for(target)
    document = editor.parse(text)
    spot, is_second = _spot(target, document)
    record = backups.find(target.path, spot.table)
    return _Look(data, text, editor, spot, is_second, entries(document, spot), record)


def _put(now: _Look, base: str, value: dict[str, object]) -> tuple[Put, str]:
    """The entry in the text, and the text it was put into: without an entry of before, if that leaves no trace."""
    undo = now.record.undo if now.record else None
    if undo and undo.now and base.count(undo.now) == 1 and entry(now.editor.parse(base), now.spot) != value:
        base = take_out(now.editor, base, now.spot, undo)
    return put(now.editor, base, now.spot, value), base


def _lasting(now: _Look, removed: Sequence[str]) -> str:
    """The copy of an earlier install, if the file was not changed since; empty: there has to be a new one."""
    record = now.record
    if record is None or not now.is_installed or removed:
        return ""
    return record.backup if record.replaced or record.written == digest(now.data or b"") else ""


def _without_us(now: _Look) -> str:
    """What a copy holds: the file as it is, but without an entry that an install made."""
    return take_out(now.editor, now.text, now.spot, now.record.undo) if now.record else now.text


def _diff(target: Target, now: _Look, base: str, done: Put) -> str:
    path = str(target.visible_path)
    if not now.data:
        return masked_diff(path, "", done.text, (Splice(0, 0, done.text),))
    steps = [masked_diff(path, now.text, base), masked_diff(path, base, done.text, done.edit)]
    return "\n".join(filter(None, steps))


def _before_anything(record: Record, left: bytes) -> bytes | None:
    """What a file was in which nothing is left but what the install put there; None: it was not there."""
    was = read_bytes(Path(record.backup)) if record.backup else None
    return was if not record.backup or (was is not None and not was.strip()) else left


def _plan_restore(target: Target, data: bytes, edited: str, record: Record | None) -> Change:
    if record is None:
        hint = "Without --restore the entry is taken out by an edit."
        raise ConfigError(
            "no install is remembered for this file, so there is no copy", file=str(target.visible_path), hint=hint
        )
    original = None
    if record.backup and (original := read_bytes(Path(record.backup))) is None:
        hint = f"It was {record.backup}. Without --restore the entry is taken out by an edit."
        raise ConfigError("the copy is gone", file=str(target.visible_path), hint=hint)
    is_same = digest(data) == record.written or (not record.replaced and encoded(edited, data) == (original or b""))
    if not is_same:
        hint = "Without --restore the entry alone is taken out."
        hint += f" The copy is {record.backup}." if record.backup else ""
        raise ConfigError(
            "was changed since the install, and that would be lost", file=str(target.visible_path), hint=hint
        )
    diff = masked_diff(str(target.visible_path), decoded(data, target.path), decoded(original or b"", target.path))
    return Change(target, "restored", data, original, diff, backup=record.backup)


def _settle(change: Change, backups: Backups) -> Change:
    """After taking out: the record goes, and so does a copy that the file itself is again."""
    table = _remembered_table(change, backups)
    backups.forget(change.target.path, table)
    if change.backup and change.after == read_bytes(Path(change.backup)):
        backups.drop(change.backup)
        return replace(change, backup="")
    return change


def _forget_absent(change: Change, backups: Backups) -> None:
    if change.outcome == "absent":
        backups.forget(change.target.path, _remembered_table(change, backups))


def _remembered_table(change: Change, backups: Backups) -> tuple[str, ...]:
    deeper = (*change.target.table, "servers")
    return deeper if backups.find(change.target.path, deeper) else change.target.table


def _spot(target: Target, document: object) -> tuple[Spot, bool]:
    """Where the entry goes, and whether the file is one of OpenCode 2, which has its servers one level deeper."""
    if target.file.dialect == "opencode" and isinstance(document, dict):
        table = cast("dict[str, object]", document).get("mcp")
        inner = cast("dict[str, object]", table).get("servers") if isinstance(table, dict) else None
        if isinstance(inner, dict) and not cast("dict[str, object]", inner).keys() & {"command", "url"}:
            return replace(target.spot, table=(*target.table, "servers")), True
    return target.spot, False


def _remarks(now: _Look, removed: Sequence[str]) -> Iterator[str]:
    for name, given in now.others.items():
        if name != now.spot.name and name not in removed and runs_bridge(given):
            yield f"{name!r} runs the bridge too"
    if _is_strangers(now):
        yield f"takes the place of a server that is called {now.spot.name!r} as well"


def _is_strangers(now: _Look) -> bool:
    """Whether something else goes by the bridge's name; an address is taken for that of a bridge."""
    entry = now.others.get(now.spot.name)
    own = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    return now.record is None and bool(own.keys() & {"command", "cmd"}) and not runs_bridge(own)


@contextmanager
def _named(target: Target) -> Generator[None]:
    """Errors of an edit as errors of the file."""
    try:
        yield
    except NotEditable as error:
        where = f"{target.visible_path}:{error.line}" if error.line else str(target.visible_path)
        hint = "Nothing was changed. Mend the file, or put the entry in by hand."
        raise ConfigError(error.what, file=where, hint=hint) from error
