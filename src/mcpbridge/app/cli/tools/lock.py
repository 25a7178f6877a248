"""`mcpbridge lock`: what servers show is written down in `servers.lock`, and their changes are reviewed."""

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from mcpbridge.app.cli.config.audited import who
from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import CommandFailed, fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import counted, note, print_json, print_table, visible
from mcpbridge.app.cli.tools.lock_signing import sign, verify
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import DIFFERS, OK, UNREACHABLE, USAGE
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.pins.changes import Change
from mcpbridge.catalog.pins.comparison import Difference, accept, differences, missing_texts
from mcpbridge.catalog.pins.definition import Pin
from mcpbridge.catalog.pins.lock_file import (
    Lock,
    PinKey,
    definitions_folder,
    lock_path,
    read_definition,
    read_lock,
    write_lock,
)
from mcpbridge.catalog.pins.review import Rules
from mcpbridge.catalog.pins.trusted_lock import lock_is_trusted, must_be_signed, signature_fault, signature_path

_ADVICE = "`mcpbridge check` shows more."


@dataclass(frozen=True, slots=True)
class _Review:
    """The lock, and what servers show now."""

    path: Path
    lock: Lock
    is_new: bool
    """There is no file yet."""
    changed: Sequence[Difference]
    faults: Mapping[str, str]
    """By server that could not be asked: why."""
    names: Collection[str]
    """All names that were looked at, in the lock and now."""
    missing: Mapping[PinKey, Sequence[str]]
    """What was agreed to of which the text is not in `servers.lock.d` any more: the digests."""
    offered: Mapping[str, bytes]
    """By digest, those of these texts that servers still show."""

    def document(self) -> dict[str, object]:
        """What `--json` prints of it."""
        return {
            "file": str(self.path),
            "changes": [
                {
                    "server": one.key.server,
                    "kind": one.key.kind,
                    "name": one.key.name,
                    "change": change.what,
                    "where": change.where,
                    "detail": change.detail,
                }
                for one in self.changed
                for change in one.changes
            ],
            "unreachable": [{"server": name, "reason": reason} for name, reason in self.faults.items()],
            "missing": [{"server": key.server, "kind": key.kind, "name": key.name} for key in self.missing],
        }

    def show(self, *, is_fine: bool = True) -> None:
        """Print the changes as a table. `is_fine`: nothing else is wrong with the lock."""
        rows = [
            [_name_of(one.key), change.what, change.where, _on_one_line(change.detail)]
            for one in self.changed
            for change in one.changes
        ]
        if rows:
            print_table(["Of", "Change", "Where", "New"], rows)
        elif is_fine and not self.faults and not self.missing:
            print("nothing has changed")

    def write(self) -> None:
        """Write the lock that agrees to what has changed, and the texts that are missing and that servers still show.

        Raises:
            CommandFailed: it cannot be written.
        """
        try:
            definitions = [definition for one in self.changed for definition in one.definitions]
            is_signed = signature_path(self.path).exists()
            new = accept(self.lock, self.changed)
            write_lock(self.path, new, [*definitions, *self.offered.values()], keeps_old=is_signed)
        except OSError as error:
            fail(USAGE, f"{self.path} cannot be written: {error.strerror}", "Nothing was agreed to.")

    @property
    def reasons(self) -> str:
        """Which servers could not be asked, and why."""
        return "; ".join(f"{name}: {_on_one_line(reason)}" for name, reason in self.faults.items())

    def note_missing(self) -> None:
        """Say of which definitions the text is missing."""
        if self.missing:
            note(f"{_texts_of(self.missing)} not in {definitions_folder(self.path)}: {_listed(self.missing)}")

    def note_lost(self) -> None:
        """After it was written: say which texts are missing still."""
        lock = accept(self.lock, self.changed)
        lost = missing_texts(lock, {key.server for key in self.missing}, partial(read_definition, self.path))
        if back := [key for key in self.missing if key in lock.entries and key not in lost]:
            note(f"{_texts_of(back)} in {definitions_folder(self.path)} again: {_listed(back)}")
        if lost:
            advice = f"restore {definitions_folder(self.path).name} from version control"
            note(f"{_texts_of(lost)} missing still, as no server shows it now; {advice}: {_listed(lost)}")

    def note_faults(self) -> None:
        """Say which servers could not be asked."""
        for name, reason in self.faults.items():
            note(f"{name} could not be asked, and its entries stay: {_on_one_line(reason)}")


