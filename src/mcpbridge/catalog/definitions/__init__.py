"""Definitions of tools, prompts and resources: what is checked in them, what is changed, and the cache of both."""
