"""Many clients that initialize, list, call and delete cleanly, by way of the shipped balancers (issue 24).

    PYTHONPATH=tests python -m support.fleet_checker.clean_clients 1000

Three bridges run behind nginx and behind HAProxy, as `deploy/` configures them: each request goes to another bridge.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from ssl import SSLContext

import httpx2

from support.fleet_clients import HEADERS, INITIALIZE, message, read
from support.proxies import BALANCERS, Front, proxy
from support.real_sign_in import local_server
from support.redis_server import Server
from support.replicas import Fleet, fleet, until

TOOL = "rich__echo"
_AT_A_TIME = 25
_PATIENCE = 120.0
"""Seconds for an answer."""


async def clean_clients(url: str, count: int, tls: SSLContext | None = None) -> list[str]:
    """Run so many clients, some at a time. Returns what was wrong with each that was not clean."""
    wrong, turns = list[str](), asyncio.Semaphore(_AT_A_TIME)
    verify = True if tls is None else tls

    async def run(http: httpx2.AsyncClient, number: int) -> None:
        async with turns:
            try:
                await _run(http, url, f"word {number}")
            except (AssertionError, httpx2.HTTPError, KeyError, ValueError) as error:
                wrong.append(f"client {number}: {error!r}")

    async with httpx2.AsyncClient(trust_env=False, timeout=_PATIENCE, verify=verify) as http:
        await asyncio.gather(*(run(http, number) for number in range(count)))
    return wrong


async def _run(http: httpx2.AsyncClient, url: str, word: str) -> None:
    answer = await _post(http, url, HEADERS, INITIALIZE)
    assert answer.status_code == 200, answer.text
    headers = {**HEADERS, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    answer = await _post(http, url, headers, message("notifications/initialized", None))
    assert answer.status_code == 202, answer.text
    answer = await _post(http, url, headers, message("tools/list", 2))
    assert answer.status_code == 200, answer.text
    assert TOOL in [tool["name"] for tool in read(answer)["result"]["tools"]], answer.text
    answer = await _post(http, url, headers, message("tools/call", 3, name=TOOL, arguments={"text": word}))
    assert answer.status_code == 200, answer.text
    result = read(answer)["result"]
    assert not result.get("isError"), result
    assert result["content"] == [{"type": "text", "text": word}], result
    answer = await http.delete(url, headers=headers)
    assert answer.status_code in (200, 204), f"DELETE {answer.status_code} {answer.text}"
    answer = await _post(http, url, headers, message("tools/list", 4))
    assert answer.status_code == 404, f"after DELETE: {answer.status_code} {answer.text}"


async def _post(
    http: httpx2.AsyncClient, url: str, headers: Mapping[str, str], body: Mapping[str, object]
) -> httpx2.Response:
    return await http.post(url, json=body, headers=headers)


@contextmanager
def balanced(directory: Path, redis: Server, names: tuple[str, ...] = tuple(BALANCERS)) -> Generator[dict[str, Front]]:
    """Three bridges, behind each of these balancers with its file of `deploy/`."""
    fronts = dict[str, Front]()
    with ExitStack() as stack, fleet(directory, redis, servers=local_server("rich"), is_behind_proxy=True) as found:
        ports = [replica.port for replica in found.replicas]
        for name in names:
            place = directory / name
            place.mkdir()
            fronts[name] = stack.enter_context(proxy(name, place, BALANCERS[name](ports), serves=True))
            until(lambda front=fronts[name]: _reaches_all(front, found), f"all bridges are asked by way of {name}")
        yield fronts


def _reaches_all(front: Front, found: Fleet) -> bool:
    return all(front.ask("/healthz/ready").status_code == 200 for _ in found.replicas)


def main() -> int:
    """Run them, and say how many were clean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=1000)
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        redis = Server(Path(directory) / "redis").start()
        try:
            with balanced(Path(directory), redis) as fronts:
                for name, front in fronts.items():
                    began = time.monotonic()
                    wrong = asyncio.run(clean_clients(f"{front.origin}/mcp", options.count, front.tls))
                    took = time.monotonic() - began
                    print(
                        f"{name}: {options.count - len(wrong):,} of {options.count:,} clean, {took:.0f} s",
                        *wrong,
                        sep="\n  ",
                    )
                    bad += len(wrong)
        finally:
            redis.kill()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
