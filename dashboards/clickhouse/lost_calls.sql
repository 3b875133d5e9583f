-- Announced, complete, and never dispatched, answered or acknowledged: from the account (account.sql).
--
--   clickhouse-client --param_since='2026-12-01 00:00:00' --param_until='2026-12-01 01:00:00' --queries-file lost_calls.sql
--
-- since, until: when the calls were announced (UTC). Let until lie at least a dispatch deadline back: younger calls may
-- still be waiting. Reason is empty where nobody judged the call lost: its process died, and no ledger outlived it.
WITH lost AS
(
    SELECT Key
    FROM otel.toolcall_account
    WHERE Hour >= toStartOfHour({since:DateTime64(9, 'UTC')})
    GROUP BY Key
    HAVING max(Awaited) AND NOT max(Executed OR Answered OR Acknowledged)
)
SELECT
    max(Announced) AS AnnouncedAt,
    max(Service) AS ServiceName,
    max(Tool) AS ToolName,
    max(Model) AS ModelName,
    max(Judged) AS Reason,
    max(CallId) AS ToolCallId,
    max(TraceId) AS Trace,
    max(SpanId) AS Span,
    Key
FROM otel.toolcall_account
WHERE Hour >= toStartOfHour({since:DateTime64(9, 'UTC')}) AND Key IN lost
GROUP BY Key
HAVING AnnouncedAt >= {since:DateTime64(9, 'UTC')} AND AnnouncedAt < {until:DateTime64(9, 'UTC')}
ORDER BY AnnouncedAt, Key;
