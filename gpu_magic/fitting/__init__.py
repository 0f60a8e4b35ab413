"""Predicts the memory that a step takes, without running it, and says on which GPUs that fits."""
