"""What an authorization server says when it refuses (RFC 6749, 4.1.2.1 and 5.2; RFC 7591, 3.2.2)."""

from math import ceil


class OAuthRefused(Exception):
    """A request is refused. `error`: the word of the RFC; `description`: for people, nothing secret in it.

    `retry_after`: seconds, with 429 and 503.
    """

    def __init__(self, error: str, description: str, status: int = 400, *, retry_after: float = 10) -> None:
        super().__init__(description)
        self.error, self.description, self.status, self.retry_after = error, description, status, retry_after


def too_many(what: str, retry_after: float = 60) -> OAuthRefused:
    """The refusal of what strangers ask for too often. `what`: a sentence without its end."""
    text = f"{what}; try again in {ceil(retry_after)} s"
    return OAuthRefused("temporarily_unavailable", text, 429, retry_after=retry_after)


class ProviderRefused(Exception):
    """The identity provider does not vouch for the person. `reason`: for people and logs, nothing secret in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
