"""What is written in the place of a secret."""

MASK = "[redacted]"
