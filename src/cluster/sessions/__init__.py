"""Keep a broker's session in the coordination store, and know until when it lives for certain."""
