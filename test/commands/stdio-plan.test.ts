import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { readPlan } from '../../src/commands/run/plan-file.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-plan-'))
after(() => rm(folder, { recursive: true }))

async function read(text: string, { strict = false, env = {} } = {}) {
  const file = join(folder, 'plan.yaml')
  await writeFile(file, text)
  return readPlan(file, env, strict)
}

async function usable(text: string, options?: Parameters<typeof read>[1]) {
  const plan = await read(text, options)
  assert.ok(plan.ok, plan.ok ? '' : plan.problems.join('\n'))
  return plan.chaos
}

async function problems(text: string): Promise<string> {
  const plan = await read(text)
  assert.ok(!plan.ok)
  return plan.problems.join('\n').replaceAll(`${folder}/`, '')
}

const fault = '{ name: gone, type: rpc.error, rate: 0.5, ttl: 2h }'

test('a plan is a list, a plan with a seed, a block, or a file with a block, and is armed at once', async () => {
  for (const text of [`[${fault}]`, `faults: [${fault}]`, `chaos: { enabled: false, faults: [${fault}] }`]) {
    const { enabled, persist, strict, faults } = await usable(text)
    assert.deepEqual([enabled, persist, strict, faults.length], [true, true, false, 1])
    assert.equal(faults[0]?.allowWrites, false)
  }
  const { seed, mode } = await usable(`{ seed: 42, mode: shadow, faults: [${fault}] }`)
  assert.deepEqual([seed, mode], [42, 'shadow'])
  assert.deepEqual((await usable('')).faults, [])
})

test('the plan or the command sets strict', async () => {
  assert.equal((await usable(`{ strict: true, faults: [] }`)).strict, true)
  assert.equal((await usable(`{ strict: false, faults: [] }`, { strict: true })).strict, true)
})

test('plans of the two other tools hit tools that write, and last for a day', async () => {
  const theirs = await usable('{ seed: 7, faults: [{ type: error_injection, rate: 0.25 }] }')
  assert.equal(theirs.seed, 7)
  const others = await usable(
    '[{ type: latency, delayMs: 100 }, { target: "*/echo", config: { type: timeout, hangMs: 5 } }]',
  )
  for (const { ttl, allowWrites } of [...theirs.faults, ...others.faults])
    assert.deepEqual([ttl, allowWrites], [86_400_000, true])
  assert.deepEqual(
    others.faults.map(({ type }) => type),
    ['conn.latency', 'conn.half_open'],
  )
})

test('a single target of another tool is the wrapped server, and aliases say which of several is what', async () => {
  const config = 'config: { type: connection-refused }'
  const single = await usable(
    `faults: [{ target: weather-api, ${config} }, { target: weather-api/get, ${config} }]`,
  )
  assert.deepEqual(
    single.faults.map(({ match }) => match),
    [{ server: 'wrapped' }, { server: 'wrapped', tool: 'get' }],
  )
  const both = `faults: [{ target: weather-api, ${config} }, { target: redis, ${config} }]`
  const { faults } = await usable(`{ aliases: { redis: wrapped/cached }, ${both} }`)
  assert.deepEqual(faults[1]?.match, { server: 'wrapped', tool: 'cached' })
  assert.match(
    await problems(both),
    /^plan\.yaml:1:\d+ {2}faults\[0\]\.target: "weather-api" is no server here; .*"aliases" can map/,
  )
})

test('variables are filled in', async () => {
  const { seed } = await usable(`{ seed: "\${SEED}", faults: [${fault}] }`, { env: { SEED: '9' } })
  assert.equal(seed, 9)
})

test('an error names its place', async () => {
  assert.match(
    await problems('seed: 1\nfaults:\n  - { name: a, type: rpc.errr, rate: 1, ttl: 1m }'),
    /^plan\.yaml:3:\d+ {2}faults\[0\]\.type .*did you mean rpc\.error/,
  )
  assert.match(
    await problems('faults:\n  - { name: a, type: rpc.error, rate: 3, ttl: 1m }'),
    /^plan\.yaml:2:\d+ {2}faults\[0\]\.rate /,
  )
  assert.match(
    await problems('faults:\n  - { type: burst_error, rat: 1 }'),
    /^plan\.yaml:2:\d+ {2}faults\[0\].*unknown field "rat".*did you mean rate/,
  )
  assert.match(
    await problems(`chaos: { faults: [] }\ngateway: {}`),
    /^plan\.yaml:2:1 {2}gateway .*only "chaos"/,
  )
  assert.match(await problems('faults: [\n'), /^plan\.yaml:/)
  const missing = await readPlan('/nowhere/plan.yaml', {}, false)
  assert.deepEqual(missing, { ok: false, problems: ['/nowhere/plan.yaml cannot be read: no such file'] })
})

test('a key of any characters stands in one line, in quotes', async () => {
  assert.equal(
    await problems(`"a\\nb": 1\nchaos: { faults: [${fault}] }`),
    'plan.yaml:1:1  ["a\\nb"]  only "chaos" is read from a plan',
  )
})

test('a plan of another tool is quoted without what a terminal would obey', async () => {
  const said = await problems('faults: [{ target: a, config: { type: "l\\tatency\\u001b[2J" } }]')
  assert.match(said, /^plan\.yaml:1:\d+ {2}faults\[0\]\.config\.type: unknown type "l\\tatency\\u001b\[2J"/)
})
