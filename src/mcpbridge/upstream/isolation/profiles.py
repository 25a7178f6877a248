"""What well-known servers need in the sandbox: the folders that their arguments name, and hosts. Pure.

A profile is for a package by its name. It is what `sandbox = "profile"` takes and the doctor suggests; a table with
`profile` adds to it, and says otherwise what it names itself.
"""

import os.path
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from mcpbridge.sandbox.settings import FileAccess
from mcpbridge.upstream.isolation.packages import Package
from mcpbridge.upstream.isolation.settings import BY_PACKAGE, ServerSandbox

_MCP = "@modelcontextprotocol/server-"
_ANY_OWNER = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Where the bridge runs as root, the server is another user, and git refuses folders of others."""


class Profile(Struct, frozen=True):
    """What one server needs."""

    packages: tuple[str, ...]
    """Names of its packages and programs."""
    network: Literal["none", "open"] | tuple[str, ...] = "none"
    takes_folders: bool = False
    """Its arguments that are no options are folders, which it may change."""
    folder_options: tuple[str, ...] = ()
    """Options whose value is a folder that it may change."""
    file_options: tuple[str, ...] = ()
    """Options whose value is a file that it may change, with what it writes beside it."""
    file_variables: tuple[str, ...] = ()
    """Variables of that kind."""
    env: Mapping[str, str] = {}
    """Variables that it needs in the sandbox."""


PROFILES: Mapping[str, Profile] = {
    "brave-search": Profile(
        (f"{_MCP}brave-search", "@brave/brave-search-mcp-server"), network=("api.search.brave.com:443",)
    ),
    "context7": Profile(("@upstash/context7-mcp",), network=("context7.com:443", "*.context7.com:443")),
    "everything": Profile((f"{_MCP}everything", "mcp-server-everything")),
    "fetch": Profile(("mcp-server-fetch",), network="open"),
    "filesystem": Profile((f"{_MCP}filesystem", "mcp-server-filesystem"), takes_folders=True),
    "git": Profile(("mcp-server-git",), folder_options=("-r", "--repository"), env=_ANY_OWNER),
    "github": Profile(
        (f"{_MCP}github", "github-mcp-server"),
        network=("api.github.com:443", "github.com:443", "*.githubusercontent.com:443"),
    ),
    "gitlab": Profile((f"{_MCP}gitlab",), network=("gitlab.com:443",)),
    "google-maps": Profile((f"{_MCP}google-maps",), network=("maps.googleapis.com:443",)),
    "memory": Profile((f"{_MCP}memory", "mcp-server-memory"), file_variables=("MEMORY_FILE_PATH",)),
    "notion": Profile(("@notionhq/notion-mcp-server",), network=("api.notion.com:443",)),
    "sentry": Profile(("@sentry/mcp-server", "mcp-server-sentry"), network=("sentry.io:443", "*.sentry.io:443")),
    "sequential-thinking": Profile((f"{_MCP}sequential-thinking", "mcp-server-sequential-thinking")),
    "slack": Profile((f"{_MCP}slack",), network=("slack.com:443", "*.slack.com:443")),
    "sqlite": Profile(("mcp-server-sqlite",), file_options=("--db-path",)),
    "time": Profile(("mcp-server-time",)),
}
"""By the name that `profile` takes."""


def profile_of(package: Package) -> str:
    """The name of the profile for a package; empty: none is known."""
    return next((name for name, profile in PROFILES.items() if package.name.lower() in profile.packages), "")


def chosen_profile(wanted: str, package: Package) -> Profile:
    """The profile that a server's settings name.

    Raises:
        ValueError: there is none; says which there are.
    """
    name = profile_of(package) if wanted == BY_PACKAGE else wanted
    if name in PROFILES:
        return PROFILES[name]
    what = f"no profile is known for `{package.name}`" if wanted == BY_PACKAGE else f"there is no profile `{wanted}`"
    names = ", ".join(PROFILES)
    raise ValueError(f"{what}: write what it needs as a table, such as sandbox = {{ network = [\"HOST:PORT\"] }}. "
                     f"Profiles: {names}")  # fmt: skip


def with_profile(own: ServerSandbox, package: Package, env: Mapping[str, str], cwd: str) -> ServerSandbox:
    """The sandbox of a server with what its profile adds. `own`: its table; `env`: the variables of its settings.

    Raises:
        ValueError: it names a profile that there is not.
    """
    if own.profile is None:
        return own
    profile = chosen_profile(own.profile, package)
    folders = [os.path.normpath(os.path.join(cwd, folder)) for folder in _folders(profile, package, env)]  # noqa: PTH118 - pure
    files = own.allow_fs or FileAccess()
    written = (*files.read_write, *(folder for folder in folders if os.path.isabs(folder)))  # noqa: PTH117 - pure
    has_network = own.network is not None or own.allow_network is not None
    return own.model_copy(
        update={
            "allow_fs": FileAccess(read_only=files.read_only, read_write=tuple(dict.fromkeys(written))),
            "network": own.network if has_network else profile.network,
            "env": {**profile.env, **own.env},
        }
    )


def _folders(profile: Profile, package: Package, env: Mapping[str, str]) -> Iterator[str]:
    arguments = package.arguments
    if profile.takes_folders:
        yield from (argument for argument in arguments if not argument.startswith("-"))
    yield from _values(arguments, profile.folder_options)
    files = [*_values(arguments, profile.file_options), *(env.get(name, "") for name in profile.file_variables)]
    yield from (os.path.dirname(file) for file in files if file)  # noqa: PTH120 - pure


def _values(arguments: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in options:
            yield value if equals else next(iter(arguments[place + 1 : place + 2]), "")
