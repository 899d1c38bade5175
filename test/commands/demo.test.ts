import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { demo, type DemoResult } from '../../src/commands/compare/sim/demo.ts'
import { cleanUp, newFolder } from '../e2e/support/gateway.ts'

after(cleanUp)

async function run(...args: readonly string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await demo(args, out, {})
  return { code, lines, errors: errors.join('\n') }
}

async function file(text: string): Promise<string> {
  const path = join(await newFolder(), 'file.yaml')
  await writeFile(path, text)
  return path
}

test('two percent of failing calls fail one task in eight, and the default policies recover all of them', async () => {
  const { code, lines } = await run()
  assert.equal(code, 0)
  assert.deepEqual(lines, [
    'predicted                                                     blast_radius=0.15  = 1 - (1 - 0.02)^8',
    'no resilience   TCAF=8.0  TCSR=0.98  ETA=0.98  unchecked=1.00  blast_radius=0.12',
    'with resilience TCAF=8.0  TCSR=1.00  ETA=1.00  unchecked=0.00  blast_radius=0.00',
    '(200 tasks of 8 calls, simulated, seed 42)',
  ])
})

test('the same arguments print the same bytes, and another seed others', async () => {
  const args = ['--json', '--tasks', '50', '--rate', '0.05']
  const first = await run(...args, '--seed', '7')
  assert.deepEqual(await run(...args, '--seed', '7'), first)
  assert.notDeepEqual((await run(...args, '--seed', '8')).lines, first.lines)
  const { predicted, rows } = JSON.parse(first.lines.join('\n')) as DemoResult
  assert.equal(predicted, 0.33658)
  assert.deepEqual(
    rows.map(({ policies }) => policies),
    ['none', 'default'],
  )
  assert.ok(rows[1]!.tcaf <= 1.1 * 8)
})

test('errors that always come leave nothing, whatever the policies', async () => {
  const { lines } = await run('--rate', '1', '--tasks', '20', '--fan-out', '2')
  assert.match(lines[1]!, /TCSR=0\.00 {2}ETA=0\.00 {2}unchecked=0\.00 {2}blast_radius=1\.00$/)
  assert.match(lines[2]!, /TCSR=0\.00 .*blast_radius=1\.00$/)
})

test('a plan is simulated at its own servers and tools, instead of errors', async () => {
  const plan = await file(
    'faults: [{ name: down, type: http.status, rate: 1, status: 503, ttl: 1h, match: { server: search, tool: find } }]',
  )
  const { lines } = await run('--plan', plan, '--json', '--tasks', '10', '--fan-out', '5')
  const { predicted, rows } = JSON.parse(lines.join('\n')) as DemoResult
  assert.equal(predicted, null)
  // One tool of five fails at each call.
  assert.equal(rows[0]?.tcsr, 0.8)
  assert.equal(rows[0]?.blastRadius, 1)
})

test('a fault without hits is reported, and without any hits nothing else is shown', async () => {
  const written = (rates: string) => `faults:
  - { name: errors, type: rpc.error, ${rates}, ttl: 1h }
  - { name: astray, type: rpc.error, rate: 1, ttl: 1h, match: { server: "other-*" } }
  - { name: kill, type: proc.kill, rate: 1, ttl: 1h }
`
  const plan = await file(written('rate: 0.5'))
  const some = await run('--plan', plan, '--tasks', '10')
  assert.equal(some.code, 0)
  assert.match(some.errors, /^breakwater: astray of .* hit no call: no call matches it$/m)
  assert.match(some.errors, /^breakwater: kill of .* hit no call: .*process/m)
  assert.doesNotMatch(some.errors, /errors of/)
  const late = await file(written('rate: 1, when: { afterCalls: 10000 }'))
  const none = await run('--plan', late, '--tasks', '10')
  assert.deepEqual([none.code, none.lines], [1, []])
  assert.match(none.errors, /no fault of .* hit a call:\n.* errors: it was drawn for no call\n.* astray: /)
})

test('the faults of a plan stay armed for as long as the simulation takes', async () => {
  const shown = async (ttl: string) => {
    const plan = await file(`faults: [{ name: errors, type: rpc.error, rate: 0.5, ttl: ${ttl} }]`)
    return (await run('--plan', plan, '--json')).lines
  }
  assert.deepEqual(await shown('1s'), await shown('1h'))
})

test('servers and tools may have names that objects have, too', async () => {
  const plan = await file(
    'faults: [{ name: down, type: http.status, rate: 1, status: 503, ttl: 1h, match: { server: constructor, tool: __proto__ } }]',
  )
  const { lines } = await run('--plan', plan, '--json', '--tasks', '10', '--fan-out', '5')
  assert.equal((JSON.parse(lines.join('\n')) as DemoResult).rows[0]?.tcsr, 0.8)
})

test('policies of a file are simulated, by the name of their set', async () => {
  const policies = await file('policies: { defaults: {}, sets: { careless: { retry: false } } }')
  const { lines } = await run('--policies', policies, '--set', 'careless', '--json')
  const { rows } = JSON.parse(lines.join('\n')) as DemoResult
  assert.equal(rows[1]?.policies, 'careless')
  assert.equal(rows[1]?.blastRadius, rows[0]?.blastRadius, 'no agent retries')
})

test('a config that cannot be simulated is refused in words', async () => {
  const bad: readonly (readonly [args: readonly string[], code: number, said: RegExp])[] = [
    [['--tasks', '0'], 2, /--tasks must be a whole number from 1 to 100000, not "0"/],
    [['--seed', '9'.repeat(400)], 2, /--seed must be a whole number/],
    [['--seed', '9007199254740992'], 2, /--seed must be a whole number/],
    [['--rate', '1.5'], 2, /--rate must be a number from 0 to 1/],
    [['--tasks', '100000', '--fan-out', '1000'], 1, /more than 10000000 calls/],
    [['--plan', '/nowhere/plan.yaml'], 1, /plan\.yaml/],
    [['--set', 'cautious'], 1, /name its file with --policies or --config/],
    [
      ['--policies', await file('policies: { sets: { cautious: {} } }'), '--set', 'cautios'],
      1,
      /did you mean cautious/,
    ],
    [
      ['--policies', await file('defaults: { retry: { maxRetries: many } }')],
      1,
      /file\.yaml:1:\d+ .*maxRetries/,
    ],
    [
      ['--plan', await file('faults: [{ name: kill, type: proc.kill, rate: 1, ttl: 1m }]')],
      1,
      /no fault of .* can be simulated:\n.*kill: /,
    ],
  ]
  for (const [args, code, said] of bad) {
    const result = await run(...args)
    assert.equal(result.code, code, args.join(' '))
    assert.match(result.errors, said)
  }
})
