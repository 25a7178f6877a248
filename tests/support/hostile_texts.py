"""Texts that would run, hide or move something if a page showed them carelessly: 200 and more, by class.

`MARK` is the name of the variable that each script would set; a page on which it is set has run one.
"""

from itertools import product

MARK = "pwned"
_RUN = f"window.{MARK}=1"

_TAGS = [
    f"<script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{MARK}=1</script>'></iframe>",
    f"<body onload={_RUN}>",
    f"<details open ontoggle={_RUN}>x</details>",
    f"<input autofocus onfocus={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<a href='javascript:{_RUN}'>x</a>",
    f"<math><mtext><style><img src=x onerror={_RUN}></style></mtext></math>",
    f"<style>@import 'http://evil.invalid/x.css'</style><img src=x onerror={_RUN}>",
    "<base href='http://evil.invalid/'>",
    "<meta http-equiv=refresh content='0;url=http://evil.invalid/'>",
    "<link rel=stylesheet href='http://evil.invalid/x.css'>",
    "<form action='http://evil.invalid/'><button>Approve</button></form>",
    f"<div hx-get='/console/sign-out' hx-trigger='load' hx-on::load='{_RUN}'>x</div>",
    f"<button hx-post='/console/configuration/file' hx-vals='js:{{x:{_RUN}}}'>x</button>",
]
_BREAKS = ["", '"', "'", "`", "-->", "]]>", "</textarea>", "</title>", "</pre></code>", "</script>", '"}]}', "{{", "{%"]
_TEMPLATES = [
    "{{ 7*7 }}",
    "{{ visitor.token }}",
    "{% include 'base.html' %}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "{{ ''.__class__.__mro__ }}",
]
_ANSI = [
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.invalid\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "a\bb\x07\x00c",
    "one\rtwo",
]
_UNSEEN = [
    "safe\u202etxt.exe",
    "\u2066\u2069\u200e\u200f",
    "zero\u200bwidth\u200d\ufeff",
    "tag" + "".join(chr(0xE0000 + ord(char)) for char in "ignore"),
    "vs\ufe0f\U000e0100",
    "soft\u00adhyphen",
    "hangul\u3164\uffa0\u115f",
    "line\u2028para\u2029",
    "z" + "\u0301\u0316" * 200,
    "\ud800 half a pair",
    "ﷺ" * 50,
]
_ADDRESSES = [
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "//evil.invalid/x",
    "file:///etc/passwd",
]
_LONG = ["A" * 100_000, "<b>" * 20_000, "\u202e" * 10_000, "line\n" * 20_000, '{"a":' * 5_000]
_CELLS = ["=HYPERLINK('http://evil.invalid')", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]

HOSTILE: list[str] = [
    *(f"{end}{tag}" for end, tag in product(_BREAKS[:10], _TAGS)),
    *(f"{end}x" for end in _BREAKS),
    *_TEMPLATES,
    *_ANSI,
    *_UNSEEN,
    *_ADDRESSES,
    *_CELLS,
    *_LONG,
]
"""All of them."""

SHORT = [text for text in HOSTILE if len(text) < 1000]
"""Those that fit where a protocol has bounds, such as names."""

UNSEEN = _UNSEEN
"""Those that hide or turn what a person reads."""
