"""How fast, at which cost, beside which peers: measured with one generator on one machine in one run."""
