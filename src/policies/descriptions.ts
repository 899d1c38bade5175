import type { Decision, Fact } from '../mesh/record.ts'
import type { MetricSpec } from '../mesh/metric-spec.ts'
import type { Outcome } from '../mesh/call.ts'
import type { EventType, Operator, Policy, StateKind } from '../mesh/policy.ts'
import { policies } from './index.ts'

/** The descriptions of all policies, in their order, for code that explains calls and states. */

type Described = Omit<Policy<never>, 'schema' | 'build'>

const described: readonly (readonly [name: string, policy: Described])[] = Object.entries(policies)

export interface OwnedFact {
  readonly policy: string
  readonly fact: Fact
}

export const facts: readonly OwnedFact[] = described.flatMap(([policy, own]) =>
  (own.facts ?? []).map((fact) => ({ policy, fact })),
)

/** Policies that can read their own decision from an outcome. */
export const deciders: readonly (readonly [
  policy: string,
  decisionIn: (outcome: Outcome) => Decision | undefined,
])[] = described.flatMap(([policy, own]) =>
  own.decisionIn === undefined ? [] : [[policy, (outcome: Outcome) => own.decisionIn?.(outcome)] as const],
)

export const events: ReadonlyMap<string, EventType> = new Map(
  described.flatMap(([, own]) => Object.entries(own.events ?? {})),
)

export const states: readonly StateKind[] = [...new Set(described.flatMap(([, own]) => own.states ?? []))]

export const operators: readonly (readonly [policy: string, operator: Operator])[] = described.flatMap(
  ([policy, own]) => (own.operator === undefined ? [] : [[policy, own.operator] as const]),
)

export const policyMetrics: readonly MetricSpec[] = [
  ...new Set([
    ...facts.flatMap(({ fact }) => fact.telemetry.counting?.metric ?? []),
    ...[...events.values()].flatMap(({ counter }) => counter ?? []),
    ...states.flatMap(({ gauge }) => gauge?.metric ?? []),
  ]),
]
