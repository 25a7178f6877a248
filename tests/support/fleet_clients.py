"""Clients that send each request to the bridge of a fleet that the test says."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from support.replicas import TOKEN, Fleet, Replica

HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}


def message(method: str, id_: int | None = 1, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id_ is not None:
        found["id"] = id_
    if params:
        found["params"] = params
    return found


def read(answer: httpx2.Response) -> dict[str, Any]:
    """The last message of an answer, whether it is JSON or a stream."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return json.loads(
            [line[5:] for line in answer.text.splitlines() if line.startswith("data:") and line[5:].strip()][-1]
        )
    return answer.json()


INITIALIZE = message(
    "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "raw", "version": "1"}
)


class Client:
    """A client of one session, which sends each request where the test says."""

    def __init__(self, http: httpx2.Client) -> None:
        self.http, self.session = http, ""

    def post(self, replica: Replica, body: dict[str, Any], **headers: str) -> httpx2.Response:
        session = {"mcp-session-id": self.session} if self.session else {}
        return self.http.post(replica.url, json=body, headers={**HEADERS, **session, **headers})

    def begin(self, replica: Replica) -> "Client":
        answer = self.post(replica, INITIALIZE)
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]
        assert self.post(replica, message("notifications/initialized", None)).status_code == 202
        return self


PREFIX = "io.modelcontextprotocol/"
REVISION = "2026-07-28"


def modern(
    replica: Replica | Fleet,
    method: str,
    params: dict[str, Any],
    capabilities: dict[str, Any],
    *,
    id_: int = 1,
    token: str = TOKEN,
) -> httpx2.Response:
    """What a bridge, or the balancer, answers a client of revision 2026-07-28 that can be asked so much."""
    headers, body = in_an_envelope(method, params, capabilities, id_=id_, token=token)
    return httpx2.post(replica.url, json=body, headers=headers, trust_env=False, timeout=60)


@contextmanager
def listening(
    replica: Replica, wanted: dict[str, Any], capabilities: dict[str, Any]
) -> Generator[Iterator[dict[str, Any]]]:
    """The messages of a listen stream of such a client."""
    headers, body = in_an_envelope("subscriptions/listen", {"notifications": wanted}, capabilities)
    with httpx2.stream("POST", replica.url, json=body, headers=headers, trust_env=False, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        yield (json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:") and line[5:].strip())


def in_an_envelope(
    method: str, params: dict[str, Any], capabilities: dict[str, Any], *, id_: int = 1, token: str = TOKEN
) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of a request of revision 2026-07-28, which needs no session."""
    meta: dict[str, Any] = {PREFIX + "protocolVersion": REVISION, PREFIX + "clientCapabilities": capabilities}
    named = {"mcp-name": params["name"]} if "name" in params else {}
    headers = {
        **HEADERS,
        "authorization": f"Bearer {token}",
        "mcp-protocol-version": REVISION,
        "mcp-method": method,
        **named,
    }
    return headers, message(method, id_, **params, _meta=meta)
