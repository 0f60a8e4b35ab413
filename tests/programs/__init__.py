"""What runs functions of tests in processes of their own, with the real frameworks: see `runner.py`.

Beside it is what such functions share. What another package would be is in `packages`.
"""
