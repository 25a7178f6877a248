"""The form of the bridge itself: nobody else can put the same."""

import json
from typing import Any

import anyio
from msgspec import Raw

from mcpbridge.config.mcp_servers_json import NAME
from mcpbridge.core.elicitation import ELICIT, ClientCapabilities, Question
from mcpbridge.downstream.elicitation.question_forms import phrase
from mcpbridge.pipeline.approvals.approvers import ClientApprover
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from support.upstreams.scripted_upstream import call_of

REQUEST = ApprovalRequest("id", "up", "up/echo", b'{"a":1}', "", "", "", "", 0.0, 1.0, "")


class Asked:
    """A client that declines and remembers the question."""

    def __init__(self) -> None:
        self.question: Question | None = None

    async def ask(self, question: Question) -> Raw:
        self.question = question
        return Raw(b'{"action":"decline"}')


def message(question: Question) -> str:
    said: dict[str, Any] = json.loads(bytes(phrase(question, "2025-11-25", ClientCapabilities(form=True))))
    return said["message"]


async def test_a_server_named_as_the_bridge_cannot_ask_in_its_name() -> None:
    client, call = Asked(), call_of()
    call.client = client  # pyright: ignore[reportAttributeAccessIssue] - only asked
    with anyio.fail_after(30):
        await ClientApprover("mcpbridge").ask(REQUEST, call)
    assert client.question is not None
    own = message(client.question)
    assert own.startswith("[mcpbridge: approval] The bridge itself asks")
    assert not NAME.fullmatch(client.question.upstream)
    params = {"mode": "form", "message": own, "requestedSchema": {"type": "object", "properties": {}}}
    forged = Question("mcpbridge", ELICIT, Raw(json.dumps(params).encode()))
    assert message(forged).startswith("[mcpbridge] [mcpbridge: approval]")
