"""Which of the GPUs: decisions, as pure functions of what is asked, what is there and what is allowed."""
