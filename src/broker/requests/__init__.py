"""Answer requests: one module for each API or family of APIs; `dispatcher` lists all handlers.

A handler takes the services of the broker and a request, and returns an answer or a `Pending`. A
handler does I/O only through the store. If one partition fails, its error is part of the answer.
"""
