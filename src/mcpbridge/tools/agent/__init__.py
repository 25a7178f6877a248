"""Agents as tools: remote ones over A2A (`a2a_agent.py`), and Python callables (`local_agent.py`).

Start with `settings.py`. The `a2a_*` files have the protocol: the card, the messages, the requests and the polling.
"""
