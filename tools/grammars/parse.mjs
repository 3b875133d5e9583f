// Parse queries with the grammars that Prometheus' and Grafana's own editors use.
// In: a JSON list of {language: "promql" | "traceql", query} on standard input. Out: the same list with `error`, the text
// at the first place where the grammar failed, or null.
import { readFileSync } from 'node:fs';
import { parser as promql } from '@prometheus-io/lezer-promql';
import { parser as traceql } from '@grafana/lezer-traceql';

const parsers = { promql, traceql };

function firstError({ language, query }) {
  let error = null;
  parsers[language].parse(query).iterate({
    enter(node) {
      if (node.type.isError && error === null) error = query.slice(node.from, node.from + 40) || '(end)';
    },
  });
  return error;
}

const queries = JSON.parse(readFileSync(0, 'utf8'));
console.log(JSON.stringify(queries.map((one) => ({ ...one, error: firstError(one) }))));
