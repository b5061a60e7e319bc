"""Answer requests: one module for each API, or for a family of them; `dispatcher` lists them all.

A handler takes the services of the broker and a request, and returns an answer or a `Pending`. It
does I/O only through the store. The error of one partition is part of the answer.
"""
