"""Benchmarks: rates and costs of ours and of its peers, by one generator, on one machine, in one run."""
