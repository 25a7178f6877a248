"""How a client has to start the bridge: which program, and with which configuration.

The configuration is always named, since clients start servers in whatever directory is opened. In a project's file,
which others have too, no path of this machine is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mcpbridge.app.cli.config.config_path import absolute, load_only_to_look, load_trusted
from mcpbridge.app.cli.output import note
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment
from mcpbridge.app.client_config.entry import Launch, is_fleeting, launch_of_this_program
from mcpbridge.app.client_config.importing.needed_variables import variables_of
from mcpbridge.app.client_config.install import Target
from mcpbridge.base.config_file import FILE_NAME, is_found_in_working_directory
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import find


@dataclass(frozen=True, slots=True)
class Launching:
    """What clients do to reach the bridge that commands started here would use."""

    config: Path
    """Absolute; perhaps about to be written."""

    more: tuple[str, ...] = ()
    url: str = ""
    """Of a bridge to visit; then nothing is started."""

    token: str = field(default="", repr=False)
    """What it asks for there: that of this user, if it is on this machine and no other is configured."""

    is_usual: bool = True
    """Nobody named the configuration, and it is the user's."""

    def from_file(self, target: Target, around: ClientEnvironment) -> Launch:
        """The start as one client's file has it."""
        is_shared = target.file.scope == "project"
        if self.url:
            if is_shared and self.token:
                note(f"{target.visible_path} may be shared, so the token of this user is not written into it")
            return Launch(url=self.url, token="" if is_shared else self.token)
        config = self._within(target, around.project) if is_shared else str(self.config)
        arguments = ["serve", *(["--config", config] if config else []), *self.more]
        variables = variables_of(self.config)
        if target.file.dialect == "gemini":  # what is not set would become an empty text there
            variables = tuple(name for name in variables if name in around.environ)
        launch = launch_of_this_program(arguments, portable=is_shared, variables=variables)
        if is_shared and Path(launch.command).is_absolute():
            why = "since no `mcpbridge` is in the PATH here; others may have it elsewhere"
            note(f"{target.visible_path} gets the path {launch.command}, {why}")
        return launch

    def _within(self, target: Target, project: Path | None) -> str:
        """The configuration as everybody who has the project can find it; empty: it lies outside."""
        for path in (self.config, self.config.resolve()):
            if project is not None and path.is_relative_to(project):
                relative = path.relative_to(project).as_posix()
                return f"${{workspaceFolder}}/{relative}" if target.client.id in _KNOWS_FOLDER else relative
        if not self.is_usual:
            what = f"{target.visible_path} does not name {self.config}, which lies outside the project"
            note(f"{what}: who opens the project gets a bridge with their own configuration")
        return ""


_KNOWS_FOLDER = {"cursor", "vscode", "vscode-insiders"}
"""Clients that put the project's directory in for a variable; others start the servers of a project there."""


def launching(
    config: str | None, profile: str | None, url: str | None, environ: Mapping[str, str], *, coming: Path | None = None
) -> Launching:
    """What clients are to do. `coming`: a configuration that is about to be written.

    Raises:
        ConfigError: there is no such configuration or profile, or it is no URL.
    """
    usual = config_directory(environ) / FILE_NAME
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"no URL: {url!r}", key="--http", hint="For instance http://127.0.0.1:8808/mcp.")
        return Launching(usual, url=url, token=_token_for(url, config, environ))
    program = launch_of_this_program([]).command
    if is_fleeting(program):
        note(f"{program} is in a cache and will vanish; install mcpbridge (`uv tool install mcpbridge`) first")
    path = absolute(coming) if coming else _configuration(config, usual, environ)
    if profile is not None:
        _check_profile(config, profile)
    return Launching(path, ("--profile", profile) if profile is not None else (), is_usual=path == usual)


def _configuration(config: str | None, usual: Path, environ: Mapping[str, str]) -> Path:
    """The file that is named or in use; the user's, if there is none yet."""
    try:
        path = absolute(find(config, environ))
    except ConfigError:
        if config or environ.get("MCPBRIDGE_CONFIG"):
            raise
        note(f"there is no configuration yet; `mcpbridge import` or `mcpbridge init` writes {usual}")
        return usual
    if is_found_in_working_directory(config, environ):  # from now on clients name it
        load_trusted(config, fetches=False)
    if path != usual and not config and not environ.get("MCPBRIDGE_CONFIG"):
        note(f"it serves {path}, the configuration of this directory (--config FILE names another)")
    return path


def _token_for(url: str, config: str | None, environ: Mapping[str, str]) -> str:
    """The token of this user, for a bridge on this machine that asks for no other; else empty.

    Raises:
        ConfigError: it cannot be read or made, or it is no URL.
    """
    from mcpbridge.config.load import load
    from mcpbridge.downstream.http.host_and_origin import is_loopback
    from mcpbridge.storage.http_token import http_token

    try:
        host = urlsplit(url).hostname or ""
    except ValueError as error:
        raise ConfigError(f"no URL: {error}", key="--http") from error
    if not is_loopback(host):
        return ""
    try:
        settings = load(config, fetches=False).settings
        if settings.auth.is_on:
            note("people sign in there (`[auth]`): the client asks for that itself")
            return ""
        if settings.http.tokens:
            note("a token of `http.tokens` is asked for there: put one into the file by hand")
            return ""
    except ConfigError:
        if config:
            raise  # without a configuration, or with a broken one, the usual token is asked for
    return http_token(environ)


def _check_profile(config: str | None, profile: str) -> None:
    known = load_only_to_look(config).settings.profiles
    if profile not in known:
        raise ConfigError(
            f"no profile is called {profile!r}", key="--profile", hint=f"Known: {', '.join(sorted(known)) or 'none'}."
        )
