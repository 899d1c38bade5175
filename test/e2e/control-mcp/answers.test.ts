import assert from 'node:assert/strict'
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isDeepStrictEqual } from 'node:util'
import { Ajv, type ValidateFunction } from 'ajv'
import addFormats from 'ajv-formats'
import { parse } from 'yaml'
import { openKey } from '../../../src/chaos/journal/head.ts'
import { RunJournal } from '../../../src/evidence/journal.ts'
import type { RunRecord } from '../../../src/experiments/guarded/record.ts'
import { INTENT_KEY } from '../../../src/protocol/task.ts'
import { assertTells, joined, toonIn } from '../../support/toon.ts'
import { until } from '../../support/until.ts'
import { traffic } from '../experiments/scene.ts'
import { armed, cleanUp, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import {
  Asker,
  controlMcpOf,
  envelopeOf,
  insideSpec,
  install,
  manyAgents,
  manyTokens,
  opened,
  propose,
  type Scene,
} from './scene.ts'
import type { Told } from './scene.ts'

/** Largest answer, in bytes. */
const MOST_BYTES = 8_192

const experiments = fileURLToPath(new URL('../../../../config/experiments', import.meta.url))
const stdioServer = fileURLToPath(new URL('../../fixtures/modern-stdio.js', import.meta.url))

/** Servers with names of the greatest length: some answer, some are down. */
const long = (kind: string, at: number) =>
  `${kind}-${String(at).padStart(2, '0')}-${'n'.repeat(40)}`.slice(0, 40)
const answering = Array.from({ length: 36 }, (_, at) => long('answers', at))
const silent = Array.from({ length: 40 }, (_, at) => long('down', at))

/** Runs of earlier processes, written into the journal. */
const RUNS = 60

/** Calls of one task that a fault met. */
const CALLS = 60
const TASK = 'a task with many calls'

let scene: Scene
/** The agent `writer`, and many other agents, so that the limit of requests a second refuses no call. */
let writer: Asker
let others: readonly Asker[] = []
let calls = 0
let plansFolder: string
const schemas = new Map<string, ValidateFunction>()

async function openAskers(): Promise<void> {
  writer = await Asker.open(scene.url)
  others = await Promise.all(manyAgents.map(({ token }) => Asker.open(scene.url, token)))
}

/** Calls a tool; asserts that the answer is no error, fits, and is valid by the output schema of the tool. */
async function valid(tool: string, given: Json = {}, by = others[calls++ % others.length]!): Promise<Told> {
  const told = await by.call(tool, given)
  const called = `${tool} ${JSON.stringify(given).slice(0, 200)}`
  assert.equal(told.error, undefined, `${called}: ${told.text}`)
  assert.ok(told.bytes <= MOST_BYTES, `${called}: ${told.bytes} bytes`)
  const validate = schemas.get(tool)!
  assert.ok(validate(told.data), `${called}: ${JSON.stringify(validate.errors)}`)
  return told
}

/** Follows `next` to the end. Returns all rows, and asserts that each of several pages has rows. */
async function allRows(tool: string, given: Json = {}, { least = 2 } = {}): Promise<readonly Json[]> {
  const rows: Json[] = []
  let cursor: unknown
  let pages = 0
  let total: unknown
  do {
    const { data } = await valid(tool, { ...given, ...(cursor !== undefined && { cursor }) })
    const page = data.rows as Json[]
    assert.ok(page.length > 0, `page ${pages} of ${tool} is empty`)
    total ??= data.total
    assert.equal(data.total, total)
    rows.push(...page)
    cursor = data.next
    pages++
  } while (cursor !== undefined)
  assert.equal(rows.length, total)
  assert.ok(pages >= least, `${tool} ${JSON.stringify(given)} has ${pages} pages`)
  return rows
}

/** Follows `next` of an answer in TOON to the end. Returns all rows; `by` is the column that each page divides into tables. */
async function allRowsInToon(tool: string, given: Json, by?: string): Promise<readonly Json[]> {
  const rows: Json[] = []
  let next: unknown
  do {
    const cursor = next
    const { text, data } = await valid(tool, {
      ...given,
      format: 'toon',
      ...(cursor !== undefined && { cursor }),
    })
    const told = toonIn(text)
    rows.push(...((by === undefined ? told : joined(told, by)) as Json[]))
    assert.deepEqual(Object.keys(data), ['total', 'next'].slice(0, data.next === undefined ? 1 : 2))
    assert.equal(data.next, rows.length === data.total ? undefined : String(rows.length))
    next = data.next
  } while (next !== undefined)
  return rows
}

/** Follows `next` of a long text to the end. Returns the whole text. */
async function wholeText(tool: string, given: Json): Promise<string> {
  let text = ''
  let cursor: unknown
  let pages = 0
  let total: unknown
  do {
    const { data } = await valid(tool, { ...given, ...(cursor !== undefined && { cursor }) })
    const part = String(data.part ?? (data.untrusted as Json).part)
    assert.notEqual(part, '')
    assert.equal(Buffer.from(part).toString(), part, 'a page ends inside of a character')
    text += part
    total ??= data.total
    cursor = data.next
    pages++
  } while (cursor !== undefined)
  assert.equal(text.length, total)
  assert.ok(pages > 1)
  return text
}

const sorted = (names: readonly unknown[]) => names.map(String).sort()

/** Writes plans: those of the project, many with long titles, one with a long text, and some that cannot be used. */
async function writePlans(folder: string): Promise<void> {
  await cp(experiments, folder, { recursive: true })
  for (let at = 0; at < 40; at++) {
    const plan = insideSpec({ name: `plan-${at}`, title: `${at} ${'Ü💥'.repeat(60)}` })
    await writeFile(join(folder, `plan-${at}.json`), JSON.stringify(plan))
  }
  const faults = Array.from({ length: 30 }, (_, at) => {
    return {
      name: `fault-${at}`,
      type: 'rpc.error',
      rate: 0.01,
      message: `${at} “quotes” 💥 `.repeat(20).trim(),
    }
  })
  await writeFile(join(folder, 'long.yaml'), JSON.stringify(insideSpec({ name: 'long', faults })))
  await writeFile(join(folder, 'not-yaml.yaml'), ': [')
  const wrong = Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`💥 unknown ${at}`, at]))
  await writeFile(join(folder, 'wrong.json'), JSON.stringify({ ...insideSpec({ name: 'wrong' }), ...wrong }))
}

