import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { processFaults } from '../../../src/chaos/faults/process.ts'
import type { ShapedAnswer } from '../../../src/mesh/wire-shape.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, faultLayer, testInjection, type TestInjectionParts } from '../../support/injection.ts'

const kill = processFaults['proc.kill']
const stdio = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }

function setUp(config: unknown, parts: TestInjectionParts = { faultEnvironment: stdio }) {
  const injection = testInjection(parts)
  let runs = 0
  const answer = answering({ content: [] })
  const service = kill.layer(
    kill.schema.parse(config),
    injection,
  )((call) => {
    runs++
    return answer(call)
  })
  return { injection, send: (server = 'test') => service(toolCall('echo', {}, { server })), runs: () => runs }
}

const errorOf = (outcome: Outcome) => (outcome.kind === 'failed' ? outcome.error : undefined)

test('the process gets the signal, and the call is still sent', async () => {
  const { injection, send, runs } = setUp({})
  await send()
  assert.deepEqual(injection.faultEnvironment.signalled, [{ server: 'test', signal: 'SIGTERM' }])
  assert.equal(runs(), 1)
  assert.deepEqual(injection.notes, [{ effect: 'killed', signal: 'SIGTERM' }])
})

test('a fault may send any signal that ends a process, and no other signal', async () => {
  const { injection, send } = setUp({ signal: 'KILL' })
  await send()
  assert.equal(injection.faultEnvironment.signalled[0]?.signal, 'SIGKILL')
  assert.equal(kill.schema.safeParse({ signal: 'STOP' }).success, false)
})

test('hit calls find no process until the process may be started again', async () => {
  const { injection, send, runs } = setUp({ restartAfter: '5s' })
  await send()
  await injection.clock.advance(2_000)
  const error = errorOf(await send())
  assert.deepEqual(
    error,
    gatewayError(
      'upstream_unavailable',
      "the server's process was ended by SIGTERM; it is not started again before 3s have passed",
      { retryAfterMs: 3_000 },
    ),
  )
  assert.deepEqual([runs(), injection.faultEnvironment.signalled.length], [1, 1])
  await injection.clock.advance(3_000)
  await send()
  assert.deepEqual([runs(), injection.faultEnvironment.signalled.length], [2, 2])
})

test('each server has a separate outage', async () => {
  const { injection, send, runs } = setUp({ restartAfter: '5s' })
  await send('one')
  await send('two')
  assert.deepEqual(
    injection.faultEnvironment.signalled.map(({ server }) => server),
    ['one', 'two'],
  )
  assert.equal(runs(), 2)
})

test('without a running process, nothing is killed and no outage begins', async () => {
  const { injection, send, runs } = setUp(
    { restartAfter: '5s' },
    { faultEnvironment: { ...stdio, signal: () => false } },
  )
  await send()
  await send()
  assert.equal(runs(), 2)
  assert.deepEqual(injection.inapplicable, ['the server has no process now', 'the server has no process now'])
})

test('a plan cannot kill the process of a server that is reached over HTTP', () => {
  assert.equal(refusalOf(kill, { transport: 'stdio', era: undefined }), undefined)
  assert.equal(
    refusalOf(kill, { transport: 'http', era: 'modern' }),
    'there is no process behind http; see conn.refused',
  )
  assert.deepEqual(kill.sides, ['upstream'])
})

const answer = answering({ content: [] })

/** A fault of a type, at calls with immediate answers. */
function hitting(type: keyof typeof processFaults, config: object, parts: Partial<TestInjectionParts> = {}) {
  const faultEnvironment = { ...stdio, ...parts.faultEnvironment }
  const injection = testInjection({ ...parts, faultEnvironment })
  const service = faultLayer(processFaults[type], config, injection)(answer)
  return { injection, send: (server = 'test') => service(toolCall('echo', {}, { server })) }
}

