"""Training a model, its run folder, and how good it has become."""