/** Seals copies of the only run, with other names, verdicts and times and with many rows. No gateway may be running. */
async function sealCopies(stateDir: string): Promise<void> {
  const { journal, runs } = await RunJournal.open(join(stateDir, 'experiments'), await openKey(stateDir))
  const [run] = runs as [RunRecord]
  const states = ['completed', 'deviated', 'aborted', 'failed', 'invalid', 'inconclusive'] as const
  const server = { tools: ['read', 'write'], hit: ['read'] }
  const repeated = <Row>(count: number, row: (at: number) => Row) =>
    Array.from({ length: count }, (_, at) => row(at))
  for (let at = 0; at < RUNS; at++)
    await journal.write({
      ...run,
      id: `copy-${String(at).padStart(3, '0')}`,
      name: `copied-${at % 30}`,
      state: states[at % states.length]!,
      reason: `${'the reason is long 💥 '.repeat(20)}${at}`,
      requestedAt: run.requestedAt - 1_000 * at,
      targets: { ...run.targets, servers: answering.map((name) => ({ name, ...server })) },
      stages: repeated(30, (stage) => ({ ...run.stages[0]!, beganAtMs: stage })),
      samples: repeated(200, (second) => ({ ...run.samples[0]!, atMs: second })),
      decisions: repeated(100, (second) => ({
        atMs: second,
        what: `decision ${second}`,
        // One row alone is longer than an answer.
        why: '“why” 💥 '.repeat(second === 50 ? 2_000 : 20),
      })),
      troubles: answering.map((name) => ({ name, state: 'open', fromMs: 1, untilMs: 2 })),
    })
  await journal.flush()
}

