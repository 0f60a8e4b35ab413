"""Programs that tests run in processes of their own, with the real frameworks: see `tests/programs/runner.py`.

A program is a function here that returns what it found, by name. It runs in a module `__main__`, as a notebook's code
does. What another package would be is in `packages`.
"""
