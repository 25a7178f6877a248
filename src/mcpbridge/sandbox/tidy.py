"""An expression without what people and models put around it."""

import re

__all__ = ["tidy"]

_FENCE = re.compile(r"\A```[a-zA-Z]*\n(.*?)\n?```\Z", re.DOTALL)
_MEMBER = re.compile(r"\.[A-Za-z_$]")


def tidy(expression: str) -> str:
    """The expression: no code fence, no `=>` or `|` before it; `.map(…)` means `result.map(…)`."""
    source = expression.strip()
    if fenced := _FENCE.match(source):
        source = fenced[1].strip()
    for before in ("=>", "|"):
        if source.startswith(before) and not source.startswith("||"):
            source = source[len(before) :].lstrip()
    return f"result{source}" if _MEMBER.match(source) else source
