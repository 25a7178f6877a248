"""Servers that are one process in the whole fleet: `share = "fleet"`."""
