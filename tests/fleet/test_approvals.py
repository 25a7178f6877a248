"""Calls that wait for a yes are released by way of any bridge of the fleet (issue 24)."""

import json
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from support.fleet_clients import Client, message, read
from support.real_sign_in import home_at
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

ASKING = '[[permissions]]\ntools = ["*echo*"]\npermission = "require_approval"\n'


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, more=ASKING) as found:
            yield found
    finally:
        redis.kill()


def command(replica: Replica, *words: str) -> str:
    """What a command prints for the bridge of this machine."""
    run = [sys.executable, "-m", "mcpbridge", *words, "--config", str(replica.config)]
    done = subprocess.run(run, env=home_at(replica.directory), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_an_answer_given_at_one_bridge_ends_the_wait_at_another(pair: Fleet, word: str) -> None:
    first, second = pair.replicas
    with httpx2.Client(trust_env=False, timeout=120) as http, ThreadPoolExecutor() as pool:
        client = Client(http).begin(first)
        echo = next(
            tool["name"]
            for tool in read(client.post(first, message("tools/list")))["result"]["tools"]
            if tool["name"].endswith("echo")
        )
        call = message("tools/call", 2, name=echo, arguments={"text": "released"})
        waiting = pool.submit(client.post, first, call)
        found = list[str]()

        def is_asked() -> bool:
            found[:] = [one["id"] for one in json.loads(command(second, "approvals", "--json"))["approvals"]]
            return bool(found)

        until(is_asked, "the other bridge knows the call that waits")
        command(second, word, found[0])
        result = read(waiting.result(60))["result"]
    assert (result.get("isError", False), "released" in json.dumps(result)) == (word == "deny", word == "approve"), (
        result
    )


def test_while_the_store_is_away_nobody_can_approve_and_then_each_call_is_approved_once(tmp_path: Path) -> None:
    """Approvals fail closed: a request in the memory of one bridge alone could be answered at two."""
    redis = Server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    try:
        with (
            fleet(tmp_path, redis, size=2, more=ASKING) as found,
            httpx2.Client(trust_env=False, timeout=120) as http,
            ThreadPoolExecutor() as pool,
        ):
            first, second = found.replicas
            client = Client(http).begin(first)
            echo = next(
                tool["name"]
                for tool in read(client.post(first, message("tools/list")))["result"]["tools"]
                if tool["name"].endswith("echo")
            )

            def call(number: int, text: str) -> Future[httpx2.Response]:
                made = message("tools/call", number, name=echo, arguments={"text": text})
                return pool.submit(client.post, first, made)

            def waiting() -> list[str]:
                return [one["id"] for one in json.loads(command(second, "approvals", "--json"))["approvals"]]

            early = call(2, "early")
            until(lambda: len(waiting()) == 1, "the other bridge knows the call that waits")
            (id_,) = waiting()
            redis.kill()
            refused = read(call(3, "meanwhile").result(60))["result"]
            assert refused["isError"]
            assert "cannot be kept now: the store is away" in json.dumps(refused)
            redis.start()
            until(lambda: waiting() == [id_], "the call that waited waits still, and no other")
            command(second, "approve", id_)
            assert "early" in json.dumps(read(early.result(60))["result"])
            assert waiting() == []
    finally:
        redis.kill()
