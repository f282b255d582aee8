"""The distribution spillway-client: in the suite's own process, and in a Django project that is not ours."""
