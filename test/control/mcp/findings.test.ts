import assert from 'node:assert/strict'
import { test } from 'node:test'
import { findingsIn } from '../../../src/control/mcp/findings.ts'
import type { RunRow } from '../../../src/control/mcp/run-history.ts'
import type { Operations } from '../../../src/control/mcp/tool.ts'
import { config } from '../../../src/config/schema/schema.ts'
import { configHash } from '../../../src/config/hash.ts'
import { experimentSpec } from '../../../src/gateway/guarded/spec.ts'
import type { Finding } from '../../../src/sim/search/findings.ts'
import type { Gene } from '../../../src/sim/search/plan-space.ts'
import { inJson, reportIn } from '../../../src/sim/search/report.ts'
import type { SearchResult } from '../../../src/sim/search/search.ts'
import { measuredBy, type Slo } from '../../../src/sim/search/slo.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const tcsr: Slo = { sli: 'tcsr', target: 0.99 }
const here = config.parse({})

const geneOf = (more: Partial<Gene> = {}): Gene => ({
  type: 'rpc.error',
  match: {},
  rate: 0.1,
  when: {},
  options: {},
  ...more,
})

const findingOf = (values: readonly number[], ...plan: Gene[]) => ({ values, plan })

/** Returns the report of a search, as its command writes the report. */
function reportOf(findings: readonly ReturnType<typeof findingOf>[], slo = tcsr, more: object = {}) {
  const told = findings.map(({ values, plan }): Finding => {
    const confirmed = measuredBy(slo, values)
    return {
      found: plan,
      foundWith: confirmed,
      plan,
      searched: confirmed,
      checked: confirmed,
      confirmed,
      containedBy: ['retry: {"maxRetries":2}'],
    }
  })
  const options = { policies: configHash(here.policies), set: 'none', tools: 'a/read,b/read', seed: 7 }
  const text = inJson({ findings: told } as unknown as SearchResult, slo, { ...options, ...more })
  return reportIn(JSON.parse(text))!
}

function operationsOf(
  reports: readonly ReturnType<typeof reportOf>[],
  { perMinute = 600, runs = [] as Partial<RunRow>[], refusals = [] as string[] } = {},
): Operations {
  const server = (name: string, isProtected = false) => ({
    name,
    protected: isProtected,
    entries: () => [{ key: 'read' }],
  })
  const servers = new Map(
    [server('a'), server('b'), server('safe', true)].map((one) => [one.name, one] as const),
  )
  return {
    clock: new ManualClock(),
    plans: { reports: () => Promise.resolve(reports) },
    history: { list: () => runs },
    live: { current: { servers, config: here } },
    // The server b has more calls than the server a.
    traffic: {
      of: (isMeant: (server: string, tool: string) => boolean) =>
        isMeant('b', 'read')
          ? { perMinute }
          : isMeant('a', 'read')
            ? { perMinute: perMinute / 2 }
            : undefined,
    },
    guarded: { plan: () => ({ refusals }) },
    spec: experimentSpec,
  } as unknown as Operations
}

test('findings come with the smallest violation first, and each has a spec at its server', async () => {
  const report = reportOf([
    findingOf([0.97, 0.98], geneOf({ match: { server: 'a', tool: 'read' } })),
    findingOf([0.984, 0.986], geneOf({ type: 'result.empty' })),
  ])
  const { suggestions, unfit } = await findingsIn(operationsOf([report]), undefined)
  assert.equal(unfit, 0)
  assert.deepEqual(
    suggestions.map(({ kind, server, family, n }) => [kind, server, family, n]),
    [
      ['finding', 'b', 'result', 2],
      ['finding', 'a', 'rpc', 2],
    ],
  )
  const [everywhere, named] = suggestions
  assert.equal(
    everywhere!.reason,
    "a simulation found result.empty at 10 % of all calls: tcsr 98.5 % ± 0.1 %, 50 % over the SLO's allowance (tcsr ≥ 99 %); 2 runs, seed 7; simulated at 2 servers, and the spec hits one; about 6 hits in the stage",
  )
  assert.deepEqual(everywhere!.containedBy, ['retry: {"maxRetries":2}'])
  const spec = experimentSpec.parse(named!.spec)
  assert.deepEqual(spec.targets, { server: 'a' })
  assert.deepEqual(
    spec.faults.map(({ name, type, rate, match, maxConcurrent }) => [name, type, rate, match, maxConcurrent]),
    [['rpc.error', 'rpc.error', 0.1, { tool: 'read' }, 16]],
  )
  assert.deepEqual(
    spec.hypothesis.steadyState.map(({ text }) => text),
    ['error_ratio <= 1%'],
  )
  // 5 hits at 10% of 300 calls a minute and a rate of 10% take 2 minutes.
  assert.deepEqual(spec.stages, [{ share: 0.1, duration: 120_000 }])
  const ofA = await findingsIn(operationsOf([report]), 'a')
  assert.deepEqual(
    ofA.suggestions.map(({ server }) => server),
    ['a', 'a'],
  )
})

