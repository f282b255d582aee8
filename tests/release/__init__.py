"""`make release`: what is given to others, built from the last commit, checked and tried in empty environments."""
