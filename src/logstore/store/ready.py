"""Import what an open store may need later.

An import opens files. When the process has no descriptor left, a `flush` or a `close` that had to
import a module would fail with an error that names the module. So an opening imports them all;
`import logstore` alone stays cheap. What an extra brings is imported when a log that needs it
opens.
"""

from __future__ import annotations

import logging  # noqa: F401

from logstore.log import (  # noqa: F401
    appender,
    encoded,
    group_commit,
    incomplete,
    opening,
    repair,
    retention,
    seeking,
    transactions,
    truncation,
    verification,
    view,
)
from logstore.store import (  # noqa: F401
    admin_server,
    background,
    closing,
    creating,
    describe,
    forking,
    listing,
    promoting,
    recovery_report,
    returning,
)
