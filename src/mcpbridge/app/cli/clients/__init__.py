"""Commands that read and write the files of clients: `install`, `uninstall`, `import`, `init`.

What is in those files, and how it is changed, is decided in `client_config/`.
"""
