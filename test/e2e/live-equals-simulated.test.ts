import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import type { DecisionEntry } from '../../src/chaos/journal/entry.ts'
import type { Asked } from '../../src/sim/gateway.ts'
import type { ToolModel } from '../../src/sim/servers.ts'
import {
  type Answer,
  dataOf,
  isRejected,
  live,
  type LiveRun,
  placeIn,
  type Run,
  simulated,
  type Traffic,
} from './support/both-ways.ts'
import { cleanUp, type Json } from './support/gateway.ts'
import { closeServers } from './support/raw-server.ts'

after(async () => {
  closeServers()
  await cleanUp()
})

/** A tool whose answers have a shape for the verdict to check. */
const reading: ToolModel = {
  answer: ({ id }) => ({ id, price: Number(id) * 1.5, name: `item ${String(id)}`, tags: ['a', 'b', 'c'] }),
  inputSchema: { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] },
  outputSchema: {
    type: 'object',
    properties: {
      id: { type: 'integer' },
      price: { type: 'number' },
      name: { type: 'string' },
      tags: { type: 'array', items: { type: 'string' } },
    },
    required: ['id', 'price', 'name', 'tags'],
    additionalProperties: false,
  },
}

const writing: ToolModel = { ...reading, effect: 'write' }

/** The common fields of a plan's faults. */
const fault = (name: string, type: string, more: Json): Json => ({ name, type, ttl: '1h', ...more })

/** Retries wait too short to matter, never wait for a proof (up to a second), and never run out of budget. */
const retry = {
  maxRetries: 2,
  base: 1,
  cap: 1,
  waitForProof: false,
  incorrect: true,
  budget: { ratio: 1, floor: 1_000, concurrency: 1, leastConcurrent: 100 },
}

const TASKS = 400
const tools = [
  'shop/find',
  'shop/list',
  'shop/price',
  'stock/count',
  'stock/place',
  'stock/check',
  'odd/fragile',
]

/** Tasks of five calls, of two tenants; every fortieth call has arguments that break the schema. */
const calls: readonly Asked[] = Array.from({ length: TASKS * 5 }, (_, index) => {
  const [server = '', tool = ''] = tools[(index * 3 + (index % 5)) % tools.length]!.split('/')
  const task = Math.floor(index / 5)
  return {
    server,
    tool,
    args: index % 40 === 39 ? { id: 'none' } : { id: index % 100 },
    intent: `task-${task}`,
    step: index % 5,
    tenant: task % 3 === 0 ? 'blue' : 'green',
  }
})

