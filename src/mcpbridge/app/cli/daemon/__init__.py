"""Commands about the daemon and running bridges: `up`, `down`, `restart`, `reload`, `logs`, `service`, `status`.

What the daemon is and does lies in `app/daemon/`.
"""
