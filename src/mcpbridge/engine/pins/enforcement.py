"""Compare what servers show with what people agreed to, and decide what clients get of it.

Definitions come through here before they enter the catalog (`wiring/upstream_events.py`), so every list, search and
signature shows what is decided here. What they are compared with is `servers.lock` where there is one, else what was
seen of the server first. Where nothing has changed since the last time, that costs a comparison of bytes, and at a
start a digest of them; what changed is reviewed by `catalog/pins/review.py`, which is not loaded before.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbridge.base.log import get_logger
from mcpbridge.catalog.upstream_filter import UNAPPROVED, Withheld
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import Tool
from mcpbridge.engine.pins.first_sight import Checked, SightStore
from mcpbridge.engine.pins.lock_watch import LockWatch
from mcpbridge.pipeline.stages.held_definition import Judge
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.settings import PinPolicy, ServerSettings
from mcpbridge.upstream.supervisor import LONGEST_TITLE, Upstream

if TYPE_CHECKING:  # loaded with the first comparison
    from mcpbridge.catalog.pins.held_calls import HeldTool
    from mcpbridge.catalog.pins.review import Baseline, Finding, Rules

log = get_logger("mcpbridge.pins")

POLL_SECONDS = 1.0
"""Seconds between two looks at `servers.lock`."""
CHANGED = "server.definition_changed"
"""The event of the timeline that a server shows something that nobody agreed to."""
MOST_LOGGED = 20
"""Changes of one server that are logged one by one at a time."""

_EMPTY: Mapping[str, tuple[bytes, ...]] = {}
_NONE: Mapping[str, Mapping[bytes, str]] = {}


@dataclass(slots=True)
class _Server:
    """What was decided last of one server."""

    lists: Lists | None = None
    """What it offered then; None: it has not listed."""
    basis: str = ""
    """What that was compared with, and how."""
    listing: Mapping[str, tuple[bytes, ...]] = field(default_factory=lambda: _EMPTY)
    withheld: tuple[Withheld, ...] = ()
    of_lists: "tuple[Finding, ...]" = ()
    of_itself: "tuple[Finding, ...]" = ()
    """About its instructions, name, version, command and address."""
    held: "Mapping[str, HeldTool]" = field(default_factory=dict[str, "HeldTool"])
    agreed: Mapping[str, Mapping[bytes, str]] = field(default_factory=lambda: _NONE)
    """By kind, the definitions that were reviewed and are as agreed, with their names."""
    logged: "frozenset[Finding]" = frozenset()


class PinEnforcement:
    """What is decided for one bridge. All methods are called on the event loop's thread."""

    def __init__(
        self,
        directory: Path | None,
        redact: Callable[[str], str],
        tools: Callable[[], Mapping[str, Collection[str]]],
        held_changed: Callable[[str], object],
        note: Callable[[str, Mapping[str, object]], object] = lambda kind, facts: None,
    ) -> None:
        """`directory`: where first sights are kept; None: nowhere. `tools`: by server, the names of its tools now.

        `held_changed` hears of servers whose calls are to be treated in another way. `note` gets an event for each
        change: its kind, and its facts.
        """
        self._redact, self._tools, self._held_changed, self._note = redact, tools, held_changed, note
        self._store, self.lock = SightStore(directory), LockWatch()
        self._servers: dict[str, _Server] = {}
        self._settings: Mapping[str, ServerSettings] = {}
        self._policy: PinPolicy | None = None
        self._ignore: tuple[str, ...] = ()

    def configure(self, settings: Settings) -> bool:
        """Decide by these settings from now on. Returns whether what was decided so far may be different now."""
        before = {name: self._basis(name) for name in self._servers}
        self._settings, self._policy = settings.servers, settings.pin
        self._ignore = tuple(settings.pin_ignore)
        self.lock.follow(settings.source)
        self._store.follow(settings.source)
        return any(self._basis(name) != basis for name, basis in before.items())

    def forget(self, server: str) -> None:
        """There is no such server any more."""
        self._servers.pop(server, None)

    def policy(self, server: str) -> PinPolicy:
        """What becomes of changes of this server."""
        settings = self._settings.get(server)
        own = settings.pin if settings is not None else None
        return own or self._policy or ("hold" if self.lock.exists else "warn")

    def ignored(self, server: str) -> tuple[str, ...]:
        """Globs on names of this server of which the wording may change."""
        settings = self._settings.get(server)
        return (*self._ignore, *(settings.pin_ignore if settings is not None else ()))

    # -- what clients get

    def listed(self, server: str, lists: Lists) -> Mapping[str, tuple[bytes, ...]]:
        """What is listed of what this server offers."""
        state, basis = self._servers.setdefault(server, _Server()), self._basis(server)
        if state.lists == lists and state.basis == basis:
            return state.listing
        held_before = state.held
        known = state.agreed if state.basis == basis else _NONE
        state.lists, state.basis = dict(lists), basis
        state.listing, state.withheld, state.of_lists, state.held, state.agreed = lists, (), (), {}, _NONE
        if self.policy(server) != "off":
            digest = _digest(basis, lists)
            if self._store.checked(server).lists != digest:
                self._review_lists(server, lists, state, known)
                self._keep_checked(server, lists="" if state.of_lists else digest)
            else:
                state.agreed = known
        if state.held != held_before:
            self._held_changed(server)
        self._report(server, state)
        return state.listing

    def withheld(self, server: str) -> tuple[Withheld, ...]:
        """What is not listed of what it offered last."""
        state = self._servers.get(server)
        return state.withheld if state is not None else ()

    def replaced(self, server: str) -> Mapping[str, Sequence[bytes]]:
        """The definitions that it shows and of which an older one is listed, or none, by list."""
        state = self._servers.get(server)
        if state is None or state.lists is None or state.listing is state.lists:
            return {}
        listed = {kind: set(definitions) for kind, definitions in state.listing.items()}
        return {
            kind: [one for one in definitions if one not in listed.get(kind, ())]
            for kind, definitions in state.lists.items()
        }

    def introduced(self, upstream: Upstream) -> tuple[str, str]:
        """The instructions and the title of a server that clients get."""
        server, instructions, title = upstream.name, upstream.own_instructions, upstream.own_title
        state, basis = self._servers.setdefault(server, _Server()), self._basis(server)
        state.of_itself = ()
        if self.policy(server) == "off":
            return instructions, title
        facts = self._facts(upstream)
        of_instructions = _digest(basis, {"instructions": (instructions.encode(errors="replace"),)})
        of_facts = _digest(basis, {name: (value,) for name, value in facts.items()})
        checked = self._store.checked(server)
        if checked.instructions == of_instructions and (not facts or checked.facts == of_facts):
            return instructions, title
        from mcpbridge.catalog.pins.review import LockBaseline, review_facts, review_instructions, title_of

        baseline, rules = self._baseline(server), self._rules(server)
        if isinstance(baseline, LockBaseline) and baseline.is_empty:  # that is said of its lists
            return ("", "") if rules.holds else (instructions, title)
        if baseline.names("server") is None:
            if not upstream.identity:
                return instructions, title  # it has not said all of this yet
            self._see_first(server, "server", _statements(instructions, facts))
            baseline = self._baseline(server)
        review = review_instructions(instructions, baseline, rules)
        changed = review_facts(facts, baseline)
        state.of_itself = (*review.findings, *changed)
        self._keep_checked(
            server,
            instructions="" if review.findings else of_instructions,
            **({"facts": "" if changed else of_facts} if facts else {}),
        )
        self._report(server, state)
        is_renamed = rules.holds and any(one.name == "identity" for one in changed)
        return review.instructions, title_of(baseline)[:LONGEST_TITLE] if is_renamed else title

    def judge(self, tool: Tool) -> Judge | None:
        """What decides about the calls of a tool of which an old definition is listed; None: they all pass."""
        state = self._servers.get(tool.server)
        held = state.held.get(tool.name) if state is not None else None
        if held is None or held.effect == "held":
            return None
        from mcpbridge.engine.pins.held_calls import judge_of

        return judge_of(tool, held)

    def changes_of(self, tool: Tool) -> str:
        """The classes of what its server changed of a tool and nobody agreed to; empty: none. No text of it."""
        of_it = (one for one in self.findings(tool.server) if one.kind == "tools" and one.name == tool.name)
        return ", ".join(dict.fromkeys(change.what for one in of_it for change in one.changes))

    # -- what is found

    def findings(self, server: str) -> "tuple[Finding, ...]":
        """What this server shows and nobody agreed to."""
        state = self._servers.get(server)
        return (*state.of_itself, *state.of_lists) if state is not None else ()

    def status(self, server: str) -> dict[str, Any]:
        """The policy of a server, and what it shows that nobody agreed to, as JSON values."""
        unapproved: list[dict[str, Any]] = []
        if findings := self.findings(server):
            from mcpbridge.engine.pins.words import as_json

            unapproved = [as_json(server, one) for one in findings]
        return {"pin": self.policy(server), "unapproved": unapproved}

    def approve(self, upstream: Upstream, name: str = "") -> bool:
        """Agree to what a server shows, where there is no `servers.lock`; to all, or to what has this name.

        Returns whether that changed anything. What clients get changes with the next review.
        """
        wanted = [one for one in self.findings(upstream.name) if name in ("", one.name)]
        if not wanted:
            return False
        from mcpbridge.catalog.pins.definition import PIN_KINDS
        from mcpbridge.catalog.pins.server_pins import name_of

        sight = self._store.sight(upstream.name).definitions()
        for kind in PIN_KINDS:
            if all(one.kind != kind for one in wanted):
                continue
            now = _statements(upstream.own_instructions, self._facts(upstream))
            if kind != "server":
                now = _by_name((name_of(kind, one), one) for one in upstream.lists.get(kind, ()))
            seen = dict(sight.get(kind, {}))
            for one in wanted:
                if one.kind == kind:
                    seen.pop(one.name, None)
                    if one.name in now:
                        seen[one.name] = now[one.name]
            self._see_first(upstream.name, kind, seen)
        self._store.keep_checked(upstream.name, Checked())
        self._servers.pop(upstream.name, None)
        return True

    def approve_tools(self, server: str, tools: Iterable[bytes], name: str = "") -> bool:
        """The same for tools that no server has."""
        wanted = {one.name for one in self.findings(server) if name in ("", one.name)}
        if not wanted:
            return False
        from mcpbridge.catalog.pins.server_pins import name_of

        now = _by_name((name_of("tools", one), one) for one in tools)
        before = self._store.sight(server).definitions().get("tools", {})
        seen = {one: definition for one, definition in before.items() if one not in wanted}
        self._see_first(server, "tools", seen | {one: now[one] for one in now if one in wanted})
        self._store.keep_checked(server, Checked())
        self._servers.pop(server, None)
        return True

    async def watch(self, changed: Callable[[], object]) -> None:
        """Follow `servers.lock` until cancelled; `changed` is called when it is another one."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self.lock.look():
                changed()

    # -- how it is compared

    def _basis(self, server: str) -> str:
        """With what a server is compared and how, as one text."""
        policy = self.policy(server)
        return f"{policy} {self.lock.basis or 'sight'} {self.ignored(server)}" if policy != "off" else policy

    def _rules(self, server: str) -> "Rules":
        from mcpbridge.catalog.pins.review import Rules

        return Rules(self.policy(server) == "hold", self.ignored(server))

    def _baseline(self, server: str) -> "Baseline":
        from mcpbridge.catalog.pins.review import LockBaseline, SightBaseline

        if self.lock.exists:
            return LockBaseline(self.lock.lock(), server, self.lock.definition)
        return SightBaseline(self._store.sight(server).definitions())

    def _review_lists(
        self, server: str, lists: Lists, state: _Server, known: Mapping[str, Mapping[bytes, str]]
    ) -> None:
        from mcpbridge.catalog.pins.review import LockBaseline, review_lists, unknown_server

        rules, baseline = self._rules(server), self._baseline(server)
        if isinstance(baseline, LockBaseline):
            if baseline.is_empty:
                review = unknown_server(lists, rules)
            else:
                review = review_lists(lists, baseline, rules, cache(partial(self._others, server)), known)
        else:
            self._see_new_kinds(server, lists, baseline)
            baseline = self._baseline(server)
            review = review_lists(lists, baseline, rules, cache(partial(self._others, server)), known)
        state.listing, state.of_lists, state.held = review.lists, review.findings, review.held
        state.agreed = review.agreed
        state.withheld = tuple(self._withheld(server, lists, review.findings))

    def _withheld(self, server: str, lists: Lists, findings: "Iterable[Finding]") -> Iterable[Withheld]:
        from mcpbridge.catalog.pins.server_pins import name_of
        from mcpbridge.engine.pins.words import command_for

        for one in findings:
            if one.effect != "unlisted":
                continue
            reason = f"{UNAPPROVED}; `{command_for(server, one.name)}` agrees to it"
            if one.kind != "server":
                yield Withheld(one.kind, one.name, reason)
                continue
            for definition in lists.get("tools", ()):
                yield Withheld("tools", name_of("tools", definition), reason)

    def _see_new_kinds(self, server: str, lists: Lists, baseline: "Baseline") -> None:
        """Keep what is seen for the first time. A list that is empty is not seen: many are filled later."""
        from mcpbridge.catalog.pins.review import PIN_LISTS
        from mcpbridge.catalog.pins.server_pins import name_of

        for kind in PIN_LISTS:
            if lists.get(kind) and baseline.names(kind) is None:
                self._see_first(server, kind, _by_name((name_of(kind, one), one) for one in lists[kind]))

    def _see_first(self, server: str, kind: str, definitions: dict[str, bytes]) -> None:
        self._store.keep(self._store.sight(server).having(kind, definitions))

    def _keep_checked(self, server: str, **digests: str) -> None:
        if self.lock.fault:
            return  # it was compared with what this process knew before; the next one does not know it
        self._store.keep_checked(server, msgspec.structs.replace(self._store.checked(server), **digests))

    def _others(self, server: str) -> Collection[str]:
        """Names of tools that only other servers have."""
        tools = self._tools()
        own = {*tools.get(server, ())}
        return {name for other, names in tools.items() if other != server for name in names} - own

    def _facts(self, upstream: Upstream) -> dict[Any, bytes]:
        """What is known of a server that is running; empty of others. Its command and address are in locks only."""
        if not upstream.identity:
            return {}
        facts: dict[Any, bytes] = {"identity": msgspec.json.encode(upstream.identity)}
        if self.lock.exists:
            from mcpbridge.engine.pins.current_pins import how_it_is_reached, package_that_runs

            package = package_that_runs(upstream.settings, upstream.transport)
            facts |= how_it_is_reached(upstream.settings, self._redact, package)
        return facts

    # -- reports

    def _report(self, server: str, state: _Server) -> None:
        """Log each change once, until it is over."""
        findings = frozenset((*state.of_itself, *state.of_lists))
        if findings == state.logged:
            return
        from mcpbridge.engine.pins.words import command_for, described, sentence

        new = [one for one in (*state.of_itself, *state.of_lists) if one not in state.logged]
        state.logged = findings
        for one in new[:MOST_LOGGED]:
            what, changes = described(one)
            log.warning(
                "a server changed what it shows",
                upstream=server,
                what=what,
                changes=changes,
                effect=one.effect,
                approve=command_for(server, one.name),
            )
            classes = list(dict.fromkeys(change.what for change in one.changes))
            facts = {"detail": sentence(one), "of": one.kind, "name": one.name, "changes": classes}
            self._note(CHANGED, {"server": server, **facts, "effect": one.effect})
        if len(new) > MOST_LOGGED:
            self._note(CHANGED, {"server": server, "detail": f"{len(new) - MOST_LOGGED} more changes"})
            log.warning("a server changed more of what it shows", upstream=server, changes=len(new) - MOST_LOGGED)


def _statements(instructions: str, facts: Mapping[Any, bytes]) -> dict[str, bytes]:
    """What a server says of itself, as it is kept: where it is and how it is started is the user's own."""
    named = {"identity": facts["identity"]} if "identity" in facts else {}
    return {**({"instructions": msgspec.json.encode(instructions)} if instructions else {}), **named}


def _by_name(named: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """The first definition of each name."""
    found: dict[str, bytes] = {}
    for name, definition in named:
        if name:
            found.setdefault(name, definition)
    return found


def _digest(basis: str, parts: Mapping[Any, Collection[bytes]]) -> str:
    digest = hashlib.blake2b(basis.encode(errors="replace"), digest_size=16)
    for kind in sorted(parts):
        digest.update(b"\0%b %d" % (str(kind).encode(), len(parts[kind])))
        for one in parts[kind]:
            digest.update(b"\0%d " % len(one))
            digest.update(one)
    return digest.hexdigest()
