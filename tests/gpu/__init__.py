"""Claims about drivers and frameworks that gpu_magic relies on, tried on a real GPU: `pytest -m gpu tests/gpu`.

A claim is a sentence and a function below `programs`, which runs in a process of its own and returns what it saw, and
whether the claim holds. `reports` has the results of real machines: `--gpu-report FILE` writes one. `carry.sh` makes a
folder for a machine without network, so this folder needs only gpu_magic, its dependencies and pytest.
"""
