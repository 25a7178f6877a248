"""Three bridges that act as one (`[fleet]`), with a redis-server between them and HAProxy in front.

HAProxy sends each request to the next bridge, whatever session it is of.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import tomlkit

from conformance.processes import environment, running, wait_until_ready
from support.ports import free_port
from support.redis_server import PROGRAM, Server

__all__ = ["REPLICAS", "Places", "behind_a_balancer", "missing"]

HAPROXY = shutil.which("haproxy")
REPLICAS = 3

Places = list[tuple[Path, Path, int]]
"""Of each bridge: its home, its configuration, and the port that it is to listen on."""


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name, found in (("redis-server", PROGRAM), ("haproxy", HAPROXY)) if found is None]


@contextmanager
def behind_a_balancer(home: Path, folder: Path, settings: dict[str, Any]) -> Iterator[tuple[int, Places]]:
    """Redis and HAProxy run; the bridges are for whoever asks to start. The port of HAProxy, and their places."""
    assert HAPROXY
    with ExitStack() as stack:
        redis = Server(home / "redis").start()
        stack.callback(redis.kill)
        port = free_port()
        hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        places: Places = []
        for number in range(1, REPLICAS + 1):
            place = home / f"bridge{number}"
            place.mkdir()
            config = place / "servers.toml"
            fleet = {
                "listen": f"127.0.0.1:{free_port()}",
                "key": "the key of the fleet of this run",
                "name": place.name,
            }
            shared = {
                "store": {"kind": "redis", "url": redis.url},
                "fleet": fleet,
                "http": {"allowed_hosts": hosts, "allowed_origins": [f"http://{host}" for host in hosts]},
            }
            config.write_text(tomlkit.dumps({**shared, **settings}), "utf-8")
            places.append((place, config, free_port()))
        file = home / "haproxy.cfg"
        file.write_text(_balancing(port, [at for _, _, at in places]), "utf-8")
        log = folder / "haproxy.log"
        child = stack.enter_context(running([HAPROXY, "-f", str(file), "-db"], log, environment(home), home))
        wait_until_ready(f"http://127.0.0.1:{port}/balancer", child, log)
        yield port, places


def _balancing(port: int, behind: list[int]) -> str:
    servers = "\n".join(f"    server bridge{number} 127.0.0.1:{at}" for number, at in enumerate(behind, 1))
    return (
        "defaults\n    mode http\n    retries 0\n    timeout connect 5s\n    timeout client 5m\n    timeout server 5m\n"
        f"frontend in\n    bind 127.0.0.1:{port}\n    monitor-uri /balancer\n    default_backend bridges\n"
        f"backend bridges\n    balance roundrobin\n    option http-server-close\n{servers}\n"
    )
