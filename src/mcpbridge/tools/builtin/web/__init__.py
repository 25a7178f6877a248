"""The tools `http-get`, `web-search` and `crypto-price`.

Limits and the addresses of services are in `settings.py`. Which addresses may be fetched is decided in
`sandbox/fetch/address_rules.py`.
"""