before(async () => {
  const { tokens } = controlMcpOf([]) as { tokens: Json[] }
  const controlMcp = { tokens: [...tokens, ...manyTokens] }
  scene = await opened({}, controlMcp)
  plansFolder = join(scene.folder, 'plans')
  await mkdir(plansFolder)
  await writePlans(plansFolder)
  await openAskers()
  const ajv = addFormats.default(new Ajv({ strict: false }))
  const { tools } = await writer.client.listTools()
  for (const { name, outputSchema } of tools) schemas.set(name, ajv.compile(outputSchema as object))

  // A real run, whose record serves as the pattern of many.
  assert.equal((await install(scene, await envelopeOf(scene))).status, 201)
  const agents = await traffic(scene.gateway)
  const gate = {
    rollbackOn: [{ metric: 'error_ratio', above: '10%', for: '500ms' }],
    over: '1s',
    minimum: 4,
    missing: '5s',
  }
  const { data } = await valid('propose_run', { spec: insideSpec({ gate }), why: 'to have a record' }, writer)
  const { data: started } = await valid('start_run', { proposal: data.proposal, key: 'k' }, writer)
  await until('the run is over', async () => {
    const run = await valid('get_run', { run: started.run, wait: '20s' })
    return run.data.state !== 'running'
  })
  await agents.stop()
  scene.gateway.program.signal('SIGTERM')
  await scene.gateway.program.ended
  await sealCopies(join(scene.folder, 'state'))

  const { url } = scene.server
  const up = Object.fromEntries(answering.map((name) => [name, { url, trusted: true }]))
  const down = Object.fromEntries(
    silent.map((name) => [name, { url: 'http://127.0.0.1:9/mcp', health: { every: '1s' } }]),
  )
  const stdio = { command: process.execPath, args: [stdioServer] }
  const parts = {
    ...scene.parts,
    servers: { ...scene.parts.servers, ...up, stdio },
    gateway: {
      ...scene.parts.gateway,
      controlMcp: controlMcpOf([scene.alice], { ...controlMcp, plans: plansFolder }),
    },
    // Each call meets the fault once, and ends at once.
    policies: { defaults: { retry: false, breaker: false } },
    chaos: armed([{ name: 'broken', type: 'rpc.error', match: { server: 'flaky', tool: 'read' } }]),
  }
  await scene.again(parts)
  await openAskers()
  await scene.gateway.reconfigure({ ...parts, servers: { ...parts.servers, ...down } })
  await until('each silent server has an incident', async () => {
    const { data } = await valid('list_incidents', { state: 'open' })
    return data.total === silent.length
  })
  const broken = await RawClient.open(scene.gateway.mcp('flaky'))
  for (let at = 0; at < CALLS; at++)
    await broken.request('tools/call', { name: 'read', arguments: {}, _meta: { [INTENT_KEY]: TASK } })
  for (const name of answering.slice(0, 10))
    await (await RawClient.open(scene.gateway.mcp(name))).call('read')
})
after(cleanUp)

