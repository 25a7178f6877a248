"""The version, in a file of its own: `mcpbridge --version` and the build read it without importing anything."""

__version__ = "0.1.0"
