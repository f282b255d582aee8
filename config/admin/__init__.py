"""Parts of every admin page: the site, the read-only base, lists by key, levers, states, words."""
