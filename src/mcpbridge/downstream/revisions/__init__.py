"""What depends on a client's protocol revision: reading modern requests, and results that older revisions understand.

Start at `downgrade.py`. Which revisions there are, and what each of them brought, is decided in
`protocol/revisions.py`.
"""
