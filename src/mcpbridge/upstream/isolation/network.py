"""The network of a server that may reach a list of hosts: what the sandbox sets up, and the proxy that serves it.

The launcher of the sandbox makes a network with the loopback alone, and sends the bridge sockets that listen in it. The
bridge accepts from these as from any other: nothing runs in the sandbox beside the server.
"""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mcpbridge.base.log import get_logger
from mcpbridge.sandbox.egress.dns import NETWORK, Names
from mcpbridge.sandbox.egress.proxy import EgressProxy, Listening
from mcpbridge.sandbox.egress.report import EgressReport
from mcpbridge.sandbox.egress.rules import Rules
from mcpbridge.sandbox.isolation.tier import OwnNetwork

log = get_logger("mcpbridge.upstream")

_PROXY_PORT = 61828
"""Where the proxy listens, unless the list names this port; then the next one."""
_SYSTEM_FILES = ("/etc/services", "/etc/protocols")
_HAND_OVER_SECONDS = 60.0


class FilteredNetwork:
    """One such network, for one start of a server."""

    def __init__(
        self, server: str, own: OwnNetwork, proxy: EgressProxy, report: EgressReport, ours: socket.socket
    ) -> None:
        self.own = own
        """What the sandbox is to set up."""
        self.report = report
        self._server, self._proxy, self._ours = server, proxy, ours
        self._serving: asyncio.Task[None] | None = None

    @property
    def env(self) -> Mapping[str, str]:
        """Variables by which programs find the proxy."""
        address = f"http://127.0.0.1:{self.own.proxy}"
        names = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address}
        names["NO_PROXY"] = "localhost,127.0.0.1,::1"
        return names | {name.lower(): value for name, value in names.items()}

    def started(self) -> None:
        """The program was started: from now on its connections are served."""
        os.close(self.own.control)
        self._serving = asyncio.ensure_future(self._serve())

    async def end(self) -> None:
        """Close every connection."""
        self._ours.close()
        if self._serving is None:
            os.close(self.own.control)
            return
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    async def _serve(self) -> None:
        try:
            async with asyncio.timeout(_HAND_OVER_SECONDS):
                listening = await _handed_over(self._ours, len(self.own.ports) + 2)
            if listening is not None:  # else it ended first, and says why itself
                async with self._proxy.serving(listening):
                    await asyncio.Event().wait()
        except (OSError, TimeoutError) as error:
            log.warning("a server in the sandbox has no network", upstream=self._server, reason=str(error))


@asynccontextmanager
async def filtered_network(
    server: str, hosts: Sequence[str], report: EgressReport | None = None
) -> AsyncGenerator[FilteredNetwork]:
    """A network for one start of a server. `report`: what was counted so far. Leaving closes every connection."""
    rules, names, report = Rules(hosts), Names(), report or EgressReport(server)
    folder, files = await asyncio.to_thread(_write_files, rules, names)
    ours, theirs = socket.socketpair()
    try:
        ours.settimeout(0)
        port = next(port for port in range(_PROXY_PORT, 65536) if port not in rules.ports)
        single = [f"{one}/32" for one in rules.addresses() if ":" not in one and not one.startswith("127.")]
        own = OwnNetwork(theirs.detach(), port, tuple(rules.ports), (NETWORK, *dict.fromkeys(single)), files)
        filtered = FilteredNetwork(server, own, EgressProxy(server, rules, names, report), report, ours)
        try:
            yield filtered
        finally:
            await filtered.end()
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _write_files(rules: Rules, names: Names) -> tuple[str, dict[str, str]]:
    """A new directory with the files by which programs find hosts, and which file each is in the sandbox.

    Names that are no wildcards need no resolver.
    """
    folder = Path(tempfile.mkdtemp(prefix="mcpbridge-"))
    folder.chmod(0o755)
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{address} {name}" for name in rules.hosts if (address := names.address_of(name))]
    texts = {
        "hosts": "\n".join(lines),
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:2 attempts:1",
        "nsswitch.conf": "hosts: files dns\nservices: files\nprotocols: files",
    }
    files = {path: path for path in _SYSTEM_FILES if Path(path).exists()}
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n", "utf-8")
        (folder / name).chmod(0o644)
        files[f"/etc/{name}"] = str(folder / name)
    return str(folder), files


async def _handed_over(ours: socket.socket, count: int) -> Listening | None:
    """The sockets that the launcher sent; None: it ended before that."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(ours.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(ours.fileno())
    data, descriptors, _, _ = socket.recv_fds(ours, 1, count)
    opened = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for sock in opened:
        sock.settimeout(0)
    if not data or len(opened) != count:
        for sock in opened:
            sock.close()
        return None
    return Listening(opened[0], opened[1], tuple(opened[2:]))
