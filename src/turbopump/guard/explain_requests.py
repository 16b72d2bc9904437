"""Handler of the question whether a user may do something, and why (9720): of ours, Apache has none.

In: a question of somebody who may read the configuration of the cluster. Out: the answer of the same access
control that decides about requests.
"""

from collections.abc import Callable

from turbopump.auth.access import Access
from turbopump.auth.question import AccessQuestion
from turbopump.guard.config import AccessConfig
from turbopump.guard.link import source_of
from turbopump.protocol.bodies import AccessExplanation
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.headers.access import ExplainRequest
from turbopump.remoting.router import Answer, Request, Route, Routes

DRY_RUN = "a dry run (authDryRun): the request is served all the same"


class ExplainHandler:
    """Handles questions about what users may do."""

    def __init__(self, access: Callable[[], Access], config: AccessConfig, cluster: str) -> None:
        self._access = access
        self._config = config
        self._cluster = cluster

    def routes(self) -> Routes:
        return {Code.AUTH_EXPLAIN: Route(ExplainRequest, self.explain)}

    def explain(self, request: Request[ExplainRequest]) -> Answer:
        """Answers a question; refuses one whose words no policy could have."""
        header = request.header
        user, action, resource = header.user or "", header.action or "", header.resource or ""
        source = header.source or source_of(request.connection).address
        found = AccessQuestion.of(user, action, resource, source, self._cluster).answer(self._access())
        body = AccessExplanation(
            action=action,
            allowed=found.is_allowed,
            kind="accounts" if self._config.accounts else "users",
            resource=resource,
            source=source,
            user=user,
            why=found.text,
            decidedBy=found.decided_by,
            lookedAt=list(found.looked_at),
            note=DRY_RUN if self._config.dry_run else None,
        )
        return Answer(body=body.encode())
