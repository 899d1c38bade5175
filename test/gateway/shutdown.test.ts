import assert from 'node:assert/strict'
import { test } from 'node:test'
import { shutDown, type ShutdownParts } from '../../src/gateway/shutdown.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

const never = new Promise<never>(() => undefined)
const atOnce = () => Promise.resolve()

/** The parts of a gateway that ends; each part logs when it is told to end. */
function ending(over: { sessions?: Promise<void>; servers?: Record<string, () => Promise<void>> }) {
  const clock = new ManualClock()
  const { log, lines } = recordedLog()
  const ended: string[] = []
  const closing =
    (what: string, ending = atOnce) =>
    () => {
      ended.push(what)
      return ending()
    }
  const servers = Object.entries(over.servers ?? {}).map(([name, close]) => ({
    name,
    processes: 1,
    close: closing(name, close),
  }))
  const generation = {
    config: { gateway: { drain: 1_000 } },
    servers: new Map(servers.map((one) => [one.name, one])),
  }
  const parts: ShutdownParts = {
    dataPlane: {
      stopListening: (done) => done(),
      closeIdleConnections: () => undefined,
      close: closing('data'),
    },
    controlPlane: { close: closing('control') },
    live: { current: generation, open: [generation] },
    agents: { close: closing('sessions', () => over.sessions ?? Promise.resolve()) },
    chaos: { stop: closing('chaos'), close: closing('journal of faults') },
    guards: { tarpit: { close: () => undefined }, unread: { isAny: false } },
    reloader: { close: () => undefined },
    tracing: { close: closing('tracing') },
    metricsExport: { close: closing('metrics') },
    durable: { close: closing('durable') },
    health: { close: closing('incidents') },
    recorder: { close: closing('recording') },
    taskCalls: { closeAll: () => void ended.push('tasks') },
    intents: { closeAll: () => void ended.push('intents') },
    experiments: { close: () => undefined },
    endStallWatch: () => undefined,
    removeToken: closing('token'),
    load: { inFlight: 0, detached: 0 },
    clock,
    log,
  }
  return { parts, clock, lines, ended }
}

test('servers are ended while sessions still are, and before what needs them', async () => {
  let end: () => void = () => undefined
  const sessions = new Promise<void>((resolve) => (end = resolve))
  const { parts, clock, ended } = ending({ sessions, servers: { one: atOnce, two: () => never } })
  const stopped = shutDown(parts)
  await clock.advance(0)
  assert.deepEqual(ended.slice(0, 4), ['chaos', 'sessions', 'one', 'two'])
  assert.ok(!ended.includes('data') && !ended.includes('durable'))
  end()
  await clock.advance(5_000)
  await stopped
})

test('the end has a limit, and logs each second what is still pending', async () => {
  const { parts, clock, lines } = ending({ servers: { quick: atOnce, stuck: () => never } })
  const stopped = shutDown(parts)
  await clock.advance(0)
  await clock.advance(5_000)
  await stopped
  const waits = lines.filter(({ waitingFor }) => waitingFor !== undefined)
  assert.deepEqual(
    waits.map(({ msg, waitingFor }) => [String(msg).split(':')[0], waitingFor]),
    [
      ...Array.from({ length: 4 }, () => ['stopping', ['server stuck (processes: 1)']]),
      ['the shutdown takes too long', ['server stuck (processes: 1)']],
    ],
  )
  assert.equal(lines.at(-1)?.msg, 'stopped')
})

test('a failing part fails the shutdown, and logs nothing more afterwards', async () => {
  const { parts, clock, lines } = ending({
    servers: { broken: () => Promise.reject(new Error('broken')), stuck: () => never },
  })
  const stopped = shutDown({ ...parts, load: { inFlight: 1, detached: 0 } })
  const failed = assert.rejects(stopped, { message: 'broken' })
  await clock.advance(0)
  // The drain is over, and the calls in flight are still unanswered.
  await clock.advance(1_000)
  await new Promise((resolve) => setImmediate(resolve))
  await failed
  await clock.advance(10_000)
  assert.ok(!lines.some(({ waitingFor }) => waitingFor !== undefined))
})

test('the store on disk is closed after everything that may still write to it', async () => {
  const { parts, clock, ended, lines } = ending({ servers: { one: atOnce } })
  await shutDown(parts)
  assert.equal(ended.at(-1), 'durable')
  assert.ok(ended.indexOf('sessions') < ended.indexOf('journal of faults'))
  assert.ok(ended.indexOf('tasks') < ended.indexOf('intents'))
  assert.ok(ended.indexOf('intents') < ended.indexOf('tracing'))
  assert.ok(ended.indexOf('token') < ended.indexOf('control'))
  assert.equal(clock.pending, 0)
  assert.ok(!lines.some(({ waitingFor }) => waitingFor !== undefined))
})
