"""The programs behind the claims. None imports a framework at its top: whether that starts CUDA is itself a claim."""
