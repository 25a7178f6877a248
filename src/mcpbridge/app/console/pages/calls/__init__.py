"""The pages about calls: the list of them (`call_list.py`), one call (`call_page.py`), and files of many (`export.py`).

Everything comes from the call log (`storage/call_log`), and of calls that run from the bridge itself.
"""