const whereTimeDecidesNothing: Traffic = {
  servers: {
    shop: { tools: { find: reading, list: reading, price: reading } },
    stock: { tools: { count: reading, place: writing, check: reading } },
    odd: { tools: { fragile: reading } },
  },
  policies: {
    defaults: {
      retry,
      gate: false,
      overdue: false,
      verdict: { output: 'enforce' },
      arguments: { check: 'enforce' },
    },
    overrides: [
      // Once open, the breaker stays open. Few calls come before, so their retries may wait for a proof.
      {
        match: { server: 'odd' },
        retry: { ...retry, waitForProof: true },
        breaker: { consecutive: 5, minimum: 1_000, open: '1h', maxOpen: '1h', window: '1h' },
      },
    ],
  },
  plan: {
    seed: 2_026,
    faults: [
      fault('error', 'rpc.error', { rate: 0.15, match: { tool: 'find' } }),
      fault('for-blue', 'rpc.error', { rate: 0.3, match: { tool: 'find', tenant: 'blue' }, code: -32_000 }),
      fault('tasks', 'http.status', { rate: 0.5, match: { tool: 'find', tasks: 0.1 }, status: 502 }),
      fault('toward-agent', 'http.status', { rate: 0.05, side: 'client', match: { tool: 'find' } }),
      fault('sticky', 'http.status', { rate: 0.1, sticky: true, match: { tool: 'list' } }),
      fault('refused', 'conn.refused', { rate: 0.1, match: { tool: 'list' } }),
      fault('once', 'rpc.error', { rate: 1, match: { tool: 'list' }, when: { onCall: 7 } }),
      fault('cut-off', 'conn.reset', {
        rate: 1,
        side: 'client',
        match: { tool: 'list' },
        when: { onCall: 9 },
      }),
      fault('drifting', 'result.drift', { rate: 0.2, match: { tool: 'price' } }),
      fault('part', 'result.partial', { rate: 0.1, match: { tool: 'price' } }),
      fault('failing', 'result.is_error', { rate: 0.05, match: { tool: 'price' } }),
      fault('limited', 'limit.429', { rate: 0.1, form: 'absent', match: { tool: 'count' } }),
      fault('told-when', 'limit.429', {
        rate: 1,
        maxInjections: 2,
        retryAfter: '1s',
        match: { tool: 'count' },
      }),
      fault('in-a-row', 'rpc.error', {
        rate: 0.2,
        match: { tool: 'count' },
        when: { burst: { meanLength: 3, per: 'call' } },
      }),
      fault('lost', 'conn.reset', { rate: 0.15, allowWrites: true, match: { tool: 'place' } }),
      fault('unreached', 'conn.refused', { rate: 0.1, allowWrites: true, match: { tool: 'place' } }),
      fault('spared', 'rpc.error', { rate: 0.2, match: { tool: 'place' } }),
      fault('bad-days', 'http.status', {
        rate: 0.2,
        match: { tool: 'check' },
        when: { burst: { meanLength: 4, per: 'intent' } },
      }),
      fault('every-tenth', 'rpc.malformed', { rate: 1, match: { tool: 'check' }, when: { everyNth: 10 } }),
      fault('half', 'conn.reset', { rate: 0.1, at: { afterBytes: 20 }, match: { tool: 'check' } }),
      fault('together', 'rpc.wrong_id', { rate: 0.05, domain: 'zone', match: { tool: 'check' } }),
      fault('together-too', 'rpc.error', { rate: 0.05, domain: 'zone', match: { tool: 'find' } }),
      fault('cut', 'sse.cut', { rate: 0.05, match: { tool: 'price' } }),
      fault('stalled', 'sse.stall', { rate: 0.05, stall: '1ms', match: { tool: 'price' } }),
      fault('garbled', 'sse.bad_frame', { rate: 0.05, match: { tool: 'price' } }),
      fault('dripping', 'conn.slow_drip', { rate: 0.05, gap: '1ms', chunk: 64, match: { tool: 'price' } }),
      fault('late-outage', 'rpc.error', { rate: 1, match: { tool: 'fragile' }, when: { afterCalls: 100 } }),
    ],
  },
  calls,
}

/** Returns decisions by fault, call and attempt, without numbers, ids and times. */
function byAttempt(decisions: readonly DecisionEntry[]): Map<string, Json> {
  const named = decisions.map((entry): [string, Json] => {
    const { seq: _, at: __, sinceMs: ___, before: ____, after: _____, call, note, ...decided } = entry
    const { id: ______, caller: _______, ...asked } = call
    const { id: ________, bytes, ...noted } = note ?? {}
    // In a whole reply, the bytes depend on its id.
    const passed = noted.effect === 'reset' || noted.effect === 'close' ? bytes : 'all'
    const name = `${entry.fault} of ${entry.callKey}, attempt ${entry.attempt}`
    return [name, { ...decided, note: { ...noted, passed }, call: asked }]
  })
  assert.equal(new Set(named.map(([name]) => name)).size, named.length, 'two decisions have the same name')
  return new Map(named)
}

/** Returns an answer without its time to retry, in data and message: it depends on the time. */
function timeless(answer: Answer): unknown {
  const data = dataOf(answer)
  if (data?.retryAfterMs === undefined) return answer
  const { retryAfterMs: _, ...said } = data
  const { error } = answer.body as { error: Json }
  return { status: answer.status, code: error.code, data: said }
}

