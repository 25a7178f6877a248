"""Plain calls of people who signed in take the express lane, up to the moment at which their token ends."""

import time

import pytest

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.auth.resource_server import ResourceServer
from mcpbridge.downstream.http import app
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.connection import Connections
from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings
from support.http_talk import HttpTalk, ModernHttpTalk
from support.in_process_bridge import BridgeToScripts, bridged
from support.lane_steps import Message, server, turns
from support.token_issuer import Issuer, issuing


def talking(kind: type[HttpTalk], bridge: BridgeToScripts, issuer: Issuer) -> HttpTalk:
    """A client that sends a token."""

    class Signed(kind):  # type: ignore[valid-type,misc] - which of the two is a parameter
        token = ""

        def request(self, message: Message | None, method: str = "POST") -> bytes:
            head, _, body = super().request(message, method).partition(b"\r\n\r\n")
            return b"%b\r\nauthorization: Bearer %b\r\n\r\n%b" % (head, self.token.encode(), body)

    talk = Signed(bridge)
    settings = ResourceServerSettings.model_validate(issuer.settings())
    auth = Authenticator([], resource_server=ResourceServer(settings, path="/mcp"))
    talk.front = HttpFront(bridge, HttpSettings(), auth)
    talk.connections = Connections(talk.front, talk.front.take)
    return talk


@pytest.mark.parametrize("kind", [HttpTalk, ModernHttpTalk])
async def test_a_known_head_is_let_in_while_its_token_lasts(
    kind: type[HttpTalk], monkeypatch: pytest.MonkeyPatch
) -> None:
    up = server()
    async with issuing() as issuer, bridged({"up": up}) as bridge:
        talk = talking(kind, bridge, issuer)
        talk.token = issuer.token(exp=int(time.time()) + 60)  # type: ignore[attr-defined] - of `Signed`
        people = talk.front._auth.resource_server
        assert people is not None
        await people.check("/mcp", f"Bearer {talk.token}".encode())  # type: ignore[attr-defined] - as above
        await talk.begin()
        taken: list[str] = []
        take = talk.front.take

        def counted(exchange: object) -> bool:
            is_taken = take(exchange)  # type: ignore[arg-type] - it is counted, whatever it is
            taken.append("express" if is_taken else "full")
            return is_taken

        talk.connections.take = counted
        for number in range(5):
            talk.say(talk.call(f"c{number}"))
            await talk.answer(f"c{number}")
        assert taken == ["express"] * 5
        wire = talk.free()
        before, calls = len(wire.responses), len(up.asked("tools/call"))
        monkeypatch.setattr(app, "time", lambda: time.time() + 3600)
        monkeypatch.setattr(people.tokens, "_now", lambda: time.time() + 3600)
        wire.waits += 1
        wire.send(talk.request(talk.call("late")))
        while len(wire.responses) == before:
            await turns()
        assert wire.responses[-1][0] == 401
        assert len(up.asked("tools/call")) == calls, "it was not sent on"
        await talk.end()