describe('answers of the control MCP server', { concurrency: 1 }, () => {
  test('list_servers pages through servers with long names, each server once', async () => {
    const rows = await allRows('list_servers')
    assert.deepEqual(
      sorted(rows.map(({ server }) => server)),
      sorted([...answering, ...silent, 'flaky', 'stdio']),
    )
    const down = await allRows('list_servers', { state: 'down', filter: 'down-*' }, { least: 1 })
    assert.equal(down.length, silent.length)
  })

  test('list_fault_kinds pages through all kinds, and describes each kind', async () => {
    const rows = await allRows('list_fault_kinds')
    assert.equal(new Set(rows.map(({ type }) => type)).size, rows.length)
    for (const { type } of rows) {
      const { data } = await valid('list_fault_kinds', { type })
      assert.equal(data.type, type)
      assert.notEqual(data.cut, true, `the description of ${String(type)} is cut`)
    }
    await allRows('list_fault_kinds', { server: 'stdio' })
    await valid('list_fault_kinds', { text: 'latency' })
  })

  test('list_plans pages through all plans, each plan once, those that cannot be used included', async () => {
    const rows = await allRows('list_plans')
    const names = rows.map(({ plan }) => String(plan))
    assert.equal(new Set(names).size, rows.length)
    assert.equal(rows.filter(({ problems }) => problems !== undefined).length, 2)
    for (const plan of names) await valid('get_plan', { plan })
  })

  test('the pages of get_plan make up the text of the plan', async () => {
    const written = parse(await readFile(join(plansFolder, 'long.yaml'), 'utf8')) as Json
    assert.deepEqual(parse(await wholeText('get_plan', { plan: 'long' })), written)
  })

  test('list_runs pages through the runs, newest first, each run once', async () => {
    const rows = await allRows('list_runs')
    assert.equal(new Set(rows.map(({ run }) => run)).size, RUNS + 1)
    const times = rows.map(({ requestedAt }) => String(requestedAt))
    assert.deepEqual(times, [...times].sort().reverse())
    const completed = await allRows('list_runs', { verdict: 'completed' }, { least: 1 })
    assert.equal(completed.length, RUNS / 6)
  })

  test('get_run pages through each part of a run', async () => {
    const run = 'copy-007'
    await valid('get_run', { run })
    for (const [part, count] of [
      ['stages', 30],
      ['samples', 200],
      ['decisions', 100],
    ] as const) {
      const rows = await allRows('get_run', { run, part })
      assert.equal(rows.length, count)
      assert.equal(new Set(rows.map(({ atMs, beganAtMs }) => atMs ?? beganAtMs)).size, count)
    }
    assert.match(await wholeText('get_run', { run, part: 'report' }), /copied-7/)
  })

  test('query_runs pages through the answer to each question', async () => {
    for (const [question, least] of [
      ['verdicts', 1],
      ['recovery', 1],
      ['estimates', 1],
      ['coverage', 1],
    ] as const) {
      const rows = await allRows('query_runs', { question }, { least })
      assert.equal(new Set(rows.map((row) => JSON.stringify(row))).size, rows.length)
    }
  })

  test('list_incidents pages through the incidents, newest first, each incident once', async () => {
    const rows = await allRows('list_incidents', { state: 'open' })
    assert.deepEqual(sorted(rows.map(({ server }) => server)), sorted(silent))
    const times = rows.map(({ startedAt }) => String(startedAt))
    assert.deepEqual(times, [...times].sort().reverse())
  })

  test('explain_call pages through the decisions about a task, each decision once', async () => {
    const rows = await allRows('explain_call', { task: TASK })
    assert.ok(rows.length >= CALLS)
    assert.equal(new Set(rows.map(({ seq }) => seq)).size, rows.length)
  })

  test('suggest_next pages through suggestions, and propose_run accepts the spec of each', async () => {
    const rows = await allRows('suggest_next', { limit: 20 })
    assert.equal(rows.length, 20)
    assert.equal(new Set(rows.map(({ spec }) => (spec as Json).name)).size, rows.length)
    for (const { server, spec } of rows) {
      const { data } = await valid('propose_run', { spec, why: 'to try the suggestion' })
      const armedHere = server === 'flaky' ? ['fault "broken" is armed at these servers'] : []
      assert.deepEqual(data.refusals, armedHere)
    }
  })

  test('each tool with rows answers in TOON, page by page, with the same rows', async () => {
    const run = 'copy-007'
    const calls: readonly (readonly [string, Json])[] = [
      ['list_servers', {}],
      ['list_fault_kinds', {}],
      ['list_plans', {}],
      ['suggest_next', { limit: 20 }],
      ['list_runs', {}],
      ...['verdicts', 'recovery', 'estimates', 'coverage'].map(
        (question) => ['query_runs', { question }] as const,
      ),
      ...['stages', 'samples', 'decisions'].map((part) => ['get_run', { run, part }] as const),
      ['list_incidents', { state: 'open' }],
      ['explain_call', { task: TASK }],
    ]
    // The reasons of suggestions have figures of the traffic, which change with time.
    const still = (tool: string, rows: readonly Json[]) =>
      tool === 'suggest_next' ? rows.map(({ reason: _, ...row }) => row) : rows
    for (const [tool, given] of calls)
      await until(`${tool} ${JSON.stringify(given)} says the same in both formats`, async () => {
        const before = still(tool, await allRows(tool, given, { least: 1 }))
        const by = given.part === 'samples' ? 'phase' : undefined
        const rows = still(tool, await allRowsInToon(tool, given, by))
        // The same goes for the figures of servers.
        if (!isDeepStrictEqual(before, still(tool, await allRows(tool, given, { least: 1 })))) return false
        assert.equal(rows.length, before.length)
        // Each format cuts a row longer than an answer to the length that fits.
        for (const [at, row] of rows.entries())
          if (before[at]!.cut !== true) assertTells(row, before[at], `${tool}[${at}]`)
        return true
      })
    const report = await valid('get_run', { run, part: 'report', format: 'toon' })
    assert.match(String((report.data.untrusted as Json).part), /copied-7/)
  })

  test('estimates and proposals about all servers fit into an answer', async () => {
    const spec = insideSpec({
      targets: { server: '*' },
      faults: [
        { name: 'everywhere', type: 'rpc.error', rate: 1, allowWrites: true },
        { name: 'slow', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '1s' } },
      ],
    })
    await valid('estimate_blast_radius', { spec })
    await valid('propose_run', { spec, why: 'w'.repeat(500) })
    await valid('estimate_blast_radius', { plan: 'long' })
    const plans = await allRows('list_plans')
    for (const { plan, problems } of plans)
      if (problems === undefined) await valid('estimate_blast_radius', { plan })
  })

  test('get_status fits into an answer with many incidents, proposals and envelopes', async () => {
    const envelope = await envelopeOf(scene)
    const [target] = envelope.targets as Json[]
    const targets = answering.map((server) => ({ ...target, server }))
    const faults = ['rpc.error', 'conn.latency', 'limit.429', 'result.empty'].map((type) => ({
      type,
      maxRate: 1,
    }))
    for (let at = 0; at < 10; at++)
      assert.equal((await install(scene, { ...envelope, id: `env-many${at}`, targets, faults })).status, 201)
    for (let at = 0; at < 10; at++) await propose(writer, insideSpec({ name: `${at}${'n'.repeat(39)}` }))
    const { data } = await valid('get_status', {}, writer)
    assert.ok((data.envelopes as Json[]).length > 0)
    assert.ok((data.proposals as Json[]).length > 0)
    assert.ok((data.incidents as Json[]).length > 0)
  })

  test('a changed plan counts from the next call on, and so does the end of the folder', async () => {
    const path = join(plansFolder, 'plan-0.json')
    const titleOf = async () => {
      const { data } = await valid('get_plan', { plan: 'plan-0' })
      return (parse(String(data.part)) as Json).title
    }
    const before = await titleOf()
    await writeFile(path, JSON.stringify(insideSpec({ name: 'plan-0', title: 'another title' })))
    assert.notEqual(before, 'another title')
    assert.equal(await titleOf(), 'another title')
    await rm(plansFolder, { recursive: true })
    const { error } = await writer.call('list_plans')
    assert.equal(error?.code, 'not_found')
    assert.equal(error?.repeat, 'later')
    assert.match(error?.message ?? '', /gateway\.controlMcp\.plans cannot be read \(ENOENT\)/)
  })

  test('stop_run of all runs names only active runs', async () => {
    const { data } = await valid('stop_run', { all: true })
    assert.deepEqual(data.stopped, [])
  })
})
