"""wire: OpenAI chat completions, streaming and whole, and the many servers that say they speak it.

The wire has no explicit announcement and no end per call: the first delta that brings an id or a name announces, a
``finish_reason`` closes all calls of its choice. Compatible servers leave the index out, send 0 for every call, repeat
ids and names on every delta or send them late. :meth:`_Choice.resolve` turns what came into a position by fixed rules,
and each quirk it met is kept on the call as an anomaly. What is left, a fragment for a call that was never announced,
is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_toolcalls.accumulator import Assemble, ProtocolError, freeform_text, json_text
from otel_toolcalls.conventions import Anomaly, ErrorType, Violation
from otel_toolcalls.turn import Call, Result, Turn
from otel_toolcalls.wire import RequestBody
from otel_toolcalls.wire.reading import as_json, clean, field, items, names, since_last_reply

__all__ = ["OpenAIChat", "read_request"]

_LEGACY_INDEX: Final = "function_call"
"""Stands for the index of the one call that the deprecated ``function_call`` field can carry."""


class _Slot:
    """A call being streamed, as later deltas may refer to it."""

    __slots__ = ("call", "index", "open", "position", "started")

    def __init__(self, call: Call, index: object) -> None:
        self.call = call
        self.index = index
        self.position = call.position
        self.started = False
        """Arguments have begun: what its name is, is settled."""
        self.open = True


class _Choice:
    """The calls of one choice, and the rules by which a delta finds its call."""

    __slots__ = ("by_id", "by_index", "finished", "last", "number", "under_way")

    def __init__(self, number: int) -> None:
        self.number = number
        self.by_index: dict[object, _Slot] = {}
        self.by_id: dict[str, _Slot] = {}
        self.under_way: dict[object, Callable[[Any], None]] = {}
        """Calls whose arguments have begun: index → what adds a fragment to the call's buffer, while it is open."""
        self.last: _Slot | None = None
        self.finished = False

    def resolve(self, index: object, call_id: str | None, name: str | None) -> tuple[_Slot | None, list[str]]:
        """The call that a delta belongs to, or None where it announces a new one; and the quirks met on the way."""
        at_index = self.by_index.get(index) if index is not None else None
        with_id = self.by_id.get(call_id) if call_id is not None else None
        if at_index is not None and (call_id is None or call_id == at_index.call.call_id):
            renamed = name is not None and at_index.call.name not in (None, name)
            if call_id is None and renamed and at_index.started:
                return None, [Anomaly.INDEX_REUSED]
            return at_index, []
        if with_id is not None:
            again = not with_id.open and index == with_id.index and name in (None, with_id.call.name)
            if index is None or again:
                return with_id, []
            if name is None:
                return with_id, [Anomaly.INDEX_CHANGED]
            return None, [Anomaly.ID_REPEATED]
        if call_id is not None and name is not None:
            return None, [Anomaly.INDEX_REUSED] if at_index is not None else []
        if call_id is not None:
            if at_index is not None or (index is None and self.last is not None):
                slot = at_index or self.last
                return slot, [Anomaly.ID_CHANGED] if slot is not None and slot.call.call_id is not None else []
            return None, []
        last = self.last
        if index is None and last is not None and (name is None or (last.open and last.call.name is None)):
            return last, [Anomaly.INDEX_MISSING]
        return None, []


