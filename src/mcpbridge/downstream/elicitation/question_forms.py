"""Questions of servers in the form of the client's revision. Pure.

The message of an elicitation begins with the name of the server that asks, because to the client all servers are the
bridge. If a page is to be opened, its host follows (`page_addresses.py`). Everything else stays as the server sent it,
except for members that belong to one hop or that the client's revision does not have.
"""

from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.core.elicitation import (
    ELICIT,
    LIST_ROOTS,
    SAMPLE,
    ClientCapabilities,
    Question,
    QuestionRefused,
    elicitation_mode,
    question_refusal,
)
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, decode_array, encode

_RICH_FORMS = "2025-11-25"
"""The first revision with titled and multiple choices in forms, and with lists as the content of a message."""
_HOP_BY_HOP = frozenset({"progressToken", "io.modelcontextprotocol/related-task"})


def phrase(question: Question, version: str, profile: ClientCapabilities, *, elicitation_id: str = "") -> bytes | Raw:
    """The params to put to a client of revision `version`, which can be asked what `profile` says.

    `elicitation_id` is given to a URL question that has none of its own; empty for a modern client, whose revision
    has no such ids.

    Raises:
        QuestionRefused: the client cannot be asked this, or not in this form.
    """
    if refused := question_refusal(question, profile):
        raise refused
    params = Body(question.params)
    try:
        _drop_hop_by_hop(params)
        if question.method == ELICIT:
            _elicitation(question, params, version, elicitation_id)
        elif question.method == SAMPLE:
            _sampling(params, version, profile)
    except (msgspec.DecodeError, KeyError) as error:
        raise QuestionRefused(f"Invalid params: {error}", INVALID_PARAMS) from error
    if question.method == LIST_ROOTS and not params.fields:
        return EMPTY_OBJECT
    return params.data


def _drop_hop_by_hop(params: Body) -> None:
    params.drop("task")
    meta = params.inner("_meta")
    if meta is None or not _HOP_BY_HOP & meta.fields.keys():
        return
    for name in _HOP_BY_HOP:
        meta.drop(name)
    if meta.fields:
        params.put("_meta", meta)
    else:
        params.drop("_meta")


def _elicitation(question: Question, params: Body, version: str, elicitation_id: str) -> None:
    message = params.text("message")
    if elicitation_mode(params) == "url":
        # here, since it loads the HTTP library, and few clients are ever asked to open a page
        from mcpbridge.downstream.elicitation.page_addresses import checked_page, message_of_page, plain_url

        url = params.text("url")
        page = checked_page(url, is_own=question.is_own)
        params.put("message", message_of_page(question.upstream, message, page))
        if (plain := plain_url(page, url)) != url:
            params.put("url", plain)
        if not elicitation_id:
            params.drop("elicitationId")
        elif "elicitationId" not in params:
            params.put("elicitationId", elicitation_id)
        return
    if not message.startswith(f"[{question.upstream}]"):
        params.put("message", f"[{question.upstream}] {message}")
    if version < _RICH_FORMS:
        params.drop("mode")
        _plain_form(params)


def _plain_form(params: Body) -> None:
    """Titled choices as `enum` with `enumNames`; several at a time cannot be chosen before 2025-11-25."""
    schema = params.inner("requestedSchema")
    properties = schema.inner("properties") if schema is not None else None
    if schema is None or properties is None:
        return
    changed = False
    for name, raw in list(properties.fields.items()):
        field = Body(raw)
        if not field.is_object:
            continue
        if bytes(field.get("type") or b"") == b'"array"':
            raise QuestionRefused(f"The client's revision knows no field with several choices ({name[:60]})")
        choices = _titled(field)
        if choices is not None:
            field.drop("oneOf")
            field.put("enum", [value for value, _ in choices])
            field.put("enumNames", [title for _, title in choices])
            properties.put(name, field)
            changed = True
    if changed:
        schema.put("properties", properties)
        params.put("requestedSchema", schema)


def _titled(field: Body) -> list[tuple[Any, Any]] | None:
    raw = field.get("oneOf")
    options = msgspec.json.decode(raw) if raw is not None else None
    if not isinstance(options, list):
        return None
    choices = [cast("dict[str, Any]", option) for option in cast("list[Any]", options) if isinstance(option, dict)]
    return [(choice.get("const"), choice.get("title", choice.get("const"))) for choice in choices]


def _sampling(params: Body, version: str, profile: ClientCapabilities) -> None:
    if not profile.sampling_context:
        params.drop("includeContext")
    if version >= _RICH_FORMS or "messages" not in params:
        return
    messages: list[Raw] = []
    changed = False
    for raw in decode_array(params.fields["messages"]):
        content = Body(raw).get("content")
        if content is None or bytes(memoryview(content)[:1]) != b"[":
            messages.append(raw)
            continue
        changed = True
        for block in decode_array(content):  # one message a block: the revision knows no lists here
            message = Body(raw)
            message.put("content", block)
            data = message.data
            messages.append(data if isinstance(data, Raw) else Raw(data))
    if changed:
        params.put("messages", Raw(encode(messages)))
