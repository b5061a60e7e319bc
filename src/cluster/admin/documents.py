"""Share small documents, such as quotas, between the brokers of a cluster."""

from __future__ import annotations

import logging

from broker.coordination.errors import CoordinationError
from broker.coordination.shared_documents import SharedDocuments
from broker.coordination.verbs import Session, SessionState

LOG = logging.getLogger("cluster")


def documents_of(session: Session) -> SharedDocuments:
    """Make the documents of a cluster.

    The documents are read again after each loss of the connection, because a change may have
    happened meanwhile, or a read may have failed. After the end of a session, the caller must call
    `refresh`.
    """
    documents = SharedDocuments(lambda work: work(session), is_shared=True)

    def heard(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            try:
                documents.refresh()
            except CoordinationError as error:
                LOG.info("shared documents are read at the next connection: %s", error)

    session.on_session(heard)
    return documents