/** Drops the replica from a log line if faults answered all attempts: a tenant without a session has no replica yet. */
function placed(line: Json): Json {
  const { replica: _, ...rest } = line
  return Array.isArray(line.faults) && line.faults.length >= Number(line.attempts) ? rest : line
}

function differing(real: ReadonlyMap<unknown, unknown>, modelled: ReadonlyMap<unknown, unknown>): unknown[] {
  const keys = new Set([...real.keys(), ...modelled.keys()])
  return [...keys].filter((key) => !isDeepStrictEqual(real.get(key), modelled.get(key)))
}

/** Fails with the first few differences out of possibly thousands. */
function assertEqual(real: ReadonlyMap<unknown, unknown>, modelled: ReadonlyMap<unknown, unknown>): void {
  const keys = differing(real, modelled)
  const shown = keys.slice(0, 3).map((key) => ({ key, live: real.get(key), simulated: modelled.get(key) }))
  assert.equal(
    keys.length,
    0,
    `${keys.length} of ${real.size} differ: ${JSON.stringify(shown, undefined, 1)}`,
  )
}

const inOrder = (values: readonly unknown[]) => new Map(values.entries())

test('without influence of time, 2000 calls end in a simulation exactly as through a live gateway', async (t) => {
  const real = await live(whereTimeDecidesNothing)
  // Policies' random draws, such as waits before retries, have no effect here: a live gateway has another seed each
  // time.
  for (const seed of [1, 2]) {
    const modelled = await simulated(whereTimeDecidesNothing, seed)
    assertEqual(byAttempt(real.decisions), byAttempt(modelled.decisions))
    assertEqual(inOrder(real.answers.map(timeless)), inOrder(modelled.answers.map(timeless)))
    assertEqual(inOrder(real.lines.map(placed)), inOrder(modelled.lines.map(placed)))
    assert.deepEqual(real.runs, modelled.runs)
  }
  const injected = real.decisions.filter(({ decision }) => decision === 'injected')
  t.diagnostic(
    `${real.answers.length} calls, ${real.decisions.length} decisions, ${injected.length} faults, ` +
      `${real.answers.filter(isRejected).length} rejected`,
  )
})

/** Tools whose calls end differently with time, by the mechanism, and `steady` as the exception. */
const hurried = ['steady', 'pausing', 'rationed', 'late', 'slotted', 'windowed', 'budgeted'] as const
const ROUNDS = 85

/** Attempt timeout of the tool `late`, in milliseconds. */
const TIMEOUT_MS = 40

const whereTimeDecides: Traffic = {
  servers: Object.fromEntries(hurried.map((tool) => [tool, { tools: { [tool]: reading } }])),
  policies: {
    defaults: { retry: false, gate: false, overdue: false },
    overrides: [
      { match: { server: 'pausing' }, breaker: { consecutive: 2, open: 250, maxOpen: 250, jitter: 0 } },
      { match: { server: 'rationed' }, rateLimit: { rate: 7, burst: 2 } },
      { match: { server: 'late' }, attemptTimeout: { timeout: TIMEOUT_MS } },
      { match: { server: 'budgeted' }, retry: { ...retry, budget: { ratio: 0, floor: 2, window: 1_000 } } },
    ],
  },
  plan: {
    seed: 7,
    faults: [
      fault('any', 'rpc.error', { rate: 0.3, match: { tool: 'steady' } }),
      fault('trips', 'rpc.error', { rate: 0.5, match: { tool: 'pausing' } }),
      fault('slow', 'conn.latency', {
        rate: 0.8,
        match: { tool: 'late' },
        distribution: { kind: 'uniform', min: 0, max: 80 },
      }),
      fault('slots', 'rpc.error', {
        rate: 0.4,
        match: { tool: 'slotted' },
        when: { burst: { meanLength: 2, slot: 500 } },
      }),
      fault('outage', 'http.status', {
        rate: 1,
        match: { tool: 'windowed' },
        when: { window: { from: 2_000, to: 5_000 } },
      }),
      fault('costly', 'rpc.error', { rate: 0.5, match: { tool: 'budgeted' } }),
    ],
  },
  calls: Array.from({ length: ROUNDS * hurried.length }, (_, index) => {
    const tool = hurried[index % hurried.length]!
    const round = Math.floor(index / hurried.length)
    return { server: tool, tool, args: { id: round % 50 }, intent: `task-${round}`, step: 0 }
  }),
  paceMs: 15,
}

