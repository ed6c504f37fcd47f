"""A plan at work: programs with their parameters, memory, device and scales, under autograd."""
