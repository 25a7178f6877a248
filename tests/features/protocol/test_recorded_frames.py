"""Frames of revisions to come cross the bridge unchanged, in both directions, wherever their method can cross.

The frames lie in `recorded/frames.txt`. What cannot cross, because the bridge would have to know whose it is or what it
means, is answered in so many words.
"""

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.plain import members
from servers.recording import Exchange, exchanges
from support.harness import Place, eventually
from support.rpc import MODERN, Refused, Reply, StdioClient

FRAMES = Path(__file__).parent / "recorded/frames.txt"
SERVER = Path(__file__).parents[2] / "servers/recorded.py"
EXCHANGES = exchanges(FRAMES.read_text("utf-8"))
PREFIX = "io.modelcontextprotocol/"


@dataclass
class Pair:
    """A client and a server of one era, and what the server was sent."""

    era: str
    client: StdioClient
    journal: Path

    @property
    def is_modern(self) -> bool:
        return self.era == "modern"

    def meta(self, **more: Any) -> dict[str, Any]:
        """The `_meta` of a request."""
        if not self.is_modern:
            return more
        declared = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {"sampling": {}}}
        return {**declared, **more}

    async def send(self, method: str, params: str, **meta: Any) -> Reply:
        """Send a request whose params are this text, with a `_meta` at the end."""
        id_ = self.client.next_id()
        self.client.expect(id_)
        text = f'{params[:-1]},"_meta":{json.dumps(self.meta(**meta))}}}'
        await self.client.write(f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{text}}}\n'.encode())
        return await self.client.answer_to(id_)

    def sent(self, method: str) -> list[str]:
        """The params of all requests with this method that reached the server, as they came."""
        lines = self.journal.read_text("utf-8").splitlines()
        return [members(line)["params"] for line in lines if json.loads(line).get("method") == method]


@pytest.fixture(scope="module", params=["legacy", "modern"])
async def pair(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Pair]:
    """One bridge an era."""
    place = Place(tmp_path_factory.mktemp("recorded"))
    journal = place.folder / "journal"
    server = {"command": sys.executable, "args": ["-ES", str(SERVER), str(FRAMES), str(journal), request.param]}
    async with place.bridge({"later": server}) as client:
        pair = Pair(request.param, client, journal)
        if not pair.is_modern:
            await client.initialize(sampling={})
        # Answered once all is known of the server.
        await client.call("later__gaze", within=60, meta=pair.meta(number=0))
        yield pair
    place.clean()


@pytest.mark.parametrize("number", range(len(EXCHANGES)), ids=lambda at: EXCHANGES[at].request[0])
async def test_a_recorded_exchange_crosses_unchanged(pair: Pair, number: int) -> None:
    exchange = EXCHANGES[number]
    method, params = exchange.request
    if exchange.question[0]:
        reply = await asked(pair, exchange, number)
    else:
        reply = await pair.send(method, params.replace("{name}", "later__gaze"), number=number)
    assert same_but_meta(pair.sent(method)[-1], params.replace("{name}", "gaze"))
    assert same_but_meta(members(reply.raw.decode())["result"], exchange.result[1], "resultType", "ttlMs", "cacheScope")


async def asked(pair: Pair, exchange: Exchange, number: int) -> Reply:
    """The answer to a request during which the client is asked something, and answers in kind."""
    method, params = exchange.request
    named = params.replace("{name}", "later__gaze")
    if pair.is_modern:
        first = await pair.send(method, named, number=number)
        assert first.result["resultType"] == "input_required"
        [(key, question)] = members(members(members(first.raw.decode())["result"])["inputRequests"]).items()
        assert same_but_meta(members(question)["params"], exchange.question[1])
        answers = f'"inputResponses":{{"{key}":{exchange.reply[1]}}}'
        state = f'"requestState":{json.dumps(first.result["requestState"])}'
        reply = await pair.send(method, f"{named[:-1]},{answers},{state}}}", number=number)
        responses = members(members(pair.sent(method)[-1])["inputResponses"])
        assert responses == {"one": exchange.reply[1]}
        return reply
    id_ = pair.client.next_id()
    answer = pair.client.expect(id_)
    text = f'{named[:-1]},"_meta":{{"number":{number}}}}}'
    await pair.client.write(f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{text}}}\n'.encode())
    question = await pair.client.notice(exchange.question[0])
    assert question["params"] == json.loads(exchange.question[1])
    head = f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])}'
    await pair.client.write(f'{head},"result":{exchange.reply[1]}}}\n'.encode())
    reply = await pair.client.answer_to(id_)
    assert answer.done()
    answered = [json.loads(line) for line in pair.journal.read_text("utf-8").splitlines()]
    raw = pair.journal.read_text("utf-8").splitlines()
    [at] = [at for at, message in enumerate(answered) if message.get("id") == f"question-{number}"]
    assert members(raw[at])["result"] == exchange.reply[1]
    return reply


