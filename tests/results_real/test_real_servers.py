"""Large results of servers that people run: shown with the right figures, recalled, transformed, passed on (issue 5).

On both fronts, in both eras. What a test expects is computed from the data that the servers were given.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from results_real.real_world import SETTINGS, World, started
from support.harness import Place
from support.rpc import Client, Message, Reply, envelope

RESULT = "mcpbridge/result"
BUDGET = 2000

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed: its servers cannot be run")


@dataclass
class Caller:
    """A client of one era on one front."""

    client: Client
    is_modern: bool

    async def ask(self, method: str, **params: Any) -> Reply:
        meta = {"_meta": envelope()} if self.is_modern else {}
        return await self.client.request(method, {**params, **meta}, within=20)

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool, which must not fail."""
        reply = await self.ask("tools/call", name=tool, arguments=arguments)
        assert not reply.failed, reply.text
        return reply

    async def large(self, tool: str, *kinds: str, **arguments: Any) -> tuple[str, str]:
        """The text of a large result, and the handle of the original: in the budget, the same in all of its parts."""
        reply = await self.call(tool, **arguments)
        told = reply.result["_meta"][RESULT]
        assert told["form"] == "preview"
        assert told["kind"] in kinds
        assert [block["type"] for block in reply.result["content"]] == ["text"]
        assert reply.result.get("structuredContent", {"text": reply.text}) == {"text": reply.text}
        assert reply.text.startswith(f"[mcpbridge {told['handle']} ")
        assert len(reply.text) <= BUDGET
        return reply.text, told["handle"]

    async def recall(self, handle: str, **how: Any) -> str:
        return (await self.call("recall", handle=handle, **how)).text

    async def original(self, handle: str) -> Message:
        """The result that the server sent."""
        reply = await self.ask("resources/read", uri=f"mcpbridge://results/{handle}")
        [whole] = reply.result["contents"]
        return json.loads(whole["text"])


@pytest.fixture(scope="module")
async def fronts(
    anyio_backend: str, world: World, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Client]]:
    """One bridge a front, both in front of all servers."""
    places = [Place(tmp_path_factory.mktemp(front)) for front in ("stdio", "http")]
    async with AsyncExitStack() as stack:
        on_stdio = await stack.enter_async_context(places[0].bridge(world.servers, **SETTINGS))
        over_http = await stack.enter_async_context(places[1].http_bridge(world.servers, **SETTINGS))
        for client in (on_stdio, over_http):
            await started(client, *world.servers)
        yield {"stdio": on_stdio, "http": over_http}
    for place in places:
        place.clean()


