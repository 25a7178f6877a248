"""What a person is asked to agree to, when another call counts as the same, how it is worded, and what came of it.

Arguments are shown as they would be sent: numbers and members are as they were written, also a member that is named
twice. What a terminal or a dialog does not show, or what turns the direction of the text, is spelled out. Too much is
shortened at its long texts first, so that every member can be seen; then size and digest of the whole are added. Pure.
"""

import re
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpbridge.base.json_values import decoded
from mcpbridge.base.late_pattern import late
from mcpbridge.core.context import run_of, text_in
from mcpbridge.core.model import ApproveBy, Call
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.protocol.meta import APPROVALS, CALL

Scope = Literal["once", "session"]
"""What a yes is for: this call, or the same call as often as it comes in this session."""

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""What nobody mistakes for another letter when it is read out or typed."""
ID_LENGTH = 8
"""Forty bits: enough for something that is known for minutes, and that only those can answer who may."""


PAUSE = f"pause {secrets.token_hex(16)}"
"""What a call of the program itself says, as `APPROVALS` in its `_meta`, where it does not wait for a person: it can be
approved for much longer than the settings let clients have it. Nobody outside of this process can say it."""


class ApprovalRequest(Struct, frozen=True):
    """One call that waits for a person."""

    id: str
    server: str
    tool: str
    """`server/tool`."""
    arguments_json: bytes
    """The arguments as the server would get them."""
    reason: str
    """Why somebody has to agree; empty if the rule does not say."""
    principal: str
    """Who calls: who was authenticated; empty for the local user."""
    client: str
    """`clientInfo.name`, as the client declared it."""
    session: str
    at: float
    """Seconds since 1970."""
    expires: float
    """Seconds since 1970, when silence becomes a no."""
    binding: str
    """Digest of all that a grant is for; see `binding_of`."""
    digest: str = ""
    """SHA-256 of the arguments in their one spelling; empty in records of older releases."""
    run: str = ""
    """The run that the call belongs to."""
    call: str = ""
    """The model's id of the call, as the client says."""
    asked: int = 1
    """How often the same call was made and refused since nobody answered, this time included."""
    rule: str = ""
    """Which setting asks for it, in words: `rule 2 of permissions`."""
    lasts: float = 0.0
    """Seconds for which the call can still be approved, and a yes holds, of one that does not wait; 0: it waits."""
    is_unique: bool = False
    """The program's own paused call: it has a request of its own, though an equal call may have one, too."""
    keeps_content: bool = False
    """The settings let the arguments be written down; else they are forgotten once it is decided."""
    hides_content: bool = False
    """The settings say that the arguments are not to be written down (`log_content = false`)."""
    approve_by: ApproveBy | None = None
    """Which other people may decide; None: whoever sits at the client, and whoever administers the bridge."""
    ask: tuple[str, ...] = ()
    """Where people may answer (`PermissionRule.ask`); empty: wherever `approval.ask` says."""
    requester: str = ""
    """A name of who calls, for people; empty: none is known beside the principal."""

    @property
    def arguments(self) -> Any:
        """The arguments as Python values; of a member named twice the last. Numbers beyond `float` are `Decimal`.

        Raises:
            msgspec.DecodeError: they are nested too deep for that; `arguments_json` has them.
        """
        return decoded(self.arguments_json)


OUTSIDE = ("cli", "console", "page", "api")
"""Where people answer a call that waits, besides the client's form; as `Verdict.by` begins."""


def places_of(request: ApprovalRequest) -> tuple[str, ...]:
    """At which of `OUTSIDE` a request may be answered."""
    if not request.ask or "pending" in request.ask:
        return OUTSIDE
    return tuple(place for place in OUTSIDE if place in request.ask or (place == "page" and "webhook" in request.ask))


_IN_WORDS = {
    "cli": "with `mcpbridge approve`",
    "console": "in the console",
    "page": "at /approvals",
    "api": "by the HTTP API",
}