async def test_definitions_keep_what_nobody_knows(pair: Pair) -> None:
    meta = {"_meta": pair.meta()}
    [gaze] = [
        tool
        for tool in (await pair.client.request("tools/list", meta)).result["tools"]
        if tool["name"] == "later__gaze"
    ]
    assert gaze["cost"] == {"amount": 0.5, "per": None}
    [prompt] = (await pair.client.request("prompts/list", meta)).result["prompts"]
    assert (prompt["mood"], prompt["arguments"]) == ("dry", [{"name": "who", "hint": {"of": None}}])
    [resource] = (await pair.client.request("resources/list", meta)).result["resources"]
    assert resource["versions"] == [1.0, None]


async def test_a_method_that_the_only_server_does_not_know_either_is_refused_by_it(pair: Pair) -> None:
    with pytest.raises(Refused) as refused:
        _ = (await pair.client.request("future/method", {"n": 1, "_meta": pair.meta()})).result
    assert refused.value.code == -32601
    assert pair.sent("future/method")


@pytest.mark.parametrize("method", ["tasks/future", "roots/list", "notifications/future", "logging/setLevel"])
async def test_what_belongs_to_one_hop_is_not_passed_on(pair: Pair, method: str) -> None:
    sent = len(pair.sent(method))
    with pytest.raises(Refused):
        _ = (await pair.client.request(method, {"n": 1, "_meta": pair.meta()})).result
    assert len(pair.sent(method)) == sent


async def test_a_method_from_the_future_that_could_be_for_several_servers_reaches_none(place: Place) -> None:
    """Nothing tells whose it is: the client can use what it knows of instead. At a server's own address it is its."""
    journals = [place.folder / name for name in ("one", "two")]
    servers = {
        journal.name: {"command": sys.executable, "args": ["-ES", str(SERVER), str(FRAMES), str(journal), "legacy"]}
        for journal in journals
    }
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("one__gaze")
        await client.tools_with("two__gaze")
        with pytest.raises(Refused) as refused:
            _ = (await client.request("future/method", {"n": 1})).result
        assert refused.value.code == -32601
        assert not any("future/method" in journal.read_text("utf-8") for journal in journals)


async def test_what_a_server_says_and_asks_in_unknown_words_does_not_disturb_its_call(pair: Pair) -> None:
    reply = await pair.send("tools/call", '{"name":"later__stray","arguments":{}}')
    assert reply.text == "done"
    assert not [message for message in pair.client.arrived if "future" in message["method"]]
    if not pair.is_modern:

        async def answers() -> list[dict[str, Any]]:
            lines = pair.journal.read_text("utf-8").splitlines()
            return [message for line in lines if (message := json.loads(line)).get("id") == "stray"]

        [answer] = await eventually(answers, bool)
        assert answer["error"]["code"] == -32601


async def test_an_unknown_kind_of_result_is_an_error_that_names_it(pair: Pair) -> None:
    """MCP 2026-07-28, Base Protocol, ResultType: it is invalid; a client could not tell what it has to do."""
    reply = await pair.send("tools/call", '{"name":"later__result_type","arguments":{}}')
    if not pair.is_modern:
        assert reply.result == {"content": []}  # the handshake era has one kind
        return
    said = reply.text if "result" in reply.message else reply.message["error"]["message"]
    assert "postponed" in said
    assert "result" not in reply.message or reply.failed


def same_but_meta(arrived: str, recorded: str, *added: str) -> bool:
    """Whether an object is the recorded one to the byte, but for the name, `_meta` and what the era adds."""
    left_out = {"_meta", "inputResponses", "requestState", *added}
    there = {key: value for key, value in members(arrived).items() if key not in left_out}
    wanted = members(recorded)
    assert there == wanted
    assert list(there) == list(wanted)
    return True
