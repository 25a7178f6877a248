"""Build the container image, run it without rights, and try what it promises: `make try-image` (Linux, root).

No registry of images is needed: the base comes from Debian's packages, by debootstrap. Podman builds on it and runs the
result with a read-only root, no capabilities, and a user that is not root. Then:

- the health check of the image turns healthy, and a client without a token is refused;
- the MCP SDK's client initializes, lists and calls;
- SIGTERM lets a call that is under way end, and the container ends with 0;
- the license and the notice are in it, and the token is not.

`MCPBRIDGE_TRY_BASE` names another base (`python:3.11-slim`), which the machine must be able to pull.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".cache" / "try-image"
"""The base is made once; remove the directory to make it anew."""
RUNNING = Path(tempfile.gettempdir()) / "mcpbridge-try-image"
"""What Podman keeps of what runs; the store remembers where that is."""
BASE, IMAGE, CONTAINER = "localhost/mcpbridge-base:debian", "localhost/mcpbridge:try", "mcpbridge-try"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PATIENCE = 120.0
"""Seconds."""
UNDER_WAY = 3.0
"""Seconds that the call takes which SIGTERM finds under way."""

SERVER = """
import asyncio
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("try")

@server.tool()
async def echo(text: str) -> str:
    return text

@server.tool()
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@server.tool()
async def write(path: str) -> str:
    try:
        Path(path).write_text("x")
    except OSError as error:
        return str(error)
    return "written"

server.run()
"""

_LIMITS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
"""For machines whose own limits are lower than those that Podman asks for, and may not be raised."""
_ONE_CGROUP = "umount /sys/fs/cgroup/unified 2> /dev/null; exec podman"
"""crun runs nothing where both versions of cgroups are mounted; in a view of our own the second one is not."""


class Failed(Exception):
    """Something that the image promises is not so."""


class Podman:
    """Podman, with a store of its own, in a way that runs here."""

    def __init__(self, directory: Path) -> None:
        (directory / "containers.conf").write_text(_LIMITS)
        store = ["--root", str(KEPT / "store"), "--runroot", str(RUNNING)]
        self._store = [*store, "--storage-driver=vfs", "--cgroup-manager=cgroupfs"]
        self._limits = {"CONTAINERS_CONF": str(directory / "containers.conf")}
        self._ways: list[tuple[list[str], dict[str, str]]] = [
            (["podman", *self._store], {}),
            (["podman", *self._store], self._limits),
            (["unshare", "-m", "sh", "-c", f'{_ONE_CGROUP} "$@"', "podman", *self._store], self._limits),
        ]
        self._way = self._ways[0]

    def find_way(self, image: str) -> str:
        """Settle on the first way in which a container runs without rights; returns what it needs.

        Raises:
            Failed: there is none; says why, for each.
        """
        names = ("as it is", "with lower limits", "with lower limits and one version of cgroups")
        reasons: list[str] = []
        for name, way in zip(names, self._ways, strict=True):
            self._way = way
            tried = self.ask("run", "--rm", "--read-only", "--cap-drop=all", "--network=host", image, "/bin/true")
            if tried.returncode == 0:
                return name
            reasons.append(f"{name}: {tried.stderr.strip()[-200:]}")
        raise Failed("podman runs no container here. " + "; ".join(reasons))

    def ask(self, *words: str, within: float = 600) -> "subprocess.CompletedProcess[str]":
        """Run it; whatever comes of that."""
        command, more = self._way
        env = {**os.environ, **more}
        return subprocess.run([*command, *words], env=env, capture_output=True, text=True, timeout=within, check=False)

    def run(self, *words: str, within: float = 600) -> str:
        """What it prints.

        Raises:
            Failed: it ended with an error.
        """
        done = self.ask(*words, within=within)
        if done.returncode != 0:
            raise Failed(f"podman {words[0]}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout


def main() -> int:
    """Try everything, and say what was tried."""
    wanted = os.environ.get("MCPBRIDGE_TRY_BASE", "")
    programs = ("podman", "debootstrap", "unshare")
    missing = [name for name in programs if shutil.which(name) is None and not (wanted and name == "debootstrap")]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        print("try-image needs Linux, root, and Debian's podman and debootstrap", *missing, file=sys.stderr)
        return 2
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mcpbridge-try-") as directory:
        try:
            _try(Path(directory), wanted)
        except (Failed, subprocess.TimeoutExpired, ExceptionGroup, httpx2.HTTPError) as error:
            print(f"FAILED: {_innermost(error)}", file=sys.stderr)
            return 1
    return 0


def _try(directory: Path, wanted: str) -> None:
    podman = Podman(directory)
    base = wanted or _base(podman)
    _ok(f"a container runs without rights: podman {podman.find_way(base)}")
    _build(podman, directory, base)
    token = secrets.token_urlsafe(32)
    with _running(podman, directory, token) as origin:
        _check_health(podman, origin, token)
        asyncio.run(_check_client(podman, origin, token))
        _check_files(podman, token)
        asyncio.run(_check_end(podman, origin, token))


def _base(podman: Podman) -> str:
    """The image that everything is built on: Debian with its Python, and nothing else."""
    if podman.ask("image", "exists", BASE).returncode == 0:
        return BASE
    files = KEPT / "base"
    shutil.rmtree(files, ignore_errors=True)
    include = "--include=python3,python3-venv,ca-certificates"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", include, SUITE, str(files), MIRROR],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    if made.returncode != 0:
        raise Failed(f"debootstrap: {made.stdout[-1000:]}")
    subprocess.run(["tar", "-C", str(files), "-cf", str(KEPT / "base.tar"), "."], check=True)
    podman.run("import", str(KEPT / "base.tar"), BASE)
    shutil.rmtree(files)
    (KEPT / "base.tar").unlink()
    _ok(f"a base of Debian {SUITE}, by debootstrap")
    return BASE


def _build(podman: Podman, directory: Path, base: str) -> None:
    """Build the Dockerfile. Docker's format: that of OCI has no health check."""
    authorities = Path("/etc/ssl/certs/ca-certificates.crt")
    more: list[str] = []
    if authorities.exists():  # a machine behind a proxy may trust more of them than Debian does
        (directory / "pip.conf").write_text("[global]\ncert = /run/authorities.crt\n")
        more = ["-v", f"{authorities}:/run/authorities.crt:ro", "-v", f"{directory / 'pip.conf'}:/etc/pip.conf:ro"]
    began = time.monotonic()
    words = [
        "--isolation=chroot",
        "--network=host",
        "--format=docker",
        f"--build-arg=BASE={base}",
        *more,
    ]
    podman.run("build", *words, "--tag", IMAGE, str(ROOT), within=2400)
    _ok(f"the Dockerfile is built on {base} ({time.monotonic() - began:.0f} s)")


