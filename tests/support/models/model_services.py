"""Services of language models as tests play them: what OpenAI's and Anthropic's APIs answer, behind a real server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.upstreams.scripted_http import Ask, HttpServer, Script, http_server, reply

__all__ = ["KEY", "PROVIDERS", "good", "in_turn", "model_service", "prompt_in"]

KEY = "sk-very-secret-key"
PROVIDERS = ["openai", "anthropic"]


def good(ask: Ask, text: str = "33 items", *, is_cut: bool = False) -> bytes:
    """What either service answers."""
    if ask.path.endswith("/messages"):
        return reply(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}],
                "stop_reason": "max_tokens" if is_cut else "end_turn",
                "usage": {"input_tokens": 9},
            }
        )
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return reply({"object": "chat.completion", "choices": [choice | ({"finish_reason": "length"} if is_cut else {})]})


def in_turn(*answers: Any) -> Script:
    """One answer after the other, the last one again and again: a text that the model writes, None for the usual one,
    or the bytes of another answer."""
    left = list(answers)

    async def script(ask: Ask) -> bytes:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, bytes):
            return answer
        return good(ask) if answer is None else good(ask, answer)

    return script


@asynccontextmanager
async def model_service(script: Script) -> AsyncIterator[tuple[HttpServer, str]]:
    """The server, and the base address to configure."""
    async with http_server(script) as server:
        yield server, server.url.removesuffix("/mcp") + "/v1/"


def prompt_in(ask: Ask) -> str:
    """What the user is said to say, in either API."""
    content = ask.message["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
