"""What is wrong in clients: the bridge's entry in their files, servers listed twice, lists too long for them.

What is known of clients is in `catalog/listing/client_quirks.py`; what each would be listed is decided as a running
bridge does. Pure.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from mcpbridge.app.client_config.discover.discovered_servers import Found, FoundServer
from mcpbridge.app.client_config.importing.merge import is_bridge, program_of
from mcpbridge.app.client_config.importing.needed_variables import variables_in
from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.server_tools import few
from mcpbridge.catalog.listing.client_quirks import TRAITS
from mcpbridge.catalog.listing.exposure import exposure_of, mode_for
from mcpbridge.catalog.listing.profiles import scopes_of
from mcpbridge.config.schema import Settings

_REFERENCE = re.compile(r"\$\{[^}]*\}")

_KEEPS = {"codex": re.compile(""), "gemini": re.compile("KEY|TOKEN|SECRET", re.IGNORECASE)}
"""By client: which variables it hands on only if its file names them."""

_Identity = tuple[str, ...]


def about_clients_files(
    discovered: Found, servers: Mapping[str, Mapping[str, object]], path: str | None
) -> Iterator[Finding]:
    """All of it, client by client.

    `servers`: those behind the bridge, as they are written down; `path`: where programs are looked for.
    """
    for problem in discovered.problems:
        if problem.is_error:
            what = f"a file of {problem.client or 'a client'} cannot be read: {problem.message}"
            yield Finding("client-file-broken", "warn", what, "", str(problem.file))
    behind = {_identity(server): name for name, server in servers.items()}
    of_client = defaultdict[str, list[FoundServer]](list)
    for one in discovered.servers:
        if not one.skipped:
            of_client[one.client].append(one)
    for client, entries in of_client.items():
        ours = [one for one in entries if is_bridge(one.name, one.server)]
        yield from _of_bridge(client, ours, path)
        yield from _without_variables(ours, servers)
        twice = [one for one in entries if _is_in(one, behind) and not one.server.get("disabled")]
        if twice:
            yield _twice(twice, has_bridge=bool(ours))
    yield from _in_several(of_client, behind)


def _of_bridge(client: str, ours: Sequence[FoundServer], path: str | None) -> Iterator[Finding]:
    for one in ours:
        command, where = str(one.server.get("command") or ""), one.place
        if command and shutil.which(command, path=path) is None and shutil.which(command) is None:
            what = f"{one.title} would start the bridge with {command}, which is not there any more"
            fix = f"Run {_install(one)}."
            yield Finding("entry-broken", "warn", what, "", where, "It was moved, or its environment was removed.", fix)
        elif command and one.scope != "project" and not _names_config(one.server):
            what = f"{one.title} starts the bridge without saying with which configuration"
            why = "It is started in whatever directory is opened, and has to find its configuration from there."
            yield Finding("entry-without-config", "note", what, "", where, why, f"Run {_install(one)}.")
        if client == "gemini" and "_" in one.name:
            what = f"{one.title} knows the bridge as {one.name!r}, with a `_`"
            why = "It takes the part before the first `_` of a tool's name for the server."
            yield Finding("name-with-underscore", "warn", what, "", where, why, "Call the entry `mcpbridge`.")
    if len(ours) > 1 and len({one.file for one in ours}) > 1:
        what = f"{ours[0].title} has the bridge {len(ours)} times"
        where = ", ".join(one.place for one in ours)
        yield Finding("bridge-twice", "warn", what, "", where, "Models see every tool as often.", "Take one out.")


def _names_config(server: Mapping[str, object]) -> bool:
    args, env = server.get("args"), server.get("env")
    words = [str(word) for word in cast("list[object]", args)] if isinstance(args, list) else []
    is_in_env = isinstance(env, dict) and "MCPBRIDGE_CONFIG" in env
    return is_in_env or any(word == "--config" or word.startswith("--config=") for word in words)


def _without_variables(ours: Sequence[FoundServer], servers: Mapping[str, Mapping[str, object]]) -> Iterator[Finding]:
    """Variables that servers wait for and a client keeps from the bridge."""
    on = [dict(server) for server in servers.values() if server.get("disabled") is not True]
    needed = dict.fromkeys(name for name, is_needed in variables_in(on) if is_needed)
    for one in ours:
        if not one.server.get("command") or one.client not in _KEEPS:
            continue
        given = [*_names(one.server.get("inherit_env")), *_names(one.server.get("env"))]
        kept = [name for name in needed if name not in given and _KEEPS[one.client].search(name)]
        if kept:
            what = f"{one.title} does not hand on {few(kept, 5)}"
            why = "Servers that are in use wait for it, and are off unless another client or the daemon has it."
            fix = f"Run {_install(one)}, with these variables set."
            yield Finding("variables-kept", "note", what, "", one.place, why, fix)


def _names(value: object) -> list[str]:
    return (
        [str(name) for name in cast("list[object] | dict[str, object]", value)]
        if isinstance(value, list | dict)
        else []
    )


def _install(one: FoundServer) -> str:
    """The command that puts an entry in order."""
    scope = "" if one.scope == "user" else f" --scope {one.scope}"
    return f"`mcpbridge install {one.client}{scope}`"


def _twice(entries: Sequence[FoundServer], *, has_bridge: bool) -> Finding:
    first = entries[0]
    where, names = first.place, few([one.name for one in entries], 5)
    how_many = f"{len(entries)} servers that are" if len(entries) > 1 else "a server that is"
    if has_bridge:
        what = f"{first.title} starts {how_many} behind the bridge too: {names}"
        why = "It has them twice: their processes, and their tools in its model's context."
    else:
        what = f"{first.title} starts {how_many} behind the bridge: {names}"
        why = "It could share those of the bridge."
    fix = f"Run `mcpbridge install {first.client} --replace`: it leaves the bridge as the only entry, and keeps a copy."
    return Finding("server-twice", "warn" if has_bridge else "note", what, "", where, why, fix)


def _in_several(of_client: Mapping[str, Sequence[FoundServer]], behind: Mapping[_Identity, str]) -> Iterator[Finding]:
    """Servers that several clients start, each for itself, and the bridge does not have."""
    by_identity = defaultdict[_Identity, dict[str, FoundServer]](dict)
    for client, entries in of_client.items():
        for one in entries:
            if not is_bridge(one.name, one.server) and not _is_in(one, behind):
                by_identity[_identity(one.server)][client] = one
    for identity, clients in by_identity.items():
        if identity and len(clients) > 1:
            found = list(clients.values())
            what = f"{', '.join(one.title for one in found)} each start their own {found[0].name}"
            where = ", ".join(one.place for one in found)
            fix = "Run `mcpbridge import`, then `mcpbridge install CLIENT --replace` for each of them."
            yield Finding("server-in-several-clients", "note", what, "", where, fix=fix)


def _is_in(one: FoundServer, behind: Mapping[_Identity, str]) -> bool:
    identity = _identity(one.server)
    return bool(identity) and identity in behind


def _identity(server: Mapping[str, object]) -> _Identity:
    """The same for what does the same work, whatever its variables; empty: it cannot be told."""
    if url := str(server.get("url") or ""):
        return ("url", _REFERENCE.sub("${}", url).rstrip("/").lower())
    program, args = program_of(server)
    kept = [_REFERENCE.sub("${}", word) for word in args if word not in ("-y", "--yes")]
    return ("command", program, *kept) if program else ()


def about_clients(settings: Settings, tools: Mapping[str, int], source: Source) -> Iterator[Finding]:
    """Clients that would not take the list as it is. `tools`: tokens of each by the name that clients see."""
    scopes = scopes_of(settings.profiles, settings.servers)
    tokens = sum(tools.values())
    for traits in TRAITS:
        client = traits.names[0].rstrip("*")
        exposure = exposure_of(settings.expose, client, scopes)
        if mode_for(exposure, len(tools), tokens) != "all" or exposure.scope is not None:
            continue  # it finds tools by searching, or its profile leaves some out
        if 0 < traits.max_tools < len(tools):
            what = f"{client} takes {traits.max_tools} tools, and would be listed {len(tools)}"
            fix = f'Have it search them: [expose.clients."{client}"] mode = "auto".'
            where = source.where("expose")
            yield Finding("too-many-tools", "warn", what, "", where, "It drops the rest without a word.", fix)
        cut = [name for name in tools if 0 < traits.name_length < len(name)]
        if cut:
            what = f"{client} cuts or drops names longer than {traits.name_length} characters: {few(cut)}"
            fix = "Leave `bridge.name_length` at 48."
            yield Finding("name-too-long", "warn", what, "", source.where("bridge", "name_length"), fix=fix)
