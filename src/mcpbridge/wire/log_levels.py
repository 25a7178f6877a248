"""Severities of log messages (RFC 5424), the same in every revision; pure."""

from typing import Final

__all__ = ["LEVELS"]

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Least severe first."""
