"""The demo: eight scenes on real servers, played by `mcpbridge demo` and by `make run`.

Start reading at `play.py`, which plays them; what happens in each is in `scenes.py`. `cast.py` says what a run needs
(a configuration, and the calls of each scene), and `own_cast.py` is the one of servers that the package brings itself,
in `servers/`. The command's options are in `app/cli/demo.py`.
"""
