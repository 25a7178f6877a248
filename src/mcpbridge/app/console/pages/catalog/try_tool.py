"""The form to try a tool: it starts a call that continues by itself, and its part of the page follows that."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.catalog_rows import tool_of
from mcpbridge.app.console.arguments_form import (
    FormProblem,
    arguments_of,
    as_given,
    can_hold,
    read_json,
    with_defaults,
    with_values,
)
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX, Visitor, form_of
from mcpbridge.app.console.hand_calls import HandCall, TooManyCalls
from mcpbridge.app.console.pages.catalog.result_blocks import blocks_of
from mcpbridge.app.console.schema_fields import Field, fields_of
from mcpbridge.app.console.shown_text import pretty_json
from mcpbridge.base.errors import BridgeError
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.engine.requests import encoded


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/catalog/try` and below."""
    pages = TryTool(console)
    return [
        Route("/catalog/try", pages.start, methods=["POST"]),
        Route("/catalog/try/switch", pages.switch, methods=["POST"]),
        Route("/catalog/try/{id}", pages.look, methods=["GET"]),
        Route("/catalog/try/{id}/cancel", pages.cancel, methods=["POST"]),
    ]


def tool_address(id_: str) -> str:
    """The page of a tool. Ids are any text, also `..`, so they are not in the path."""
    return f"{PREFIX}/catalog/tool?id={quote(id_.encode('utf-8', 'replace'), safe='/')}"


class TryTool:
    """The form of one console."""

    def __init__(self, console: ConsoleContext) -> None:
        self._console = console

    def values(self, request: Request, ref: ToolRef) -> dict[str, Any]:
        """What the page of a tool needs for its form, and for a call that its address names."""
        visitor: Visitor = request.state.visitor
        call = self._console.hand_calls.find(request.query_params.get("job", ""), visitor.visit)
        job = _job(call) if call is not None else None
        form = fields_of(schema_of(ref))
        if call is not None and call.tool == ref.wire:
            return {"job": job, **_form_values(ref, form, call.arguments)}
        return {"job": job, **_form_values(ref, form, None)}

    async def start(self, request: Request) -> Response:
        """Begin a call with what was filled in; what is wrong with that is shown beside the control."""
        ref, given = await self._read(request)
        form = fields_of(schema_of(ref))
        visitor: Visitor = request.state.visitor
        try:
            if given.get("schema") != digest_of(ref):
                raise FormProblem({"": "The tool has changed meanwhile. Look at the form again, and call it then."})
            arguments = _arguments(form, given)
            call = self._console.hand_calls.start(visitor.visit, ref.wire, arguments)
        except FormProblem as problem:
            return self._form(request, ref, _again(ref, form, given, problem.problems), 422)
        except (TooManyCalls, BridgeError) as error:
            return self._form(request, ref, _again(ref, form, given, {"": str(error)}), 503)
        if "hx-request" not in request.headers:
            return RedirectResponse(f"{tool_address(ref.id)}&job={call.id}#try", 303)
        return self._form(request, ref, _again(ref, form, given, {}), job=_job(call))

    async def switch(self, request: Request) -> Response:
        """The same arguments in the other kind of form, as far as that can hold them."""
        ref, given = await self._read(request)
        form = fields_of(schema_of(ref))
        try:
            arguments = _arguments(form, given)
        except FormProblem as problem:
            problems = {name: what for name, what in problem.problems.items() if what != "is required"}
            if problems or given.get("mode") == "raw":
                return self._form(request, ref, _again(ref, form, given, problem.problems), 422)
            arguments = _partly(form, given)
        to_raw = given.get("mode") != "raw"
        return self._form(request, ref, _form_values(ref, form, arguments, is_raw=to_raw))

    async def look(self, request: Request) -> Response:
        """The call as it is now."""
        call = self._call(request)
        seen = request.query_params.get("seen", "")
        if call.state == "running" and seen == str(call.changed):
            return Response(status_code=204)  # nothing is new: what is shown stays
        return self._console.part(request, "catalog/job.html", job=_job(call))

    async def cancel(self, request: Request) -> Response:
        """Withdraw the call, and show that."""
        call = self._call(request)
        self._console.hand_calls.cancel(call)
        await self._console.hand_calls.ended(call)
        if "hx-request" not in request.headers:
            tool = self._console.bridge.catalog.snapshot.by_wire.get(call.tool)
            return RedirectResponse(f"{tool_address(tool.id if tool else call.tool)}&job={call.id}#try", 303)
        return self._console.part(request, "catalog/job.html", job=_job(call))

    def _call(self, request: Request) -> HandCall:
        visitor: Visitor = request.state.visitor
        call = self._console.hand_calls.find(request.path_params["id"], visitor.visit)
        if call is None:
            raise HTTPException(404, "This call is known no more.")
        return call

    async def _read(self, request: Request) -> tuple[ToolRef, dict[str, str]]:
        given = {name: value for name, value in (await form_of(request)).items() if isinstance(value, str)}
        ref = tool_of(self._console.bridge, given.get("id", ""))
        if ref is None:
            raise HTTPException(404, "There is no such tool any more.")
        return ref, given

    def _form(
        self, request: Request, ref: ToolRef, values: Mapping[str, Any], status: int = 200, job: object = None
    ) -> Response:
        if "hx-request" not in request.headers:
            page = {"ref": ref, "job": job, "address": tool_address(ref.id), **values}
            return self._console.page(request, "catalog/try_page.html", status, **page)
        return self._console.part(request, "catalog/try.html", status, ref=ref, job=job, **values)