@click.group("lock", invoke_without_command=True)
@click.option("--check", "is_check", is_flag=True, help="Write nothing; exit code 1 if anything differs. For CI.")
@click.option("--anew", "is_anew", is_flag=True, help="Write it from nothing, whatever is there: also a broken file.")
@config_option
@as_json_option
@standalone_option
@header_option
@click.pass_context
def lock_command(
    context: click.Context, *, is_check: bool, is_anew: bool, config: str | None, as_json: bool, standalone: bool
) -> int:
    """Write down what the servers show now, in `servers.lock` beside the configuration.

    The file has a line for each tool, prompt, resource and template, the instructions, the server's name and version,
    and how it is started or where it is. While the bridge runs, what is not in the lock is held back (`pin`).

    With --anew, only what servers show now is in it: entries of servers that are switched off go.

    \u0008
    Examples:
      mcpbridge lock
      mcpbridge lock --check
      mcpbridge lock --anew
      mcpbridge lock diff github
      mcpbridge lock approve github/create_issue
      mcpbridge lock sign
      mcpbridge lock verify
    """
    if (command := context.invoked_subcommand) is not None:
        if config or is_check or is_anew or as_json or standalone:
            raise click.UsageError(f"options come after the word: mcpbridge lock {command} …")
        return OK

    if is_check and is_anew:
        raise click.UsageError("--check writes nothing: it does not go with --anew")

    async def locking(session: Session) -> int:
        review = await _review(session, config, is_anew=is_anew)
        if is_anew and review.faults:
            fail(UNREACHABLE, f"not every server could be asked, and nothing was written: {review.reasons}", _ADVICE)
        return _checked(review, as_json=as_json) if is_check else await _written(session, review, as_json=as_json)

    return run(locking, config, standalone=standalone, as_json=as_json)


lock_command.add_command(sign)
lock_command.add_command(verify)


@lock_command.command("diff")
@click.argument("server", required=False)
@config_option
@as_json_option
@standalone_option
@header_option
def diff(*, server: str | None, config: str | None, as_json: bool, standalone: bool) -> int:
    """Show what SERVER, or every server, has changed since the lock was written, each with its class.

    \u0008
    Examples:
      mcpbridge lock diff
      mcpbridge lock diff github --json
    """

    async def comparing(session: Session) -> int:
        review = await _review(session, config, server or "", by_sight=True)
        if review.is_new and not as_json:
            if must_be_signed():
                note(f"the lock {lock_is_trusted(review.path)}; until then all is held")
            else:
                note(f"{review.path} is not there: compared with what the bridge saw of each server first")
        if as_json:
            print_json("lock-diff/1", review.document())
        else:
            review.show()
            review.note_missing()
            review.note_faults()
        return OK

    return run(comparing, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)


@lock_command.command("approve")
@click.argument("name", metavar="SERVER[/NAME]")
@config_option
@as_json_option
@standalone_option
@header_option
def approve(*, name: str, config: str | None, as_json: bool, standalone: bool) -> int:
    """Take over what SERVER shows now, or one tool, prompt, resource or fact of it, and nothing else.

    \u0008
    Examples:
      mcpbridge lock approve github
      mcpbridge lock approve github/create_issue
      mcpbridge lock approve github/instructions
    """
    server, _, inner = name.partition("/")

    async def approving(session: Session) -> int:
        review = await _review(session, config, server, lambda one: inner in ("", one.key.name), by_sight=True)
        if server in review.faults:
            reason = _on_one_line(review.faults[server])
            fail(UNREACHABLE, f"{server} could not be asked, and nothing was written: {reason}", _ADVICE)
        if inner and inner not in review.names:
            close = nearest(inner, review.names, limit=1)
            advice = f"Did you mean {close[0]!r}?" if close else "`mcpbridge lock diff` shows what has changed."
            fail(USAGE, f"{visible(server)} has nothing that is called {visible(inner)!r}", visible(advice))
        if review.is_new and must_be_signed():
            advice = "Write it with `mcpbridge lock`, review it, and sign it with `mcpbridge lock sign`."
            fail(USAGE, f"nothing was agreed to: the lock {lock_is_trusted(review.path)}", advice)
        if review.changed and review.is_new:
            if not (await session.ask("approve", server=server, name=inner, who=who()))["approved"]:
                fail(USAGE, "nothing was agreed to: the change is over", "`mcpbridge lock diff` shows what there is.")
        elif review.changed:
            review.write()
            await _follow(session, server=server, detail=inner or "all of it")
        if as_json:
            print_json("lock-approve/1", {**review.document(), "written": bool(review.changed)})
        elif review.changed:
            review.show()
            where = "what the bridge remembers: there is no servers.lock" if review.is_new else str(review.path)
            note(f"{counted(len(review.changed), 'entry')} agreed to in {where}")
            if not review.is_new:
                _note_signature(review.path)
        else:
            note(f"nothing of {visible(name)} has changed")
        return OK

    return run(approving, config, standalone=standalone, as_json=as_json, servers=[server])


