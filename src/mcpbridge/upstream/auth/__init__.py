"""OAuth at remote servers: sign-in, tokens, refresh.

Start reading in `authorization`, which decides when a token is renewed or asked for, and in which order the ways are
tried. `oauth_tokens` keeps the account, `oauth_flow` and `oauth_steps` do the sign-in itself, `settings` holds the
configuration and the times. Where tokens are stored is left to `storage`.
"""