test('a reason names each difference between the simulation and the spec', async () => {
  const report = reportOf(
    [
      findingOf(
        [320, 330],
        geneOf({
          match: { server: 'a' },
          when: { window: { from: 10, to: 900 }, burst: { meanLength: 4, per: 'call' } },
        }),
      ),
    ],
    { sli: 'p95', target: 300 },
    { set: 'eager' },
  )
  const { suggestions } = await findingsIn(operationsOf([report], { perMinute: 0 }), undefined)
  assert.match(
    suggestions[0]!.reason,
    /; simulated under other policies than the default set here; the simulation limited the faults to a time window; the spec injects during the whole stage; no recent traffic$/,
  )
  const spec = experimentSpec.parse(suggestions[0]!.spec)
  assert.deepEqual(spec.faults[0]!.when, { burst: { meanLength: 4, per: 'call', slot: 1_000 } })
  assert.equal(spec.hypothesis.steadyState[0]!.text, 'p95 <= 300ms')
})

test('findings that no experiment here can have are left out, and counted', async () => {
  const values = [0.984, 0.986]
  const report = reportOf([
    findingOf(values, geneOf({ match: { server: 'elsewhere' } })),
    findingOf(values, geneOf({ match: { server: 'safe' } })),
    findingOf(values, geneOf({ match: { server: 'a', tool: 'other' } })),
    findingOf(
      values,
      geneOf({ match: { server: 'a' } }),
      geneOf({ type: 'limit.429', match: { server: 'b' } }),
    ),
  ])
  assert.deepEqual(await findingsIn(operationsOf([report]), undefined), { suggestions: [], unfit: 4 })
})

test('a completed run with all fault types of a finding at its server ends the suggestion', async () => {
  const plan = [geneOf({ match: { server: 'a' } }), geneOf({ type: 'limit.429', match: { server: 'a' } })]
  const report = reportOf([findingOf([0.984, 0.986], ...plan)])
  const run = { state: 'completed', requestedAt: '2100-01-01', injected: 9, servers: ['a'] }
  const countWith = async (runs: Partial<RunRow>[]) =>
    (await findingsIn(operationsOf([report], { runs }), undefined)).suggestions.length
  assert.equal(await countWith([{ ...run, faults: ['rpc.error', 'limit.429'] }]), 0)
  assert.equal(await countWith([{ ...run, faults: ['rpc.error'] }]), 1)
  assert.equal(await countWith([{ ...run, faults: ['rpc.error', 'limit.429'], injected: 0 }]), 1)
  assert.equal(await countWith([{ ...run, faults: ['rpc.error', 'limit.429'], servers: ['b'] }]), 1)
})

test('another value than a report of a search is no report', () => {
  for (const value of [undefined, [], { findings: [] }, { name: 'drill', faults: [] }])
    assert.equal(reportIn(value), undefined)
})

test('a finding whose fault cannot act at the server is unfit, and a finding refused for now is not', async () => {
  const report = reportOf([findingOf([0.5, 0.5, 0.5, 0.5], geneOf())])
  const found = (refusals: string[]) => findingsIn(operationsOf([report], { refusals }), undefined)
  const now = await found(['experiment "other" is running: only one runs at a time'])
  assert.deepEqual([now.suggestions.length, now.unfit], [1, 0])
  const never = await found(['faults[0].type: conn.reset cannot act on a stdio server'])
  assert.deepEqual([never.suggestions.length, never.unfit], [0, 1])
})
