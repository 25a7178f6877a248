"""A head that is known is recognised byte for byte, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.http.repeated_head import RepeatedHead
from support.http_talk import HttpTalk
from support.in_process_bridge import bridged
from support.lane_steps import server, turns

LINES = (b"POST /mcp HTTP/1.1", b"Host: localhost", b"Content-Length: %d", b"Accept: */*", b"X: \xe9")


def request(body: bytes, *lines: bytes) -> bytes:
    head = b"\r\n".join((*(lines or LINES), b"", b""))
    return head % len(body) + body


def known(*lines: bytes) -> RepeatedHead | None:
    return RepeatedHead.of(request(b"{}", *lines), 2)


@given(st.binary(max_size=300))
def test_the_next_request_has_the_same_head_and_any_body(body: bytes) -> None:
    head = known()
    assert head is not None
    assert head.body_in(request(body)) == body


@pytest.mark.parametrize(
    "data",
    [
        request(b"{}")[:-1],
        request(b"{}") + b"G",
        request(b"{}") + request(b"{}"),
        request(b"{}").replace(b"Host: localhost", b"Host: elsewhere"),
        request(b"{}").replace(b"Accept: */*", b"Accept: */*\r\nX: y"),
        request(b"{}").replace(b"POST", b"GET"),
        request(b"{}").replace(b"Length: 2", b"Length: +2"),
        request(b"{}").replace(b"Length: 2", b"Length:  2"),
        request(b"{}").replace(b"Length: 2", b"Length: 2 "),
        request(b"{}").replace(b"Length: 2", b"Length: 0x2"),
        request(b"{}").replace(b"Length: 2", b"Length: "),
        request(b"{}").replace(b"Length: 2", b"Length: 2, 2"),
        request(b"{}").replace(b"Length: 2", b"Length: 2\r\nContent-Length: 2"),
        request(b"{}").replace(b"Length: 2\r\n", b"Length: 2\n"),
        request(b"{}").replace(b"Length: 2", b"Length: 2\r\nTransfer-Encoding: chunked"),
        request(b"{}").replace(b"Length: 2", b"Length: 0000000002"),
        request(b"{}").replace(b"Length: 2", "Length: ²".encode()),
        b"",
        b"\r\n",
    ],
)
def test_what_differs_in_anything_but_its_length_is_no_match(data: bytes) -> None:
    head = known()
    assert head is not None
    assert head.body_in(data) is None


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 3))
def test_a_match_is_exactly_the_former_head_with_the_length_of_the_body(piece: bytes, at: int, cut: int) -> None:
    head, data = known(), request(b'{"a":1}')
    assert head is not None
    changed = data[:at] + piece + data[at + cut :]
    body = head.body_in(changed)
    if body is not None:
        digits = changed.split(b"Content-Length: ", 1)[1].split(b"\r", 1)[0]
        assert int(digits) == len(body)
        assert changed == b"\r\n".join((*LINES, b"", b"")).replace(b"%d", digits) + body


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(body: bytes) -> bytes:
    return CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@given(st.binary(min_size=1, max_size=300))
def test_a_body_may_be_one_chunk(body: bytes) -> None:
    head = RepeatedHead.of(chunked(b"data: {}\n\n"), 10)
    assert head is not None
    assert head.body_in(chunked(body)) == body


@pytest.mark.parametrize(
    "data",
    [
        chunked(b"ab")[:-1],
        chunked(b"ab") + b"H",
        chunked(b"ab") + chunked(b"ab"),
        CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        CHUNKED + b"2;x=y\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"02\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"+2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2 \r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\nab\n0\r\n\r\n",
        CHUNKED + b"2\r\nab\r\n0\r\nx: y\r\n\r\n",
        CHUNKED + b"0\r\n\r\n",
        CHUNKED + b"0\r\n\r\n0\r\n\r\n",
        CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 2\r\n\r\n") + b"2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    ],
)
def test_any_other_framing_is_no_match_and_is_not_kept(data: bytes) -> None:
    head = RepeatedHead.of(chunked(b"xy"), 2)
    assert head is not None
    assert head.body_in(data) is None
    assert RepeatedHead.of(data, 2) is None


@given(st.binary(max_size=200), st.integers(0, 120), st.integers(0, 3))
def test_a_match_is_exactly_the_former_head_and_one_chunk(piece: bytes, at: int, cut: int) -> None:
    head, data = RepeatedHead.of(chunked(b"xy"), 2), chunked(b"abc" * 7)
    assert head is not None
    changed = data[:at] + piece + data[at + cut :]
    body = head.body_in(changed)
    if body is not None:
        assert changed.lower() == chunked(body)[: len(CHUNKED)].lower() + changed[len(CHUNKED) :].lower()
        size, _, rest = changed[len(CHUNKED) :].partition(b"\r\n")
        assert int(size, 16) == len(body)
        assert rest == body + b"\r\n0\r\n\r\n"


def test_an_interim_answer_is_no_part_of_a_head() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    assert RepeatedHead.of(answer, 2) is not None
    assert RepeatedHead.of(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer, 2) is None


@pytest.mark.parametrize(
    "lines",
    [
        (b"POST /mcp HTTP/1.1", b"Host: localhost"),
        (b"POST /mcp HTTP/1.1", b"Content-Length: %d", b"content-length: 2"),
        (b"POST /mcp HTTP/1.1", b"Content-Length: 3"),
        (b"POST /mcp HTTP/1.1", b"Content-Length: +%d"),
        (b"POST /mcp HTTP/1.1", b"X-Content-Length: %d"),
        (b"POST /mcp HTTP/1.1", b"Transfer-Encoding: chunked"),
    ],
)
def test_a_head_without_one_plain_length_is_not_kept(lines: tuple[bytes, ...]) -> None:
    head = b"\r\n".join((*lines, b"", b""))
    assert RepeatedHead.of((head % 2 if b"%d" in head else head) + b"{}", 2) is None


async def test_after_a_known_head_each_other_request_is_read_and_judged_as_the_first() -> None:
    """Nothing of what the former request was allowed holds for one with another head."""
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        talk.say(talk.call(1))
        await talk.answer(1)
        good = talk.request(talk.call(2))
        refused = {
            421: good.replace(b"host: localhost", b"host: evil.example"),
            403: good.replace(b"host: localhost", b"host: localhost\r\norigin: http://evil.example"),
            404: good.replace(b"mcp-session-id: ", b"mcp-session-id: x"),
            415: good.replace(b"content-type: application/json", b"content-type: text/plain"),
            405: good.replace(b"POST", b"PUT"),
            400: good.replace(b"content-length", b"transfer-encoding: chunked\r\ncontent-length"),
        }
        for status, changed in refused.items():
            wire = talk.free()
            wire.waits += 2
            wire.send(talk.request(talk.call(f"before {status}")))
            await talk.answer(f"before {status}")
            wire.send(changed)
            await turns()
            assert [one[0] for one in wire.responses[-2:]] == [200, status]
            wire.leave()
        assert len(up.asked("tools/call")) == 3 + len(refused), "none of these was sent on"
        await talk.end()


async def test_a_body_that_nobody_read_is_never_taken_for_a_request() -> None:
    """A request is refused before its body has come: what follows is that body, however it reads."""
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        talk.say(talk.call(1))
        await talk.answer(1)
        wire, hidden = talk.of["1"], talk.request(talk.call(2))
        refused = talk.request(None).replace(b"application/json\r\ncontent", b"text/plain\r\ncontent")
        wire.send(refused.replace(b"content-length: 0", b"content-length: %d" % len(hidden)))
        wire.waits += 1
        await turns()
        assert wire.responses[-1][0] == 415
        before = len(up.asked("tools/call"))
        wire.send(hidden)
        await turns()
        assert len(up.asked("tools/call")) == before
        assert not [one for one in talk.heard if one.get("id") == 2]
        await talk.end()
