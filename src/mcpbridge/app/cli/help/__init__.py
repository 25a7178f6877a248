"""What helps at a prompt: the page of `mcpbridge` without a command, and completion of words in a shell.

`start_page.py` and `complete.py` are the ways in. People wait for both, so they load as little as they can.
"""
