"""The pages of the catalog: what there is and how it is found, one tool, and the form to try it.

Start at `catalog_list.py`; `tool_page.py` shows one tool, `try_tool.py` has its form.
"""