@contextmanager
def _running(podman: Podman, directory: Path, token: str) -> Generator[str]:
    """The bridge in a container, which listens beyond loopback: so it needs a token."""
    config = directory / "config"
    config.mkdir()
    config.chmod(0o755)
    directory.chmod(0o755)
    (config / "server.py").write_text(SERVER)
    digest = hashlib.sha256(token.encode()).hexdigest()
    (config / "servers.toml").write_text(
        f'[servers.try]\ncommand = "python"\nargs = ["/etc/mcpbridge/server.py"]\n'
        f'[[http.tokens]]\nname = "try"\nsha256 = "{digest}"\nmetrics = true\n'
    )
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8808)) == 0:
            raise Failed("port 8808 is taken: the container shares the network of the machine")
    open_to_all = directory / "open"
    open_to_all.mkdir()
    (open_to_all / "servers.toml").write_text("[servers]\n")
    without = podman.ask("run", "--rm", *_RIGHTS, "-v", f"{open_to_all}:/etc/mcpbridge:ro", IMAGE, within=PATIENCE)
    if without.returncode == 0 or "no token is set" not in without.stderr:
        raise Failed(f"without a token it does not refuse to listen: {without.stderr[-500:]}")
    _ok("without a configured token it refuses to listen beyond loopback")
    podman.run("run", "--detach", "--name", CONTAINER, *_RIGHTS, "-v", f"{config}:/etc/mcpbridge:ro", IMAGE)
    try:
        yield "http://127.0.0.1:8808"
    except Failed as error:
        logged = podman.ask("logs", CONTAINER)
        raise Failed(f"{error}\n{(logged.stdout + logged.stderr)[-3000:]}") from error
    finally:
        podman.ask("rm", "--force", "--volumes", "--time=0", CONTAINER)


_RIGHTS = (
    *("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--user=10001:10001", "--network=host"),
    *("--tmpfs=/tmp", "--volume=/home/mcpbridge"),
)
"""The host's network: what it would take to have one of its own is not there on every machine. The volume is a new one
each time, and of the user whose directory the image has there."""


