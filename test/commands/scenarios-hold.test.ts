import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readScenario, type Scenario, scenarioNames } from '../../src/commands/scenario/library.ts'
import { simulatedScenario } from './scenario-simulation.ts'

async function scenarioNamed(name: string): Promise<Scenario> {
  const read = await readScenario(name)
  assert.ok(read.ok)
  return read.scenario
}

/** What does not hold, with what was measured. */
async function missed(scenario: Scenario, policies?: object): Promise<string[]> {
  const checks = await simulatedScenario(scenario, policies)
  return checks
    .filter(({ verdict }) => verdict !== 'pass')
    .map(({ name, measured }) => `${name}: ${measured}`)
}

for (const name of await scenarioNames())
  test(`under the default policies ${name} passes with every bound in time, as long as it says`, async () => {
    assert.deepEqual(await missed(await scenarioNamed(name)), [])
  })

/** Which scenarios do not pass without a policy. */
const asksFor = {
  breaker: [
    'cascading',
    'dependency-then-outage',
    'flapping-server',
    'malformed-replies',
    'outage-and-recovery',
    'retry-storm',
    'schema-drift',
    'servers-down',
    'upstream-503',
  ],
  bulkhead: ['hang', 'head-of-line'],
  retry: ['malformed-replies', 'rate-limited', 'retry-storm'],
}

for (const [policy, wanted] of Object.entries(asksFor))
  test(`without ${policy} those that ask for it fail, and no other`, async () => {
    const failing: string[] = []
    for (const name of await scenarioNames()) {
      const problems = await missed(await scenarioNamed(name), { defaults: { [policy]: false } })
      if (problems.length > 0) failing.push(name)
    }
    assert.deepEqual(failing, wanted)
  })

test('what holds calls up for longer than a bound allows fails, also where it is others that must not notice', async () => {
  const slow = await scenarioNamed('dependency-slow')
  const everywhere = slow.faults.map((fault) => ({ ...fault, match: { method: 'tools/call', server: '*' } }))
  assert.match(
    (await missed({ ...slow, faults: everywhere })).join(),
    /^other servers, .*p95 of calls: at most 1s: /,
  )
  const hurried = await missed(slow, { defaults: { deadline: { total: '500ms' } } })
  assert.match(hurried.join(), /p95 of calls: at least 2s, at most 5s: 500ms/)
})
