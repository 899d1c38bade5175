import { z } from 'zod'
import { type PolicyReason, reasons, stableCode } from '../../src/mesh/errors.ts'
import type { FaultRegistry } from '../../src/chaos/faults/index.ts'
import type { MetricSpec } from '../../src/mesh/metric-spec.ts'
import type { Policy } from '../../src/mesh/policy.ts'
import { blocks, code, fieldTable, list, type Pages, table } from './markdown.ts'

/** The policies of the pages, by their names in a config, outermost first. */
export type Policies = Readonly<Record<string, Omit<Policy<unknown>, 'build'>>>

/** Returns `docs/policies.md` and the pages below it, from the policies' descriptions. */
export function policyPages(policies: Policies, faults: FaultRegistry): Pages {
  const entries = Object.entries(policies)
  return {
    'policies.md': blocks(
      '# Policies',
      'Every resilience policy, outermost first. `npm run docs` writes this page, and one for each policy, from the modules in `src/policies`.',
      'A call passes the policies in this order, and its outcome passes them in reverse. Policies that are not opt-in are in force unless a config says `false`. [config/resilience.yaml](../config/resilience.yaml) has all of them with comments; [how it works](how-it-works.md) explains how they work together.',
      table(
        ['Policy', 'In force', 'What it does'],
        entries.map(([name, policy]) => [
          `[\`${name}\`](policies/${name}.md)`,
          policy.optIn === true ? 'where a config names it' : 'by default',
          firstSentence(policy),
        ]),
      ),
      '## Reasons known everywhere',
      'Policies and the upstream connection also end calls for these reasons. `retryable` in the data of an error says whether the same call may succeed later. For a call that may have run (`sent`), `retryable` is false unless its tool is known to do no harm twice, or the server refused the call.',
      reasonTable(Object.entries(reasons).map(([name, facts]) => ({ name, ...facts }))),
    ),
    ...Object.fromEntries(
      entries.map(([name, policy]) => [`policies/${name}.md`, policyPage(name, policy, faults)]),
    ),
  }
}

/** Returns a policy's own metrics. */
export function metricsOf({ facts = [], events = {}, states = [] }: Policies[string]): readonly MetricSpec[] {
  const metrics = [
    ...facts.flatMap(({ telemetry }) => telemetry.counting?.metric ?? []),
    ...Object.values(events).flatMap(({ counter }) => counter ?? []),
    ...states.flatMap(({ gauge }) => gauge?.metric ?? []),
  ]
  return [...new Map(metrics.map((metric) => [metric.name, metric])).values()]
}

function reasonTable(told: readonly PolicyReason[]): string {
  const rows = told.map(({ name, code: number, retryable, about }) => [
    `\`${stableCode(name)}\``,
    String(number),
    retryable ? 'may succeed' : 'will not',
    about,
  ])
  return table(['Code', 'JSON-RPC', 'Same call later', 'Meaning'], rows)
}

function policyPage(name: string, policy: Policies[string], faults: FaultRegistry): string {
  const { optIn, perAttempt, reasons: own = [], facts = [], events = {}, states = [], operator } = policy
  const metrics = metricsOf(policy)
  const contained = Object.entries(faults).filter(([, type]) => type.containedBy.policies.includes(name))
  return blocks(
    `# \`${name}\``,
    aboutOf(policy),
    list([
      optIn === true ? 'In force only where a config names it.' : 'In force unless a config says `false`.',
      ...(perAttempt === true
        ? ['Applies to single attempts: calls rejected by a breaker never get here.']
        : []),
    ]),
    '## When to use it',
    policy.use,
    '## Settings',
    fieldTable(objectOf(policy)),
    ...(own.length === 0
      ? []
      : ['## The view of the agent', 'The policy ends calls for these reasons:', reasonTable(own)]),
    ...(facts.length === 0
      ? []
      : [
          '## Notes on calls',
          table(
            ['Access log', 'Span attribute', 'Metric', 'Meaning'],
            facts.map(({ telemetry: { log, attribute, counting, about } }) => [
              `\`${log}\``,
              attribute === undefined ? '' : `\`${attribute}\``,
              counting === undefined ? '' : `\`${counting.metric.name}\``,
              about,
            ]),
          ),
        ]),
    ...(Object.keys(events).length === 0
      ? []
      : [
          '## Events',
          'The policy reports these events, in the log and in `breakwater_policy_events_total`:',
          list(Object.entries(events).map(([type, { about }]) => `\`${type}\`: ${about}`)),
        ]),
    ...(metrics.length === 0
      ? []
      : [
          '## Metrics',
          table(
            ['Metric', 'Type', 'Labels', 'Meaning'],
            metrics.map((metric) => [
              `\`${metric.name}\``,
              metric.type,
              code([...metric.labels]),
              metric.help,
            ]),
          ),
        ]),
    ...(states.some(({ isBudget }) => isBudget === true)
      ? ['`/admin/budgets` shows how much of its limits is still free.']
      : []),
    ...(operator === undefined
      ? []
      : [
          '## By hand',
          `\`GET /admin/${operator.path}\` lists its states, and \`POST /admin/${operator.path}/{server}/{tool}\` with \`{"action": "${operator.actions.join('|')}"}\` changes them. Manual changes stay in force over reloads.`,
        ]),
    ...(contained.length === 0
      ? []
      : [
          '## Faults that it contains',
          list(contained.map(([type, { about }]) => `[\`${type}\`](../faults/${type}.md): ${about}`)),
        ]),
    '[All policies](../policies.md)',
  )
}

/** Returns the settings of a policy; every policy has an object of them. */
function objectOf({ schema }: Policies[string]): z.ZodObject {
  if (schema instanceof z.ZodObject) return schema
  throw new TypeError('the settings of a policy are an object')
}

const aboutOf = (policy: Policies[string]): string => objectOf(policy).description ?? ''

const firstSentence = (policy: Policies[string]): string => /^.*?\.(?= |$)/.exec(aboutOf(policy))?.[0] ?? ''
