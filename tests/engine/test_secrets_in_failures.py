"""Secrets in what servers fail with reach no client, no status and no log; what they answer passes as it is.

Promised by docs/explanation/security.md, Secrets. What counts as a secret is tested in tests/base/masking.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge, tool
from mcpbridge.base.log import Logger, get_logger
from mcpbridge.base.masking.mask import MASK
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.library.client import open_options as log_lines
from support.harness import eventually, python_server
from support.secret_texts import LONG, ORDINARY, PEM, SECRETS

pytestmark = pytest.mark.anyio

CONFIGURED = "correct horse battery"
"""What looks like no secret, and is one since the configuration says so."""


@pytest.fixture(autouse=True)
def _lines() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - a fixture
    sink, Logger.sink = Logger.sink, log_lines._log  # pyright: ignore[reportPrivateUsage] - as `use_logging` does
    yield
    Logger.sink = sink


@asynccontextmanager
async def telling(tmp_path: Path, *tools: Any) -> AsyncGenerator[Bridge]:
    server = python_server("telling", env={"TOLD_TOKEN": "${SEC}"})
    config = {"store": {"path": str(tmp_path / "store.db")}, "servers": {"telling": server}}
    async with Bridge.open(config, tools=tools, remember=False, environ={"SEC": CONFIGURED}) as bridge:
        with anyio.fail_after(60):
            yield bridge


async def failure(bridge: Bridge, how: str, text: str) -> str:
    """All that a program is told of a call that fails so."""
    try:
        result = await bridge.call_tool("telling__fail", {"how": how, "text": text})
    except RequestFailed as error:
        return f"{error} {error.full_message()} {vars(error)}"
    return str(result.raw)


@pytest.mark.parametrize("how", ["error", "result"])
async def test_a_failure_tells_no_secret(tmp_path: Path, how: str) -> None:
    async with telling(tmp_path) as bridge:
        told = {name: await failure(bridge, how, text) for name, (text, _) in SECRETS.items()}
        assert [name for name, (_, secret) in SECRETS.items() if secret in told[name]] == []
        assert CONFIGURED not in await failure(bridge, how, f"wrong: {CONFIGURED}")


@pytest.mark.parametrize("how", ["error", "result"])
async def test_a_failure_without_a_secret_says_the_same(tmp_path: Path, how: str) -> None:
    async with telling(tmp_path) as bridge:
        told = {name: await failure(bridge, how, text) for name, text in ORDINARY.items()}
    assert [name for name in ORDINARY if MASK in told[name]] == []


async def test_nothing_of_a_call_that_succeeds_is_changed(tmp_path: Path) -> None:
    async with telling(tmp_path) as bridge:
        for text, _ in SECRETS.values():
            result = await bridge.call_tool("telling__fail", {"how": "success", "text": text})
            assert result.text == text


async def test_lines_on_stderr_tell_no_secret_in_status_and_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "mcpbridge"):
        async with telling(tmp_path) as bridge:
            upstream = bridge.pool.upstreams["telling"]
            for number, (name, (text, secret)) in enumerate(SECRETS.items()):
                await failure(bridge, "stderr", f"{text}\nend {number}")

                async def lines(upstream: Any = upstream) -> list[str]:
                    return list(upstream.transport.stderr_lines)

                seen = await eventually(lines, lambda seen, number=number: f"end {number}" in seen)
                assert not any(secret in line for line in seen), name
                assert secret not in str(bridge.status()), name
    assert [name for name, (_, secret) in SECRETS.items() if secret in caplog.text] == []


async def test_a_private_key_on_several_lines_is_masked_and_what_follows_is_not(tmp_path: Path) -> None:
    async with telling(tmp_path) as bridge:
        upstream: Any = bridge.pool.upstreams["telling"]
        await failure(
            bridge, "stderr", f"before\n{PEM}\nafter it\n2026 ERROR -----BEGIN PRIVATE KEY-----\n{LONG}\nin words"
        )

        async def lines() -> list[str]:
            return list(upstream.transport.stderr_lines)

        seen = await eventually(lines, lambda seen: "in words" in seen)
    assert LONG not in str(seen)
    assert {"before", "after it", "in words"} <= set(seen)


async def test_the_reason_of_a_lost_server_tells_no_secret(tmp_path: Path) -> None:
    async with telling(tmp_path) as bridge:
        for name in ("prose key", "postgres", "export", "json", "bearer", "pem cut"):
            text, secret = SECRETS[name]
            told = await failure(bridge, "exit", text)
            assert secret not in told
            assert secret not in str(bridge.status())


async def test_log_messages_of_servers_tell_clients_no_secret(tmp_path: Path) -> None:
    heard: list[str] = []

    async def hear(params: Any) -> None:
        heard.append(str(params.data))

    async with telling(tmp_path) as bridge, bridge.client(logging_callback=hear, mode="legacy") as client:
        for text, _ in SECRETS.values():
            await client.call_tool("telling__fail", {"how": "log", "text": text})
        await eventually(_length(heard), lambda length: length >= len(SECRETS))
    assert [name for name, (_, secret) in SECRETS.items() if secret in "\n".join(heard)] == []


def _length(items: list[str]) -> Any:
    async def length() -> int:
        return len(items)

    return length


async def test_tools_of_the_program_fail_without_secrets(tmp_path: Path) -> None:
    @tool
    def fail(text: str) -> str:
        raise ValueError(text)

    async with telling(tmp_path, fail) as bridge:
        for name, (text, secret) in SECRETS.items():
            result = await bridge.call_tool("fail", {"text": text})
            assert secret not in str(result.raw), name


async def test_lines_of_the_log_tell_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("mcpbridge.test")
    with caplog.at_level(logging.DEBUG, "mcpbridge"):
        for text, _ in SECRETS.values():
            log.error("it failed", reason=text, token="by-its-name-1")
            try:
                raise ValueError(text)
            except ValueError:
                log.exception("it failed")
    shown = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    assert [name for name, (_, secret) in SECRETS.items() if secret in shown] == []
    assert "by-its-name-1" not in shown
