"""Say at once of a small JSON value that nothing in it can be a secret. Pure.

`text.py` and its neighbours find secrets; this looks only for what each of them cannot do without: a word that names a
secret, a sign, or characters in a row that are as long as a key. So it may rule out, and never finds anything. Whoever
adds a way to find a secret there adds here what that way needs; a test compares both over all samples.
"""

from collections.abc import Callable

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.by_context import WORDS_BEFORE_SECRETS
from mcpbridge.base.masking.issued_keys import RUNS
from mcpbridge.base.masking.names import IN_SECRET_NAMES, SAID
from mcpbridge.base.masking.values import LEVELS

_WORDS = {*IN_SECRET_NAMES, *SAID, *WORDS_BEFORE_SECRETS, "auth", "bearer", "basic", "cookie", "kty", "sec-websocket"}
_SIGNS = {"=", "%3", "://", ":thin:", "-p", "-u", "redis-cli", "-----", "putty-user", "q~", "‹", "\x1b"}
_NEEDED = tuple(sorted(one for one in _WORDS | _SIGNS if not any(other in one for other in (_WORDS | _SIGNS) - {one})))
"""In small letters; without those that have another one in them."""
_PASSWORD_FILE = late(r":(?:\d{2,5}|\*):")
_LETTERS = 20
"""Letters in a row that may be a key; shorter ones that are only of letters are words."""


def holds_no_secret(raw: bytes, known: Callable[[str], str]) -> bool:
    """Nothing in this JSON value is a secret, and `known` masks nothing. False: that must be looked for.

    All texts and names of the value are parts of what is searched here, so what is not in it is in none of them.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    if "\\" in text:
        if "\\\\" in text:
            return False
        text = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        if "\\" in text:
            return False
    lower = text.lower()
    if any(map(lower.__contains__, _NEEDED)):
        return False
    for run in RUNS.findall(text):
        word = run.strip(",.")
        if len(word) >= _LETTERS or not word.isalpha():
            return False
    if text.count("[") + text.count("{") > LEVELS or _PASSWORD_FILE.search(text):
        return False
    return known(text) == text
