"""What the control socket and the HTTP API refuse: the codes, and the HTTP status of each."""


class Problem(Exception):
    """What was asked cannot be done. `code`: one of `STATUS_OF`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


STATUS_OF = {
    "invalid": 400,
    "forbidden": 403,
    "unknown": 404,
    "decided": 409,
    "exists": 409,
    "failed": 503,
    "no_fleet": 404,
}
"""HTTP status by code."""
