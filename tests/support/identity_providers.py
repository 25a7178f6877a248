"""Real identity providers for tests: processes that people sign in at, by a browser or by hand."""

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2

from support.ports import free_port

PATIENCE = 60.0
"""Seconds."""


class MockProvider:
    """`oidc-provider-mock`, in a process of its own; it lets in whoever is named."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.issuer, self.process = f"http://localhost:{port}", process

    async def sign_in(self, page: str, subject: str) -> str:
        """What a person does at the page of the provider. Returns where the provider sends them."""
        async with httpx2.AsyncClient() as http:
            shown = await http.get(page)
            assert shown.status_code == 200, shown.text
            action = re.search(r'<form[^>]*action="([^"]*)"', shown.text)
            target = urljoin(page, unescape(action[1])) if action and action[1] else page
            sent = await http.post(target, data={"sub": subject})
            assert sent.status_code in (302, 303), sent.text
            return sent.headers["location"]

    async def claims(self, subject: str, **claims: Any) -> None:
        """Say of somebody from now on what the next ID token says."""
        async with httpx2.AsyncClient() as http:
            answer = await http.put(f"{self.issuer}/users/{subject}", json=claims)
            assert answer.status_code == 204, answer.text

    async def end_tokens(self, subject: str) -> None:
        """End all tokens of somebody."""
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{self.issuer}/users/{subject}/revoke-tokens")
            assert answer.status_code == 204, answer.text


@contextmanager
def mock_provider(**options: str) -> Generator[MockProvider]:
    """Start one; `options` are of its command line."""
    port = free_port()
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), "-H", "localhost", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_answer(f"http://localhost:{port}/.well-known/openid-configuration", process)
        yield MockProvider(port, process)
    finally:
        process.kill()
        process.wait()


def _await_answer(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)  # it opens its port when it is ready; nothing else says so
    raise AssertionError("the provider has ended")


def answer_in(url: str) -> Mapping[str, str]:
    """The parameters of an address that somebody is sent to."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def claims_in(token: str) -> dict[str, Any]:
    """What a JWT says, unchecked."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
