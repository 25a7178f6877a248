"""What an authorization server says when it refuses (RFC 6749, 4.1.2.1 and 5.2; RFC 7591, 3.2.2)."""


class OAuthRefused(Exception):
    """A request is refused. `error`: the word of the RFC; `description`: for people, nothing secret in it."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error, self.description, self.status = error, description, status


class ProviderRefused(Exception):
    """The identity provider does not vouch for the person. `reason`: for people and logs, nothing secret in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