def _check_health(podman: Podman, origin: str, token: str) -> None:
    def is_healthy() -> bool:
        # Podman has systemd run the check every 30 s; without systemd somebody has to, as here.
        return podman.ask("healthcheck", "run", CONTAINER).returncode == 0

    _until(is_healthy, "the health check succeeds")
    state = podman.run("inspect", "--format", "{{json .State}}", CONTAINER)
    if '"Status":"healthy"' not in state:
        raise Failed(f"its state is {state}")
    _ok("HEALTHCHECK turns healthy")
    _until(lambda: _status(f"{origin}/readyz", token) == 200, "/readyz answers with 200")
    if _status(f"{origin}/mcp", "") != 401:
        raise Failed("a client without a token is not refused")
    _ok("/readyz is 200; /mcp without a token is 401")


async def _check_client(podman: Podman, origin: str, token: str) -> None:
    async with _session(origin, token) as (session, initialized):
        names = set[str]()
        end = time.monotonic() + PATIENCE
        while "try__echo" not in names and time.monotonic() < end:  # a busy machine starts servers slowly
            names = {tool.name for tool in (await session.list_tools()).tools}
        answer = await session.call_tool("try__echo", {"text": "hello"})
        if "try__echo" not in names or answer.is_error or "hello" not in str(answer.content):
            raise Failed(f"{names}: {answer}")
        _ok(f"the SDK's client initializes ({initialized}), lists {len(names)} tools, calls")
        denied = await session.call_tool("try__write", {"path": "/opt/mcpbridge/x"})
        if "Read-only file system" not in str(denied.content):
            raise Failed(f"the root can be written: {denied}")
    user = podman.run("exec", CONTAINER, "python", "-c", "import os; print(os.getuid())").strip()
    status = podman.run("exec", CONTAINER, "cat", "/proc/1/status")
    rights = next(line for line in status.splitlines() if line.startswith("CapEff")).split()[1]
    if user != "10001" or int(rights, 16) != 0:
        raise Failed(f"user {user}, capabilities {rights}")
    _ok("its root is read-only; its user is 10001, with no capabilities")


def _check_files(podman: Podman, token: str) -> None:
    for name in ("LICENSE", "NOTICE"):
        inside = podman.run("exec", CONTAINER, "cat", f"/usr/share/doc/mcpbridge/{name}")
        if inside != (ROOT / name).read_text("utf-8"):
            raise Failed(f"{name} is not in the image")
    history = podman.run("history", "--no-trunc", IMAGE) + podman.run("inspect", IMAGE)
    logged = podman.ask("logs", CONTAINER)
    if token in history + logged.stdout + logged.stderr:
        raise Failed("the token is in the image or in the log")
    _ok("LICENSE and NOTICE are in it; no token is in the image or the log")


async def _check_end(podman: Podman, origin: str, token: str) -> None:
    answered = ""
    first = int(podman.run("inspect", "--format", "{{.State.Pid}}", CONTAINER))
    try:
        async with _session(origin, token) as (session, _):
            await session.list_tools()  # otherwise the client lists after its call, to check what came
            call = asyncio.ensure_future(session.call_tool("try__slow", {"seconds": UNDER_WAY}))
            await asyncio.to_thread(_until, lambda: _is_under_way(origin, token), "the call is under way")
            os.kill(first, signal.SIGTERM)  # as `podman stop` does, which takes longer here than the call
            answered = str((await asyncio.wait_for(call, PATIENCE)).content)
    except (ExceptionGroup, httpx2.HTTPError):
        if not answered:  # otherwise the client could not end its session: the server was gone by then
            raise
    if "done" not in answered:
        raise Failed(f"the call under way was lost: {answered}")
    code = (await asyncio.to_thread(podman.run, "wait", CONTAINER)).strip()
    if code != "0":
        raise Failed(f"it ended with {code}")
    _ok("SIGTERM: the call under way is answered, and the container ends with 0")


def _is_under_way(origin: str, token: str) -> bool:
    request = urllib.request.Request(f"{origin}/metrics", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return False
    lines = [line.split() for line in text.splitlines() if line.startswith("mcpbridge_server_running_calls{")]
    return any(float(line[-1]) > 0 for line in lines)


@asynccontextmanager
async def _session(origin: str, token: str) -> AsyncGenerator[tuple[ClientSession, str]]:
    """A session of the SDK's client, and the revision that it agreed on."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        streamable_http_client(f"{origin}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        yield session, str((await session.initialize()).protocol_version)


def _status(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _until(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        if time.monotonic() > end:
            raise Failed(f"never: {what}")
        time.sleep(0.3)


def _innermost(error: Exception) -> Exception:
    """What is in a group, as a session of the SDK's client makes one of what happens in it."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _ok(what: str) -> None:
    print(f"ok: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
