"""Servers and directories: relative paths that mean two things, secrets within reach; and servers that stand twice."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcpbridge.client_files.sameness import start_of
from mcpbridge.doctor.finding import Finding
from mcpbridge.doctor.source import Source
from mcpbridge.upstream.settings import ServerSettings

__all__ = ["about_copies", "about_reach", "about_relative_paths"]

_SUFFIX = re.compile(r"[\w.-]+\.[A-Za-z]\w{0,9}")
"""What may be a file without a folder before it: `server.py`."""


def about_relative_paths(servers: Mapping[str, ServerSettings], source: Source, here: Path) -> Iterator[Finding]:
    """The daemon starts programs in the configuration's directory, `call` and `check` in that of the terminal, `here`.

    Of a server without `cwd`, a path that is there in one of the two only is told.
    """
    daemons = source.path.absolute().parent
    for name, server in servers.items():
        if here == daemons or server.command is None or server.cwd is not None or server.share == "project":
            continue
        for path in filter(None, map(_relative, server.args)):
            in_daemon, in_terminal = (daemons / path).exists(), (here / path).exists()
            if in_daemon == in_terminal and path not in (".", ".."):
                continue
            where = source.where("servers", name, "args")
            place = "." if in_daemon else str(here)
            what = f"{path!r} among its arguments depends on where it is started"
            why = f"The daemon starts it in {daemons}, `mcpbridge call` and `check` in the directory you are in."
            yield Finding("relative-path", "note", what, name, where, why, _fix(path, place))
            break


def about_reach(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers that are given a directory which holds the private files beside the configuration."""
    secrets = source.path.absolute().parent / "secrets"
    if not secrets.is_dir():
        return
    for name, server in servers.items():
        given = [Path(word).expanduser() for word in server.args if word.startswith(("/", "~"))]
        wide = next((path for path in given if secrets.is_relative_to(path)), None)
        if wide is not None:
            what, where = f"{wide}, which it is given, holds {secrets}", source.where("servers", name, "args")
            why = "If it reads files there for a model, it reads the secrets of all servers."
            yield Finding("secrets-in-reach", "note", what, name, where, why, "Give it the directories that it needs.")


def about_copies(servers: Mapping[str, ServerSettings], source: Source) -> Iterator[Finding]:
    """Servers of one configuration that start the same."""
    written, first = source.servers(), dict[str, str]()
    for name in servers:
        if name not in written or servers[name].disabled:
            continue
        start = start_of(written[name])
        if (other := first.setdefault(start, name)) != name:
            what, where = f"it is the same server as {other!r}", source.where("servers", name)
            why = "Each has a process of its own, and models see every tool twice."
            yield Finding("same-server", "note", what, name, where, why, "Take one of them out, or disable it.")


def _relative(argument: str) -> str:
    """A relative path in an argument, after an option's `=` too; empty if it holds none."""
    word = argument.rpartition("=")[2] if argument.startswith("-") else argument
    if re.match(r"[-/~$@\\]|[A-Za-z]:", word) or "://" in word or re.search(r"[\0\s]", word) or len(word) > 1000:
        return ""
    return word if "/" in word or word in (".", "..") or _SUFFIX.fullmatch(word) else ""


def _fix(path: str, place: str) -> str:
    if path in (".", ".."):
        return 'Write the directory out, or cwd = "${PROJECT_ROOT}" for that of the client\'s project.'
    return f'Write cwd = "{place}" into its table.'
