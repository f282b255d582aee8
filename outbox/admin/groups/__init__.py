"""Parts of the pages of failure groups: filters, order, trend and chart, levers, words."""
