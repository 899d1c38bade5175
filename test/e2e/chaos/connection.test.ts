import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { Stage } from '../support/stage.ts'

const once = { maxInjections: 1 }
/** Longer than an attempt takes that nothing happens to, on a busy machine too; in milliseconds. */
const BRIEF_MS = 1_200
const brief = { attemptTimeout: { timeout: BRIEF_MS } }
const fixed = (delay: number | string) => ({ distribution: { kind: 'fixed', delay } })

/** Of the gateway's side: what it makes of each fault, and by which policy. */
const scenes: readonly Scene[] = [
  {
    title: 'a refused connection is tried again, and then an error that says that nothing was sent',
    tool: 'refused',
    type: 'conn.refused',
    sees: { reason: 'upstream_unavailable', code: 1503, message: /it was not sent/ },
    runs: 0,
    attempts: { transport_error: 3 },
    fates: { surfaced: 3 },
  },
  {
    title: 'a connection that is refused once is masked by the retry, of a tool that writes as well',
    tool: 'write_refused_once',
    type: 'conn.refused',
    fault: { ...once, allowWrites: true },
    runs: 1,
    attempts: { transport_error: 1, returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'a connection that breaks is tried again, and then an error that says that the call may have run',
    tool: 'reset',
    type: 'conn.reset',
    sees: { reason: 'upstream_disconnected', code: 1502, message: /it may have run/ },
    runs: 3,
    attempts: { transport_error: 3 },
    fates: { surfaced: 3 },
  },
  {
    title: 'a connection that breaks in the middle of one reply is masked by the retry',
    tool: 'reset_once',
    type: 'conn.reset',
    fault: { ...once, at: { afterBytes: 20 } },
    runs: 2,
    attempts: { transport_error: 1, returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'a call that writes is not sent again when the connection broke after it was sent',
    tool: 'write_reset',
    type: 'conn.reset',
    fault: { ...once, allowWrites: true },
    sees: { reason: 'upstream_disconnected', message: /it may have run/ },
    runs: 1,
    attempts: { transport_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'a half-open connection ends with the timeout of each attempt',
    tool: 'silent',
    type: 'conn.half_open',
    policies: brief,
    sees: { reason: 'attempt_timeout', code: 1504 },
    runs: 3,
    attempts: { timeout: 3 },
    fates: { surfaced: 3 },
    takesMs: 3 * BRIEF_MS,
  },
  {
    title: 'a connection that is half-open once is ended by the timeout and the retry',
    tool: 'silent_once',
    type: 'conn.half_open',
    fault: once,
    policies: brief,
    runs: 2,
    attempts: { timeout: 1, returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'silence past the deadline ends with the deadline, and nothing is sent again',
    tool: 'silent_late',
    type: 'conn.half_open',
    policies: { deadline: { total: BRIEF_MS } },
    sees: { reason: 'deadline_exceeded', code: 1504 },
    runs: 1,
    attempts: { timeout: 1 },
    fates: { surfaced: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'a delay is really waited for',
    tool: 'late',
    type: 'conn.latency',
    fault: fixed(300),
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: 300,
  },
  {
    title: 'a call that is delayed for long is cut short by the timeout and the retry, and ran once',
    tool: 'late_once',
    type: 'conn.latency',
    fault: { ...once, ...fixed('60s') },
    policies: brief,
    runs: 1,
    attempts: { timeout: 1, returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'a call that is delayed for long is cut short by the hedge',
    tool: 'late_hedged',
    type: 'conn.latency',
    fault: { ...once, ...fixed('60s') },
    policies: { hedge: { after: 50 } },
    runs: 1,
    attempts: { cancelled: 1, returned: 1 },
    fates: { delayed: 1 },
    takesMs: 50,
  },
  {
    title: 'a reply over a thin wire takes the time of its bytes',
    tool: 'thin',
    type: 'conn.bandwidth',
    fault: { kibPerSecond: 0.5 },
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: 120,
  },
  {
    title: 'a reply that trickles in is ended by the timeout, which counts from the start',
    tool: 'thin_once',
    type: 'conn.bandwidth',
    fault: { ...once, kibPerSecond: 0.01 },
    policies: brief,
    runs: 2,
    attempts: { timeout: 1, returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'a reply in drips takes the time of its gaps',
    tool: 'drip',
    type: 'conn.slow_drip',
    fault: { chunk: 16, gap: 30 },
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: 120,
  },
  {
    title: 'a reply that never falls silent for long is ended by the timeout all the same',
    tool: 'drip_always',
    type: 'conn.slow_drip',
    fault: { chunk: 1, gap: 50 },
    policies: { ...brief, retry: false },
    sees: { reason: 'attempt_timeout' },
    runs: 1,
    attempts: { timeout: 1 },
    fates: { surfaced: 1 },
    takesMs: BRIEF_MS,
  },
]

let stage: Stage

before(async () => {
  stage = await Stage.start(scenes)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

test('the engine had no part in it', () => assertSound(stage))
