"""Server processes: started with a clean environment, ended with all their descendants.

Four nets, each for what slips through the one before (measured: killing the group ends no descendant that has left it):

1. the process group;
2. the parent-death signal (`parent_death_main.py`), should the bridge die;
3. the orphan reaper (`orphan_reaper.py`), for the rest of the group in that case;
4. a cookie in the environment, by which descendants are found that left the group with setsid.

A server whose event loop was closed can be ended by nobody: it is killed at that moment where there are process
descriptors (Linux), and elsewhere when the bridge ends. A fork of the bridge ends none.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mcpbridge.base.process import orphan_reaper_main as guard
from mcpbridge.base.process import parent_death_main as launch
from mcpbridge.base.process.orphan_reaper import orphan_reaper

NOT_FOUND = "command not found"
"""The error, before the command, for one that is in no directory of the PATH."""

STDIN_GRACE = 2.0
"""Seconds a server gets to end by itself after its stdin was closed."""
TERM_GRACE = 3.0
"""Seconds it then gets after SIGTERM."""

_ON_LINUX = sys.platform.startswith("linux")
_ON_WINDOWS = sys.platform == "win32"


class ProcessSpec(Struct, frozen=True):
    """What to run. `env` is the whole environment."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    descriptors: tuple[int, ...] = ()
    """Descriptors that it inherits beside its three streams."""


class ServerProcess:
    """One running server: three pipes, its exit, and the end of its whole tree."""

    def __init__(self, popen: subprocess.Popen[bytes], cookie: str) -> None:
        self._popen = popen
        self._owner = os.getpid()
        self.cookie = cookie
        """What marks it and all its descendants; see `guard`."""
        self._exited = asyncio.Event()
        self._code: int | None = None
        self._let_go = self._own() if hasattr(os, "pidfd_open") else self._own_without_pidfd()

    @classmethod
    def start(cls, spec: ProcessSpec) -> "ServerProcess":
        """Start it in a session of its own.

        Raises:
            FileNotFoundError, NotADirectoryError, OSError: it cannot run; the message says why.
        """
        path = spec.env.get("PATH")
        where = Path(spec.cwd) if spec.cwd else Path.cwd()
        if not where.is_dir():
            raise NotADirectoryError(f"the working directory does not exist: {where}")
        found = shutil.which(spec.command, path=path)
        if found is None and os.sep in spec.command:
            found = shutil.which(str(where / spec.command))
        if found is None:
            if os.sep in spec.command and (where / spec.command).is_file():
                raise PermissionError(f"permission denied, the file is not executable: {spec.command}")
            raise FileNotFoundError(f"{NOT_FOUND}: {spec.command}")
        cookie = secrets.token_hex(16)
        argv = [str(Path(found).absolute()), *spec.args]
        if _ON_LINUX:
            argv = [sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid()), *argv]
        orphan_reaper.expects(cookie)  # first: the bridge may be killed at any moment from here on
        try:
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=spec.cwd,
                env={**spec.env, guard.COOKIE_NAME: cookie},
                start_new_session=True,
                pass_fds=spec.descriptors,
            )
        except BaseException:
            orphan_reaper.ended(cookie)
            raise
        try:
            orphan_reaper.started(popen.pid, cookie)
            return cls(popen, cookie)
        except BaseException:
            # Nobody would own it: a process without an owner is an orphan.
            _kill_unowned(popen)
            orphan_reaper.ended(cookie)  # else it would one day signal whoever has this id then
            raise

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group and session."""
        return self._popen.pid

    @property
    def stdin(self) -> int:
        """Descriptor to write to."""
        assert self._popen.stdin is not None
        return self._popen.stdin.fileno()

    @property
    def stdout(self) -> int:
        """Descriptor to read from."""
        assert self._popen.stdout is not None
        return self._popen.stdout.fileno()

    @property
    def stderr(self) -> int:
        """Descriptor to read from."""
        assert self._popen.stderr is not None
        return self._popen.stderr.fileno()

    @property
    def exit_text(self) -> str:
        """`exit code 1`, `killed by SIGKILL`; empty while it runs."""
        code = self._code
        if code is None:
            return ""
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    @property
    def has_exited(self) -> bool:
        """It has ended; `wait` returns now or in a moment."""
        if self._exited.is_set() or self._popen.returncode is not None:
            return True
        if not hasattr(os, "pidfd_open"):
            return False  # a thread waits for it, and nobody else may
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    async def wait(self) -> None:
        """Return once it has exited."""
        await self._exited.wait()

    async def stop(self, before_closing: Callable[[], None], *, at_once: bool = False) -> None:
        """End it and all its descendants: stdin closed, 2 s, SIGTERM, 3 s, SIGKILL, then the sweep by cookie.

        `before_closing` is called before the output pipes are closed, for who still reads them. `at_once`: SIGKILL
        without any grace, for what has nothing to tidy up.
        """
        if os.getpid() != self._owner:
            return  # a fork of the bridge ends, and with it its copy of this
        self.close_stdin()
        is_killed = False
        try:
            if at_once:
                self._signal_group(signal.SIGKILL)
                await self._exits_within(TERM_GRACE)
            elif not await self._exits_within(STDIN_GRACE):
                self._signal_group(signal.SIGTERM)
                if not await self._exits_within(TERM_GRACE):
                    self._signal_group(signal.SIGKILL)
                    await self._exits_within(TERM_GRACE)
            # Whatever of the group outlived its leader goes at once.
            self._signal_group(signal.SIGKILL)
            is_killed = True
            # Reaped only now: until then nobody else can get the id that the group signals went to.
            self._popen.poll()
            await sweep(self.cookie)
        except BaseException:  # cancelled all the same, or its loop was closed
            if self._let_go():
                if not is_killed:
                    self._signal_group(signal.SIGKILL)
                try:
                    before_closing()
                finally:
                    end_unowned(self._popen, self.cookie, self._owner)
            raise
        self._let_go()
        orphan_reaper.ended(self.cookie)
        before_closing()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    def close_stdin(self) -> None:
        """Signal that nothing more comes."""
        if self._popen.stdin is not None and not self._popen.stdin.closed:
            with suppress(OSError):
                self._popen.stdin.close()

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _signal_group(self, number: int) -> None:
        with suppress(OSError):
            if _ON_WINDOWS:
                self._popen.kill()
            else:
                os.killpg(self.pid, number)

    def _own(self) -> Callable[[], bool]:
        """Hear of its exit, and see that it is ended should the loop be closed before `stop` is through.

        Returns what takes the latter back, and tells whether it was in time.
        """
        loop = asyncio.get_running_loop()

        def keep() -> None:
            """The loop alone holds this, and lets go of it when it is closed: nobody can end the server any more then.

            Until `stop` is through and not until the exit: what the server started may live on.
            """

        def exited() -> None:
            loop.remove_reader(ends)
            self._keep_exit()

        never = _closed_with(keep, os.eventfd(0))
        ends = _closed_with(exited, os.pidfd_open(self.pid))
        unowned = weakref.finalize(keep, end_unowned, self._popen, self.cookie, self._owner)
        unowned.atexit = False  # the guard sees to that
        loop.add_reader(ends, exited)
        loop.add_reader(never, keep)

        def let_go() -> bool:
            if unowned.detach() is None:
                return False
            loop.remove_reader(never)
            return True

        return let_go

    def _own_without_pidfd(self) -> Callable[[], bool]:
        when_exited(self._popen, self._keep_exit)
        return lambda: True

    def _keep_exit(self) -> None:
        try:
            if self._popen.returncode is not None:
                self._code = self._popen.returncode
            elif info := os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT):
                self._code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        except ChildProcessError:  # the thread that ends it after all is just reaping it
            self._code = self._popen.wait()
        self._exited.set()


def when_exited(popen: subprocess.Popen[bytes], tell: Callable[[], None]) -> None:
    """Call `tell` on this loop when the process has ended. A thread waits for it, whatever becomes of the caller.

    A thread of its own: a pool would run out of them.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        popen.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=wait, name=f"wait for {popen.pid}", daemon=True).start()


