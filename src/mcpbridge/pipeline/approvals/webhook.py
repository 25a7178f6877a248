"""Reports calls that wait for other people to an address, such as an incoming webhook of Slack.

A message has a link to the page where an approver signs in and decides; to open the link decides nothing. It is sent
beside the call, which never waits for it: a receiver that is down costs a line in the log. The address was written by
whoever runs the bridge, so it may be anywhere; it is a secret, since it often has one in its path, and is never logged.

Messages are signed as Standard Webhooks has it: `webhook-id`, `webhook-timestamp` and `webhook-signature`, which is
`v1,` and the HMAC-SHA256 of `ID.TIMESTAMP.BODY` in base64. All tries of one message have the same id.
"""

import asyncio
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from mcpbridge.base.background_tasks import own_group
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.hidden_text import with_hidden_shown
from mcpbridge.base.log import get_logger
from mcpbridge.base.short_turns import short_turns
from mcpbridge.pipeline.approvals.request import ApprovalRequest, one_line_of
from mcpbridge.pipeline.approvals.settings import WebhookSettings
from mcpbridge.sandbox.fetch.fetch import Fetcher, FetchLimits

log = get_logger("mcpbridge.approvals")

PAUSES = (1.0, 5.0, 20.0)
"""Seconds before each further try."""
_LONGEST_PAUSE = 60.0
"""Seconds that a receiver may ask to be left alone (`Retry-After`)."""
_MOST, _MOST_OF_ONE = 64, 16
"""Messages under way, of all calls and of those of one principal; further ones are dropped, so nobody fills it."""
_LARGEST_ANSWER = 64 * 1024
_LINE, _REASON, _LOOKED_AT = 300, 500, 64 * 1024
"""Characters of the arguments, and of the reason, that are shown; bytes of arguments that are looked at for it."""
_PART = 950
"""Characters of each of the three texts of others in a message to Slack, which refuses a block of more than 3,000."""
_NAMES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LARGE = 4 * 1024
"""Bytes of arguments from which on a thread makes the message."""
_AGAIN = frozenset({408, 425, 429})
"""Statuses, beside 500 and above, after which a message is sent again."""


class ApprovalWebhook:
    """One address that gets messages."""

    def __init__(
        self, settings: WebhookSettings, redact: Callable[[str], str], *, pauses: tuple[float, ...] = PAUSES
    ) -> None:
        """`redact` masks secrets in what is sent."""
        self._settings, self._redact, self._pauses = settings, redact, pauses
        self._host = urlsplit(settings.url).hostname or ""
        limits = FetchLimits(seconds=settings.timeout, most=_LARGEST_ANSWER, redirects=0)
        self._fetcher = Fetcher(who=self._host, limits=limits, is_trusted=True)
        self._threads = anyio.CapacityLimiter(1)
        self._group: asyncio.TaskGroup | None = None
        self._under_way = dict[asyncio.Task[None], str]()
        """Whose calls they are about."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._host} {len(self._under_way)} under way>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns the messages under way; those that are left at the end are dropped."""
        async with own_group(self._end) as self._group:
            yield

    def _end(self) -> None:
        self._group = None
        for task in self._under_way:
            task.cancel()

    def report(self, request: ApprovalRequest, link: str) -> None:
        """Send a message about a call that waits, without waiting for it. `link`: to its page; empty: there is none."""
        whose = list(self._under_way.values())
        if self._group is None or len(whose) >= _MOST or whose.count(request.principal) >= _MOST_OF_ONE:
            log.warning("a call that waits for approval was not reported", id=request.id, host=self._host)
            return
        task = self._group.create_task(self._deliver(request, link))
        self._under_way[task] = request.principal
        task.add_done_callback(self._under_way.pop)

    async def _deliver(self, request: ApprovalRequest, link: str) -> None:
        body, problem = await self._message(request, link), ""
        for pause in (*self._pauses, None):
            problem, wait = await self._send(f"approval_{request.id}", body)
            if not problem:
                log.info("a call that waits for approval was reported", id=request.id, host=self._host)
                return
            if wait is None or pause is None:
                break
            await asyncio.sleep(max(pause, wait))
        log.warning(
            "a call that waits for approval could not be reported", id=request.id, host=self._host, reason=problem
        )

    async def _message(self, request: ApprovalRequest, link: str) -> bytes:
        """In a thread where arguments are large: looking for secrets in them takes long."""
        work = partial(message_of, request, link, self._settings, self._redact)
        if len(request.arguments_json) <= _LARGE:
            return work()
        with short_turns():
            return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def _send(self, id_: str, body: bytes) -> tuple[str, float | None]:
        """One try: what went wrong (empty: nothing), and seconds before the next (None: there is no use in one).

        Errors are named by their kind: their texts quote the address.
        """
        headers = {"content-type": "application/json", **signature_of(id_, body, self._settings.secret, time.time())}
        try:
            answer = await self._fetcher.fetch(self._settings.url, method="POST", headers=headers, content=body)
        except BridgeError as error:
            return type(error).__name__, 0.0
        if 200 <= answer.status < 300:
            return "", None
        problem = f"status {answer.status}"
        if answer.status < 500 and answer.status not in _AGAIN:
            return problem, None
        after = answer.headers.get("retry-after", "")
        return problem, min(float(after), _LONGEST_PAUSE) if after.isascii() and after.isdigit() else 0.0


