"""What the file tools share: the roots of the configuration, paths as models give them, and work in threads."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import anyio
import anyio.to_thread

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.files.settings import FilesSettings

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.sandbox.files.names import Parts
    from mcpbridge.sandbox.files.paths import Root


_T = TypeVar("_T")

READS = CallSettings(permission="allow", risk="low", read_only=True, destructive=False, idempotent=True)
"""How calls of tools are treated that only read."""

_SLACK = 5.0
"""Seconds that a thread may take beyond its time, as it looks at the clock between two steps only."""

_AT_A_TIME = 4
"""Threads; each may hold a file as large as `max_file`."""


class OutOfTime(Exception):
    """The time of a piece of work is up."""


class GivenUp(Exception):
    """Nobody waits for a piece of work any more."""


class FileToolError(Exception):
    """What the model gets in place of a result."""


class Stop:
    """Signals to work in a thread that it must end."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._end = clock, clock() + seconds
        self.is_given_up = False

    def look(self) -> None:
        """Between two steps.

        Raises:
            GivenUp: the call was cancelled.
            OutOfTime: it took too long.
        """
        if self.is_given_up:
            raise GivenUp
        if self._clock() > self._end:
            raise OutOfTime


class Files:
    """The roots. One for all file tools; `close` at the end."""

    def __init__(
        self,
        settings: FilesSettings,
        *,
        sealed: Iterable[Path | str] = (),
        code: Callable[[Sequence[str]], bool] = lambda path: False,
    ) -> None:
        """`sealed`: files and directories of the bridge itself (configuration, store, state), which need not exist.

        `code`: whether a file, given by all names of its path, is one that its tools are made of: these are read, but
        not written.
        Roots are absolute, as loading has made them.
        """
        self.settings = settings
        self._sealed_paths, self._is_code = tuple(sealed), code
        self._opened_roots: Mapping[str, Root] | None = None
        self._opening = Lock()
        self._slots: anyio.CapacityLimiter | None = None
        self.writing = Lock()
        """Held while a file is read and written again."""

    @property
    def missing(self) -> str:
        """What the tools lack, as `ToolInactive` says it; empty: nothing."""
        if not self.settings.roots:
            return "no directory is open to it (`builtin.files.roots`)"
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            return "this system cannot open files beneath a directory safely"
        return ""

    def check(self, tool: str) -> None:
        """Say if there is nothing to work with.

        Raises:
            ToolInactive: there are no roots, or they cannot be kept here.
        """
        if missing := self.missing:
            fix = "Whoever runs the bridge can set directories that tools may work in: `builtin.files.roots`."
            raise ToolInactive(tool, missing, fix if not self.settings.roots else "")

    @property
    def roots(self) -> "Mapping[str, Root]":
        """By name."""
        with self._opening:
            if self._opened_roots is None:
                self._opened_roots = self._make()
            return self._opened_roots

    def _make(self) -> "Mapping[str, Root]":
        from mcpbridge.sandbox.files.names import Sealed
        from mcpbridge.sandbox.files.paths import Root
        from mcpbridge.sandbox.files.rules import Rules

        settings = self.settings
        sealed = Sealed(self._sealed_paths)
        several = len(settings.roots) > 1

        def rules(root: str) -> Rules:
            top = Path(os.path.realpath(root)).parts
            return Rules(
                deny=settings.deny,
                protect=settings.protected,
                reads_private=settings.read_private,
                runs=lambda parts: self._is_code((*top, *parts)),
            )

        return {
            name: Root(
                path,
                name=name if several else "",
                rules=rules(path),
                sealed=sealed,
                hard_links=settings.hard_links,
            )
            for name, path in settings.roots.items()
        }

    def close(self) -> None:
        """Let go of the directories."""
        for root in (self._opened_roots or {}).values():
            root.close()

    def find(self, path: str) -> "tuple[Root, Parts] | None":
        """The root of a path and the names beneath it; None: it means all roots together.

        Raises:
            PathRefused: it is beneath none of them.
        """
        from mcpbridge.sandbox.files.names import parts_of, refused

        roots = self.roots
        parts = parts_of(path)
        if path.startswith("/"):
            found = [(root, rest) for root in roots.values() if (rest := root.beneath("/".join(parts))) is not None]
            if not found:
                raise refused(path, f"it is not beneath a directory that is open to tools ({self.root_names()})")
            root, names = min(found, key=lambda one: len(one[1]))
            return root, tuple(names)
        if len(roots) == 1:
            return next(iter(roots.values())), parts
        if not parts:
            return None
        root = roots.get(parts[0])
        if root is None:
            close = nearest(parts[0], roots, limit=1)
            hint = f"; did you mean '{close[0]}/…'?" if close else ""
            raise refused(path, f"paths begin with a root here, one of {self.root_names()}{hint}")
        return root, parts[1:]

    def places(self, path: str) -> "list[tuple[Root, Parts]]":
        """What a path means: one place, or all roots where it means them together.

        Raises:
            PathRefused: it is beneath none of them.
        """
        found = self.find(path)
        return [found] if found is not None else [(root, ()) for root in self.roots.values()]

    def root_names(self) -> str:
        """The roots as messages name them."""
        from mcpbridge.sandbox.files.names import display_name

        if len(self.settings.roots) == 1:
            return display_name(next(iter(self.settings.roots.values())))
        return ", ".join(display_name(name) for name in self.settings.roots)

    async def answer(self, tool: str, path: str, work: Callable[[Stop], Body], *, late: str = "") -> Body:
        """The result of `work`, done in a thread; what keeps it from being done is a result as well.

        `late`: a sentence for the model when that took too long.

        Raises:
            PathRefused: tools are not to touch that.
            ToolInactive: see `check`.
        """
        self.check(tool)
        try:
            return await self.in_thread(work)
        except FileToolError as error:
            return texts(str(error), is_error=True)
        except OSError as error:
            return texts(_os_error_text(error, path), is_error=True)
        except OutOfTime:
            return texts(
                f"It took longer than {self.settings.timeout:g} s and was given up: the disk is slow, or the path has "
                f"too much beneath it. {late}".rstrip(),
                is_error=True,
            )

    async def in_thread(self, work: Callable[[Stop], _T], *, seconds: float = 0.0) -> _T:
        """What `work` gives. Cancelled, it is left to end by itself at its next look at `Stop`.

        `seconds`: that it may take; 0: `timeout` of the settings.

        Raises:
            OutOfTime: it took too long, such as on a disk that does not answer.
        """
        if self._slots is None:
            self._slots = anyio.CapacityLimiter(_AT_A_TIME)
        seconds = seconds or self.settings.timeout
        stop = Stop(seconds)
        try:
            with anyio.fail_after(seconds + _SLACK):
                return await anyio.to_thread.run_sync(work, stop, abandon_on_cancel=True, limiter=self._slots)
        except TimeoutError:
            raise OutOfTime from None
        finally:
            stop.is_given_up = True


