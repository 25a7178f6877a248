"""Tools about other tools and about the session: `find_tools`, `describe_tools`, `call_tool`, `brief`, `pulse`.

The descriptions that models read are in `definitions.py`. Ranking is in `catalog/search/`.
"""