def _checked(review: _Review, *, as_json: bool) -> int:
    unsigned = "" if review.is_new else signature_fault(review.path)
    if as_json:
        print_json("lock/1", {**review.document(), "written": False, "unsigned": unsigned})
    else:
        if review.is_new:
            note(f"{review.path} is not there yet; `mcpbridge lock` writes it")
        review.show(is_fine=not unsigned)
        review.note_missing()
        if unsigned:
            note(f"the lock {unsigned}")
    if review.faults:
        fail(UNREACHABLE, f"not every server could be asked: {review.reasons}", _ADVICE)
    return DIFFERS if review.changed or review.missing or review.is_new or unsigned else OK


async def _written(session: Session, review: _Review, *, as_json: bool) -> int:
    if review.is_new and review.faults and not review.changed:
        fail(UNREACHABLE, f"no server could be asked, and nothing was written: {review.reasons}", _ADVICE)
    must_write = review.is_new or bool(review.changed) or bool(review.offered)
    if must_write:
        review.write()
        await _follow(session)
    if as_json:
        unsigned = signature_fault(review.path)
        print_json("lock/1", {**review.document(), "written": must_write, "unsigned": unsigned})
        return OK
    if not review.is_new:
        review.show()
    if must_write:
        servers = len(accept(review.lock, review.changed).servers)
        note(f"{review.path} agrees to what {counted(servers, 'server')} {'shows' if servers == 1 else 'show'} now")
    review.note_lost()
    review.note_faults()
    _note_signature(review.path)
    return OK


def _note_signature(path: Path) -> None:
    """Say that the lock has to be signed before it counts."""
    if why := signature_fault(path):
        where = "" if must_be_signed() else " where keys are trusted"
        note(f"the lock {why}; what it agrees to takes effect{where} after `mcpbridge lock sign`")


async def _follow(session: Session, **of: str) -> None:
    """Have the bridge read the lock that was written, so that it is in effect when the command ends."""
    with suppress(CommandFailed):  # it is in the file: a daemon of another release finds it by itself
        await session.ask("lock_written", who=who(), **of)


async def _review(
    session: Session,
    config: str | None,
    server: str = "",
    wanted: Callable[[Difference], bool] = lambda _: True,
    *,
    by_sight: bool = False,
    is_anew: bool = False,
) -> _Review:
    """Read the lock, ask the servers, and compare. A lock that is broken ends the command before a server is asked.

    `by_sight`: without a lock, compare with what the bridge saw of the servers first. `is_anew`: as if there were none.
    """
    path = lock_path(config_path(config))
    known = None if is_anew else read_lock(path)
    lock = known or Lock({})
    answer = await session.ask("lock", server=server)
    servers: Mapping[str, Any] = answer["servers"]
    now: dict[str, Sequence[Pin]] = {
        name: [Pin(pin["kind"], pin["name"], b64decode(pin["definition"])) for pin in one["pins"]]
        for name, one in servers.items()
        if not one["fault"]
    }
    if server and server not in servers:
        fail(UNREACHABLE, f"{visible(server)} is switched off", f"`mcpbridge enable {server}` switches it on.")
    if not server:
        now.update(dict.fromkeys(lock.servers - {*answer["configured"]}, ()))
    if known is None and by_sight:
        found = [one for name, of in servers.items() for one in _unapproved(name, of["unapproved"]) if wanted(one)]
    else:
        rules = {name: Rules(holds=True, ignore=tuple(of["ignore"])) for name, of in servers.items()}
        found = [
            one
            for one in differences(lock, now, partial(read_definition, path))
            if wanted(one) and not (one.key.server in rules and rules[one.key.server].allows(one.key.name, one.changes))
        ]
    faults = {name: str(one["fault"]) for name, one in servers.items() if one["fault"]}
    names = {one.name for pins in now.values() for one in pins}
    names |= {key.name for key in lock.entries if server in ("", key.server)}
    names |= {one.key.name for one in found}
    missing = missing_texts(lock, {server} if server else lock.servers, partial(read_definition, path))
    lost = {digest for digests in missing.values() for digest in digests}
    shown = {sha256(one.definition).hexdigest(): one.definition for pins in now.values() for one in pins}
    offered = {digest: shown[digest] for digest in lost if digest in shown}
    return _Review(path, lock, known is None, found, faults, names, missing, offered)


def _unapproved(server: str, findings: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """What the bridge found changed, as differences."""
    return [
        Difference(
            PinKey(server, one["kind"], one["name"]),
            tuple(Change(change["change"], change["where"], change["detail"]) for change in one["changes"]),
            (),
        )
        for one in findings
    ]


_MOST_LISTED = 20
"""Definitions that one line names."""


def _texts_of(keys: Collection[PinKey]) -> str:
    return "the text of 1 definition is" if len(keys) == 1 else f"the texts of {len(keys)} definitions are"


def _listed(keys: Iterable[PinKey]) -> str:
    names = [_name_of(key) for key in keys]
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _name_of(key: PinKey) -> str:
    return _on_one_line(f"{key.server} {key.name}" if key.kind == "server" else f"{key.server}/{key.name}")


def _on_one_line(text: str) -> str:
    return " ".join(visible(text).split())
