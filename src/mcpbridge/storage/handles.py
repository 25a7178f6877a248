"""Names of stored values that nobody can guess."""

import base64
import secrets

__all__ = ["new_handle"]

_BYTES = 16
"""128 random bits."""


def new_handle() -> str:
    """A new name of 26 letters and digits: one word for models and shells alike, and never an option."""
    return base64.b32encode(secrets.token_bytes(_BYTES)).decode().rstrip("=").lower()
