import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import type { Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import type { FaultFate } from '../../../src/mesh/injected.ts'
import type { Effect } from '../../../src/mesh/policy.ts'
import { IDEMPOTENCY_KEY } from '../../../src/policies/idempotency.ts'
import { replayed } from '../../../src/policies/idempotency/stored-outcome.ts'
import { PARTIAL_KEY } from '../../../src/protocol/meta.ts'
import { INTENT_KEY } from '../../../src/protocol/task.ts'
import { Recorder } from '../../../src/telemetry/recording/recorder.ts'
import type { RecordedCall } from '../../../src/telemetry/recording/format.ts'
import { telemetry } from '../../../src/telemetry/schema.ts'
import { answered, failed, rpcError } from '../../policies/breaker/rig.ts'
import { newCall } from '../../support/caller.ts'
import { recordedLog } from '../../support/log.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { observed } from '../observed.ts'

/** A recorder with its own folder, and observed services. `fates`: of the faults of each call, in order. */
async function setUp(
  t: TestContext,
  { effect = 'read_only', fates = [] }: { effect?: Effect; fates?: (readonly FaultFate[])[] } = {},
) {
  const folder = await mkdtemp(join(tmpdir(), 'recording-'))
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'calls.jsonl')
  const clock = new ManualClock()
  const { log, lines: said } = recordedLog()
  let dropped = 0
  const recorder = new Recorder({
    clock,
    log,
    environment: 'staging',
    effectOf: () => effect,
    effects: () => ({ shop: { buy: 'write' } }),
    onDropped: (count) => void (dropped += count),
  })
  const follow = (settings: object, hash = 'p') =>
    recorder.follow(telemetry.parse({ recording: settings }).recording, hash)
  const lines = async (path = file) =>
    (await readFile(path, 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  const calls = async (path = file) => (await lines(path)).slice(1) as unknown as RecordedCall[]
  const account = () => fates.shift() ?? []
  const around = (next: Service) => observed(next, undefined, {}, account, undefined, { clock, recorder })
  const service = (next: Service) => around(next).service
  const attemptAt = (next: Service) => around(next).attempt
  return { file, clock, said, recorder, follow, lines, calls, service, attemptAt, dropped: () => dropped }
}

function call(intent: string, args: object = {}, startedAt = 0, more: object = {}, meta: object = {}) {
  const params = { name: 'buy', arguments: args, _meta: { [INTENT_KEY]: intent, ...meta }, ...more }
  return newCall({ method: 'tools/call', params, server: 'shop', tenant: 'tenant-of-mine', startedAt })
}

test('a call is recorded with its attempts, and without a word of what was asked and answered', async (t) => {
  const { file, clock, recorder, follow, lines, service } = await setUp(t)
  follow({ file })
  await clock.advance(40)
  const error = gatewayError('upstream_rate_limited', 'text of the server', {
    sent: true,
    retryAfterMs: 250,
    status: 429,
  })
  const outcomes: Outcome[] = [{ kind: 'failed', error }, rpcError(-32603), answered('correct')]
  const asked = call('name-of-task', { card: 'secret-argument' }, 40)
  const next = service(async () => {
    await clock.advance(5)
    return outcomes.shift()!
  })
  for (let n = 0; n < 2; n++) await next(asked)
  await recorder.close()
  const [header, first, second, ...more] = await lines()
  assert.deepEqual(more, [])
  assert.deepEqual(
    { ...header, version: '' },
    {
      breakwaterRecording: 2,
      version: '',
      startedAt: '2026-01-01T00:00:00.000Z',
      part: 1,
      environment: 'staging',
      sample: 1,
      policiesHash: 'p',
      servers: { shop: { buy: 'write' } },
    },
  )
  const { task, key, tenant, replyKey, attempts, ...rest } = first as unknown as RecordedCall
  for (const digest of [task, key, tenant, replyKey]) assert.match(digest ?? '', /^[0-9a-f]{16}$/)
  assert.deepEqual(rest, {
    at: 40,
    server: 'shop',
    tool: 'buy',
    effect: 'read_only',
    result: 'transport_error',
    wrong: true,
    reason: 'upstream_rate_limited',
    tookMs: 5,
    waitedMs: 0,
    overheadMs: 0,
    retries: 0,
    told: { sent: true, retryAfterMs: 250 },
  })
  const [attempt] = attempts
  assert.deepEqual(
    { ...attempt, requestBytes: 0 },
    {
      number: 1,
      at: 0,
      tookMs: 5,
      outcome: 'transport_error',
      reason: 'upstream_rate_limited',
      retryAfterMs: 250,
      status: 429,
      requestBytes: 0,
    },
  )
  assert.equal(attempt?.requestBytes, Buffer.byteLength(asked.message.text))
  const { code, verdict } = (second as unknown as RecordedCall).attempts[0]!
  assert.deepEqual([code, verdict], [-32603, 'rpc_error'])
  const text = await readFile(file, 'utf8')
  for (const word of ['secret-argument', 'name-of-task', 'tenant-of-mine', 'text of the server', 'card'])
    assert.ok(!text.includes(word), word)
  assert.equal((await stat(file)).mode & 0o777, 0o600)
})

test('equal calls have equal keys, and equal tasks, within one recording', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t)
  const run = async (path: string) => {
    follow({ file: path })
    const next = service(() => Promise.resolve(answered('correct')))
    await next(call('one', { a: 1, b: 2 }))
    await next(call('one', { b: 2, a: 1 }))
    await next(call('two', { a: 2, b: 2 }))
    follow({})
    await recorder.close()
    return calls(path)
  }
  const [first, again, other] = await run(file)
  assert.deepEqual([again!.key, again!.task], [first!.key, first!.task])
  assert.notEqual(other!.key, first!.key)
  assert.notEqual(other!.task, first!.task)
  const [elsewhere] = await run(`${file}.other`)
  assert.notEqual(elsewhere!.key, first!.key)
})

