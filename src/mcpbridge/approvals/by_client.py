"""Asks the client's user, with a form.

The same elicitation that servers use, in the bridge's own name: to the client all questions are the bridge's, so each
message begins with who asks. A server cannot ask in the bridge's name, since its questions begin with its own, and no
server's name has the colon and the blank that stand here, even if it is called as the bridge is.
"""

import msgspec
from msgspec import Raw

from mcpbridge.approvals.request import ApprovalRequest, Verdict
from mcpbridge.approvals.showing import shown
from mcpbridge.interaction import ELICIT, Question, QuestionRefused
from mcpbridge.model import Call
from mcpbridge.wire.frame import encode

__all__ = ["ClientApprover"]

_DECISION = {
    "type": "string",
    "title": "Decision",
    "description": "Whether the bridge may make this call.",
    "oneOf": [
        {"const": "once", "title": "Yes, this once"},
        {"const": "session", "title": "Yes, and the same call again in this session"},
        {"const": "no", "title": "No"},
    ],
}
_FORM = {"type": "object", "properties": {"decision": _DECISION}, "required": ["decision"]}


class _Content(msgspec.Struct):
    decision: object = None


class _Answer(msgspec.Struct):
    action: str
    content: _Content | None = None


_decode = msgspec.json.Decoder(_Answer).decode


class ClientApprover:
    """Approver: whoever sits at the client that called."""

    name = "client"

    def __init__(self, bridge: str) -> None:
        """`bridge`: the name that the bridge goes by."""
        self._asker = f"{bridge}: approval"

    def reaches(self, call: Call) -> bool:
        """The client said that it shows forms. See `Approver`."""
        return call.client.profile.form

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Show the form. None: the client does not, after all. See `Approver`."""
        params = {"mode": "form", "message": _message(request), "requestedSchema": _FORM}
        try:
            answer = await call.client.ask(Question(self._asker, ELICIT, Raw(encode(params))))
        except QuestionRefused:
            return None  # nobody has seen it
        return _verdict(answer)

    async def keep(self, request: ApprovalRequest) -> str:
        """Nothing can be answered once the form is gone. See `Approver`."""
        return ""


def _message(request: ApprovalRequest) -> str:
    why = f"\nWhy you are asked: {request.reason}" if request.reason else ""
    who = f" for the client {request.client[:60]!r}" if request.client else ""
    name = request.tool.removeprefix(f"{request.server}/")
    return (
        f"The bridge itself asks: may it call the tool {name!r} of the server {request.server!r}{who}?{why}\n"
        f"Arguments:\n{shown(request.arguments_json, request.digest)}"
    )


def _verdict(answer: Raw) -> Verdict:
    """Only what is a yes without doubt is one."""
    try:
        said = _decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return Verdict("", "client", "was not approved: the client's answer cannot be read")
    if said.action != "accept":
        return Verdict("", "client", "" if said.action == "decline" else "was not approved: the question was dismissed")
    decision = said.content.decision if said.content is not None else None
    if decision == "once":
        return Verdict("once", "client")
    if decision == "session":
        return Verdict("session", "client")
    return Verdict("", "client")
