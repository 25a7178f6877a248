"""Bridges of one fleet as processes, with a real redis-server and HAProxy, which sends each request to another one."""

import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from support.partitions import Network
from support.ports import free_port
from support.real_sign_in import home_at, local_server
from support.redis_server import Server, needs_redis

HAPROXY = shutil.which("haproxy")
KEY = "the key of the fleet of the tests"
TOKEN, OTHER_TOKEN = "a-token-of-the-fleet-tests", "another-token-of-the-fleet-tests"
needs_fleet = [
    needs_redis,
    pytest.mark.skipif(HAPROXY is None, reason="no HAProxy: `make proxies` installs Debian's"),
]


def until(is_so: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while True:
        try:
            if is_so():
                return
        except (httpx2.HTTPError, OSError):
            pass
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Replica:
    """One bridge."""

    def __init__(
        self,
        directory: Path,
        name: str,
        config: str,
        program: Sequence[str] | None = None,
        *,
        host: str = "127.0.0.1",
        link_host: str = "127.0.0.1",
        before: Sequence[str] = (),
    ) -> None:
        """`config`: what all bridges have in common. `program`: what is run instead of the bridge, with its options.

        `host`, `link_host`: where clients and other bridges reach it. `before`: the command that runs its process.
        """
        self.host, self._before = host, before
        self._program = ("-m", "mcpbridge") if program is None else program
        self.name, self.port, self.link = name, free_port(), free_port()
        self.root = f"http://{host}:{self.port}"
        self.url = f"{self.root}/mcp"
        self.directory = directory / name
        self.directory.mkdir()
        (self.directory / "mcpbridge").mkdir(mode=0o700)  # for all kinds of files here: sockets need it to be private
        self.config = self.directory / "servers.toml"
        self.config.write_text(
            config.replace("LINK", f"{link_host}:{self.link}").replace("NAME", name).replace("KEY", KEY), "utf-8"
        )
        self.log = self.directory / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Replica":
        """Returns when it serves."""
        command = [*self._program, "serve", "--http", f"{self.host}:{self.port}", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._before, sys.executable, *command], stdout=log, stderr=log, env=home_at(self.directory)
            )
        try:
            until(lambda: httpx2.get(f"{self.root}/healthz", trust_env=False).status_code == 200, "a bridge serves")
        except AssertionError:
            raise AssertionError(self.log.read_text("utf-8")) from None
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process
        self.process.send_signal(number)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on its machine."""
        command = [sys.executable, "-m", "mcpbridge", *words]
        environment = home_at(self.directory)
        return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)

    def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None


class Fleet:
    """Several bridges and their balancer."""

    def __init__(
        self,
        directory: Path,
        redis: Server,
        servers: str = "",
        more: str = "",
        program: Sequence[str] | None = None,
        net: Network | None = None,
        *,
        is_behind_proxy: bool = False,
    ) -> None:
        self._is_behind_proxy = is_behind_proxy
        self.redis, self._directory, self._program, self._net = redis, directory, program, net
        prefix = f"fleet-{secrets.token_hex(4)}"
        self.config = (
            f'[store]\nkind = "redis"\nurl = "{redis.url}"\nprefix = "{prefix}"\n'
            '[fleet]\nlisten = "LINK"\nname = "NAME"\nkey = "KEY"\n'
            f'[[http.tokens]]\nname = "tester"\nsha256 = "{sha256(TOKEN.encode()).hexdigest()}"\n'
            f'[[http.tokens]]\nname = "other"\nsha256 = "{sha256(OTHER_TOKEN.encode()).hexdigest()}"\n'
            f"{more}{servers or local_server('rich')}"
        )
        self.replicas: list[Replica] = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._balancer: subprocess.Popen[bytes] | None = None

    def add(self, program: Sequence[str] | None = None) -> Replica:
        """One more bridge, which does not run yet. `program`: another one than the others run."""
        hosts, places = [f"127.0.0.1:{self.port}"], dict[str, str]()
        before: Sequence[str] = ()
        if self._net is not None:
            host = self._net.hosts[len(self.replicas)]
            hosts += [one.outside for one in self._net.hosts]  # the same at all: else their configurations differ
            before = host.run_there
            places = {"host": host.outside, "link_host": host.inside}
        config = f"[http]\nallowed_hosts = {json.dumps(hosts)}\n"
        if self._is_behind_proxy:  # which ends TLS, under a name of its own
            config = '[http]\nallowed_hosts = ["localhost"]\ntrusted_proxies = ["127.0.0.1"]\n'
        config += self.config.replace("BALANCER", f"127.0.0.1:{self.port}")
        name, program = f"r{len(self.replicas) + 1}", program or self._program
        replica = Replica(self._directory, name, config, program, before=before, **places)
        self.replicas.append(replica)
        return replica

    def balance(self) -> None:
        """Start HAProxy: each request goes to the next bridge, and none is made again elsewhere."""
        assert HAPROXY
        servers = "\n".join(
            f"    server {one.name} {one.host}:{one.port} check inter 200ms fall 1 rise 1" for one in self.replicas
        )
        file, log = self._directory / "haproxy.cfg", self._directory / "haproxy.txt"
        file.write_text(
            "global\n    maxconn 4000\n"
            "defaults\n    mode http\n    retries 0\n    timeout connect 2s\n    timeout client 120s\n"
            "    timeout server 120s\n    timeout http-keep-alive 60s\n    option http-server-close\n"
            f"frontend in\n    bind 127.0.0.1:{self.port}\n    default_backend bridges\n"
            f"backend bridges\n    balance roundrobin\n    option httpchk\n"
            f"    http-check send meth GET uri /healthz/ready ver HTTP/1.1 hdr Host 127.0.0.1:{self.port}\n{servers}\n",
            "utf-8",
        )
        with log.open("wb") as out:
            self._balancer = subprocess.Popen([HAPROXY, "-f", str(file), "-db"], stdout=out, stderr=out)
        until(lambda: self._listens(log), "HAProxy listens")

    def _listens(self, log: Path) -> bool:
        assert self._balancer
        assert self._balancer.poll() is None, log.read_text("utf-8")
        with socket.create_connection(("127.0.0.1", self.port), 10):
            return True

    def end(self) -> None:
        """End all processes."""
        for replica in self.replicas:
            replica.kill()
        if self._balancer is not None:
            self._balancer.kill()
            self._balancer.wait(30)


@contextmanager
def fleet(
    directory: Path,
    redis: Server,
    *,
    size: int = 3,
    servers: str = "",
    more: str = "",
    program: Sequence[str] | None = None,
    net: Network | None = None,
    is_behind_proxy: bool = False,
) -> Generator[Fleet]:
    """A fleet of so many bridges, which know one another, behind its balancer. `program`: see `Replica`.

    `net`: the bridges are on its first hosts. `is_behind_proxy`: the test puts proxies of its own before them.
    """
    found = Fleet(directory, redis, servers, more, program, net, is_behind_proxy=is_behind_proxy)
    try:
        for _ in range(size):
            found.add()
        if not is_behind_proxy:
            found.balance()  # first, so that nobody has its port by now
        for replica in found.replicas:
            replica.start()
        if is_behind_proxy:
            yield found
            return
        checked = f"http://127.0.0.1:{found.port}/healthz"
        until(lambda: all(httpx2.get(checked, trust_env=False).is_success for _ in range(size)), "all are up")
        yield found
    finally:
        found.end()