test('a share of the tasks is recorded, each with all of its calls', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t)
  follow({ file, sample: 0.4 })
  const next = service(() => Promise.resolve(answered('correct')))
  for (let n = 0; n < 1_500; n++) await next(call(`task ${n % 500}`))
  await recorder.close()
  const counts = new Map<string, number>()
  for (const { task = '' } of await calls()) counts.set(task, (counts.get(task) ?? 0) + 1)
  assert.deepEqual([...new Set(counts.values())], [3])
  assert.ok(counts.size > 150 && counts.size < 250, `${counts.size}`)
})

test('an attempt that is under way when its call ends is said to be given up', async (t) => {
  const { file, clock, recorder, follow, calls, service, attemptAt } = await setUp(t)
  follow({ file })
  const attempt = attemptAt(() => new Promise(() => undefined))
  const next = service(async (call) => {
    void attempt(call)
    await clock.advance(7)
    return failed('cancelled')
  })
  await next(call('one'))
  await recorder.close()
  const [{ attempts }] = (await calls()) as [RecordedCall]
  assert.deepEqual(
    attempts.map(({ outcome, tookMs }) => [outcome, tookMs]),
    [
      ['cancelled', 7],
      ['cancelled', 7],
    ],
  )
})

test('the first 32 of endless attempts are recorded, with the number of the others', async (t) => {
  const { file, recorder, follow, calls, service, attemptAt } = await setUp(t)
  follow({ file })
  const attempt = attemptAt(() => Promise.resolve(failed()))
  const next = service(async (call) => {
    for (let n = 0; n < 39; n++) await attempt(call)
    return failed()
  })
  await next(call('one'))
  await recorder.close()
  const [{ attempts, moreAttempts }] = (await calls()) as [RecordedCall]
  assert.deepEqual([attempts.length, moreAttempts], [32, 8])
})

test('a reload ends a recording and begins one, and what lies there stays as an older file', async (t) => {
  const { file, recorder, follow, calls, lines, service } = await setUp(t)
  await writeFile(file, 'of somebody\n')
  const next = service(() => Promise.resolve(answered('correct')))
  await next(call('before'))
  follow({ file })
  follow({ file })
  await next(call('during'))
  follow({})
  await next(call('after'))
  follow({ file })
  await next(call('again'))
  // Other policies start another recording.
  follow({ file }, 'q')
  await next(call('again'))
  await recorder.close()
  assert.equal(await readFile(`${file}.3`, 'utf8'), 'of somebody\n')
  for (const path of [`${file}.2`, `${file}.1`, file]) assert.equal((await calls(path)).length, 1)
  assert.equal((await lines(file))[0]!.policiesHash, 'q')
})

test('a call that ends after a reload began a new recording is in neither, and counted', async (t) => {
  const { file, recorder, follow, calls, lines, service, dropped } = await setUp(t)
  follow({ file })
  const ends: (() => void)[] = []
  const next = service(() => new Promise((resolve) => ends.push(() => resolve(answered('correct')))))
  const [early, late] = [next(call('early')), next(call('late'))]
  ends[0]!()
  await early
  follow({ file }, 'q')
  const later = next(call('of the new one'))
  ends[2]!()
  await later
  // Both recordings are written when the call from the first recording ends.
  await recorder.close()
  ends[1]!()
  await late
  assert.equal(dropped(), 1)
  assert.deepEqual([(await lines())[0]!.policiesHash, (await calls()).length], ['q', 1])
  assert.equal((await calls(`${file}.1`)).length, 1)
  await assert.rejects(stat(`${file}.2`))
})

