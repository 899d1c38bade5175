import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readScenario, type Scenario, scenarioNames } from '../../src/commands/break/scenario/library.ts'
import { simulatedScenario } from './scenario-simulation.ts'

async function scenarioNamed(name: string): Promise<Scenario> {
  const read = await readScenario(name)
  assert.ok(read.ok)
  return read.scenario
}

const names = await scenarioNames()
const scenarios = await Promise.all(names.map(scenarioNamed))

/** For each policy, the scenarios that fail without the policy. */
const asksFor = {
  gate: ['cascading', 'flapping-server', 'servers-down'],
  overdue: ['hang'],
  retry: [
    'cascading',
    'dependency-then-outage',
    'flapping-server',
    'malformed-replies',
    'outage-and-recovery',
    'rate-limited',
    'retry-storm',
    'servers-down',
    'upstream-503',
  ],
  bulkhead: ['hang'],
  verdict: ['schema-drift'],
}

// Outside of tests: within a test, each promise of a simulation costs several times as much.
const missedByDefault = new Map<string, readonly string[]>()
for (const scenario of scenarios) missedByDefault.set(scenario.name, await simulatedScenario(scenario))
const failingWithout = new Map<string, string[]>()
for (const policy of Object.keys(asksFor)) {
  const failing: string[] = []
  for (const scenario of scenarios)
    if ((await simulatedScenario(scenario, { defaults: { [policy]: false } })).length > 0)
      failing.push(scenario.name)
  failingWithout.set(policy, failing)
}

for (const name of names)
  test(`${name} passes under the default policies with every bound in time, for its full length`, () => {
    assert.deepEqual(missedByDefault.get(name), [])
  })

for (const [policy, wanted] of Object.entries(asksFor))
  test(`only the scenarios that need ${policy} fail without it`, () => {
    assert.deepEqual(failingWithout.get(policy), wanted)
  })

test('servers that are down are tried too often where neither gates nor budgets bound the tries', async () => {
  const retry = {
    waitForProof: false,
    budget: { ratio: 1, floor: 1_000, concurrency: 1, leastConcurrent: 1_000 },
  }
  const missed = await simulatedScenario(await scenarioNamed('servers-down'), {
    defaults: { gate: false, retry },
  })
  assert.match(missed.join('\n'), /^attempts per call: at most 2: [3-5]\./m)
})

test('a scenario fails when calls take longer than a bound allows, even calls of servers without a fault', async () => {
  const slow = await scenarioNamed('dependency-slow')
  const everywhere = slow.faults.map((fault) => ({ ...fault, match: { method: 'tools/call', server: '*' } }))
  assert.match(
    (await simulatedScenario({ ...slow, faults: everywhere })).join(),
    /^other servers, .*p95 of calls: at most 1s: /,
  )
  const hurried = await simulatedScenario(slow, { defaults: { deadline: { total: '500ms' } } })
  assert.match(hurried.join(), /p95 of calls: at least 2s, at most 5s: 500ms/)
})
