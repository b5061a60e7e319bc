"""The ACLs of a broker: kept in the coordination store, changed by clients, given to the rules."""