/**
 * Returns the same traffic with servers as slow as each live attempt was, minus the delay of faults. For an attempt
 * that timed out the real duration is unknown: too long. An attempt with an answer was read in time, whenever it was
 * noted. So either a fault's delay alone decides, or the machine does.
 */
function asLong({ times, decisions }: LiveRun): Traffic {
  const first = hurried.length
  const delays = new Map(
    decisions.map(({ call, note }) => [placeIn(call.id, first), Number(note?.delayMs ?? 0)]),
  )
  const tookMs: ToolModel['tookMs'] = ({ id, attempt }) => {
    const index = placeIn(id, first)
    const end = times[index]?.attempts.find(({ number }) => number === attempt)
    if (end === undefined) return 0
    const delayMs = delays.get(index) ?? 0
    if (end.outcome === 'timeout') return TIMEOUT_MS + 1
    return Math.max(0, Math.min(end.tookMs, TIMEOUT_MS - 1) - delayMs)
  }
  const servers = Object.fromEntries(
    hurried.map((tool) => [tool, { tools: { [tool]: { ...reading, tookMs } } }]),
  )
  return { ...whereTimeDecides, servers }
}

/**
 * Maximum share of a tool's calls that may end differently. A simulated gateway reads its clock as a call comes, a live
 * gateway a moment later. When a limit lies in between, the two differ, and so do later calls of the tool; how often
 * depends on the machine. The retry budget counts whole seconds of a private clock, so each second may change a call or
 * two.
 */
const mostOf = (tool: (typeof hurried)[number]): number => (tool === 'steady' ? 0 : 0.25)

test('with influence of time, calls at the same times end alike, except a few close to a limit', async (t) => {
  const real = await live(whereTimeDecides)
  const modelled = await simulated(asLong(real), 1, real.times)
  const { calls } = whereTimeDecides
  const others = differing(inOrder(real.answers.map(timeless)), inOrder(modelled.answers.map(timeless)))
  const shares = hurried.map((tool) => {
    const count = others.filter((index) => calls[index as number]!.tool === tool).length
    return [tool, count / ROUNDS] as const
  })
  t.diagnostic(
    `share that ended otherwise: ${shares.map(([tool, share]) => `${tool} ${share.toFixed(2)}`).join(', ')}`,
  )
  for (const [tool, share] of shares)
    assert.ok(share <= mostOf(tool), `${share} of the calls of ${tool} ended differently`)

  for (const { tookMs, outcome } of real.times.flatMap(({ attempts }) => attempts))
    assert.ok(outcome !== 'timeout' || tookMs >= TIMEOUT_MS, `an attempt timed out after ${tookMs} ms`)

  // Time may decide whether an attempt happens, but not its random draws, unless the journal says so.
  const drawn = ({ decisions }: Run) =>
    new Map(
      decisions
        .filter(({ orderDependent }) => !orderDependent)
        .map(({ fault, drawKey, u, because }) => [`${fault} ${drawKey}`, { u, because }]),
    )
  const [inReality, inModel] = [drawn(real), drawn(modelled)]
  const both = [...inReality.keys()].filter((key) => inModel.has(key))
  assert.ok(both.length > calls.length / 4, `${both.length} decisions are in both journals`)
  for (const key of both) assert.deepEqual(inReality.get(key), inModel.get(key), key)
})