def schema_of(ref: ToolRef) -> Mapping[str, Any]:
    """The input schema as the server sent it; arguments are checked against this one."""
    try:
        found: object = msgspec.json.decode(ref.definition)
    except (msgspec.DecodeError, RecursionError):
        return {}
    schema = cast("Mapping[str, Any]", found).get("inputSchema") if isinstance(found, dict) else None
    return cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {}


def digest_of(ref: ToolRef) -> str:
    """Changes with the definition: the numbers of a form's controls are about this one."""
    return sha256(ref.definition).hexdigest()[:16]


def _arguments(form: Field | None, given: Mapping[str, str]) -> dict[str, Any]:
    """What was filled in, in either kind of form."""
    if form is None or given.get("mode") == "raw":
        return read_json(given.get("raw", ""))
    return arguments_of(form, given)


def _partly(form: Field | None, given: Mapping[str, str]) -> dict[str, Any]:
    """What is filled in so far, where something that is required is missing."""
    if form is None:
        return {}
    found: dict[str, Any] = {}
    for field in as_given(form, given, {}).fields:
        try:
            part = msgspec.structs.replace(form, fields=(msgspec.structs.replace(field, is_required=False),))
            found |= arguments_of(part, given)
        except FormProblem:
            continue
    return found


def _form_values(
    ref: ToolRef, form: Field | None, arguments: Mapping[str, Any] | None, *, is_raw: bool = False
) -> dict[str, Any]:
    """A form that holds these arguments (None: the defaults). Where it cannot, the box for JSON does."""
    common = {"schema": digest_of(ref), "problem": "", "raw_problem": "", "has_form": form is not None, "note": ""}
    if form is None:
        raw = pretty_json(encoded(dict(arguments or {})))
        return {**common, "fields": None, "is_raw": True, "raw": raw, "note": _NO_FORM}
    fits = arguments is None or can_hold(form, dict(arguments))
    fields = with_defaults(form) if arguments is None else with_values(form, dict(arguments))
    note = "" if fits or is_raw else "The form cannot hold these arguments, the box for JSON can."
    raw = pretty_json(encoded(dict(arguments or {}))) if is_raw or not fits else ""
    return {**common, "fields": fields, "is_raw": is_raw or not fits, "raw": raw, "note": note}


_NO_FORM = "This tool has too many arguments for a form."


def _again(ref: ToolRef, form: Field | None, given: Mapping[str, str], problems: Mapping[str, str]) -> dict[str, Any]:
    """The form as it was filled in."""
    is_raw = form is None or given.get("mode") == "raw"
    if problems and not problems.get("") and "raw" not in problems:
        count = len(problems)
        overall = "One argument is not right yet." if count == 1 else f"{count} arguments are not right yet."
    else:
        overall = problems.get("", "")
    return {
        "schema": digest_of(ref),
        "has_form": form is not None,
        "fields": as_given(form, given, problems) if form is not None and not is_raw else form,
        "is_raw": is_raw,
        "raw": given.get("raw", ""),
        "raw_problem": problems.get("raw", ""),
        "problem": overall,
        "note": "",
    }


def _job(call: HandCall) -> dict[str, Any]:
    """A call as its part of the page shows it."""
    return {"call": call, "blocks": blocks_of(call.outcome) if call.outcome is not None else ()}