const signalsOf = ({ injection }: ReturnType<typeof hitting>) =>
  injection.faultEnvironment.signalled.map(({ signal }) => signal)

test('a stopped process continues when its time is over', async () => {
  const hit = hitting('proc.pause', { for: '5s' })
  await hit.send()
  assert.deepEqual(hit.injection.notes, [{ effect: 'paused', forMs: 5_000 }])
  await hit.injection.clock.advance(4_999)
  assert.deepEqual(signalsOf(hit), ['SIGSTOP'])
  await hit.injection.clock.advance(1)
  assert.deepEqual(signalsOf(hit), ['SIGSTOP', 'SIGCONT'])
})

test('calls in a pause do not extend the pause, and the next call afterwards begins another', async () => {
  const hit = hitting('proc.pause', { for: '5s' })
  await hit.send()
  await hit.injection.clock.advance(4_000)
  await hit.send()
  assert.deepEqual(hit.injection.notes[1], { effect: 'found paused' })
  await hit.injection.clock.advance(1_000)
  assert.equal(signalsOf(hit).at(-1), 'SIGCONT')
  await hit.send()
  assert.deepEqual(hit.injection.notes[2], { effect: 'paused', forMs: 5_000 })
})

test('a stopped process is continued once, as soon as the fault ends', async () => {
  const hit = hitting('proc.pause', { for: '5s' })
  await hit.send()
  hit.injection.release()
  assert.deepEqual(signalsOf(hit), ['SIGSTOP', 'SIGCONT'])
  assert.equal(hit.injection.clock.pending, 0)
})

test('a pause delays a hit call until the earlier end of the fault and the pause', async () => {
  const delays: Promise<unknown>[] = []
  const injection = {
    ...testInjection({ faultEnvironment: stdio }),
    delaying: <Settled>(_: unknown, settled: Promise<Settled>) => (delays.push(settled), settled),
  }
  await faultLayer(processFaults['proc.pause'], { for: '5s' }, injection)(answer)(toolCall('echo'))
  assert.equal(delays.length, 1)
  await injection.clock.advance(5_000)
  await Promise.all(delays)
})

test('without a running process, nothing is stopped', async () => {
  const { injection, send } = hitting('proc.pause', {}, { faultEnvironment: { signal: () => false } })
  await send()
  assert.deepEqual(injection.inapplicable, ['the server has no process now'])
  assert.equal(injection.clock.pending, 0)
})

test('a crash loop begins with the first call, covers later calls, and does not begin again after its end', async () => {
  const { injection, send } = hitting('proc.crash_loop', { for: '30s', after: '100ms' })
  const { crashed } = injection.faultEnvironment
  await send()
  await send()
  const loops = crashed.map(({ loop }) => loop)
  assert.equal(loops[0], loops[1])
  assert.deepEqual([loops[0]?.signal, loops[0]?.afterMs, loops[0]?.over.aborted], ['SIGKILL', 100, false])
  assert.deepEqual(injection.notes, [{ effect: 'crash loop', forMs: 30_000 }, { effect: 'in crash loop' }])
  await injection.clock.advance(30_000)
  assert.equal(loops[0]?.over.aborted, true)
  await send()
  assert.deepEqual([crashed.length, injection.inapplicable], [2, ['the crash loop is over']])
  await send('another')
  assert.equal(crashed.at(-1)?.server, 'another')
})

test('a crash loop ends with the fault', async () => {
  const { injection, send } = hitting('proc.crash_loop', {})
  await send()
  injection.release()
  assert.equal(injection.faultEnvironment.crashed[0]?.loop.over.aborted, true)
  assert.equal(injection.clock.pending, 0)
})

