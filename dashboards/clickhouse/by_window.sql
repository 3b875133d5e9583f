-- The account per window and tool: how many calls were to be run, what became of them, and how many nobody ran.
--
-- since, until: as in lost_calls.sql; window: its length in seconds. Awaited = Executed + Answered + Acknowledged + Lost,
-- where a call with several kinds of evidence counts by the first of them.
SELECT
    toStartOfInterval(AnnouncedAt, toIntervalSecond({window:UInt32})) AS WindowStart,
    ServiceName,
    ToolName,
    count() AS Awaited,
    countIf(evidence = 'executed') AS Executed,
    countIf(evidence = 'answered') AS Answered,
    countIf(evidence = 'acknowledged') AS Acknowledged,
    countIf(evidence = '') AS Lost,
    countIf(evidence = '' AND Reason = '') AS LostUnjudged
FROM
(
    SELECT
        max(Announced) AS AnnouncedAt,
        max(Service) AS ServiceName,
        max(Tool) AS ToolName,
        max(Judged) AS Reason,
        multiIf(max(Executed) = 1, 'executed', max(Answered) = 1, 'answered', max(Acknowledged) = 1, 'acknowledged', '')
            AS evidence
    FROM otel.toolcall_account
    WHERE Hour >= toStartOfHour({since:DateTime64(9, 'UTC')})
    GROUP BY Key
    HAVING AnnouncedAt >= {since:DateTime64(9, 'UTC')} AND AnnouncedAt < {until:DateTime64(9, 'UTC')} AND max(Awaited)
)
GROUP BY WindowStart, ServiceName, ToolName
ORDER BY WindowStart, ServiceName, ToolName;
