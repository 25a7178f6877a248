"""Take secrets out of sentences: "the password is …", `token … has expired`. Pure."""

import re

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import is_place, is_unlike_words, looks_random, secret_of, words_for_secrets
from mcpbridge.base.masking.no_values import end_of_value, says_nothing

_SENTENCE = late(
    r"(?<![\w-])((?:api|access|secret|private|client|auth|bearer|bot|refresh|signing|encryption|license|service)?[ _-]?"
    r"(?:password|passwd|passphrase|passcode|secret|token|key|credentials?|pin|otp)(?!\w))"
    r"((?:[ \t]++for[ \t]++[\w.@-]{1,64}+)?"
    r"(?:[ \t]++(?:is|was|of|provided|used|given|value|set to|equals))?[ \t]*+[:=]?[ \t]*+)"
    r"(\"[^\"\s]{3,8192}+\"|'[^'\s]{3,8192}+'|`[^`\s]{3,8192}+`|[^\s\"'`<>,;(){}\[\]|\\]{6,128}+)",
    re.IGNORECASE,
)
_REST = late(r"[^\s\"'`<>,;(){}\[\]|\\]*+")
"""What of a longer value is left. Not searched at once: texts may be full of such words, with long values behind."""
_BEFORE_WORD = late(
    r"(?<![\w-])(?:(?:api|access|secret|private|client|auth|bearer|bot|refresh|signing|encryption|license|service)"
    r"[ _-]?|[ _-])\Z",
    re.IGNORECASE,
)


def without_secrets_in_sentences(text: str, lower: str) -> str:
    """The same text without them. `lower`: it in small letters; words for secrets are looked for there."""
    if len(lower) != len(text):  # a few capital letters have small forms of two
        lower = "".join(one if len(small := one.lower()) != 1 else small for one in text)
    parts: list[str] = []
    done = at = 0
    for start, end in sorted(words_for_secrets(lower)):
        if start < at:
            continue
        before = _BEFORE_WORD.search(text, max(at, start - 13), start)
        match = _SENTENCE.match(text, before.start()) if before is not None else None
        if match is None or match.end(1) < end:
            match = _SENTENCE.match(text, start)
        if match is None:
            continue
        at = match.end()
        secret = _secret_in(match)
        if secret is not None:
            begin, last = secret
            if begin == match.start(3):  # without quotes
                last = end_of_value(text, begin, match.end(), _REST)
                at = max(at, last)
            parts += [text[done:begin], MASK]
            done = last
    return "".join([*parts, text[done:]])


def _secret_in(match: re.Match[str]) -> tuple[int, int] | None:
    """From where to where it is one. A value after a name without a sign between must look like no word at all."""
    name, between, value = match.groups()
    quote = value[0] if value[0] in "\"'`" else ""
    bare = value[1:-1] if quote else value.rstrip(".:!?")
    if not between and not quote:  # `secret-sync-7d9f8b6c5d`: a name that goes on
        return None
    words = name.split()
    is_key = words[-1].lower().endswith("key")
    if (is_key and len(words) == 1 and secret_of(name) is None) or says_nothing(bare):
        return None
    is_said = between.strip().lower() not in ("", ":", "=")
    is_unlike = is_unlike_words(bare) and not is_place(bare)
    is_token = words[-1].lower() in ("token", "key") and not between.strip()  # a parser's, most often
    if quote and not is_token:
        is_one = is_unlike or (is_said and "password" in name.lower())
    elif is_said and "pass" in name.lower():
        is_one = is_unlike
    else:
        is_one = is_unlike and looks_random(bare)
    start = match.start(3) + len(quote)
    return (start, start + len(bare)) if is_one else None
