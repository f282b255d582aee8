"""How fast it is: real processes on real servers, every figure beside its ceiling or a peer (`make bench`)."""