def signature_of(id_: str, body: bytes, secret: str | None, now: float) -> dict[str, str]:
    """The headers that name and sign a message (Standard Webhooks). Without a secret it is only named."""
    at = str(int(now))
    headers = {"webhook-id": id_, "webhook-timestamp": at}
    if secret:
        signed = b".".join((id_.encode(), at.encode(), body))
        headers["webhook-signature"] = f"v1,{b64encode(hmac.digest(_key(secret), signed, 'sha256')).decode()}"
    return headers


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            pass  # a text that happens to begin so
    return secret.encode()


def message_of(request: ApprovalRequest, link: str, settings: WebhookSettings, redact: Callable[[str], str]) -> bytes:
    """The body of a message. Secrets are masked, and no text of others is markup."""
    asks = request.requester or request.principal or "the local user"
    arguments = ""
    if settings.arguments if settings.arguments is not None else not request.hides_content:
        text = redact(request.arguments_json[:_LOOKED_AT].decode("utf-8", "replace"))
        arguments = one_line_of(text.encode("utf-8", "replace"), _LINE)
    facts = {
        "id": request.id,
        "tool": request.tool,
        "server": request.server,
        "requester": _plain(redact(asks)),
        "client": _plain(redact(request.client)),
        "reason": _plain(redact(request.reason))[:_REASON],
        "rule": request.rule,
        "arguments": arguments,
        "arguments_sha256": request.digest,
        "asked_at": round(request.at, 3),
        "expires_at": round(request.expires, 3) if not request.lasts else None,
        "url": link,
    }
    if settings.format == "json":
        return msgspec.json.encode({"type": "approval.asked", "timestamp": round(request.at, 3), "data": facts})
    return msgspec.json.encode(_slack(facts))


def _slack(facts: dict[str, Any]) -> dict[str, Any]:
    client = f" with the client {facts['client']}" if facts["client"] else ""
    title = _escaped(f"{facts['requester']} asks for approval to call {facts['tool']}{client}")
    lines = [f"*{title}*"]
    if facts["reason"]:
        lines.append(f"Why: {_escaped(facts['reason'])}")
    if facts["arguments"]:
        lines.append(f"Arguments: `{_escaped(facts['arguments']).replace('`', chr(0x2BB))}`")
    lines.append(f"Id: `{facts['id']}`")
    # Verbatim: else Slack makes links of addresses, and mentions of names, that others have written.
    said = {"type": "mrkdwn", "text": "\n".join(lines), "verbatim": True}
    blocks: list[dict[str, Any]] = [{"type": "section", "text": said}]
    if facts["url"]:
        button = {"type": "button", "text": {"type": "plain_text", "text": "Look at it"}, "url": facts["url"]}
        blocks.append({"type": "actions", "elements": [button]})
    text = title + (f": {facts['url']}" if facts["url"] else "")
    return {"text": text, "blocks": blocks}


def _plain(text: str) -> str:
    return " ".join(with_hidden_shown(text).split())[:_REASON]


def _escaped(text: str) -> str:
    """A text of others in Slack's markup, no mentions and no links: with an ellipsis where it was cut to `_PART`."""
    size, signs = 0, list[str]()
    for sign in text:
        name = _NAMES.get(sign, sign)
        size += len(name) + (sign > "\uffff")  # Slack may count such a sign as two
        if size > _PART:
            return "".join([*signs[:-1], "…"])
        signs.append(name)
    return "".join(signs)
