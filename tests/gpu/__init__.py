"""Claims about drivers and frameworks that the code relies on, and programs that find out on a GPU whether they hold.

`python -m tests.gpu` tries all of them, each in a process of its own, and writes `report.json` and a table. A claim is
one sentence, and a function below `programs` that finds out; it says what it saw, and whether that is what is claimed.
There are three outcomes: confirmed, contradicted (with what was seen instead), and not tried (and why). What is measured
and not judged says "measured".

Nothing here needs more than gpu_magic and what it needs, so that `kit.py` can carry it to machines without network.
"""
