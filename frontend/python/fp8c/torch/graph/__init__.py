"""From a model to a plan: what PyTorch captures, what of it fp8c computes, and as which text."""
