"""Find tools for a request.

Start with `find.py`. `index.py` orders tools, by words (`lexical/`) and by meaning (`embeddings/`); `answers.py` words
what models read; `llm_router.py` asks a model to choose instead.
"""
