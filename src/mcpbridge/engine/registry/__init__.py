"""Servers and tools that are added, changed and removed while the bridge runs.

Start at `registry.py`. `format.py` has the entries and their form in the store, `overlay.py` lays them over the file,
`rules.py` decides what an entry may hold, `http_rules.py` what may be set over HTTP. `reload.py`, above this folder,
puts the changes into effect.
"""
