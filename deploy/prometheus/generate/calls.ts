import { levels, ratio, replies, type Level } from './measures.ts'
import type { Rule, RuleGroup } from './rule.ts'

const CALLS = 'breakwater_tool_call_verdicts_total'

/** Kinds of calls. TCSR counts rejections by the gateway, because agents feel rejections; ETA is about tools alone. */
const calls = {
  felt: 'outcome!~"caller_error|cancelled"',
  eligible: 'outcome!~"caller_error|cancelled|rejected"',
  ...replies,
} as const

function ratesBy(by: string) {
  return (share: keyof typeof calls) => `sum by (${by}) (rate(${CALLS}{${calls[share]}}[5m]))`
}

function ratiosOf({ name, by }: Level): Rule[] {
  const of = ratesBy(by)
  const record = (measure: string) => `${name}:breakwater_${measure}:ratio_rate5m`
  return [
    { record: record('call_availability'), expr: ratio(of('returned'), of('eligible')) },
    { record: record('call_correctness'), expr: ratio(of('good'), of('returned')) },
    { record: record('call_eta'), expr: ratio(of('good'), of('eligible')) },
    { record: record('call_unchecked'), expr: ratio(of('unchecked'), of('returned')) },
    { record: record('tcsr'), expr: ratio(of('good'), of('felt')) },
  ]
}

/** Attempts per call at its server; 1 without retries and hedges. */
const amplificationOf = ({ name, by }: Level): Rule => ({
  record: `${name}:breakwater_amplification:ratio_rate5m`,
  expr:
    `sum by (${by}) (rate(breakwater_upstream_attempts_total[5m])) / ` +
    `(sum by (${by}) (rate(breakwater_tool_calls_total{result!="rejected"}[5m])) > 0)`,
})

const server: Level = { name: 'server', by: 'server' }

/** The arm of an experiment; empty for calls without an arm. */
const arm: Level = { name: 'arm', by: 'arm' }

/** Calls with their outcomes for agents: after retries, hedges and fallbacks. */
export const callGroup: RuleGroup = {
  name: 'breakwater-calls',
  rules: [...[...levels, arm].flatMap(ratiosOf), ...[server, arm].map(amplificationOf)],
}
