"""What holds the memory of a GPU that had none left."""
