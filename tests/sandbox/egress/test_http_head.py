"""Heads of requests: what a proxy is asked, what is passed on, and what is neither."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.egress.http_head import head_for_proxy, head_on_connection, looks_like_http


def test_connect_names_a_host_and_a_port() -> None:
    head = head_for_proxy(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (head.method, head.host, head.port, head.passed_on) == ("CONNECT", "api.example.com", 443, b"")
    assert head_for_proxy(b"CONNECT [::1]:80 HTTP/1.0\r\n\r\n").host == "[::1]"


def test_a_request_is_passed_on_for_its_host_alone_and_once() -> None:
    raw = (
        b"GET http://api.example.com/a?b HTTP/1.1\r\nHost: other.example.com\r\nProxy-Authorization: x\r\n"
        b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
    )
    head = head_for_proxy(raw)
    assert (head.host, head.port) == ("api.example.com", 80)
    assert head.passed_on == b"GET /a?b HTTP/1.1\r\nHost: api.example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n"


def test_an_upgrade_is_passed_on() -> None:
    raw = b"GET /ws HTTP/1.1\r\nHost: a.example.com:8080\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    head = head_on_connection(raw, 8080)
    assert (head.host, head.port) == ("a.example.com", 8080)
    assert b"Upgrade: websocket\r\nConnection: Upgrade, close\r\n" in head.passed_on


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: y\r\n Host: a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    ],
)
def test_a_request_that_could_be_for_two_hosts_is_for_none(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        head_on_connection(raw, 80)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET https://a/ HTTP/1.1\r\n\r\n", b"CONNECT a HTTP/1.1\r\n\r\n",
        b"CONNECT a:0 HTTP/1.1\r\n\r\n", b"GET http://u@a/ HTTP/1.1\r\n\r\n", b"\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_request_of_a_proxy_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        head_for_proxy(raw)


@pytest.mark.parametrize(
    ("data", "is_http"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"\r\nPOST /x HTTP/1.0\n", True),
        (b"GE", None),
        (b"GET /very", None),
        (b"SSH-2.0-OpenSSH\r\n", False),
        (b"PING\r\n", False),
        (b"EHLO example.com\r\n", False),
        (b"\0\0\0\x08", False),
        (b"", None),
    ],
)
def test_http_is_known_by_its_first_line(data: bytes, is_http: bool | None) -> None:
    assert looks_like_http(data) is is_http


@given(st.binary(max_size=300))
def test_rubbish_is_refused_in_words(data: bytes) -> None:
    looks_like_http(data)
    for read in (head_for_proxy, lambda raw: head_on_connection(raw, 80)):
        with suppress(ValueError):
            read(data + b"\r\n\r\n")
