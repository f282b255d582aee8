"""How fast it is: real processes, real servers, every figure beside its ceiling or a peer (`make bench`)."""