def places_in_words(request: ApprovalRequest) -> str:
    """Where a request may be answered, as the end of a sentence."""
    return " or ".join(_IN_WORDS[place] for place in places_of(request)) or "in the form of the client"


def is_reported(request: ApprovalRequest) -> bool:
    """Whether others get a message about it (`approval.webhook`). Of a call that is made again they know already."""
    is_wanted = not request.ask or not {"pending", "webhook"}.isdisjoint(request.ask)
    return is_wanted and request.approve_by is not None and request.asked == 1


def wrong_place(request: ApprovalRequest, by: str) -> str:
    """Why an answer does not count that was given there (`Verdict.by`); empty: it does."""
    place = by.partition(":")[0]
    if place not in OUTSIDE or place in places_of(request):
        return ""
    return f"The rule that asks for this call has it approved {places_in_words(request)} only"


class NotWaited(Exception):
    """The call does not wait for a person: its request is kept, and may be answered later."""


class Verdict(Struct, frozen=True):
    """What a person said."""

    granted: Scope | Literal[""]
    """Empty: no."""
    by: str
    """Who said it: `client`, `handler`, `cli:NAME`, `api:NAME`, `console:NAME`."""
    why: str = ""
    """Of a no: how it came about, as the end of a sentence about the call; empty: somebody said no."""
    is_noted: bool = False
    """Of a yes: who took it notes the approved call, so that the call need not wait for that."""
    reason: str = ""
    """Of a no: what the person gives as the reason; whoever called reads it."""
    address: str = ""
    """Where the person is who said it; empty: not known."""

    @property
    def outcome(self) -> str:
        """Of a no: the end of a sentence about the call."""
        why = self.why or "was not approved"
        return f"{why}: {self.reason}" if self.reason else why


class ApprovalEvent(Struct, frozen=True):
    """One step of an approval, to be written down."""

    event: Literal["asked", "granted", "denied", "expired", "cancelled", "unavailable", "used"]
    """`expired`: nobody answered in time; `cancelled`: the call was withdrawn; `used`: a grant let a call pass."""
    request: ApprovalRequest
    by: str = ""
    """Who answered, or who is asked; of `used`: who had given the grant."""
    scope: str = ""
    why: str = ""
    """Of a no: the reason that the person gave."""
    address: str = ""
    """Where who answered is; empty: not known."""


Audit = Callable[[ApprovalEvent], object]
"""Writes an event down, without waiting."""


ASKED = "approval.asked"
"""The event with an `ApprovalRequest` that can be answered from now on (`Bridge.approve`, `Bridge.deny`)."""


def tell_asked(request: ApprovalRequest, call: Call) -> None:
    """Notify whoever listens to events that somebody may answer."""
    if call.around.events.is_heard:
        call.context.events.publish(ASKED, request)


