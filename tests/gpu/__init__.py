"""Claims about drivers and frameworks that the code relies on, and programs that try the claims on a GPU.

`python -m tests.gpu` tries all claims, each in a separate process, and writes `report.json` and a table. A claim is a
sentence and a function below `programs`, which returns what it saw and whether the claim holds. The outcome of a claim
is confirmed, contradicted (with the result), or not tried (with the reason). The outcome of a measurement is
"measured".

This folder needs only gpu_magic and its dependencies, so that `kit.py` can pack it for machines without network.
"""
