"""The caller's own model, by MCP sampling (`sampling/createMessage`), with tools where the client takes them."""

import warnings
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.core.elicitation import SAMPLE, Elicitor, Question
from mcpbridge.core.model import BRIDGE
from mcpbridge.library.agent.models.api_client import plain
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.protocol.jsonrpc import encode


class SamplingModel:
    """Asks the client that calls: `SamplingModel(context)` in a tool, or an `mcp` session of a server. Meets `Model`.

    Its user decides about each question, and which model answers it.
    """

    format = "mcp"

    def __init__(self, asked: Any, *, max_tokens: int = 4096, **params: Any) -> None:
        """`asked`: a `CallContext`, an `Elicitor`, or an `mcp.server.session.ServerSession`.

        `max_tokens` of one answer. `params` go along with each request, as MCP names them: `systemPrompt`,
        `modelPreferences`, `temperature`, `stopSequences`, `toolChoice`.
        """
        self._asked, self._params = asked, {"maxTokens": max_tokens, **params}

    async def __call__(self, request: ModelRequest) -> dict[str, Any]:
        """See `Model`.

        Raises:
            QuestionRefused: the client has no model to offer, or takes no tools with it, or its user said no.
        """
        params: dict[str, Any] = {**self._params, "messages": list(request.messages)}
        if request.tools:
            params["tools"] = list(request.tools)
        else:
            params.pop("toolChoice", None)
        if hasattr(self._asked, "create_message"):
            return await _of_session(self._asked, params)
        elicitor = cast("Elicitor", getattr(self._asked, "client", self._asked))
        return msgspec.json.decode(await elicitor.ask(Question(BRIDGE, SAMPLE, Raw(encode(params)))))


async def _of_session(session: Any, params: dict[str, Any]) -> dict[str, Any]:
    from mcp_types import CreateMessageRequestParams

    asked = CreateMessageRequestParams.model_validate(params)
    rest = {name: getattr(asked, name) for name in asked.model_fields_set - {"messages", "meta"}}
    with warnings.catch_warnings():  # the method is deprecated from revision 2026-07-28 on, and there is no other
        warnings.simplefilter("ignore")
        answer = session.create_message(asked.messages, **rest)
    return plain(await answer)
