"""Calls that wait for others are reported to an address: what the message says, and what becomes of a receiver that is
down."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import threading
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.model import ApproveBy
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.pipeline.approvals.settings import WebhookSettings
from mcpbridge.pipeline.approvals.webhook import ApprovalWebhook, message_of, signature_of
from support.approval_team import Receiver, receiving
from support.harness import eventually

REQUEST = ApprovalRequest(
    id="abcdefgh",
    server="pay",
    tool="pay/send",
    arguments_json=b'{"to":"<!channel> & `x`","password":"hunter2-hunter2"}',
    reason="it spends money",
    principal="https://login.example.com#ann",
    client="a client",
    session="s",
    at=1000.0,
    expires=1300.0,
    binding="b",
    digest="d" * 64,
    rule="rule 1 of `permissions`",
    approve_by=ApproveBy(roles=("leads",)),
    requester="ann@example.com",
)
LINK = "https://bridge.example.com/approvals/abcdefgh"
NONE = Redactor()


async def delivered(receiver: Receiver, webhook: ApprovalWebhook, count: int) -> None:
    async def number() -> int:
        return len(receiver.messages)

    async with webhook.running():
        webhook.report(REQUEST, LINK)
        await eventually(number, lambda found: found >= count, 30)
        await eventually(lambda: under_way(webhook), lambda text: " 0 under way" in text, 30)


async def under_way(webhook: ApprovalWebhook) -> str:
    return repr(webhook)


@pytest.mark.parametrize("secret", ["a secret of sixteen", f"whsec_{base64.b64encode(b'k' * 24).decode()}"])
async def test_the_receiver_can_verify_who_sent_a_message(secret: str) -> None:
    """Standard Webhooks: HMAC-SHA256 of the id, the time and the body."""
    async with receiving() as receiver:
        await delivered(receiver, ApprovalWebhook(WebhookSettings(url=receiver.url, secret=secret), NONE), 1)
        [(headers, body)] = receiver.messages
        key = b"k" * 24 if secret.startswith("whsec_") else secret.encode()
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert json.loads(body)["blocks"][1]["elements"][0]["url"] == LINK


def test_the_signature_is_the_one_of_the_specification() -> None:
    """The example of Standard Webhooks."""
    headers = signature_of(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        1614265330,
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_receiver_that_is_down_gets_the_same_message_again_and_nothing_of_its_address_is_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(60):
        async with receiving() as receiver:
            receiver.statuses = [503, 429, 200]
            settings = WebhookSettings(url=receiver.url)
            await delivered(receiver, ApprovalWebhook(settings, NONE, pauses=(0.0, 0.0, 0.0)), 3)
            assert len({headers["webhook-id"] for headers, _ in receiver.messages}) == 1
            assert "webhook-signature" not in receiver.messages[0][0]
            receiver.messages.clear()
            receiver.statuses = [404]
            await delivered(receiver, ApprovalWebhook(settings, NONE, pauses=(0.0,)), 1)
            assert len(receiver.messages) == 1
        gone = ApprovalWebhook(settings, NONE, pauses=(0.0,))
        async with gone.running():
            gone.report(REQUEST, LINK)
            await eventually(lambda: under_way(gone), lambda text: " 0 under way" in text, 30)
    logged = caplog.text + "".join(capsys.readouterr())
    assert "could not be reported" in logged
    assert "hidden-part-of-path" not in logged


async def test_the_end_of_the_bridge_waits_for_no_receiver() -> None:
    with anyio.fail_after(60):
        async with receiving() as receiver:
            webhook = ApprovalWebhook(WebhookSettings(url=receiver.url), NONE, pauses=(3600.0,))
            receiver.statuses = [503]
            async with webhook.running():
                webhook.report(REQUEST, LINK)
                await receiver.message()
            webhook.report(REQUEST, LINK)  # too late: dropped
            assert len(receiver.messages) == 1


async def test_nobody_keeps_the_calls_of_others_from_being_reported() -> None:
    """However many calls of one person wait, and however slow the receiver is."""
    with anyio.fail_after(60):
        async with receiving() as receiver:
            receiver.hold = asyncio.Event()
            webhook = ApprovalWebhook(WebhookSettings(url=receiver.url, format="json"), NONE)
            async with webhook.running():
                for number in range(100):
                    webhook.report(replace(REQUEST, id=f"flood{number}"), LINK)
                webhook.report(replace(REQUEST, id="another", principal="https://login.example.com#bob"), LINK)
                ids = {(await receiver.message(number))["data"]["id"] for number in range(17)}
                receiver.hold.set()
            assert "another" in ids


@pytest.mark.parametrize("sign", ["&", "x", "<", "\U0001f600", "`"])
def test_a_message_is_never_longer_than_slack_takes(sign: str) -> None:
    """Slack, Block Kit, section: at most 3,000 characters of text; a message with more is refused whole."""
    settings = WebhookSettings(url="https://hooks.example.com/x")
    data = json.dumps({"a": sign * 5000}, ensure_ascii=False).encode()
    of_others = {"requester": sign * 5000, "client": sign * 5000, "reason": sign * 5000, "tool": f"pay/{sign * 5000}"}
    message = json.loads(message_of(replace(REQUEST, **of_others, arguments_json=data), LINK, settings, NONE))
    text = message["blocks"][0]["text"]["text"]
    assert len(text.encode("utf-16-le")) // 2 <= 3000
    title, reason, arguments, last = text.split("\n")
    assert title.endswith("…*")
    assert reason.startswith("Why: ")
    assert arguments.startswith("Arguments: `")
    assert arguments.endswith("…`")
    assert last == f"Id: `{REQUEST.id}`", "what comes after a long text is there"
    assert re.sub("&(amp|lt|gt);", "", text).count("&") == 0, "nothing is cut in the middle"
    assert len(message["text"]) <= 3000


@pytest.mark.parametrize(
    ("setting", "hidden", "is_shown"),
    [(None, False, True), (None, True, False), (True, True, True), (False, False, False)],
)
def test_arguments_that_are_written_nowhere_are_not_sent_unless_the_settings_say_so(
    setting: bool | None, hidden: bool, is_shown: bool
) -> None:
    for kind in ("slack", "json"):
        settings = WebhookSettings.model_validate(
            {"url": "https://hooks.example.com/x", "format": kind, "arguments": setting}
        )
        body = message_of(replace(REQUEST, hides_content=hidden), LINK, settings, NONE)
        assert (b"channel" in body) is is_shown


def test_texts_of_others_are_no_markup_and_secrets_are_masked() -> None:
    message = json.loads(message_of(REQUEST, LINK, WebhookSettings(url="https://hooks.example.com/x"), NONE))
    text = message["blocks"][0]["text"]["text"]
    assert "&lt;!channel&gt; &amp;" in text
    assert "<!channel>" not in text
    assert "hunter2" not in text
    assert message["blocks"][0]["text"]["verbatim"] is True, "else the receiver makes links of what others wrote"
    assert "ann@example.com asks for approval to call pay/send" in message["text"]
    hostile = replace(REQUEST, requester="ann\u202e\n<https://evil.example|click>", client="x\n\n*y*")
    message = json.loads(message_of(hostile, LINK, WebhookSettings(url="https://hooks.example.com/x"), NONE))
    assert "<https://evil" not in message["text"]
    assert "\u202e" not in message["text"]
    assert "\n" not in message["text"]


async def test_a_message_about_large_arguments_is_made_beside_the_event_loop() -> None:
    """Looking for secrets in them takes long, and everybody's calls would wait."""
    threads: list[int] = []

    def redact(text: str) -> str:
        threads.append(threading.get_ident())
        return text

    async with receiving() as receiver:
        webhook = ApprovalWebhook(WebhookSettings(url=receiver.url), redact)
        large = json.dumps({"text": "word " * 20_000}).encode()
        async with webhook.running():
            webhook.report(replace(REQUEST, arguments_json=large), LINK)
            assert "word word" in json.dumps(await receiver.message())
    assert threads
    assert threading.get_ident() not in threads


