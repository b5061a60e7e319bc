"""Keep a broker's session in the coordination store, and track until when it is sure to live."""
