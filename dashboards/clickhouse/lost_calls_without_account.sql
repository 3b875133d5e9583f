-- The same rows as lost_calls.sql, straight from the Collector's table: an anti-join of the announced calls with every
-- span and link that names one. Nothing to set up first, and the whole window is read at each run.
SELECT
    announced.Timestamp AS AnnouncedAt,
    announced.ServiceName AS ServiceName,
    announced.SpanAttributes['gen_ai.tool.name'] AS ToolName,
    announced.SpanAttributes['gen_ai.request.model'] AS ModelName,
    judged.Reason AS Reason,
    announced.SpanAttributes['gen_ai.tool.call.id'] AS ToolCallId,
    announced.TraceId AS Trace,
    announced.SpanId AS Span,
    announced.SpanAttributes['otel_toolcalls.call.key'] AS Key
FROM
(
    SELECT Timestamp, ServiceName, SpanAttributes, TraceId, SpanId, SpanAttributes['otel_toolcalls.call.key'] AS Key
    FROM otel.otel_traces
    WHERE SpanName LIKE 'announce\_tool %'
        AND Timestamp >= {since:DateTime64(9, 'UTC')} AND Timestamp < {until:DateTime64(9, 'UTC')}
        AND SpanAttributes['otel_toolcalls.call.outcome'] = 'completed'
        AND SpanAttributes['otel_toolcalls.call.kind'] = 'client'
        AND SpanAttributes['otel_toolcalls.call.exempt'] != 'true'
) AS announced
LEFT ANTI JOIN
(
    SELECT arrayJoin(arrayConcat(
        [SpanAttributes['otel_toolcalls.call.key']],
        arrayMap(attributes -> attributes['otel_toolcalls.call.key'], Links.Attributes))) AS Key
    FROM otel.otel_traces
    WHERE Timestamp >= {since:DateTime64(9, 'UTC')}
        AND SpanName NOT LIKE 'announce\_tool %' AND SpanName NOT LIKE 'await\_dispatch %'
        AND Key != ''
) AS settled ON announced.Key = settled.Key
LEFT ANY JOIN
(
    SELECT SpanAttributes['otel_toolcalls.call.key'] AS Key, SpanAttributes['otel_toolcalls.undispatched.reason'] AS Reason
    FROM otel.otel_traces
    WHERE Timestamp >= {since:DateTime64(9, 'UTC')} AND SpanName LIKE 'await\_dispatch %'
) AS judged ON announced.Key = judged.Key
ORDER BY AnnouncedAt, Key;
