"""The console: pages for a browser that show servers, calls, tools and approvals of a running bridge.

Start at `app.py`, which has the routes; `guard.py` decides who sees them, `sign_in.py` keeps who is signed in, and
`listener.py` opens a port where the bridge has none. Each page is a module in `pages/` with a template of its name.
What the pages show comes from the functions behind `mcpbridge status`, `stats` and the API (`app/admin`,
`engine/status.py`).
"""
