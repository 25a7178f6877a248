"""Severities of log messages (RFC 5424), the same in every revision."""

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Least severe first."""
