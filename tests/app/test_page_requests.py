"""Whether a page of ours has sent a form: one rule for all pages that the bridge serves to browsers."""

import pytest
from starlette.requests import Request

from mcpbridge.app.page_requests import is_own_form

HOST = "bridge.example.com"
OURS = f"https://{HOST}"


@pytest.mark.parametrize("origin", ["", OURS])
@pytest.mark.parametrize(
    ("sender", "site", "is_own"),
    [
        (OURS, None, True),
        (OURS, "same-origin", True),
        (OURS, "none", True),
        (None, "same-origin", True),
        (None, None, False),
        (None, "none", False),
        ("null", None, False),
        ("null", "same-origin", False),
        (OURS, "cross-site", False),
        (OURS, "same-site", False),
        ("https://evil.example.com", None, False),
        ("https://evil.example.com", "same-origin", False),
        (f"https://{HOST}.evil.example", None, False),
        (f"https://{HOST}:8443", None, False),
    ],
)
def test_only_pages_of_ours_send_forms(sender: str | None, site: str | None, origin: str, is_own: bool) -> None:
    headers = [(b"host", HOST.encode())]
    headers += [(b"origin", sender.encode())] if sender is not None else []
    headers += [(b"sec-fetch-site", site.encode())] if site is not None else []
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers})
    assert is_own_form(request, origin) is is_own


def test_where_the_origin_is_known_another_scheme_is_another_origin() -> None:
    headers = [(b"host", HOST.encode()), (b"origin", f"http://{HOST}".encode())]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers})
    assert not is_own_form(request, OURS)
    assert is_own_form(request), "a proxy may speak https for us"
