"""Tokens on requests: to one origin only, and again only after a refusal."""

from collections.abc import Callable

import httpx2
import pytest

from mcpbridge.base.errors import SignInNeeded
from mcpbridge.protocol.http.bearer_auth import BearerSend, Unauthorized

URL = httpx2.URL("https://server.example/mcp")


class Tokens:
    """An `Authorizer` with a list of tokens to give."""

    waits_for = ""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.refusals: list[tuple[str, int, str]] = []
        self.accepts = 0

    @property
    def ready(self) -> str | None:
        return self.tokens[0]

    async def token(self) -> str:
        return self.tokens[0]

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        self.refusals.append((used, status, challenge))
        self.tokens.pop(0)
        if not self.tokens:
            self.tokens.append("")
            raise SignInNeeded("up")
        return bool(self.tokens[0])

    def accepted(self) -> None:
        self.accepts += 1


class Web:
    """Answers with a status, and keeps what it was asked."""

    def __init__(self, decide: Callable[[str], int]) -> None:
        self.seen: list[str] = []
        self.decide = decide

    async def __call__(self, request: httpx2.Request, /) -> httpx2.Response:
        token = request.headers.get("authorization", "")
        self.seen.append(token)
        return httpx2.Response(self.decide(token), headers={"WWW-Authenticate": "Bearer x=y"}, request=request)


def post(url: httpx2.URL = URL) -> httpx2.Request:
    return httpx2.Request("POST", url, content=b"{}")


async def test_a_server_that_never_refuses_sees_the_request_as_it_is() -> None:
    web, tokens = Web(lambda token: 200), Tokens("")
    assert (await BearerSend(web, tokens, URL)(post())).status_code == 200
    assert (web.seen, tokens.refusals, tokens.accepts) == ([""], [], 0)


async def test_a_refused_request_is_sent_again_with_another_token() -> None:
    web, tokens = Web(lambda token: 200 if token == "Bearer new" else 401), Tokens("old", "new")
    assert (await BearerSend(web, tokens, URL)(post())).status_code == 200
    assert web.seen == ["Bearer old", "Bearer new"]
    assert tokens.refusals == [("old", 401, "Bearer x=y")]
    assert tokens.accepts == 1


async def test_one_request_is_repeated_a_few_times_only() -> None:
    web, tokens = Web(lambda token: 401), Tokens(*map(str, range(20)))
    assert (await BearerSend(web, tokens, URL)(post())).status_code == 401
    assert len(web.seen) == 4


async def test_a_refusal_that_no_token_helps_against_is_the_answer() -> None:
    web, tokens = Web(lambda token: 403), Tokens("old", "")
    assert (await BearerSend(web, tokens, URL)(post())).status_code == 403
    assert len(web.seen) == 1


async def test_why_there_is_no_token_is_told() -> None:
    with pytest.raises(Unauthorized) as refused:
        await BearerSend(Web(lambda token: 401), Tokens("old"), URL)(post())
    assert isinstance(refused.value.reason, SignInNeeded)


@pytest.mark.parametrize(
    "url", ["https://elsewhere.example/mcp", "http://server.example/mcp", "https://server.example:444/mcp"]
)
async def test_a_token_goes_to_the_origin_of_its_server_and_nowhere_else(url: str) -> None:
    web, tokens = Web(lambda token: 401), Tokens("old", "new")
    assert (await BearerSend(web, tokens, URL)(post(httpx2.URL(url)))).status_code == 401
    assert (web.seen, tokens.refusals) == ([""], [])
