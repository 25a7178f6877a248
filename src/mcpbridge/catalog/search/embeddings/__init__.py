"""Find tools by meaning, with an embedding model: one on this machine, or a service.

Start with `embedder.py`, the protocol that both kinds follow; `local.py` and `http.py` are the kinds. `vectors.py`
keeps and compares the vectors, `ranker.py` makes a ranker of them. Search works without this folder, by words alone.
"""
