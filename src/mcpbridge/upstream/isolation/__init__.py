"""What a server's program in the sandbox gets of its own: settings, a home directory.

Start at `settings.py`. The sandbox itself is `mcpbridge.sandbox.isolation`; `transports/sandboxed_stdio.py` puts both
together.
"""