@pytest.fixture(params=["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
def caller(fronts: dict[str, Client], request: pytest.FixtureRequest) -> Caller:
    front, _, era = request.param.partition("-")
    return Caller(fronts[front], is_modern=era == "modern")


def counts(text: str, counted: Counter[str]) -> None:
    """Assert that a preview says how often each of these is there."""
    for name, count in counted.items():
        assert re.search(rf"{re.escape(name)}\W{{1,3}}{count}\b", text), f"not {name} {count} in:\n{text}"


def texts(result: Message) -> str:
    return "\n".join(block["text"] for block in result["content"])


# -- git: text of records


async def test_the_history_of_a_repository(caller: Caller, world: World) -> None:
    text, handle = await caller.large("git__git_log", "text", repo_path=world.repository, max_count=100)
    authors = Counter(commit["author"] for commit in world.commits)
    counts(text, authors)
    assert "80 records" in text
    assert world.commits[0]["sha"] in text
    assert world.commits[-1]["sha"] in text

    wanted = world.commits[37]
    assert wanted["subject"] in await caller.recall(handle, find=wanted["sha"], context=4)
    counted = await caller.recall(handle, regex=r"Author: (?P<who>.*)", group_by="who", aggregate="count")
    assert {f"{who},{count}" for who, count in authors.items()} <= {*counted.splitlines()}

    original = texts(await caller.original(handle))
    assert re.findall(r"^Commit: (\w+)$", original, re.MULTILINE) == [commit["sha"] for commit in world.commits]
    lines = original.splitlines()
    assert f"{len(lines)} lines" in text
    assert (await caller.recall(handle, lines="5")).splitlines()[0] == lines[4]
    assert lines[4] == f"Message: {world.commits[0]['subject']}"


async def test_a_script_over_the_history(caller: Caller, world: World) -> None:
    script = r"result.match(/^Commit: \w+/gm).slice(0, 3).map(line => line.slice(8, 15))"
    reply = await caller.call("git__git_log", repo_path=world.repository, max_count=100, _transform=script)
    assert json.loads(reply.result["content"][0]["text"]) == [commit["sha"][:7] for commit in world.commits[:3]]
    assert reply.result["_meta"][RESULT]["form"] == "transformed"


async def test_a_diff(caller: Caller, world: World) -> None:
    text, handle = await caller.large("git__git_diff", "diff", repo_path=world.repository, target="HEAD~10")
    assert "4 files changed, 160 insertions(+), 160 deletions(-)" in text
    assert all(f"src/{area}.txt" in text for area in ("docs", "network", "parser", "storage"))
    assert "[all 4 matching lines]" in await caller.recall(handle, find="+line 39 of")


# -- a SQL server that answers with the repr of a list


async def test_a_table(caller: Caller, world: World) -> None:
    text, handle = await caller.large("sql__read_query", "repr", query="select * from orders")
    rows = world.rows
    total = sum(amount(row) for row in rows)
    assert "500 objects" in text
    assert f"sum {total}" in text
    assert all(name in text for name in rows[0])
    for name in ("city", "status"):
        counts(text, Counter(row[name] for row in rows))
    empty = sum(row["note"] is None for row in rows)
    assert f"note: {500 - empty} set, {empty} null" in text

    [row] = json.loads(f"[{(await caller.recall(handle, where={'id': 10**17 + 498})).splitlines()[0]}]")
    assert row == rows[498]
    sums = await caller.recall(handle, group_by="city", aggregate="sum:amount")
    by_city = {city: sum(amount(row) for row in rows if row["city"] == city) for city in {row["city"] for row in rows}}
    assert {city: Decimal(said) for city, said in re.findall(r"^(\w+),([\d.]+)$", sums, re.MULTILINE)} == by_city
    refunded = [row for row in rows if row["status"] == "refunded"]
    counted = await caller.recall(handle, where="status == 'refunded'", aggregate=["count", "sum:amount"])
    expected = {"count": len(refunded), "sum(amount)": float(sum(map(amount, refunded)))}
    assert json.loads(counted.splitlines()[0]) == expected

    assert texts(await caller.original(handle)) == str(rows)


def amount(row: Message) -> Decimal:
    return Decimal(str(row["amount"]))


async def test_a_script_over_a_table(caller: Caller, world: World) -> None:
    script = "result.filter(row => row.note === null && row.city === 'Oslo').map(row => row.id).slice(-2)"
    reply = await caller.call("sql__read_query", query="select * from orders", _transform=script)
    expected = [row["id"] for row in world.rows if row["note"] is None and row["city"] == "Oslo"][-2:]
    assert json.loads(reply.result["content"][0]["text"]) == expected


async def test_a_row_of_one_result_in_the_query_for_another(caller: Caller, world: World) -> None:
    _, handle = await caller.large("sql__read_query", "repr", query="select * from orders")
    query = f"select customer, amount from orders where id = {{{{result:{handle}#/321/id}}}}"
    wanted = world.rows[321]
    assert (await caller.call("sql__read_query", query=query)).text == str(
        [{"customer": wanted["customer"], "amount": wanted["amount"]}]
    )


# -- files


@needs_node
async def test_a_folder_of_many_files(caller: Caller, world: World) -> None:
    listed, handle = await caller.large("files__list_directory", "text", "listing", path=world.inbox)
    assert "1500" in listed.splitlines()[0]
    counted = await caller.recall(handle, regex=r"\.pdf$", aggregate="count")
    assert json.loads(counted.splitlines()[0]) == {"count": 150}
    assert "778: [FILE] 0777-network.md" in await caller.recall(handle, find="0777")
    original = await caller.original(handle)
    assert original["structuredContent"] == {"content": texts(original)}
    assert sorted(texts(original).splitlines()) == sorted(f"[FILE] {name}" for name in world.files)


@needs_node
async def test_a_tree_of_many_files(caller: Caller, world: World) -> None:
    text, handle = await caller.large("files__directory_tree", "json", path=world.inbox)
    assert "array of 1500 objects" in text
    counts(text, Counter(Path(name).suffix for name in world.files))
    assert "0777-network.md" in await caller.recall(handle, where={"name": "0777-network.md"}, select="name,type")
    reply = await caller.call("files__directory_tree", path=world.inbox, _transform="result.length")
    assert reply.result["content"][0]["text"] == "1500"
    assert reply.result["structuredContent"] == {"result": 1500}


@needs_node
async def test_files_that_match(caller: Caller, world: World) -> None:
    text, _ = await caller.large("files__search_files", "listing", path=world.inbox, pattern="*.md")
    expected = sum(name.endswith(".md") for name in world.files)
    assert f"{expected} files" in text
    counts(text, Counter({".md": expected}))


@needs_node
async def test_a_file_goes_from_one_tool_to_another_byte_for_byte(caller: Caller, world: World) -> None:
    text, handle = await caller.large("files__read_text_file", "csv", path=world.path("report.csv"))
    total = sum(Decimal(n * 3) + Decimal("0.50") for n in range(600))
    assert "600 rows × 4 columns" in text
    assert f"sum {total}" in text
    said = await caller.recall(handle, where="number == 321", select="price,remark")
    assert json.loads(said.splitlines()[0]) == {"price": 963.5, "remark": "grüße 世界 🙂"}

    copy = world.folder / "copy.csv"
    copy.unlink(missing_ok=True)
    written = await caller.call("files__write_file", path=str(copy), content={"$ref": handle})
    assert copy.read_bytes() == world.report.encode()
    assert written.result["structuredContent"] == {"content": written.text}, "a small result, as it came"
    await caller.call("files__write_file", path=str(copy), content={"$ref": f"{handle}#/3/remark"})
    assert copy.read_text("utf-8") == "grüße 世界 🙂"


@needs_node
async def test_a_table_becomes_a_file_unseen(caller: Caller, world: World) -> None:
    _, handle = await caller.large("sql__read_query", "repr", query="select * from orders")
    copy = world.folder / "orders.txt"
    await caller.call("files__write_file", path=str(copy), content={"$ref": handle})
    assert copy.read_text("utf-8") == str(world.rows)


# -- a knowledge graph


@needs_node
async def test_a_knowledge_graph(caller: Caller, world: World) -> None:
    text, handle = await caller.large("memory__read_graph", "json")
    assert "entities: array of 300 objects" in text
    assert "relations: array of 150 objects" in text
    observed = Counter(said for entity in world.entities for said in entity["observations"])
    assert f"{observed.total()} in all" in text
    assert f"{len(observed)} distinct" in text
    counts(text, Counter(entity["entityType"] for entity in world.entities))

    found = await caller.recall(handle, find=f"has the number {10**17 + 123}")
    assert found.startswith("entities[123].observations[1]: ")
    entity = await caller.recall(handle, path="entities[123]")
    assert json.loads(entity.splitlines()[0]) == world.entities[123]
    known = await caller.recall(handle, path="relations", where={"from": "person-6"}, select="to")
    assert json.loads(known.splitlines()[0]) == [r["to"] for r in world.relations if r["from"] == "person-6"]
    assert (await caller.original(handle))["structuredContent"] == {
        "entities": world.entities,
        "relations": world.relations,
    }


@needs_node
async def test_a_script_over_a_knowledge_graph(caller: Caller, world: World) -> None:
    script = "result.entities.filter(entity => entity.observations.includes('was seen in Kyoto')).length"
    reply = await caller.call("memory__read_graph", _transform=script)
    expected = sum("was seen in Kyoto" in entity["observations"] for entity in world.entities)
    assert reply.result["content"][0]["text"] == str(expected)
    assert reply.result["structuredContent"] == {"result": expected}


@needs_node
async def test_an_entity_of_the_graph_is_looked_up_by_reference(caller: Caller, world: World) -> None:
    _, handle = await caller.large("memory__read_graph", "json")
    reply = await caller.call("memory__open_nodes", names=[{"$ref": f"{handle}#/entities/5/name"}])
    assert reply.result["structuredContent"]["entities"] == [world.entities[5]]
    assert json.loads(reply.text) == reply.result["structuredContent"]
    assert RESULT not in reply.result.get("_meta", {})


# -- what is small, and what fails


async def test_small_results_pass_as_they_come(caller: Caller, world: World) -> None:
    few = await caller.call("sql__read_query", query="select id, note from orders limit 2")
    assert few.text == str([{"id": row["id"], "note": row["note"]} for row in world.rows[:2]])
    log = await caller.call("git__git_log", repo_path=world.repository, max_count=1)
    assert world.commits[0]["sha"] in log.text
    assert RESULT not in json.dumps([few.result, log.result])


async def test_a_failure_of_a_server_is_told(caller: Caller, world: World) -> None:
    params = {"name": "git__git_show", "arguments": {"repo_path": world.repository, "revision": "nowhere"}}
    reply = await caller.ask("tools/call", **params)
    assert reply.failed
    assert "nowhere" in reply.text


async def test_a_handle_outlives_the_bridge(place: Place, world: World) -> None:
    async with place.bridge({"sql": world.servers["sql"]}, **SETTINGS) as client:
        await started(client, "sql")
        _, handle = await Caller(client, is_modern=False).large("sql__read_query", "repr", query="select * from orders")
    async with place.http_bridge({"git": world.servers["git"]}, **SETTINGS) as client:  # its own server is gone
        caller = Caller(client, is_modern=True)
        row = await caller.recall(handle, where={"id": 10**17 + 42})
        assert texts(await caller.original(handle)) == str(world.rows)
        found = await caller.ask("tools/call", name="recall", arguments={"search": "orders"})
    assert json.loads(row.splitlines()[0]) == world.rows[42]
    assert handle in found.text