/** Returns the bytes that a fault makes the process print before an answer. */
async function printedBy(config: object): Promise<Buffer | undefined> {
  const injection = testInjection({ faultEnvironment: stdio })
  let shaped: ShapedAnswer | undefined
  await faultLayer(
    processFaults['stdout.pollution'],
    config,
    injection,
  )((call) => {
    shaped = call.wire?.answer?.take('{}')
    return answer(call)
  })(toolCall('echo'))
  assert.deepEqual(shaped?.texts, ['{}'])
  assert.deepEqual(injection.inapplicable, [])
  return shaped?.before
}

test('pollution prints typical lines of programs before an unchanged answer', async () => {
  assert.equal(String(await printedBy({ lines: 2 })), '[INFO] processing request\n'.repeat(2))
  assert.equal(String(await printedBy({ kind: 'json' })), '{"level":"info","msg":"processing request"}\n')
  assert.match(String(await printedBy({ kind: 'banner' })), /^=+\n.*stdio\n=+\n$/)
  assert.equal(String(await printedBy({ text: 'ready\nto serve' })), 'ready\nto serve\n')
  assert.equal(String(await printedBy({ kind: 'half', lines: 7 })), '[INFO] processing request ... ')
  const bytes = await printedBy({ kind: 'bytes', lines: 2 })
  assert.equal(bytes?.at(-1), 0x0a)
  assert.throws(() => new TextDecoder('utf-8', { fatal: true }).decode(bytes), 'it is no UTF-8')
})

test('a flood comes in portions, each after the read of the last portion and its time', async () => {
  let taken = () => {}
  const { injection, send } = hitting(
    'stdout.flood',
    { perSecond: 100, size: 7, for: '1s' },
    { faultEnvironment: { write: () => new Promise((resolve) => (taken = resolve)) } },
  )
  const { written } = injection.faultEnvironment
  await send()
  assert.deepEqual(injection.notes, [{ effect: 'flood', lines: 'junk', perSecond: 100, forMs: 1_000 }])
  assert.equal(String(written[0]?.bytes), 'xxxxxxx\n'.repeat(5))
  await injection.clock.advance(500)
  assert.equal(written.length, 1, 'nothing is read yet')
  const read = async () => {
    taken()
    await injection.clock.advance(0)
  }
  await read()
  await injection.clock.advance(50)
  assert.equal(written.length, 2)
  await send()
  assert.deepEqual(injection.notes[1], { effect: 'in flood' })
  for (let ms = 550; ms < 2_000; ms += 50) {
    await read()
    await injection.clock.advance(50)
  }
  assert.equal(written.length, 10, 'as many portions as time allowed')
  assert.equal(injection.clock.pending, 0)
})

test('notifications of a flood are messages of the protocol, of the size that is asked for', async () => {
  const { injection, send } = hitting('stdout.flood', { lines: 'notifications', size: 200, perSecond: 20 })
  await send()
  const [line = ''] = String(injection.faultEnvironment.written[0]?.bytes).split('\n')
  assert.equal((JSON.parse(line) as { method: string }).method, 'notifications/message')
  assert.equal(line.length, 200)
})

test('a flood ends with the fault, even while waiting for a read', async () => {
  const { injection, send } = hitting('stdout.flood', {})
  await send()
  injection.release()
  await injection.clock.advance(10_000)
  assert.deepEqual([injection.faultEnvironment.written.length, injection.clock.pending], [1, 0])
})

test('faults of a process have bounds that no plan can exceed', () => {
  const refused: [keyof typeof processFaults, object][] = [
    ['proc.pause', { for: '11m' }],
    ['proc.pause', { for: 0 }],
    ['proc.crash_loop', { for: '2h' }],
    ['stdout.pollution', { lines: 1_001 }],
    ['stdout.pollution', { text: 'x'.repeat(4_097) }],
    ['stdout.flood', { perSecond: 10_001 }],
    ['stdout.flood', { size: 8_193 }],
    ['stdout.flood', { for: '11m' }],
  ]
  for (const [type, config] of refused)
    assert.equal(
      processFaults[type].schema.safeParse(config).success,
      false,
      `${type} ${JSON.stringify(config)}`,
    )
})
