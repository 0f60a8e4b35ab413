"""What objects hold, and where: `%where`, `%gpu_free`, and what is shown when memory runs out."""