class OpenAIChat:
    """Reads one chat completion."""

    __slots__ = ("_choices", "_named", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._choices: dict[int, _Choice] = {}
        self._named = False

    def feed(self, event: Any) -> None:
        if not self._named:
            self._name(event)
        try:
            choices = event.choices
        except AttributeError:
            choices = field(event, "choices")
        if not choices:
            self._without_choices(event)
            return
        for choice in choices:
            # The hot path. Three fields are read faster from the dictionary of the SDK's model than through its class.
            try:
                fields = choice.__dict__
                number, reason, delta = fields["index"], fields["finish_reason"], fields["delta"]
                entries = delta.tool_calls
                legacy = None if entries else delta.function_call
            except (AttributeError, KeyError):
                number, reason, delta = field(choice, "index"), field(choice, "finish_reason"), field(choice, "delta")
                entries, legacy = field(delta, "tool_calls"), field(delta, "function_call")
            # Calls before the finish reason: servers send both in one chunk.
            if entries:
                self._entries(self._choice(number), entries)
            elif legacy is not None:
                self._delta(self._choice(number), _LEGACY_INDEX, None, legacy, json_text)
            if reason:
                self._finish(self._choice(number), reason)

    def _without_choices(self, event: Any) -> None:
        """Filter results come first, usage comes last; a server's error object is in neither's shape."""
        if field(event, "object") == "error":
            # A gateway may go on after it: what is still open at the end was lost to it, and no sooner.
            self._turn.error_type = ErrorType.RESPONSE_FAILED

    def _name(self, event: Any) -> None:
        self._turn.response(field(event, "id"), field(event, "model"))
        self._named = True

    def reply(self, message: Any) -> None:
        self._name(message)
        for choice in items(field(message, "choices")):
            number, said = _number(field(choice, "index")), field(choice, "message")
            entries = list(items(field(said, "tool_calls")))
            legacy = field(said, "function_call")
            if legacy is not None:
                entries.append({"function": legacy})
            for ordinal, entry in enumerate(entries):
                body, key, assemble = _body(entry)
                self._turn.announce(
                    (number, ordinal),
                    clean(field(entry, "id")),
                    clean(field(body, "name")),
                    choice=number,
                    assemble=assemble,
                )
                self._turn.close((number, ordinal), as_json(field(body, key)))
            reason = field(choice, "finish_reason")
            if isinstance(reason, str) and reason:
                self._turn.finish(reason, number)

    def _choice(self, sent: Any) -> _Choice:
        try:
            return self._choices[sent]
        except (KeyError, TypeError):
            number = _number(sent)
            return self._choices.setdefault(number, _Choice(number))

    def _entries(self, state: _Choice, entries: Any) -> None:
        for entry in entries:
            try:
                fields = entry.__dict__
                function = fields["function"]
                if fields["id"] is None and function.name is None:
                    # The common case: a further fragment of a call that is under way. Its buffer is found by the index
                    # alone, and is gone when its choice has finished.
                    piece = function.arguments
                    if piece.__class__ is str:
                        state.under_way[fields["index"]](piece)
                        continue
            except (AttributeError, KeyError, TypeError):
                pass  # no such fields, or no such call: read with more patience
            body, _, assemble = _body(entry)
            self._delta(state, field(entry, "index"), clean(field(entry, "id")), body, assemble)

    def _delta(self, state: _Choice, sent: object, call_id: str | None, body: Any, assemble: Assemble) -> None:
        """One delta of one call, whichever way it refers to it."""
        name = clean(field(body, "name"))
        piece = field(body, "input" if assemble is freeform_text else "arguments")
        index = _index(sent)
        slot, quirks = state.resolve(index, call_id, name)
        if slot is not None and not slot.open and call_id is not None:
            return  # a server that repeats a whole call after its finish
        if slot is None:
            if call_id is None and name is None:
                if piece:
                    self._unannounced(state, index)
                return
            slot = self._announce(state, sent, index, call_id, name, assemble, quirks)
            if slot is None:
                return
        else:
            self._know(state, slot, call_id, name, quirks)
        if piece is None or piece == "":
            return
        if not isinstance(piece, str):
            slot.call.note(Anomaly.ARGUMENTS_OBJECT)
            piece = as_json(piece)
        self._turn.append(slot.position, piece)
        if not slot.started:
            slot.started = True
            buffer = self._turn.accumulator.open.get(slot.position)
            if buffer is not None and state.by_index.get(slot.index) is slot:
                state.under_way[slot.index] = buffer.fragments.append

    def _announce(
        self,
        state: _Choice,
        sent: object,
        index: object,
        call_id: str | None,
        name: str | None,
        assemble: Assemble,
        quirks: list[str],
    ) -> _Slot | None:
        if index is None:
            quirks.append(Anomaly.INDEX_MISSING)
        elif not isinstance(sent, int) and sent is not _LEGACY_INDEX:
            quirks.append(Anomaly.INDEX_NOT_INTEGER)
        if call_id is None:
            quirks.append(Anomaly.ID_MISSING)
        if name is None:
            quirks.append(Anomaly.NAME_MISSING)
        if state.finished:
            quirks.append(Anomaly.AFTER_FINISH)
        call = self._turn.announce(
            (state.number, self._turn.announced),
            call_id,
            name,
            index=index if isinstance(index, int) else None,
            choice=state.number,
            assemble=assemble,
            anomalies=quirks,
        )
        if call is None:
            return None
        slot = state.last = _Slot(call, index)
        if index is not None:
            state.by_index[index] = slot
            state.under_way.pop(index, None)
        if call_id is not None:
            state.by_id.setdefault(call_id, slot)
        return slot

    def _know(self, state: _Choice, slot: _Slot, call_id: str | None, name: str | None, quirks: list[str]) -> None:
        """A further delta of a call may bring its id or name late, again, or in pieces. The first of each stands."""
        call = slot.call
        for quirk in quirks:
            call.note(quirk)
        if call_id is not None and call.call_id is None:
            state.by_id.setdefault(call_id, slot)
            self._turn.rename(call, call_id=call_id)
        if name is None or name == call.name:
            return
        if call.name is None:
            call.note(Anomaly.NAME_LATE)
            self._turn.rename(call, name=name)
        elif slot.started:
            call.note(Anomaly.NAME_CHANGED)
        else:
            call.note(Anomaly.NAME_SPLIT)
            self._turn.rename(call, name=name if name.startswith(call.name) else call.name + name)

    def _unannounced(self, state: _Choice, index: object) -> None:
        position = index if state.number == 0 else (state.number, index)
        self._turn.violated(ProtocolError(Violation.FRAGMENT_UNANNOUNCED, position, "unknown"), shown=False)

    def _finish(self, state: _Choice, reason: object) -> None:
        state.finished = True
        for slot in (*state.by_index.values(), *state.by_id.values(), state.last):
            if slot is not None:
                slot.open = False
        state.by_index.clear()
        state.under_way.clear()
        for position in [p for p, call in self._turn.calls.items() if call.choice == state.number]:
            if position in self._turn.accumulator.open:
                self._turn.close(position)
        self._turn.finish(str(reason), state.number)


def _number(index: object) -> int:
    return index if isinstance(index, int) else 0


def _index(sent: object) -> object:
    """The index as a key: an integer, also where it came as text; None where it is missing or no index at all."""
    if isinstance(sent, str) and sent.isdecimal():
        return int(sent)
    return sent if isinstance(sent, int) or sent is _LEGACY_INDEX else None


def _body(entry: Any) -> tuple[Any, str, Assemble]:
    """The part of an entry that names the tool, the field of its arguments, and what they are."""
    custom = field(entry, "custom")
    if custom is not None:
        return custom, "input", freeform_text
    return field(entry, "function"), "arguments", json_text


def read_request(body: Mapping[str, Any]) -> RequestBody:
    """wire: OpenAI chat completions, the request. Results are messages of role ``tool`` (or, once, ``function``)."""
    tail, reply = since_last_reply(body.get("messages"), lambda message: field(message, "role") == "assistant")
    results = [
        Result(clean(field(message, "tool_call_id")), clean(field(message, "name")))
        for message in tail
        if field(message, "role") in ("tool", "function")
    ]
    carried = (clean(field(entry, "id")) for entry in items(field(reply, "tool_calls")))
    return RequestBody(
        model=clean(body.get("model")),
        tools=names(body.get("tools")) | names(body.get("functions")),
        results=tuple(results),
        carried=tuple(call_id for call_id in carried if call_id),
    )
