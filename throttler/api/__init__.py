"""POST /v1/transactional: bunches of notifications from the programs of customers."""
