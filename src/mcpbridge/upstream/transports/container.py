"""A server as a container: `docker run` or `podman run`, whose standard input and output are the server's.

The engine's own program is started as any server is, so messages, stderr and exits are those of the stdio transport. A
container is no child of it and would outlive it. Three nets see to its end: it is removed when the connection ends; a
small program (`container_reaper_main.py`) removes it when the bridge is killed; and the next bridge on this machine
removes, before its first container, those whose bridge is gone and whose reaper was killed as well.
"""

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from msgspec import Struct

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.base.process import orphan_reaper_main as guard
from mcpbridge.base.process.environment import child_environment
from mcpbridge.base.process.process import ProcessSpec, when_exited
from mcpbridge.protocol.transport import Channel, Receiver
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports import container_reaper_main as reaper
from mcpbridge.upstream.transports.settings import ContainerSettings, is_volume, parts_of_mount
from mcpbridge.upstream.transports.stdio import StdioTransport

log = get_logger("mcpbridge.upstream")

ENGINES = ("docker", "podman")
"""The order in which they are tried."""
LABEL = "mcpbridge.machine"
"""Marks the containers of bridges; the value says on which machine the bridge runs."""

_ANSWER_SECONDS = 15.0
"""Seconds that an engine has to say that it is there."""
_REMOVE_SECONDS = 20.0
"""Seconds to remove a container that has not ended by itself."""
_LONGEST_REASON = 300

