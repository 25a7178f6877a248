"""Tasks in a fleet: a request about a task is answered by the bridge that has it (issue 24)."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import Client, listening, message, modern, read
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

JOBS = Path(__file__).parents[1] / "servers" / "tasks_upstream.py"
TASKS = "io.modelcontextprotocol/tasks"
CAN: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    """Two bridges, each with processes of its own: both give their tasks the same ids."""
    servers = "".join(
        f'[servers.{era}]\ncommand = "{sys.executable}"\nargs = ["{JOBS}", "{era}"]\n' for era in ("legacy", "modern")
    )
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=servers) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def about(replica: Replica, method: str, task: str, **params: Any) -> dict[str, Any]:
    """What a modern client gets that asks this bridge about a task."""
    return read(modern(replica, method, {"taskId": task, **params}, CAN))


def begun(replica: Replica, steps: list[dict[str, Any]]) -> str:
    """A task of a modern client's."""
    params = {"name": "modern__job", "arguments": {"steps": steps}}
    return read(modern(replica, "tools/call", params, CAN))["result"]["taskId"]


def test_a_modern_task_is_followed_by_way_of_any_bridge(pair: Fleet) -> None:
    """Another bridge's server has a task of the same id meanwhile: nobody gets that one."""
    first, second = pair.replicas
    task = begun(first, [{"say": "of the first"}, {"ask": {"a": QUESTION}}])
    begun(second, [{"say": "of the second"}, {"stay": True}])
    assert about(second, "tasks/get", task)["result"]["statusMessage"] == "of the first"
    asking = about(second, "tasks/get", task)["result"]
    assert list(asking["inputRequests"]) == ["a"]
    answers = {"a": {"action": "accept", "content": {"name": "Ann"}}}
    assert "result" in about(second, "tasks/update", task, inputResponses=answers)
    until(lambda: about(second, "tasks/get", task)["result"]["status"] == "completed", "it is completed")
    assert "Ann" in json.dumps(about(second, "tasks/get", task)["result"])


def test_a_modern_task_is_cancelled_by_way_of_any_bridge(pair: Fleet) -> None:
    first, second = pair.replicas
    task = begun(first, [{"stay": True}])
    assert "result" in about(second, "tasks/cancel", task)
    assert about(first, "tasks/get", task)["result"]["status"] == "cancelled"


def test_news_of_a_task_come_on_a_listen_stream_that_another_bridge_was_asked_for(pair: Fleet) -> None:
    first, second = pair.replicas
    params = {"name": "modern__job", "arguments": {"steps": [{"say": "a"}, {"stay": True}], "announces": True}}
    task = read(modern(first, "tools/call", params, CAN))["result"]["taskId"]
    with listening(second, {"taskIds": [task]}, CAN) as messages:
        acknowledged = next(messages)
        assert acknowledged["params"]["notifications"]["taskIds"] == [task]
        about(first, "tasks/get", task)
        news = next(one for one in messages if one["method"] == "notifications/tasks")
        assert news["params"]["taskId"] == task


def test_a_task_ends_with_the_bridge_whose_process_it_is_in(pair: Fleet) -> None:
    """The process of another bridge may have a task of that id, which is somebody else's."""
    first, second = pair.replicas
    task = begun(first, [{"stay": True}])
    begun(second, [{"say": "of the second"}, {"stay": True}])
    first.kill()
    seen = list[dict[str, Any]]()

    def is_over() -> bool:
        seen.append(about(second, "tasks/get", task)["error"])
        return seen[-1]["message"].startswith("Unknown task")

    until(is_over, "the task is known to be over")
    assert all(one["message"].startswith(("not sent", "outcome unknown")) for one in seen[:-1]), seen


def test_a_session_follows_tasks_of_another_bridge(pair: Fleet, http: httpx2.Client) -> None:
    """Revision 2025-11-25: tasks belong to whoever made them, and another session of theirs may be anywhere."""
    first, second = pair.replicas
    maker, other = Client(http).begin(first), Client(http).begin(second)
    call = message("tools/call", 5, name="legacy__job", arguments={"steps": [{"say": "a"}, {"say": "b"}]}, task={})
    task = read(maker.post(first, call))["result"]["task"]["taskId"]
    found = read(other.post(first, message("tasks/get", 6, taskId=task)))["result"]
    assert (found["taskId"], found["statusMessage"]) == (task, "a")

    def look() -> str:
        return read(other.post(second, message("tasks/get", 6, taskId=task)))["result"]["status"]

    until(lambda: look() == "completed", "it is completed")
    result = read(other.post(second, message("tasks/result", 7, taskId=task)))
    assert result["id"] == 7, result
    assert result["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"] == task
    endless = message("tools/call", 8, name="legacy__job", arguments={"steps": [{"stay": True}]}, task={})
    endless_task = read(maker.post(first, endless))["result"]["task"]["taskId"]
    assert read(other.post(second, message("tasks/cancel", 9, taskId=endless_task)))["result"]["status"] == "cancelled"
    stranger = {"authorization": f"Bearer {OTHER_TOKEN}"}
    third = Client(http)
    third.session = third.post(second, message("initialize", **OPENING), **stranger).headers["mcp-session-id"]
    third.post(second, message("notifications/initialized", None), **stranger)
    refused = read(third.post(second, message("tasks/get", 10, taskId=task), **stranger))
    assert refused["error"]["message"].startswith("Unknown task")


OPENING: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}