class FileTool:
    """What the tools for files have in common: they are listed where there is something that they may touch."""

    definition: ClassVar[dict[str, Any]]
    treatment: ClassVar[CallSettings]

    def __init__(self, files: Files) -> None:
        self._files = files

    @property
    def is_ready(self) -> bool:
        """Whether it is to be listed."""
        return not self._files.missing

    @property
    def why_not(self) -> str:
        """Why it is not to be listed; empty when it is."""
        return self._files.missing

    async def close(self) -> None:
        """Let go of the directories."""
        self._files.close()


def given(call: Call, kind: type[_T]) -> _T:
    """The arguments of a call as a struct.

    Raises:
        ArgumentsRefused: they do not fit.
    """
    import msgspec

    raw = call.params.get("arguments")
    try:
        return msgspec.json.decode(b"{}" if raw is None else raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArgumentsRefused(f"arguments: {error}") from None


def texts(*said: str, is_error: bool = False) -> Body:
    """A result of some texts; empty ones are left out. No file can speak as the bridge does."""
    from mcpbridge.results.header_line import defused

    content = {"content": [{"type": "text", "text": defused(text)} for text in said if text]}
    return Body(encode({**content, "isError": True} if is_error else content))


def count(number: int, one: str, several: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def _os_error_text(error: OSError, path: str) -> str:
    """What the operating system said of a path, for the model."""
    from mcpbridge.sandbox.files.names import display_name

    texts: dict[type[OSError], str] = {
        FileNotFoundError: "there is no such file or directory",
        IsADirectoryError: "it is a directory",
        NotADirectoryError: "something on the way is a file, or it is no directory",
        FileExistsError: "it is there already",
        PermissionError: "the user that the bridge runs as may not do that",
    }
    return f"'{display_name(path)}': {texts.get(type(error), error.strerror or type(error).__name__)}."
