"""Whether the guards that keep the promises are tested: each is taken out, and a test has to notice."""
