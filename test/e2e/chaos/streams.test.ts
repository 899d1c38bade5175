import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { closeClients } from '../support/sdk-client.ts'
import { Shop, type Got } from '../support/shop.ts'
import { lanes, lanesOf, type Act, type Lane } from '../support/stage.ts'

interface Scene extends Act {
  readonly title: string
  /** Whether the client asks for progress. */
  readonly asks?: boolean
  /** What it got, and how many steps it heard of before. */
  readonly got: (got: Got, steps: number) => void
  /** Attempts at the server, by the verdict; those without an answer have none. */
  readonly verdicts: Json
  readonly fates: Json
}

const once = { maxInjections: 1 }
const good = ({ text, reason }: Got) => assert.deepEqual([text, reason], ['streamed', undefined])
const fails = (reason: string, steps: number) => (got: Got, heard: number) =>
  assert.deepEqual([got.reason, heard], [reason, steps])

const scenes: readonly Scene[] = [
  {
    title: 'sse.cut: once something has reached the agent, nothing is sent again',
    tool: 'streaming_cut',
    type: 'sse.cut',
    fault: once,
    asks: true,
    got: fails('upstream_disconnected', 1),
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.cut: before that, a call that only reads is',
    tool: 'streaming_cutOnce',
    type: 'sse.cut',
    fault: { ...once, afterEvents: 0 },
    got: good,
    verdicts: { '': 1, unchecked: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'sse.cut: a call that writes is not, as it may have run',
    tool: 'streaming_write',
    type: 'sse.cut',
    fault: { ...once, allowWrites: true },
    policies: { effect: 'write' },
    got: fails('upstream_disconnected', 0),
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.cut: a stream that goes on for longer is cut where it says',
    tool: 'streaming_late',
    type: 'sse.cut',
    fault: { ...once, afterEvents: 2 },
    asks: true,
    got: fails('upstream_disconnected', 2),
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.cut: on the side of the agent its own connection breaks',
    tool: 'streaming_client',
    type: 'sse.cut',
    fault: { ...once, side: 'client' },
    on: ({ name }) => name !== 'http-legacy',
    got: ({ text, message }) => assert.ok(text === '' && message !== undefined),
    verdicts: { unchecked: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.cut: an agent whose stream can be resumed asks for the rest of it',
    tool: 'streaming_client_resumes',
    type: 'sse.cut',
    fault: { ...once, side: 'client' },
    on: ({ name }) => name === 'http-legacy',
    got: good,
    verdicts: { unchecked: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.stall: a silence that is too long is a timeout, and a retry makes up for it',
    tool: 'streaming_stall',
    type: 'sse.stall',
    fault: { ...once, stall: '60s' },
    policies: { attemptTimeout: { timeout: 600 } },
    got: good,
    verdicts: { '': 1, unchecked: 1 },
    fates: { delayed: 1 },
  },
  {
    title: 'sse.stall: an agent that heard something waits for the timeout',
    tool: 'streaming_stalled',
    type: 'sse.stall',
    fault: { ...once, stall: '60s' },
    policies: { attemptTimeout: { timeout: 600 } },
    asks: true,
    got: fails('attempt_timeout', 1),
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.stall: a short silence loses nothing',
    tool: 'streaming_pause',
    type: 'sse.stall',
    fault: { ...once, stall: '50ms' },
    asks: true,
    got(got, steps) {
      good(got)
      assert.equal(steps, 3)
    },
    verdicts: { unchecked: 1 },
    fates: { delayed: 1 },
  },
  {
    title: 'sse.bad_frame: an event that is no JSON is an error, never bytes for the agent',
    tool: 'streaming_bad',
    type: 'sse.bad_frame',
    fault: once,
    asks: true,
    got: fails('bad_reply', 1),
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.bad_frame: a retry makes up for it, unless something was heard',
    tool: 'streaming_badOnce',
    type: 'sse.bad_frame',
    fault: once,
    got: good,
    verdicts: { '': 1, unchecked: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'sse.progress_forever: only a total time ends it',
    tool: 'streaming_forever',
    type: 'sse.progress_forever',
    fault: { every: '10ms' },
    policies: { deadline: { total: '300ms' } },
    asks: true,
    got({ reason }, steps) {
      assert.equal(reason, 'deadline_exceeded')
      assert.ok(steps > 3, `${steps} steps`)
    },
    verdicts: { '': 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'sse.progress_forever: there is nothing to do to a call that asks for no progress',
    tool: 'streaming_silent',
    type: 'sse.progress_forever',
    fault: { every: '10ms' },
    got: good,
    verdicts: { unchecked: 1 },
    fates: {},
  },
]

const endless: Act = { tool: 'streaming_endless', type: 'sse.progress_forever', fault: { every: '10ms' } }
let shop: Shop

/** Calls a tool, and counts the steps that are heard of. */
async function heard(lane: Lane, tool: string, asks: boolean, onStep: () => void = () => undefined) {
  let steps = 0
  const onprogress = () => {
    steps++
    onStep()
  }
  const got = await shop.call(lane, tool, {}, { timeout: 5_000, ...(asks ? { onprogress } : {}) })
  return { got, steps }
}

before(async () => {
  shop = await Shop.start([...scenes, endless])
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const lane of lanes) {
  for (const { title, tool, asks = false, got, verdicts, fates } of scenes.filter((scene) =>
    lanesOf(scene).includes(lane),
  )) {
    test(`${lane.name}: ${title}`, async () => {
      const { got: last, steps } = await heard(lane, tool, asks)
      got(last, steps)
      assert.deepEqual(await shop.verdicts(lane, tool), verdicts)
      assert.deepEqual(await shop.fates(lane, tool), fates)
    })
  }
}

test('the kill switch lets go of calls that would report progress for ever, with their answers', async () => {
  const reporting = new Set<string>()
  const calls = lanes.map((lane) => heard(lane, endless.tool, true, () => reporting.add(lane.name)))
  await until('all of them report', () => reporting.size === lanes.length)
  shop.gateway.program.signal('SIGUSR2')
  for (const { got } of await Promise.all(calls)) good(got)
})
