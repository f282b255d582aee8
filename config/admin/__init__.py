"""The admin's own parts: the site, the base of every page, levers, words."""
