"""Find tools by the words of a question, without a model that has to be installed.

Start with `bm25.py`, which scores a tool by the words that it shares with the question. `concepts.py` adds words that
mean the same, `needs.py` and `query_types.py` read what the question is after, `word_vectors.py` compares meanings by
a small table of vectors; `bitsets.py` keeps all of it fast. How several scores become one order is the business of the
folder above. `data/` holds the tables.
"""
