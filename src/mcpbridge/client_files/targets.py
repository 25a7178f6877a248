"""Which file of a client the bridge is written into. Looks at what is there, and changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mcpbridge.client_files.editing import Editor, Spot
from mcpbridge.client_files.editing_json import JsonEditor
from mcpbridge.client_files.editing_toml import TomlEditor
from mcpbridge.client_files.entries import NAME
from mcpbridge.client_files.found import Surroundings
from mcpbridge.client_files.known import CLIENTS, ClientFile, KnownClient, Place, Scope, places
from mcpbridge.errors import ConfigError

__all__ = ["Target", "all_targets", "editor_for", "target_of"]


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write into."""

    client: KnownClient
    file: ClientFile
    path: Path
    """Links resolved: what they lead to is edited, and they stay."""
    shown: Path
    """As people know it."""
    table: tuple[str, ...]
    is_used: bool
    """Whether the client has been on this machine (or in this project): its file or folder is there."""

    @property
    def spot(self) -> Spot:
        """Where in the file the bridge stands."""
        return Spot(self.table, NAME, in_list=self.file.dialect == "continue")


def target_of(client: KnownClient, around: Surroundings, scope: Scope | None = None) -> Target:
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


def all_targets(around: Surroundings, scope: Scope | None = None) -> list[Target]:
    """Those of all clients that are used here."""
    found: list[Target] = []
    for client in CLIENTS:
        if any(place.file.scope == (scope or "user") for place in _places(client, around)):
            target = target_of(client, around, scope or "user")
            is_ours = target.file.scope == "user" or target.path.is_file() or target.path.parent != around.project
            if target.is_used and (is_ours and target.path.parent.is_dir()):
                found.append(target)
    return found


def editor_for(target: Target) -> Editor:
    """What edits the file."""
    if target.file.format == "yaml":
        from mcpbridge.client_files.editing_yaml import YamlEditor  # few files need it

        return YamlEditor()
    return TomlEditor() if target.file.format == "toml" else JsonEditor()


def _places(client: KnownClient, around: Surroundings) -> Iterator[Place]:
    for place in places(client, around.environ, around.platform, around.home, around.project):
        if not place.file.reads_only:
            yield place


def _target(place: Place, around: Surroundings) -> Target:
    table = tuple(str(around.project) if key == "*" else key for key in place.file.key)
    return Target(place.client, place.file, place.path.resolve(), place.path, table, _is_used(place, around))


def _is_used(place: Place, around: Surroundings) -> bool:
    path, home = place.path, around.home
    if path.is_file():
        return True
    if place.file.scope == "project":
        return around.project is not None and around.project.is_dir()
    if path.parent == home:  # is there anyway
        return (home / f".{place.client.id.split('-')[0]}").is_dir()
    return path.parent.is_dir() or (place.client.id in path.parent.parent.name and path.parent.parent.is_dir())
