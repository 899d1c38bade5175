import { ratio } from './measures.ts'
import type { Rule, RuleGroup } from './rule.ts'

/** Share of intents with a failed call, and calls per intent. */
function rulesOf(level: string, by: string): Rule[] {
  const rate = (series: string) => `sum${by} (rate(breakwater_${series}[5m]))`
  return [
    {
      record: `${level}:breakwater_blast_radius:ratio_rate5m`,
      expr: ratio(rate('intents_total{outcome="failed"}'), rate('intents_total')),
    },
    {
      record: `${level}:breakwater_tcaf:ratio_rate5m`,
      expr: `${rate('intent_tool_calls_sum')} / (${rate('intent_tool_calls_count')} > 0)`,
    },
  ]
}

/** Share of tasks that were reported as failed. */
function failureOf(level: string, by: string): Rule {
  const rate = (matcher: string) => `sum${by} (rate(breakwater_intent_outcomes_total${matcher}[5m]))`
  return {
    record: `${level}:breakwater_intent_failure:ratio_rate5m`,
    expr: ratio(rate('{outcome="failed"}'), rate('')),
  }
}

/** Tasks of agents. An agent with a trace for each call makes tasks of a single call: `source` separates them. */
export const intentGroup: RuleGroup = {
  name: 'breakwater-intents',
  rules: [
    ...rulesOf('gateway', ''),
    ...rulesOf('arm', ' by (arm)'),
    failureOf('gateway', ''),
    failureOf('arm', ' by (arm)'),
    // Separates tasks with a failed call from tasks without: the latter failed for other reasons.
    failureOf('calls', ' by (calls)'),
  ],
}