def new_id() -> str:
    """A name for a request that nobody guesses while it is open, and that can be typed."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))


PAUSED_SECONDS = 7 * 24 * 3600.0
"""How long a call of the program can be approved that does not wait for it, and then be made. Clients that do not wait
have what the settings give them."""


def request_of(
    call: Call,
    policy: str,
    *,
    now: float,
    seconds: float,
    once_seconds: float,
    keeps_content: bool = False,
    hides_content: bool = False,
    approve_by: ApproveBy | None = None,
) -> ApprovalRequest:
    """The request about a call. `now`: seconds since 1970; `seconds` that a person has.

    `policy`: the version of the rules; `once_seconds`: how long clients that do not wait can have an answer;
    `keeps_content`, `hides_content`: see `ApprovalRequest`. `approve_by`: who may approve where the rule of the call
    does not say.
    """
    tool, caller = call.tool, call.caller
    name = tool.id if tool is not None else f"{call.upstream}/{call.target}"
    arguments = bytes(call.params.get("arguments") or b"{}")
    definition = tool.definition if tool is not None else call.method.encode()
    digest = canonical_digest(arguments)
    wish = text_in(call.meta, APPROVALS)
    approve_by = call.approve_by or approve_by
    lasts = PAUSED_SECONDS if wish == PAUSE else once_seconds if wish == "pause" else 0.0
    return ApprovalRequest(
        id=new_id(),
        server=call.upstream,
        tool=name,
        arguments_json=arguments,
        reason=call.approval,
        principal=caller.principal,
        client=caller.name,
        session=caller.session.id,
        at=now,
        expires=now if lasts else now + seconds,
        binding=binding_of(
            caller.principal, name, definition, digest, policy, call.context.tenant, approve_by, call.ask
        ),
        digest=digest,
        run=run_of(call.meta),
        call=text_in(call.meta, CALL),
        rule=str((call.facts or {}).get("rule", "")),
        lasts=lasts,
        is_unique=wish == PAUSE,
        keeps_content=keeps_content,
        hides_content=hides_content,
        approve_by=approve_by,
        ask=call.ask,
        requester=caller.identity.name if caller.identity is not None else "",
    )


def binding_of(
    principal: str,
    tool: str,
    definition: bytes,
    digest: str,
    policy: str,
    tenant: str = "",
    approve_by: ApproveBy | None = None,
    ask: tuple[str, ...] = (),
) -> str:
    """What two calls have in common that count as the same: who calls which tool, as it is defined, with what.

    The version of the policy, the tenant, who may approve and where are part of it too. `digest`: of the arguments, by
    `canonical_digest`: order and blanks do not count, numbers as they are written do.
    """
    parts = [principal, tool, sha256(definition).hexdigest(), digest, policy]
    if tenant or approve_by is not None or ask:
        parts.append(tenant)
    if approve_by is not None or ask:
        parts.append(msgspec.json.encode(approve_by).decode())
    if ask:
        parts.append(" ".join(ask))
    whole = sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        whole.update(b"%d:%b" % (len(data), data))
    return whole.hexdigest()


LONGEST = 3000
"""Characters of arguments that are shown whole."""
LONGEST_TEXT = 400
"""Characters of one text in them, once they are longer than that."""

_TEXTS = late(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_UNSEEN = late(
    "[\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff]"
)


def readable_arguments(arguments: bytes, digest: str = "", size: int = 0) -> str:
    """The arguments on several lines. `digest`: theirs, if it is known (`canonical_digest`).

    `size`: of all arguments in bytes, where these are the beginning of them alone; 0: these are all.
    Takes a few milliseconds for what is large: no more is spelled out than is shown.
    """
    text = _formatted(arguments, indent=2)
    if not size and len(text) <= LONGEST and len(text := _UNSEEN.sub(_spelled, text)) <= LONGEST:
        return text
    text = _UNSEEN.sub(_spelled, _shorter(text))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n…"
    return (
        f"{text}\n(shortened; in all {size or len(arguments)} bytes, SHA-256 {digest or canonical_digest(arguments)})"
    )


def one_line_of(arguments: bytes, longest: int) -> str:
    """The arguments on one line of at most so many characters."""
    text = _UNSEEN.sub(_spelled, _formatted(arguments, indent=-1)[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _formatted(arguments: bytes, *, indent: int) -> str:
    try:
        formatted = msgspec.json.format(arguments, indent=indent)
    except (msgspec.DecodeError, RecursionError):
        formatted = arguments
    return formatted.decode("utf-8", "replace")


def _shorter(text: str) -> str:
    """With its long texts shortened, as far as somewhat beyond `LONGEST`."""
    parts, size, at = list[str](), 0, 0
    for found in _TEXTS.finditer(text):
        parts += text[at : found.start()], _shortened(found)
        size += len(parts[-1]) + len(parts[-2])
        at = found.end()
        if size > LONGEST:
            break
    return "".join([*parts, text[at : at + LONGEST + 1 - size] if size <= LONGEST else ""])


def _shortened(match: re.Match[str]) -> str:
    text = match[0]
    return text if len(text) <= LONGEST_TEXT else f'{text[:LONGEST_TEXT]}…" [{len(text) - 2} characters]'


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
