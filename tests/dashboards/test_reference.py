"""The reference of the metrics tells of every metric and every attribute that there is."""

from __future__ import annotations

import re
from pathlib import Path

from dashboards.source import reference
from otel_toolcalls import conventions as c

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_the_page_has_every_instrument_that_the_package_makes() -> None:
    assert reference.instruments().keys() == reference.ATTRIBUTES.keys()


def test_every_attribute_of_a_metric_has_a_stated_bound() -> None:
    assert {name for names in reference.ATTRIBUTES.values() for name in names} == reference.BOUNDS.keys()


def test_no_metric_carries_an_id_or_content() -> None:
    forbidden = {c.CALL_KEY, c.TOOL_CALL_ID, c.RESPONSE_ID, c.TOOL_CALL_ARGUMENTS, c.TOOL_CALL_RESULT}
    assert not forbidden & reference.BOUNDS.keys()


def test_the_page_lists_every_value_of_every_closed_attribute() -> None:
    page = PAGE.read_text()
    for values in (c.Kind, c.Outcome, c.Match, c.SettledBy, c.LostReason, c.Violation):
        assert [value.value for value in values if not re.search(rf"`{value.value}`", page)] == []
