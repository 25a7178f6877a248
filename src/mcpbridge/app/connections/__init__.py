"""The pages at `/connections`, where people connect their accounts at servers, see them and disconnect them.

Start at `app.py`, which has the routes and the rules of who sees what. `desk.py` makes it when somebody first comes.
What an account is, and what becomes of it, is in `upstream/accounts/`.
"""
