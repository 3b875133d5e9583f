"""Every name this package emits: spans, attributes, metrics, log events, and the values they take.

No other module spells one of these as a literal. Names of the OpenTelemetry GenAI conventions come first; our own
live under ``otel_toolcalls.``. The GenAI names are kept here rather than imported because they are all in
development and moved between packages; a migration is one edit of this file.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

SCOPE: Final = "otel_toolcalls"

# ---- operations (gen_ai.operation.name), also the first word of the span's name -------------------------------------
OP_CHAT: Final = "chat"
OP_GENERATE_CONTENT: Final = "generate_content"
OP_ANNOUNCE: Final = "announce_tool"
OP_EXECUTE: Final = "execute_tool"
OP_AWAIT: Final = "await_dispatch"
OP_ACKNOWLEDGE: Final = "acknowledge_tool"

# ---- attributes: standard ------------------------------------------------------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
ERROR_TYPE: Final = "error.type"

# ---- attributes: ours ----------------------------------------------------------------------------------------------
CALL_KEY: Final = "otel_toolcalls.call.key"
CALL_INDEX: Final = "otel_toolcalls.call.index"
CALL_ORDINAL: Final = "otel_toolcalls.call.ordinal"
CALL_KIND: Final = "otel_toolcalls.call.kind"
CALL_OUTCOME: Final = "otel_toolcalls.call.outcome"
CALL_EXEMPT: Final = "otel_toolcalls.call.exempt"
CALL_ANOMALIES: Final = "otel_toolcalls.call.anomalies"
ARGUMENTS_SIZE: Final = "otel_toolcalls.call.arguments.size"
ARGUMENTS_FRAGMENTS: Final = "otel_toolcalls.call.arguments.fragments"
ARGUMENTS_VALUES: Final = "otel_toolcalls.call.arguments.values"
"""How many top-level JSON values the arguments of one call held, where it was more than one: calls were merged."""
ARGUMENTS_TRUNCATED: Final = "otel_toolcalls.call.arguments.truncated"
"""True when captured content was cut at the size cap."""
RESULT_TRUNCATED: Final = "otel_toolcalls.call.result.truncated"
"""The same for a captured result."""
CHOICE_INDEX: Final = "otel_toolcalls.choice.index"
TURN_ANNOUNCED: Final = "otel_toolcalls.turn.announced"
TURN_COMPLETED: Final = "otel_toolcalls.turn.completed"
TURN_FAILED: Final = "otel_toolcalls.turn.failed"
TURN_ANSWERED: Final = "otel_toolcalls.turn.answered"
TURN_ANOMALIES: Final = "otel_toolcalls.turn.anomalies"
"""What was odd about the turn as a whole, such as a finish reason that promises a call when none came."""
DISPATCH_MATCH: Final = "otel_toolcalls.dispatch.match"
DISPATCH_DELAY: Final = "otel_toolcalls.dispatch.delay"
DISPATCH_COUNT: Final = "otel_toolcalls.dispatch.count"
"""How often the call has been dispatched so far, where it is more than once."""
DISPATCH_LATE: Final = "otel_toolcalls.dispatch.late"
"""True when the call had been judged lost before this dispatch."""
DISPATCH_AMBIGUOUS: Final = "otel_toolcalls.dispatch.ambiguous"
"""True when another announced call fitted as well, or the match is by name and order alone."""
SETTLED_BY: Final = "otel_toolcalls.settled.by"
UNDISPATCHED_REASON: Final = "otel_toolcalls.undispatched.reason"
ACKNOWLEDGED_BY: Final = "otel_toolcalls.acknowledged.by"
LINK_TYPE: Final = "otel_toolcalls.link.type"
VIOLATION_KIND: Final = "otel_toolcalls.violation.kind"
ERROR_WHERE: Final = "otel_toolcalls.error.where"

TURN_ABANDONED: Final = "turn_abandoned"
"""Who acknowledges the completed calls of a turn that was abandoned: they are not followed."""
EXECUTED: Final = "execute_tool"
"""Who acknowledges a call whose execution's span, another library's, took no link any more."""
LINK_ANNOUNCED_BY: Final = "announced_by"
LINK_ANSWERS: Final = "answers"

# ---- metrics -------------------------------------------------------------------------------------------------------
ANNOUNCED_CALLS: Final = "otel_toolcalls.announced.calls"
FINISHED_CALLS: Final = "otel_toolcalls.finished.calls"
ANNOUNCE_DURATION: Final = "otel_toolcalls.announce.duration"
ARGUMENTS_SIZE_METRIC: Final = "otel_toolcalls.arguments.size"
DISPATCHED_CALLS: Final = "otel_toolcalls.dispatched.calls"
DISPATCH_DELAY_METRIC: Final = "otel_toolcalls.dispatch.delay"
SETTLED_CALLS: Final = "otel_toolcalls.settled.calls"
UNDISPATCHED_CALLS: Final = "otel_toolcalls.undispatched.calls"
PENDING_CALLS: Final = "otel_toolcalls.pending.calls"
VIOLATIONS: Final = "otel_toolcalls.violations"
INTERNAL_ERRORS: Final = "otel_toolcalls.internal.errors"
EXECUTE_TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"

SECONDS_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
DELAY_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

OTHER_TOOL: Final = "_OTHER"
"""What a tool name outside the request's own tool list becomes on a metric: the name is the model's to invent."""

# ---- log events ----------------------------------------------------------------------------------------------------
EVENT_UNDISPATCHED: Final = "otel_toolcalls.call.undispatched"


class Kind(str, Enum):
    """Who must run an announced call."""

    CLIENT = "client"
    """The app."""
    SERVER = "server"
    """The provider runs it itself; it never waits for a dispatch."""


class ToolType(str, Enum):
    """``gen_ai.tool.type``."""

    FUNCTION = "function"
    EXTENSION = "extension"
    DATASTORE = "datastore"


class Outcome(str, Enum):
    """How an announcement ended. Every announced call has exactly one."""

    COMPLETED = "completed"
    INVALID = "invalid"
    TRUNCATED = "truncated"
    ABANDONED = "abandoned"


class ErrorType:
    """Values of ``error.type`` on an announced call that did not complete (others are the wire's words, or the
    qualified name of the exception that ended the stream)."""

    INVALID_ARGUMENTS: Final = "invalid_arguments"
    PROTOCOL_VIOLATION: Final = "protocol_violation"
    LENGTH: Final = "length"
    CONTENT_FILTER: Final = "content_filter"
    REFUSAL: Final = "refusal"
    RESPONSE_FAILED: Final = "response_failed"
    CLOSED_EARLY: Final = "closed_early"
    CANCELLED: Final = "cancelled"
    STREAM_ENDED: Final = "stream_ended"
    GARBAGE_COLLECTED: Final = "garbage_collected"
    PROCESS_EXIT: Final = "process_exit"
    UNDISPATCHED: Final = "undispatched"


class Violation(str, Enum):
    """Kinds of what contradicts the protocol."""

    FRAGMENT_UNANNOUNCED = "fragment_unannounced"
    CLOSE_UNANNOUNCED = "close_unannounced"
    DUPLICATE_ANNOUNCEMENT = "duplicate_announcement"


class Anomaly:
    """Quirks met and resolved by a stated rule, kept on the span as evidence."""

    INDEX_MISSING: Final = "index_missing"
    INDEX_REUSED: Final = "index_reused"
    INDEX_CHANGED: Final = "index_changed"
    INDEX_NOT_INTEGER: Final = "index_not_integer"
    ID_MISSING: Final = "id_missing"
    ID_CHANGED: Final = "id_changed"
    ID_REPEATED: Final = "id_repeated"
    NAME_MISSING: Final = "name_missing"
    NAME_LATE: Final = "name_late"
    NAME_CHANGED: Final = "name_changed"
    NAME_SPLIT: Final = "name_split"
    ARGUMENTS_OBJECT: Final = "arguments_object"
    ARGUMENTS_CHANGED: Final = "arguments_changed"
    ARGUMENTS_MERGED: Final = "arguments_merged"
    AFTER_FINISH: Final = "after_finish"
    ANNOUNCED_LATE: Final = "announced_late"
    REPLAYED: Final = "replayed"
    INTERNAL_ERROR: Final = "internal_error"
    FINISH_WITHOUT_CALL: Final = "finish_without_call"
    """On the turn: the finish reason announced a tool call and none came."""


class Match(str, Enum):
    """How a dispatch met the ledger."""

    MATCHED = "matched"
    UNMATCHED = "unmatched"
    DUPLICATE = "duplicate"


class SettledBy(str, Enum):
    """What settled a completed call."""

    DISPATCH = "dispatch"
    SPAN = "span"
    ANSWER = "answer"
    ACKNOWLEDGE = "acknowledge"
    EXEMPT = "exempt"


class LostReason(str, Enum):
    """Why a completed call was judged lost."""

    DEADLINE = "deadline"
    SIBLINGS_ANSWERED = "siblings_answered"
    TURN_ANSWERED_WITHOUT = "turn_answered_without"
    SHUTDOWN = "shutdown"
    PROCESS_LOST = "process_lost"
    EVICTED = "evicted"
    """It had to go to keep the ledger within its bounds."""


FINISH_LIMITS: Final[dict[str, str]] = {
    # chat completions and compatible servers
    "length": ErrorType.LENGTH,
    "content_filter": ErrorType.CONTENT_FILTER,
    "max_tokens": ErrorType.LENGTH,
    "model_length": ErrorType.LENGTH,
    "insufficient_system_resource": "insufficient_system_resource",
    # anthropic messages
    "model_context_window_exceeded": ErrorType.LENGTH,
    "refusal": ErrorType.REFUSAL,
    # responses
    "max_output_tokens": ErrorType.LENGTH,
    "max_messages": ErrorType.LENGTH,
    "steered": "steered",
    "incomplete": "incomplete",
}
"""A provider's finish reason that means the reply was cut short → ``error.type`` of the call it cut."""

FINISH_PROMISES_CALL: Final = frozenset({"tool_use", "tool_calls", "function_call"})
"""Finish reasons that say a tool call came."""
