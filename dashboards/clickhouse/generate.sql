-- Spans of `calls` tool calls as the Collector writes them, from call number `first` on, one per millisecond after `start`:
-- for tests and measurements of the account, never for a table in use. About 2.4 rows per call.
--
-- What becomes of call n is told by its number alone, so that a test knows the right answer without asking the account:
--   n % 1000 = 500   nobody runs it; judged lost (deadline) where n is a multiple of 2000 off, else its process died
--   n % 100 = 7      abandoned;  n % 100 = 17   run by the provider;  n % 100 = 27   exempt
--   else n % 10      0–4 executed, 5–7 answered by a later turn, 8 acknowledged, 9 executed and answered
INSERT INTO otel.otel_traces
WITH
    {start:DateTime64(9, 'UTC')} + toIntervalMillisecond(n) AS began,
    concat('call-', toString(n)) AS call_key,
    lower(hex(cityHash64(n, 1))) AS announced_span,
    concat(lower(hex(cityHash64(intDiv(n, 2), 2))), lower(hex(cityHash64(intDiv(n, 2), 3)))) AS trace,
    concat('tool_', toString(n % 20)) AS tool,
    n % 1000 = 500 AS lost,
    NOT lost AND n % 100 = 7 AS abandoned,
    NOT lost AND n % 100 = 17 AS server,
    NOT lost AND n % 100 = 27 AS exempt,
    NOT (lost OR abandoned OR server OR exempt) AS runs,
    -- which spans this call brings: its announcement; every second call a turn; what settles or judges it
    arrayConcat(
        ['announce_tool'],
        if(n % 2 = 0, ['turn'], []),
        if(runs AND (n % 10 < 5 OR n % 10 = 9), ['execute_tool'], []),
        if(runs AND n % 10 IN (5, 6, 7, 9), ['answer'], []),
        if(runs AND n % 10 = 8, ['acknowledge_tool'], []),
        if(lost AND n % 2000 = 500, ['await_dispatch'], [])) AS kinds,
    map('otel_toolcalls.link.type', if(kind = 'answer', 'answers', 'announced_by'), 'otel_toolcalls.call.key', call_key) AS link,
    kind IN ('execute_tool', 'answer', 'acknowledge_tool') AS linked
SELECT
    began + toIntervalMillisecond(multiIf(kind IN ('turn', 'announce_tool'), 0, kind = 'await_dispatch', 300000, 900)) AS Timestamp,
    -- the answer comes with a turn of its own, in a trace of its own
    if(kind = 'answer', lower(hex(sipHash128(n))), trace) AS TraceId,
    if(kind = 'announce_tool', announced_span, lower(hex(cityHash64(n, kind)))) AS SpanId,
    if(kind IN ('turn', 'answer'), '', announced_span) AS ParentSpanId,
    '' AS TraceState,
    if(kind IN ('turn', 'answer'), concat('chat model-', toString(n % 3)), concat(kind, ' ', tool)) AS SpanName,
    if(kind IN ('turn', 'answer'), 'Client', 'Internal') AS SpanKind,
    concat('service-', toString(intDiv(n, 2) % 8)) AS ServiceName,
    map('service.name', ServiceName, 'telemetry.sdk.language', 'python') AS ResourceAttributes,
    'otel_toolcalls' AS ScopeName,
    '1.0.0' AS ScopeVersion,
    multiIf(
        kind IN ('turn', 'answer'), map('gen_ai.operation.name', 'chat', 'gen_ai.provider.name', 'acme',
            'gen_ai.request.model', concat('model-', toString(n % 3))),
        kind = 'announce_tool', map('gen_ai.operation.name', kind, 'gen_ai.tool.name', tool,
            'gen_ai.provider.name', 'acme', 'gen_ai.request.model', concat('model-', toString(n % 3)),
            'gen_ai.tool.call.id', concat('id_', toString(n)), 'otel_toolcalls.call.key', call_key,
            'otel_toolcalls.call.kind', if(server, 'server', 'client'),
            'otel_toolcalls.call.outcome', if(abandoned, 'abandoned', 'completed'),
            if(exempt, 'otel_toolcalls.call.exempt', 'otel_toolcalls.call.ordinal'), if(exempt, 'true', '0')),
        kind = 'await_dispatch', map('gen_ai.operation.name', kind, 'gen_ai.tool.name', tool,
            'otel_toolcalls.call.key', call_key, 'otel_toolcalls.undispatched.reason', 'deadline',
            'error.type', 'undispatched'),
        -- an execution names its call itself, or, made by another library, in its link alone
        map('gen_ai.operation.name', kind, 'gen_ai.tool.name', tool,
            if(kind = 'execute_tool' AND n % 2 = 0, 'otel_toolcalls.call.key', 'gen_ai.tool.call.id'),
            if(kind = 'execute_tool' AND n % 2 = 0, call_key, concat('id_', toString(n))))) AS SpanAttributes,
    1000000 AS Duration,
    if(abandoned OR kind = 'await_dispatch', 'Error', 'Unset') AS StatusCode,
    '' AS StatusMessage,
    [] AS `Events.Timestamp`,
    [] AS `Events.Name`,
    [] AS `Events.Attributes`,
    if(linked, [trace], []) AS `Links.TraceId`,
    if(linked, [announced_span], []) AS `Links.SpanId`,
    if(linked, [''], []) AS `Links.TraceState`,
    if(linked, [link], []) AS `Links.Attributes`
FROM
(
    SELECT number + {first:UInt64} AS n FROM numbers({calls:UInt64})
)
ARRAY JOIN kinds AS kind;
