"""What the words of an answer say of the outcome of its call (issue 24)."""

import json
from contextlib import suppress

from support.fleet_checker.history import Outcome

_LOST = ("outcome unknown", "UpstreamGone", "UpstreamTimeout")
"""Words of outcomes that are unknown; a result names that the server of the call was lost, or silent."""
_NOTHING_DONE = ("not sent", "UpstreamUnavailable", "UpstreamResting", "initialize a new one")
"""Words of calls that were not made: the server is not there, or the session is not."""


def read(status: int, text: str, id_: str = "") -> tuple[Outcome, str, int]:
    """What an answer says to the call with this id: outcome, words, and who answered."""
    words = text
    for line in text.splitlines() if text.startswith(("event:", "data:", ":", "id:", "retry:")) else ():
        if line.startswith("data: {"):
            words = line[6:]
    with suppress(ValueError, KeyError, IndexError, TypeError):
        result = json.loads(words)["result"]
        if not result.get("isError"):
            answered, owner, *_ = json.loads(result["content"][0]["text"])
            if answered != id_:
                return "wrong", f"the answer to another call: {words}", 0
            return "answered", "", int(owner)
    # The first are the bridge's words; a session that does not exist, or cannot be had, was asked nothing.
    if any(said in words for said in _LOST):
        return "unknown", f"{status} {words}", 0
    if any(said in words for said in _NOTHING_DONE):
        return "not sent", f"{status} {words}", 0
    if status in (502, 503, 504) and "jsonrpc" not in words:
        return "unknown", f"{status} {words}", 0  # the balancer's own
    return "wrong", f"{status} {words}", 0
