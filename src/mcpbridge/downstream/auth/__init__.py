"""The bridge as an OAuth 2.1 resource server: which access tokens let somebody in over HTTP, and what refusals say.

Start at `resource_server.py`, which the HTTP front asks. `access_tokens.py` decides about one token and remembers it;
`signed_tokens.py` has the rules for JWTs, `provider_keys.py` the keys they are signed with, `introspection.py` the
question about all others, `provider_http.py` the way to a provider, `resources.py` the public addresses. Nothing in
here is loaded where `[auth]` has no issuer. What somebody may do who was let in is decided elsewhere.
"""
