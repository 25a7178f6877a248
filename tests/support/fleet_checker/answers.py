"""What the words of an answer say of the outcome of its call (issue 24)."""

import json
from contextlib import suppress

from support.fleet_checker.history import Outcome


def read(status: int, text: str) -> tuple[Outcome, str, int]:
    """What an answer says: outcome, words, and who answered."""
    words = text
    for line in text.splitlines() if text.startswith(("event:", "data:", ":", "id:", "retry:")) else ():
        if line.startswith("data: {"):
            words = line[6:]
    with suppress(ValueError, KeyError, IndexError, TypeError):
        result = json.loads(words)["result"]
        if not result.get("isError"):
            return "answered", "", int(json.loads(result["content"][0]["text"])[1])
    # The first three are the bridge's words; a session that does not exist, or cannot be had, was asked nothing.
    if "outcome unknown" in words:
        return "unknown", f"{status} {words}", 0
    if "not sent" in words or "initialize a new one" in words:
        return "not sent", f"{status} {words}", 0
    if status in (502, 503, 504) and "jsonrpc" not in words:
        return "unknown", f"{status} {words}", 0  # the balancer's own
    return "wrong", f"{status} {words}", 0
