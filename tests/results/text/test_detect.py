"""Which kind of text a text is taken for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.text.detect import kind_of

LOG = "".join(f"2025-01-02 03:04:{at:02d} INFO [web] request {at} done\n" for at in range(40))
SYSLOG = "".join(f"Oct  3 10:00:{at:02d} host sshd[{at}]: session opened\n" for at in range(40))
ACCESS = "".join(f'10.0.0.{at} - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 5\n' for at in range(40))
CARGO = "running 40 tests\n" + "".join(f"test case_{at} ... ok\n" for at in range(40)) + "test result: ok. 40 passed\n"
TREE = "src\n" + "".join(f"├── file{at}.py\n" for at in range(20))
DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
GUIDE = (
    "# Title\n\nSome text with a [link](https://x.example).\n\n## Part\n\n```diff\n" + DIFF + "```\n\n- one\n- two\n"
)
PROSE = "It was a day like others.\nNobody spoke of it for long, as far as I know.\n" * 20


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (LOG, "log"),
        (SYSLOG, "log"),
        (ACCESS, "log"),
        (CARGO, "log"),
        ("  \n<!DOCTYPE html><p>x", "html"),
        ("<div><p>a</p><p>b</p><a href=x>c</a></div>" * 4, "html"),
        ("".join(f"src/pkg{at}/file.py\n" for at in range(20)), "listing"),
        ("".join(f"src/pkg{at}/file.py:{at}: import x\n" for at in range(20)), "listing"),
        ("total 9\n" + "".join(f"-rw-r--r-- 1 me us {at} Nov 22 04:47 a{at}.py\n" for at in range(20)), "listing"),
        (TREE, "listing"),
        (DIFF, "diff"),
        ("commit 123\nAuthor: me\n\n    words\n\n" + DIFF, "diff"),
        (GUIDE, "markdown"),
        (PROSE, "text"),
        ("<feed><entry>a</entry><entry>b</entry></feed>", "text"),
        ("", "text"),
    ],
)
def test_texts_are_told_apart(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_a_media_type_that_says_it_is_believed() -> None:
    assert kind_of("plain words", "text/html; charset=utf-8") == "html"
    assert kind_of(PROSE, "text/markdown") == "markdown"
    assert kind_of(LOG, "text/plain") == "log"


@given(st.text())
def test_any_text_has_a_kind(text: str) -> None:
    assert kind_of(text) in {"log", "html", "listing", "diff", "markdown", "text"}
