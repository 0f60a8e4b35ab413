"""Fuzzing of what reads input: `python -m tests.fuzzing` searches, and pytest replays what that has found."""
