"""A server that wants pages visited first (-32042, revision 2025-11-25)."""

import json

import pytest

from mcpbridge.base.errors import BadRequest, UpstreamAnswered
from mcpbridge.core.elicitation import ClientCapabilities
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.revisions.downgrade import pages_first


@pytest.mark.parametrize("page", [{}, {"elicitationId": 5}, {"elicitationId": None}, {"elicitationId": "e1"}])
def test_a_page_is_shown_whatever_its_id_is(page: dict[str, object]) -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://example.com/1", "message": "go", **page}]}
    error = UpstreamAnswered("up", json.dumps({"code": -32042, "message": "pages", "data": data}).encode())
    client = Client(version="2025-11-25", capabilities=ClientCapabilities(url=True))
    told = pages_first(error, client)
    assert isinstance(told, BadRequest)
    data["elicitations"][0]["message"] = "[up] (opens example.com) go"
    assert told.data == data
    assert client.elicitations == ({("up", "e1")} if page.get("elicitationId") == "e1" else set())
