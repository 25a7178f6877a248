"""What is written in the place of a secret, or of another value that is not to be seen."""

from mcpbridge.base.late_pattern import late

MASK = "[redacted]"
PLACEHOLDER = late(r"‹(?:secret|pii):(?:[a-z-]{2,24}:)?[0-9a-f]{16}›")
"""Shown in place of a value, which the server is given back where it comes in arguments."""
