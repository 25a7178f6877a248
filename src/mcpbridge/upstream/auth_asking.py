"""Has the client of a call open the sign-in page of a server, where the client can be asked to open pages."""

import secrets

from msgspec import Raw

from mcpbridge.errors import SignInNeeded
from mcpbridge.interaction import ELICIT, Question, QuestionRefused
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["ask_to_sign_in"]


async def ask_to_sign_in(call: Call, needed: SignInNeeded) -> None:
    """Return when there is a token, so that the call may be sent again.

    The browser must be able to come back to the machine of the bridge, as with `mcpbridge login`.

    Raises:
        SignInNeeded: the client cannot open pages, or nobody signed in.
    """
    client = call.client
    if needed.by_asking is None or not client.profile.url:
        raise needed
    asked: list[Question] = []

    async def ask_to_open(url: str) -> bool:
        params = {
            "mode": "url",
            "message": f"Sign in to {needed.upstream}, which the call needs.",
            "url": url,
            "elicitationId": secrets.token_urlsafe(16),
        }
        question = Question(call.upstream, ELICIT, Raw(encode(params)))
        try:
            answer = Body(await client.ask(question))
        except QuestionRefused:
            return False
        asked.append(question)
        return bytes(answer.get("action") or b"") == b'"accept"'

    try:
        await needed.by_asking(ask_to_open)
    finally:
        for question in asked:
            client.finished(question)
