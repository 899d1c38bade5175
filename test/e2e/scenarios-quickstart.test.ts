import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { parse } from 'yaml'
import { canHit, readScenario, scenarioNames } from '../../src/commands/break/scenario/library.ts'
import { parseXml } from '../commands/xml.ts'
import { cleanUp, Gateway, type Json, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { assertionsIn } from './support/scenario-lines.ts'
import { main } from '../support/main.ts'

/** Scenarios in sequence, at a server of the quickstart or at a second process of it. */
const lanes: Readonly<Record<string, readonly string[]>> = {
  memory: ['schema-drift', 'dependency-down'],
  'memory-2': ['slow-long-tail', 'retry-storm'],
  everything: ['truncated-logs', 'hang'],
  'everything-2': ['head-of-line', 'flapping-server'],
  filesystem: ['cascading'],
  'filesystem-2': ['dependency-slow', 'servers-down'],
}

/** Duration of the faults: the longest needs this long for all of its effects. */
const DURATION = '9s'

let gateway: Gateway

before(async () => {
  const { mcpServers, policies, chaos } = parse(await readFile('config/gateway.yaml', 'utf8')) as {
    mcpServers: Record<string, Json>
    policies: Json
    chaos: Json
  }
  // A second copy of a server, free of faults.
  const servers: Record<string, Json> = { witness: mcpServers.everything! }
  for (const lane of Object.keys(lanes)) {
    const entry = mcpServers[lane.replace(/-2$/, '')]!
    const env = { MEMORY_FILE_PATH: join(await newFolder(), 'memory.jsonl') }
    servers[lane] = lane.startsWith('memory') ? { ...entry, env } : entry
  }
  gateway = await Gateway.start({ gateway: { environment: 'development' }, servers, policies, chaos })
  await gateway.waitFor('up', ...Object.keys(servers))
})
after(cleanUp)

test(
  "scenarios for stdio servers pass all assertions without a clock at the quickstart's servers and policies",
  { concurrency: 6 },
  async (t) => {
    const names = await scenarioNames()
    const overStdio: string[] = []
    for (const name of names) {
      const read = await readScenario(name)
      if (read.ok && canHit(read.scenario, 'stdio')) overStdio.push(name)
    }
    assert.deepEqual(Object.values(lanes).flat().sort(), overStdio, 'a lane has every scenario over stdio')
    const folder = await newFolder()
    await Promise.all(
      Object.entries(lanes).map(([server, scenarios]) =>
        t.test(`at ${server}: ${scenarios.join(', ')}`, async () => {
          const file = join(folder, `${server}.xml`)
          const where = ['--control', gateway.control, '--data', gateway.data]
          const aim = ['--server', server, '--others', 'witness', '--duration', DURATION, '--junit', file]
          const args = [main, 'scenario', 'run', ...scenarios, ...aim, ...where]
          const program = new Program(args, { env: { BREAKWATER_TOKEN: gateway.token } })
          const { code } = await program.ended
          const said = program.lines.join('\n')
          const { all, missed, counted } = assertionsIn(program.lines)
          assert.ok(all >= 3 * scenarios.length, said)
          assert.deepEqual(counted, [], said)
          assert.equal(code === 0, missed === 0, said)
          const suites = parseXml(await readFile(file, 'utf8'))
          assert.deepEqual(
            suites.children.map(({ attributes }) => attributes.name),
            scenarios,
          )
          const { failures, errors, skipped } = suites.attributes
          assert.deepEqual([Number(failures) + Number(errors), skipped], [missed, '0'], said)
        }),
      ),
    )
  },
)

test('no fault of the scenarios stays armed', async () => {
  const { faults } = (await gateway.admin<{ faults: unknown[] }>('/chaos/status')).body
  assert.deepEqual(faults, [])
})
