-- The account of tool calls, kept as spans arrive: one row per call, merged from whatever says something about it.
--
-- Two views feed it. A span speaks by its own attribute otel_toolcalls.call.key (announcement, execution, judgement), or
-- by a link that carries the key (the turn that answers, an execution, an acknowledgement). Each says one thing of one
-- call, in any order, any number of times; the engine merges them. lost_calls.sql reads the account.
CREATE TABLE IF NOT EXISTS otel.toolcall_account
(
    Hour DateTime('UTC'),                                     -- of the row's own span: a query reads from one hour on
    Key String CODEC(ZSTD(1)),
    Announced SimpleAggregateFunction(max, DateTime64(9)),    -- 1970 where the announcement has not been seen
    Awaited SimpleAggregateFunction(max, UInt8),              -- completed, for the app to run, and not exempt
    Executed SimpleAggregateFunction(max, UInt8),
    Answered SimpleAggregateFunction(max, UInt8),
    Acknowledged SimpleAggregateFunction(max, UInt8),
    Judged SimpleAggregateFunction(max, LowCardinality(String)), -- why it was judged lost; empty where it was not
    Service SimpleAggregateFunction(max, LowCardinality(String)),
    Tool SimpleAggregateFunction(max, LowCardinality(String)),
    Provider SimpleAggregateFunction(max, LowCardinality(String)),
    Model SimpleAggregateFunction(max, LowCardinality(String)),
    CallId SimpleAggregateFunction(max, String),
    TraceId SimpleAggregateFunction(max, String),
    SpanId SimpleAggregateFunction(max, String)
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(Hour)
ORDER BY (Hour, Key)
TTL Hour + toIntervalDay(90);

CREATE MATERIALIZED VIEW IF NOT EXISTS otel.toolcall_account_from_spans TO otel.toolcall_account AS
WITH
    SpanAttributes['gen_ai.operation.name'] AS operation,
    operation = 'announce_tool' AS announces
SELECT
    toStartOfHour(toDateTime(Timestamp, 'UTC')) AS Hour,
    SpanAttributes['otel_toolcalls.call.key'] AS Key,
    if(announces, Timestamp, toDateTime64(0, 9)) AS Announced,
    announces
        AND SpanAttributes['otel_toolcalls.call.outcome'] = 'completed'
        AND SpanAttributes['otel_toolcalls.call.kind'] = 'client'
        AND SpanAttributes['otel_toolcalls.call.exempt'] != 'true' AS Awaited,
    operation = 'execute_tool' AS Executed,
    operation = 'acknowledge_tool' AS Acknowledged,
    SpanAttributes['otel_toolcalls.undispatched.reason'] AS Judged,
    if(announces, ServiceName, '') AS Service,
    if(announces, SpanAttributes['gen_ai.tool.name'], '') AS Tool,
    if(announces, SpanAttributes['gen_ai.provider.name'], '') AS Provider,
    if(announces, SpanAttributes['gen_ai.request.model'], '') AS Model,
    if(announces, SpanAttributes['gen_ai.tool.call.id'], '') AS CallId,
    if(announces, TraceId, '') AS TraceId,
    if(announces, SpanId, '') AS SpanId
FROM otel.otel_traces
WHERE Key != '';

CREATE MATERIALIZED VIEW IF NOT EXISTS otel.toolcall_account_from_links TO otel.toolcall_account AS
SELECT
    toStartOfHour(toDateTime(Timestamp, 'UTC')) AS Hour,
    link['otel_toolcalls.call.key'] AS Key,
    SpanAttributes['gen_ai.operation.name'] = 'execute_tool' AS Executed,
    link['otel_toolcalls.link.type'] = 'answers' AS Answered,
    SpanAttributes['gen_ai.operation.name'] = 'acknowledge_tool' AS Acknowledged
FROM otel.otel_traces
ARRAY JOIN Links.Attributes AS link
WHERE Key != '';