def _kill_unowned(popen: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if _ON_WINDOWS:
            popen.kill()
        elif popen.returncode is None:  # else the id may be another's by now
            os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            pipe.close()


def _closed_with(callback: Callable[[], None], descriptor: int) -> int:
    """The descriptor, which is closed when its loop has let go of the callback, or nobody has taken it."""
    weakref.finalize(callback, os.close, descriptor).atexit = False
    return descriptor


def end_unowned(popen: subprocess.Popen[bytes], cookie: str, owner: int) -> None:
    """End a process whose loop was closed, or whose end was cancelled, without any grace. A thread does it.

    `cookie`: what the environment of all that it started carries. `owner`: the process whose child it is.
    """
    if os.getpid() == owner:  # else this is a fork
        with suppress(RuntimeError):  # the interpreter exits: then the guard does it
            threading.Thread(target=_end_tree, args=(popen, cookie), name=f"end {popen.pid}").start()


def _end_tree(popen: subprocess.Popen[bytes], cookie: str) -> None:
    _kill_unowned(popen)
    guard.kill_carriers({cookie})
    orphan_reaper.ended(cookie)


sweeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweep")
"""For looks at all processes. A thread of its own: the loop's pool may be full of slow name look-ups."""


class _Sweeps:
    """The sweeps of one event loop."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._under_way: asyncio.Future[int] | None = None

    async def sweep(self, cookie: str) -> None:
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])
        self._asked.add(cookie)
        await asyncio.sleep(0)  # let the others that stop in this turn join
        if cookie in self._asked:
            cookies, self._asked = self._asked, set()
            self._under_way = self._look(cookies)
        under_way = self._under_way
        if under_way is not None:
            await asyncio.wait([under_way])
            if self._under_way is under_way:
                self._under_way = None  # it knows its loop, which then would never go

    def _look(self, cookies: set[str]) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(sweeper, guard.kill_carriers, cookies)
        except RuntimeError:  # the interpreter exits, and has closed the pool: then the loop has to wait
            done = loop.create_future()
            done.set_result(guard.kill_carriers(cookies))
            return done


_sweeps: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Sweeps] = weakref.WeakKeyDictionary()


async def sweep(cookie: str) -> None:
    """Kill descendants that left their process group. Sweeps asked for together share one look at /proc."""
    if _ON_LINUX:
        await _sweeps.setdefault(asyncio.get_running_loop(), _Sweeps()).sweep(cookie)