_FOR_THE_ENGINE = (
    "CONTAINERS_CONF",
    "CONTAINERS_CONF_OVERRIDE",
    "CONTAINERS_REGISTRIES_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_CONNECTION",
    "CONTAINER_HOST",
    "CONTAINER_SSHKEY",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_API_VERSION",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_DEFAULT_PLATFORM",
    "DOCKER_HOST",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "REGISTRY_AUTH_FILE",
    "SSH_AUTH_SOCK",
    "STORAGE_DRIVER",
    "STORAGE_OPTS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
"""Variables of the bridge by which an engine finds its service, its files and its sign-ins."""
_CHANGE_THE_ENGINE = frozenset(
    {*_FOR_THE_ENGINE, "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR"}
    | {"USER", guard.COOKIE_NAME}
)
"""Variables that the engine's program would take for its own if they stood in its environment."""


class Engine(Struct, frozen=True):
    """A program that runs containers, and answers."""

    program: str
    """Its file."""
    env: Mapping[str, str]
    """Its environment."""


class ContainerTransport(StdioTransport):
    """Starts a new container at every `connect`."""

    def __init__(
        self, name: str, settings: ServerSettings, *, max_bytes: int, redact: Callable[[str], str] = lambda text: text
    ) -> None:
        super().__init__(name, ProcessSpec("", (), {}), max_bytes=max_bytes, redact=redact)
        self._upstream, self._settings = name, settings
        self._engine: Engine | None = None
        self.container = ""
        """The name of the running container; empty: none runs."""

    async def memory(self) -> int | None:
        """Unknown: what the engine's program holds says nothing of the container."""
        return None

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Start the container; leaving ends and removes it. Cancelling does as well.

        Raises:
            UpstreamUnavailable: no engine answers, something to be mounted is not there, or it cannot be started.
        """
        settings = self._settings
        missing = missing_sources(settings.container)
        if missing:
            raise UpstreamUnavailable(self._upstream, f"a source in `container.mounts` does not exist: {missing[0]}")
        if self._engine is None:
            self._engine = await find_engine(self._upstream, settings.container.engine)
        engine = self._engine
        self.container = reaper.name_of(os.getpid(), secrets.token_hex(4))
        argv, env = command_line(self._upstream, settings, self.container, os.environ)
        folder = tempfile.mkdtemp(prefix="mcpbridge-")  # where Podman leaves a note of a container without memory
        self._spec = _without_cookie(engine, argv, {**engine.env, **env}, folder)
        try:
            async with _removed_at_the_end(engine, self.container), super().connect(receiver) as channel:
                yield channel
        except OSError as error:  # of the reaper; those of the engine's program are named already
            raise UpstreamUnavailable(self._upstream, str(error)) from error
        finally:
            self.container = ""
            shutil.rmtree(folder, ignore_errors=True)


def _without_cookie(engine: Engine, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ProcessSpec:
    """The engine's program, from whose environment the mark of our processes is taken.

    What it starts to watch over the container would be taken for a leftover of ours and killed, and the container with
    its files would stay for ever.
    """
    env_program = shutil.which("env", path=os.defpath)
    if env_program is None:
        return ProcessSpec(engine.program, tuple(argv), env, cwd)
    return ProcessSpec(env_program, ("-u", guard.COOKIE_NAME, engine.program, *argv), env, cwd)


@asynccontextmanager
async def _removed_at_the_end(engine: Engine, container: str) -> AsyncGenerator[None]:
    """Whatever happens to the connection or to the bridge: afterwards there is no such container.

    Raises:
        OSError: the program that sees to that cannot be started.
    """
    watch = subprocess.Popen(  # noqa: ASYNC220 - as short as starting the server itself
        [sys.executable, "-I", "-S", str(Path(reaper.__file__)), engine.program, container],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/" if sys.platform != "win32" else None,
        env=dict(engine.env),
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert watch.stdin is not None
        with suppress(OSError):
            watch.stdin.write(reaper.ENDED)  # the engine's program has: nothing more can come of it
            watch.stdin.close()
        gone = asyncio.Event()
        when_exited(watch, gone.set)  # also of one that takes longer than anybody waits here
        with anyio.move_on_after(_REMOVE_SECONDS, shield=True):
            await gone.wait()
        if not gone.is_set():
            log.warning("a container was not removed in time; its reaper keeps trying", container=container)


def command_line(
    upstream: str, settings: ServerSettings, name: str, parent: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments of the engine's program, and the variables that it hands on.

    Values of variables are in the environment and not among the arguments, which everybody on the machine can read.
    """
    container, env = settings.container, dict[str, str]()
    # Without a log of its own: it would write every message to a disk, secrets included.
    argv = ["run", "--rm", "--interactive", "--name", name, "--log-driver", "none"]
    argv += ["--label", f"{LABEL}={reaper.machine()}", "--label", f"mcpbridge.server={upstream}"]
    argv += [f"--pull={container.pull}"]
    if container.network is not None:
        argv.append(f"--network={container.network}")
    if container.memory is not None:
        argv.append(f"--memory={container.memory}")
    if container.cpus is not None:
        argv.append(f"--cpus={container.cpus:g}")
    if container.pids is not None:
        argv.append(f"--pids-limit={container.pids}")
    for mount in container.mounts:
        argv.append(f"--volume={mount}")
    for option, value in (
        ("user", container.user),
        ("workdir", container.workdir),
        ("entrypoint", container.entrypoint),
    ):
        if value is not None:
            argv.append(f"--{option}={value}")
    inherited = settings.inherit_env if isinstance(settings.inherit_env, list) else []
    own = {variable: parent[variable] for variable in inherited if variable in parent} | settings.env
    for variable, value in own.items():
        if variable in _CHANGE_THE_ENGINE:
            argv.append(f"--env={variable}={value}")
        else:
            argv.append(f"--env={variable}")
            env[variable] = value
    return [*argv, *container.options, settings.image or "", *settings.args], env


def missing_sources(container: ContainerSettings) -> list[str]:
    """Files and directories that are to be mounted and are not there. Docker would make empty directories of them."""
    sources = [parts_of_mount(mount)[0] for mount in container.mounts]
    return [source for source in sources if not is_volume(source) and not Path(source).exists()]


async def find_engine(upstream: str, wanted: str = "auto") -> Engine:
    """An engine that answers, and has no container any more of a bridge that is gone. Cancelling is safe.

    Raises:
        UpstreamUnavailable: there is none; says of each what is wrong.
    """
    reasons: list[str] = []
    for name in ENGINES if wanted == "auto" else (wanted,):
        env = child_environment({}, list(_FOR_THE_ENGINE), os.environ)
        program = shutil.which(name, path=env.get("PATH"))
        if program is None:
            reasons.append(f"{name} is not installed")
            continue
        engine = Engine(os.path.abspath(program), env)  # noqa: ASYNC240, PTH100 - touches no file
        reason = await asyncio.to_thread(_remove_orphans, engine)
        if not reason:
            return engine
        reasons.append(f"{name} does not work: {reason}")
    advice = "Install or start one of them" if wanted == "auto" else f"Install or start {wanted}"
    raise UpstreamUnavailable(upstream, f"nothing runs its image: {'; '.join(reasons)}. {advice}")


def _remove_orphans(engine: Engine) -> str:
    """Remove containers of bridges on this machine that are gone. Returns why the engine does not work; empty: it does.

    Docker's program may be installed without its service.
    """
    mine = f"label={LABEL}={reaper.machine()}"
    try:
        listed = _engine(engine, "ps", "--all", "--filter", mine, "--format", "{{.Names}}")
        gone = [name for name in listed.stdout.decode("utf-8", "replace").split() if reaper.is_orphan(name)]
        if gone:
            _engine(engine, "kill", *gone)  # `rm` alone would wait 10 s for each to end by itself
            _engine(engine, "rm", "--force", *gone)
            log.info("removing containers of a killed bridge", count=len(gone))
    except subprocess.TimeoutExpired:
        return f"it does not answer within {_ANSWER_SECONDS:g} s"
    except OSError as error:
        return str(error)
    if listed.returncode == 0:
        return ""
    words = listed.stderr.decode("utf-8", "replace").strip().splitlines()
    return (words[-1] if words else f"exit code {listed.returncode}")[:_LONGEST_REASON]


def _engine(engine: Engine, *args: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [engine.program, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_ANSWER_SECONDS,
        check=False,
        env=dict(engine.env),
        start_new_session=True,
    )
