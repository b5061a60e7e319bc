"""Import what an open store may need later.

An import opens files. When the process has no descriptor left, a `flush` or a `close` that had to
import a module would fail with an error that names the module. So an opening imports them all;
`import logstore` alone stays cheap. What an extra brings is imported when a log that needs it
opens.
"""

from __future__ import annotations

import logging  # noqa: F401
