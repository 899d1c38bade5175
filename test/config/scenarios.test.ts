import assert from 'node:assert/strict'
import { test } from 'node:test'
import { faults as types } from '../../src/chaos/faults/index.ts'
import { targetFindings } from '../../src/chaos/plan/checks.ts'
import { chaos } from '../../src/chaos/plan/schema.ts'
import {
  aimed,
  readScenario,
  scenarioNames,
  SERVER_PLACEHOLDER,
} from '../../src/commands/break/scenario/library.ts'
import { policies } from '../../src/policies/index.ts'
import { readRuntimeFault } from '../../src/routes/chaos.ts'

const names = await scenarioNames('config/scenarios')

/** A fault as in a plan, aimed at a server. */
function planned(fault: Readonly<Record<string, unknown>>, server: string) {
  const match = fault.match as Readonly<Record<string, unknown>>
  assert.equal(match.server, SERVER_PLACEHOLDER, 'every fault can be aimed')
  return { ...fault, match: { ...match, server } }
}

test('the library has all promised scenarios', () => {
  assert.deepEqual(names, [
    'cascading',
    'dependency-down',
    'dependency-slow',
    'dependency-then-outage',
    'flapping-server',
    'hang',
    'head-of-line',
    'malformed-replies',
    'outage-and-recovery',
    'rate-limited',
    'retry-storm',
    'schema-drift',
    'servers-down',
    'slow-long-tail',
    'token-expired',
    'truncated-logs',
    'upstream-503',
  ])
})

for (const name of names) {
  test(`${name}: its faults fit into a plan, and can hit all servers behind HTTP`, async () => {
    const read = await readScenario(name, 'config/scenarios')
    assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
    const { scenario } = read
    assert.equal(scenario.name, name)
    const parsed = chaos.safeParse({ faults: scenario.faults.map((fault) => planned(fault, 'search*')) })
    assert.ok(parsed.success, parsed.error?.message)
    const targets = [{ name: 'search-1', kind: { transport: 'http', era: undefined } }] as const
    assert.deepEqual(targetFindings(parsed.data.faults, { servers: targets, arms: [] }, types), [])
  })

  test(`${name}: the runtime API accepts its faults, for longer than the run`, async () => {
    const read = await readScenario(name, 'config/scenarios')
    assert.ok(read.ok)
    for (const fault of read.scenario.faults) {
      const { target, config } = aimed(fault, { server: 'search*', allowWrites: false })
      const body = { target, config, durationMs: 60_000 }
      const taken = readRuntimeFault(JSON.parse(JSON.stringify(body)), {
        name: 'fault-1',
        maxTtl: 3_600_000,
        aliases: {},
        targets: undefined,
      })
      assert.ok(taken.ok, taken.ok ? '' : JSON.stringify(taken.findings))
      assert.equal(taken.value.fault.match?.server, 'search*')
      assert.equal(taken.value.fault.type, fault.type)
    }
    const longest = Math.max(...read.scenario.faults.map(({ ttl }) => Number.parseInt(String(ttl)) * 60_000))
    assert.ok(read.scenario.duration < longest)
  })

  test(`${name}: its expectations name an existing policy`, async () => {
    const read = await readScenario(name, 'config/scenarios')
    assert.ok(read.ok)
    const named = (read.scenario.expect ?? []).flatMap((sentence) => /^(\w+)[:,]/.exec(sentence)?.[1] ?? [])
    assert.ok(named.some((word) => word in policies))
  })
}