test('a disk that refuses loses calls of the recording, counted, and no call fails', async (t) => {
  const { file, clock, said, recorder, follow, service, dropped } = await setUp(t)
  follow({ file: join(`${file}.no-folder`, 'calls.jsonl') })
  const next = service(() => Promise.resolve(answered('correct')))
  await next(call('one'))
  await clock.advance(100)
  await recorder.close()
  assert.equal(dropped(), 1)
  assert.deepEqual(
    said.filter(({ level }) => level === 40).map(({ msg }) => msg),
    ['the recording of tool calls cannot be written'],
  )
})

const replied = (content: unknown, more: object = {}): Outcome =>
  answered('unchecked', { result: { content: [{ type: 'text', text: JSON.stringify(content) }], ...more } })

/** A service with these outcomes in order. */
const inOrder = (outcomes: readonly Outcome[]): Service => {
  const left = [...outcomes]
  return () => Promise.resolve(left.shift()!)
}

test('a call has the parts of its reply that an agent can act on', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t, { effect: 'write' })
  follow({ file })
  const lost = gatewayError('attempt_timeout', 'too slow', { sent: true, retryAfterMs: 500 })
  const unsent = gatewayError('rate_limited', 'too many', { retryAfterMs: 500.4 })
  const partial = { source: 'stale', reason: 'older', notice: true } as const
  const outcomes: Outcome[] = [
    replied('whole'),
    { ...replied('part'), partial } as Outcome,
    replied('part', { _meta: { [PARTIAL_KEY]: { source: 'declared', reason: 'a gap' } } }),
    { kind: 'failed', error: lost },
    { kind: 'rejected', error: unsent, by: 'rateLimit' },
    answered('rpc_error', { error: { code: -32603, message: 'later', data: { retryAfterMs: 70 } } }),
  ]
  const next = service(inOrder(outcomes))
  for (const _ of outcomes) await next(call('one'))
  await recorder.close()
  assert.deepEqual(
    (await calls()).map(({ told }) => told),
    [
      undefined,
      { partial: true },
      { partial: true },
      // An agent that has to look first is told no time.
      { sent: true },
      { sent: false, retryAfterMs: 501 },
      { retryAfterMs: 70 },
    ],
  )
})

test('equal replies have equal digests, whatever their ids and hidden fields', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t)
  follow({ file })
  const large = replied('x'.repeat(300_000))
  const outcomes = [
    replied({ a: 1 }),
    replied({ a: 1 }, { _meta: { at: 1 } }),
    replied({ a: 2 }),
    large,
    failed('attempt_timeout'),
    failed('attempt_timeout'),
    failed('upstream_status'),
  ]
  const next = service(inOrder(outcomes))
  for (const _ of outcomes) await next(call('one'))
  await recorder.close()
  const [one, hidden, other, tooLarge, slow, slowAgain, broken] = (await calls()).map(
    ({ replyKey }) => replyKey,
  )
  assert.equal(one, hidden)
  assert.notEqual(one, other)
  assert.equal(tooLarge, undefined)
  assert.equal(slow, slowAgain)
  assert.notEqual(slow, broken)
})

test('idempotency keys and replayed answers are marked, and answers to questions are arguments', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t)
  follow({ file })
  const next = service((one) => {
    if (one.message.text.includes('again')) replayed.note(one.record, 'stored')
    return Promise.resolve(replied('done'))
  })
  await next(call('one', {}, 0, {}, { [IDEMPOTENCY_KEY]: 'key' }))
  await next(call('one', {}, 0, {}, { [IDEMPOTENCY_KEY]: 'key', note: 'again' }))
  await next(call('one'))
  await next(call('one', {}, 0, { requestState: 'state', inputResponses: { sure: { action: 'accept' } } }))
  await recorder.close()
  const read = await calls()
  assert.deepEqual(
    read.map(({ idem, replay }) => [idem, replay]),
    [
      [true, undefined],
      [true, true],
      [undefined, undefined],
      [undefined, undefined],
    ],
  )
  assert.equal(read[0]!.key, read[2]!.key)
  assert.notEqual(read[2]!.key, read[3]!.key)
})

const escaped = (...values: string[]): FaultFate => ({
  fault: { name: 'lie', type: 'result.drift', side: 'upstream', attempt: 1, status: 'applied' },
  fate: 'escaped',
  values,
})

