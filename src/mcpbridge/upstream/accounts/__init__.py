"""Accounts of single users at servers: who has one, how a person gets one, and how calls use it.

Start reading in `accounts`, which decides whether a call of a user may go to a server. `sign_ins` are those under way
in browsers, `exchange` trades the token that a user presented for one of the server, `identity_assertion` has the
identity provider vouch for the user there, `settings` is the section of the
configuration. Rows are kept by `storage/vault.py`; the pages are in `app/connections/`.
"""
