"""A cassette: the upstream traffic of a program, recorded once and replayed in its tests.

It records what crosses the transports of the upstreams, and the results of calls to other services. Hooks, policies,
limits and the program's own functions run for real. In replay no process is started, no address is contacted, nobody
signs in and no variable needs to be set.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import known_only
from mcpbridge.engine.cassettes.format import as_line, read_entries
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # one of the two is used
    from mcpbridge.engine.cassettes.file import CassetteFile
    from mcpbridge.engine.cassettes.replay import Script
    from mcpbridge.tools.backend import Backend


Mode = Literal["auto", "record", "replay"]

REMOTE = frozenset({"http", "openapi", "grpc", "agent"})
"""Kinds of `[tools]` that reach other services."""
FETCHING = frozenset({"web-search", "http-get", "crypto-price"})
"""Built-in tools that do."""

_LARGEST = 256 * 1024**2

_T = TypeVar("_T")


class Cassette:
    """One cassette file, of one bridge at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Mode = "auto",
        *,
        redact: Callable[[str], str] | None = None,
        repeat: bool = True,
    ) -> None:
        """`mode`: `auto` replays a file that is there and records one that is not.

        `redact` masks further secrets in a text, beside those that the bridge knows. `repeat`: in replay, equal
        requests that come more often than in the recording get the last answer again.

        Raises:
            ConfigError: it is to be replayed, and is not there or is no cassette; says where.
        """
        self.path = Path(path)
        if mode not in ("auto", "record", "replay"):
            raise ConfigError(f"{mode!r} is no mode of a cassette", hint="There are auto, record and replay.")
        self.is_replay = mode == "replay" or (mode == "auto" and self.path.exists())
        """It answers out of the file; else it writes the file."""
        self._redact, self._repeat = redact, repeat
        self._entries = read_entries(_content(self.path), str(self.path)) if self.is_replay else []
        self._file: CassetteFile | None = None
        self._script: Script | None = None
        self._is_in_use = False

    @property
    def unmatched(self) -> list[str]:
        """In replay: what was said of requests that are not in the recording. A test may assert that it is empty."""
        return list(self._script.unmatched) if self._script is not None else []

    @property
    def unused(self) -> list[str]:
        """In replay: the lines of recorded requests that were not made."""
        return [as_line(entry).decode() for entry in self._script.unused()] if self._script is not None else []

    # -- for the bridge

    def begin(self, redact: Callable[[str], str]) -> None:
        """A bridge is made that uses it. `redact` masks the secrets that it knows.

        Raises:
            ConfigError: another one runs with it.
        """
        if self._is_in_use:
            raise self._twice()
        known, own = known_only(redact), self._redact  # what only looks like a secret is masked by the cassette itself

        def mask(text: str) -> str:
            return known(text) if own is None else own(known(text))

        if self.is_replay:
            from mcpbridge.engine.cassettes.masking import Masker
            from mcpbridge.engine.cassettes.replay import Script

            self._script = Script(str(self.path), self._entries, Masker(mask), repeat=self._repeat)
        else:
            from mcpbridge.engine.cassettes.file import CassetteFile

            self._file = CassetteFile(self.path, mask)

    @contextmanager
    def running(self) -> Generator[None]:
        """The bridge runs. Left by an error, a recording does not take the place of the file; see `CassetteFile`.

        Raises:
            ConfigError: the file cannot be written, or another bridge runs with this cassette.
        """
        if self._is_in_use:
            raise self._twice()
        self._is_in_use = True
        try:
            with nullcontext() if self._file is None else _recording(self._file):
                yield
        finally:
            self._is_in_use = False

    def _twice(self) -> ConfigError:
        return ConfigError("a bridge runs with this cassette", file=str(self.path), hint="Make one for each bridge.")

    def settings(self, settings: _T) -> _T:
        """In replay, the settings without what keeps servers and tools from being there: variables, a project."""
        if not self.is_replay:
            return settings
        given = cast("Any", settings)
        there = {"unavailable": None}
        servers = {
            name: server.model_copy(update={**there, "project_texts": ()}) for name, server in given.servers.items()
        }
        tools = {name: own.model_copy(update=there) if _is_remote(own) else own for name, own in given.tools.items()}
        return given.model_copy(update={"servers": servers, "tools": tools})

    def transport(
        self, name: str, settings: ServerSettings, make: Callable[[str, ServerSettings], Transport]
    ) -> Transport:
        """The way to a server; `make` makes the real one."""
        if self._script is not None:
            from mcpbridge.engine.cassettes.replay import ReplayTransport

            return ReplayTransport(name, settings.kind, self._script)
        assert self._file is not None, "begun before"
        from mcpbridge.engine.cassettes.record import RecordingTransport
        from mcpbridge.upstream.transports.http_detect import HttpOrSse

        file, transport = self._file, make(name, settings)
        if isinstance(transport, HttpOrSse):  # which of the two it is shows in what is recorded
            transport.wrap(lambda one: RecordingTransport(name, one, file))
            return transport
        return RecordingTransport(name, transport, file)

    def backend(self, name: str, kind: str, make: "Callable[[], Backend]") -> "Backend":
        """The backend of this name and kind; `make` makes the real one."""
        if kind not in REMOTE:
            return make()
        from mcpbridge.engine.cassettes.tool_calls import RecordedBackend, ReplayedBackend

        if self._script is not None:
            return ReplayedBackend(name, kind, self._script)
        assert self._file is not None, "begun before"
        return RecordedBackend(name, make(), self._file)

    def builtin(self, name: str, tool: _T) -> _T:
        """The built-in tool of this name, itself or in front of it what records or replays its calls."""
        if name not in FETCHING:
            return tool
        return cast("_T", _Builtin(tool, self._run_of(cast("Any", tool).run)))

    def _run_of(self, run: Callable[..., Any]) -> Callable[..., Any]:
        from mcpbridge.engine.cassettes.tool_calls import recorded, replayed

        if self._script is not None:
            return partial(replayed, self._script, "builtin")
        assert self._file is not None, "begun before"
        return partial(recorded, self._file, "builtin", run)


@contextmanager
def _recording(file: "CassetteFile") -> Generator[None]:
    file.open()
    try:
        yield
    except BaseException:
        file.leave()
        raise
    file.keep()


class _Builtin:
    """A built-in tool whose calls go another way."""

    def __init__(self, tool: object, run: Callable[..., Any]) -> None:
        self._tool, self.run = tool, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


def _is_remote(settings: object) -> bool:
    from mcpbridge.tools.factory import kind_of

    return kind_of(cast("Any", settings)) in REMOTE


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        hint = f'mode="record" records it: {path}.'
        raise ConfigError(f"the cassette cannot be read: {error.strerror}", file=str(path), hint=hint) from error
    if len(data) > _LARGEST:
        raise ConfigError("larger than 256 MiB, which no cassette is", file=str(path))
    return data
