"""Answer requests. There is a module for each API or family of APIs; `dispatcher` lists them.

A handler takes the services of the broker and a request, and returns an answer or a `Pending`. A
handler does I/O only through the store. If one partition fails, its error is part of the answer.
"""
