"""The way for very many machines: collectors write to Kafka, other collectors read from it into ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from dashboards.account import FORMAT
from tests.e2e.backends import Jaeger, eventually
from tests.e2e.fleet.programs import DASHBOARDS, ClickHouse, Collector, kafka
from tests.e2e.fleet.traffic import send

BASE, FLEET, TO_KAFKA, FROM_KAFKA = (
    DASHBOARDS / "collector" / f"{name}.yaml" for name in ("collector", "fleet", "to-kafka", "from-kafka")
)


@dataclass(frozen=True, slots=True)
class Fleet:
    outer: Collector
    clickhouse: ClickHouse


@pytest.fixture(scope="module")
def fleet(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An outer collector that writes to Kafka, an inner one between Kafka and ClickHouse."""
    folder = tmp_path_factory.mktemp("kafka")
    to_jaeger = jaeger.otlp_grpc.removeprefix("http://")
    with (
        ClickHouse.started(folder / "clickhouse.log") as clickhouse,
        kafka(folder / "kafka") as broker,
        Collector.started(
            folder / "outer.log",
            to_jaeger=to_jaeger,
            configurations=[BASE, FLEET, TO_KAFKA],
            env={"COLLECTOR_TO_KAFKA": broker},
        ) as outer,
        Collector.started(
            folder / "inner.log",
            to_jaeger=to_jaeger,
            configurations=[BASE, FLEET, FROM_KAFKA],
            env={"COLLECTOR_TO_CLICKHOUSE": f"{clickhouse.url}?compress=none", "COLLECTOR_FROM_KAFKA": broker},
        ),
    ):
        yield Fleet(outer, clickhouse)


def test_a_lost_call_reaches_the_account_by_way_of_kafka(fleet: Fleet) -> None:
    trace_id = send(fleet.outer.otlp_grpc)
    now = datetime.now(timezone.utc)
    window = {
        "since": (now - timedelta(hours=1)).strftime(FORMAT),
        "until": (now + timedelta(hours=1)).strftime(FORMAT),
    }
    (row,) = eventually(
        lambda: fleet.clickhouse.rows("lost_calls.sql", **window), seconds=60, what="the lost call in the account"
    )
    assert (row["Key"], row["Reason"], row["Trace"]) == ("lost", "deadline", trace_id)