test('a value that a fault put into a reply is found again in later arguments of the same task', async (t) => {
  const fates = [[], [escaped('PX-9988', 'never seen 12')], [], [], [], []]
  const { file, recorder, follow, calls, service } = await setUp(t, { fates })
  follow({ file })
  const ids = ['PX-1000', 'PX-9988', 'PX-9988', 'PX-2000', 'PX-2000', 'PX-2000']
  const next = service(inOrder(ids.map((id) => replied({ id, price: 12.5 }))))
  await next(call('one', { find: 'anchor' }))
  await next(call('one', { find: 'anchors' }))
  await next(call('one', { order: { note: 'for PX-9988, please' } }))
  await next(call('two', { id: 'PX-9988' }))
  await next(call('one', { id: 'PX-1000' }))
  await recorder.close()
  const [good, corrupt, use, elsewhere, honest] = await calls()
  assert.deepEqual(corrupt!.faults, [
    { name: 'lie', type: 'result.drift', side: 'upstream', fate: 'escaped' },
  ])
  const [canary, ...more] = corrupt!.canaries ?? []
  assert.match(canary ?? '', /^[0-9a-f]{16}$/)
  assert.deepEqual(more, [], 'a value that the reply does not show is none')
  assert.deepEqual([use!.uses, use!.clean], [[canary], [canary]], 'an unharmed reply holds the value, too')
  for (const one of [good, elsewhere, honest])
    assert.deepEqual([one!.uses, one!.clean, one!.canaries, one!.unwatched], Array(4).fill(undefined))
  const text = await readFile(file, 'utf8')
  for (const word of ['PX-9988', 'anchor', 'please']) assert.ok(!text.includes(word), word)
})

test('a value that the agent sent or got before is no canary, and a fault may not know its values', async (t) => {
  const { values: _, ...mute } = escaped()
  const fates = [[], [escaped('PX-1000', 'anchor-7')], [mute]]
  const { file, recorder, follow, calls, service } = await setUp(t, { fates })
  follow({ file })
  const next = service(() => Promise.resolve(replied({ ids: ['PX-1000', 'anchor-7'] })))
  for (let nth = 0; nth < 3; nth++) await next(call('one', { find: 'anchor-7' }))
  await recorder.close()
  assert.deepEqual(
    (await calls()).map(({ canaries, moreCanaries }) => [canaries, moreCanaries]),
    [
      [undefined, undefined],
      [undefined, undefined],
      [undefined, 1],
    ],
  )
})

test('a task has 64 canaries at most, and the number of others is recorded', async (t) => {
  const values = Array.from({ length: 70 }, (_, nth) => `corrupt-${nth}`)
  const { file, recorder, follow, calls, service } = await setUp(t, { fates: [[escaped(...values)]] })
  follow({ file })
  const next = service(() => Promise.resolve(replied(values)))
  await next(call('one'))
  await recorder.close()
  const [{ canaries, moreCanaries }] = (await calls()) as [RecordedCall]
  assert.deepEqual([canaries?.length, moreCanaries], [64, 6])
})

test('the first recorded call of a task with earlier calls is unwatched', async (t) => {
  const { file, recorder, follow, calls, service } = await setUp(t)
  const next = service(() => Promise.resolve(replied('done')))
  await next(call('one'))
  follow({ file })
  await next(call('one'))
  await next(call('one'))
  await next(call('two'))
  await recorder.close()
  assert.deepEqual(
    (await calls()).map(({ unwatched }) => unwatched),
    [true, undefined, undefined],
  )
})

test('outcomes are recorded for the recorded tasks, under the same digest as their calls', async (t) => {
  const { file, clock, recorder, follow, lines, service } = await setUp(t)
  follow({ file, sample: 0.5 })
  const next = service(() => Promise.resolve(replied('done')))
  const names = Array.from({ length: 100 }, (_, nth) => `task ${nth}`)
  for (const name of names) await next(call(name))
  await clock.advance(25)
  for (const id of names) recorder.outcome({ source: 'meta', tenant: 'tenant-of-mine', id }, 'degraded')
  await recorder.close()
  const [, ...rest] = await lines()
  const reports = rest.filter(({ outcome, at }) => outcome === 'degraded' && at === 25)
  const tasks = rest.filter(({ tool }) => tool === 'buy').map(({ task }) => task)
  assert.ok(tasks.length > 30 && tasks.length < 70, `${tasks.length}`)
  assert.deepEqual(
    reports.map(({ task }) => task),
    tasks,
  )
})
