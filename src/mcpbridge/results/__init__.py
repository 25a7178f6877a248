"""Large results: measured, shortened to a preview, kept, and queried later.

Start at `shorten.py`: it does all the work on one large result. `document.py` reads a text and finds its kind,
`preview/` describes values, `text/` describes texts without a value, `lossless/` writes a value in fewer characters
without losing anything, and `query/` answers questions about results that were kept (`kept_results.py`).

When a result is shortened is decided by the stage `pipeline/stages/compress.py`; where kept results lie on disk is the
business of `storage/`.
"""
