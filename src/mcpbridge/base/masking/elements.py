"""Take secrets out of XML: in elements and attributes that have the name of one. Pure."""

import re

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import secret_of
from mcpbridge.base.masking.no_values import is_quoted_secret

_ELEMENT = late(
    r"(<([A-Za-z_][\w.:-]{0,79}+)([ \t\r\n][^<>]{0,400}+)?>)(?:<!\[CDATA\[([^<>\]]++)(?=\]\]></)|([^<>]++)(?=</\2>))"
)
_NAMED = late(r"[ \t\r\n](?:key|name)[ \t]{0,4}=[ \t]{0,4}[\"']([^\"'<>]{1,80}+)[\"']")
_LISTED = late(r"(<key>([^<>]{1,80}+)</key>(?:\s|\\+n){0,80}+<string>)([^<>]++)(?=</string>)")
"""A property list of macOS."""


def without_secrets_in_elements(text: str) -> str:
    """The same text without them."""
    if "<key>" in text:
        text = _LISTED.sub(_of_listed, text)
    return _ELEMENT.sub(_of_element, text)


def _of_element(match: re.Match[str]) -> str:
    """`<password>…</password>`, `<wsse:Password Type="…">…`, `<entry key="db.password">…`."""
    head, name, attributes, data, plain = match.groups()
    named = _NAMED.search(attributes) if attributes else None
    secret = secret_of(name) or (secret_of(named[1]) if named is not None else None)
    value = (data or plain).strip()
    if secret is None or not is_quoted_secret(secret, value):
        return match[0]
    return f"{head}{'<![CDATA[' if data else ''}{MASK}"


def _of_listed(match: re.Match[str]) -> str:
    secret = secret_of(match[2])
    return f"{match[1]}{MASK}" if secret and is_quoted_secret(secret, match[3].strip()) else match[0]
