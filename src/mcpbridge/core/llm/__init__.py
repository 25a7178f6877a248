"""Asks a language model: the client's own, or a service that the configuration names.

Start at `client.py`; `messages.py` holds the prompts and the formats of the services. What is asked, and what happens
if no model answers, is left to the caller.
"""
