"""What stands in the place of a secret."""

MASK = "[redacted]"
