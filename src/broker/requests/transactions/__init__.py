"""Handlers of the requests of transactions: begin, add, end, and look at them."""