def test_the_facts_alone_and_a_message_without_arguments() -> None:
    settings = WebhookSettings(url="https://hooks.example.com/x", format="json", arguments=False)
    message = json.loads(message_of(REQUEST, "", settings, NONE))
    assert message["type"] == "approval.asked"
    assert message["data"] == {
        "id": "abcdefgh",
        "tool": "pay/send",
        "server": "pay",
        "requester": "ann@example.com",
        "client": "a client",
        "reason": "it spends money",
        "rule": "rule 1 of `permissions`",
        "arguments": "",
        "arguments_sha256": "d" * 64,
        "asked_at": 1000.0,
        "expires_at": 1300.0,
        "url": "",
    }


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/x",
        "https://user:password@hooks.example.com/x",
        "ftp://hooks.example.com/x",
        "https://",
        "https:///x",
        "http://127.0.0.1.evil.example/x",
        "https://hooks.example.com/x y",
        "",
    ],
)
def test_an_address_that_is_not_encrypted_or_names_a_user_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        WebhookSettings(url=url)


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com", "http://localhost:8080/x", "http://[::1]:8080/x", "${env:HOOK}"]
)
def test_addresses_that_are_accepted(url: str) -> None:
    fields: dict[str, Any] = {"url": url}
    assert WebhookSettings(**fields).url == url


def test_an_empty_secret_is_none() -> None:
    """`"${APPROVAL_WEBHOOK_SECRET:-}"` without the variable."""
    assert WebhookSettings(url="https://hooks.example.com/x", secret="").secret is None
    with pytest.raises(ValidationError, match="at least 16 characters"):
        WebhookSettings(url="https://hooks.example.com/x", secret="short")
