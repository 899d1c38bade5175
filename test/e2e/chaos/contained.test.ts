import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { orderOf } from '../../fixtures/shop/kinds.ts'
import { until } from '../../support/until.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeClients } from '../support/sdk-client.ts'
import {
  everywhere,
  httpShop,
  stdioShop,
  lanes,
  lanesOf,
  otherThan,
  Shop,
  type Act,
  type Got,
  type Lane,
} from '../support/shop.ts'
import { HttpToolbox } from '../support/toolbox.ts'

/*
 * Which policy contains which fault: the agent's view, the runs of the tool, and the gateway's account of it. The bytes are in
 * test/wire/cells, and the layers by themselves in test/chaos/faults.
 */

type Counts = Json | ((found: Json) => void)

/** Checks the last reply, and how much progress came before it. */
type Check = (got: Got, steps: number, lane: Lane) => void

interface Given extends Omit<Act, 'tool' | 'type'> {
  /** How the tool behaves: the first word of its name. */
  readonly kind?: string
  /** The orders that the client asks for, one after another. */
  readonly orders?: readonly number[]
  /** Whether the client asks for progress. */
  readonly asks?: true
  /** How long the client waits, in milliseconds. */
  readonly patienceMs?: number
}

interface Then {
  readonly runs?: number
  /** Attempts at the server, by their outcome. */
  readonly attempts?: Counts
  /** Attempts at the server, by the verdict on the reply. */
  readonly verdicts?: Counts
  /** The account of the injections. */
  readonly fates: Counts
  /** How long the calls take at least, in milliseconds. */
  readonly leastMs?: number
}

/** A fault, the policies that meet it, and how a call ends. */
interface Row extends Given, Then {
  readonly type: string
  readonly title: string
  readonly kind: string
  /** The tool's own answer is expected unless given. */
  readonly got?: Check | undefined
}

interface Parts {
  readonly given?: Given
  readonly got?: Check
  readonly then: Then
}

const rowOf =
  (kind: string, usual?: Check) =>
  (type: string, title: string, { given, got = usual, then }: Parts): Row => ({
    type,
    title,
    kind,
    got,
    ...given,
    ...then,
  })

/** Timers may be a hair early, on either side. */
const EARLY_MS = 5

/** Longer than an attempt takes that nothing happens to, on a busy machine too; in milliseconds. */
const BRIEF_MS = 2_000

const brief = { attemptTimeout: { timeout: BRIEF_MS } }
const once = { maxInjections: 1 }
const onceAtWrite = { ...once, allowWrites: true }
const agentSide = { side: 'client' }
const fixed = (delay: number | string) => ({ distribution: { kind: 'fixed', delay } })
const masked = { masked: 1 }
const delayed = { delayed: 1 }
const surfaced = { surfaced: 1 }
const escaped = { escaped: 1 }
const returned = { returned: 1 }
const broken = { transport_error: 1 }
const saved = { transport_error: 1, returned: 1 }
const savedLate = { timeout: 1, returned: 1 }

const shown = (got: unknown) => JSON.stringify(got).slice(0, 500)
const story = 'the first half of the story'
const says = (text: string) => (got: Got) => assert.deepEqual([got.text, got.message], [text, undefined])
const fails =
  (reason: string, message = /./, code?: number) =>
  (got: Got) => {
    assert.equal(got.reason, reason, shown(got))
    assert.match(got.message ?? '', message)
    if (code !== undefined) assert.equal(got.code, code)
  }
/** An error that is not the gateway's own. */
const errs =
  (message: RegExp, code?: number) =>
  ({ reason, message: said, code: told, text }: Got) => {
    assert.deepEqual([reason, text], [undefined, ''])
    assert.match(said ?? '', message)
    if (code !== undefined) assert.equal(told, code)
  }
const failsBehind = (reason: string, steps: number) => (got: Got, heard: number) =>
  assert.deepEqual([got.reason, heard], [reason, steps], shown(got))
/** The same value in both forms. */
const both = (value: unknown) => (got: Got) => {
  assert.deepEqual([JSON.parse(got.text), got.structured], [value, value])
}
/** Word that something is missing, from this source; a server names none. */
function flagged({ meta }: Got, source: string | undefined, reason: RegExp): void {
  const flag = meta['dev.breakwater/partial'] as Json | undefined
  assert.equal(flag?.source, source)
  assert.match(String(flag?.reason), reason)
}

const row = rowOf('plain')
const streamed = rowOf('streaming', says('streamed'))
const typed = rowOf('typed')

/** The connection, and the time that calls take. */
const connections: readonly Row[] = [
  row('conn.refused', 'a call that was not sent is tried again, and then the error says so', {
    got: fails('upstream_unavailable', /it was not sent/, 1503),
    then: { runs: 0, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('conn.refused', 'a retry masks one refusal, of a tool that writes as well', {
    given: { kind: 'write', fault: onceAtWrite },
    then: { runs: 1, attempts: saved, fates: masked },
  }),
  row('failure_domain', 'while all is down together, each call is tried again in vain', {
    given: { fault: { down: '10m' } },
    got: fails('upstream_unavailable', /it was not sent/),
    then: { runs: 0, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('conn.reset', 'a call that reads is tried again, and then the error says that it may have run', {
    got: fails('upstream_disconnected', /it may have run/, 1502),
    then: { runs: 3, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('conn.reset', 'a retry masks one break in the middle of a reply', {
    given: { fault: { ...once, at: { afterBytes: 20 } } },
    then: { runs: 2, attempts: saved, fates: masked },
  }),
  row('conn.reset', 'a call that writes is not sent again, as it may have run', {
    given: { kind: 'write', fault: onceAtWrite },
    got: fails('upstream_disconnected', /it may have run/),
    then: { runs: 1, attempts: broken, fates: surfaced },
  }),
  row('conn.refused', 'a gate holds a call until the server can be reached again', {
    given: { kind: 'write', policies: { gate: {} }, fault: { maxInjections: 2, allowWrites: true } },
    then: { runs: 1, attempts: { transport_error: 2, returned: 1 }, fates: { masked: 2 }, leastMs: 100 },
  }),
  row('conn.half_open', 'a timeout ends each attempt', {
    given: { policies: brief },
    got: fails('attempt_timeout', /./, 1504),
    then: { runs: 3, attempts: { timeout: 3 }, fates: { surfaced: 3 }, leastMs: 3 * BRIEF_MS },
  }),
  row('conn.half_open', 'a timeout and a retry end one silence', {
    given: { policies: brief, fault: once },
    then: { runs: 2, attempts: savedLate, fates: delayed, leastMs: BRIEF_MS },
  }),
  row('conn.half_open', 'a copy of a read that is overdue is answered in its place', {
    given: { policies: { overdue: {} }, orders: [1, 2], fault: { ...once, when: { afterCalls: 1 } } },
    then: { runs: 3, attempts: { cancelled: 1, returned: 2 }, fates: delayed, leastMs: BRIEF_MS },
  }),
  row('conn.half_open', 'nobody sends a write again that is overdue', {
    given: { kind: 'write', policies: { ...brief, overdue: { after: 50 } }, fault: onceAtWrite },
    got: fails('attempt_timeout', /it may have run/),
    then: { runs: 1, attempts: { timeout: 1 }, fates: surfaced, leastMs: BRIEF_MS },
  }),
  row('conn.half_open', 'the deadline ends the call, and nothing is sent again', {
    given: { policies: { deadline: { total: BRIEF_MS } } },
    got: fails('deadline_exceeded', /./, 1504),
    then: { runs: 1, attempts: { timeout: 1 }, fates: surfaced, leastMs: BRIEF_MS },
  }),
  row('conn.latency', 'a timeout and a retry cut a long delay short, and the tool runs once', {
    given: { policies: brief, fault: { ...once, ...fixed('60s') } },
    then: { runs: 1, attempts: savedLate, fates: delayed, leastMs: BRIEF_MS },
  }),
  row('conn.latency', 'a hedge cuts a long delay short', {
    given: { policies: { hedge: { after: 50 } }, fault: { ...once, ...fixed('60s') } },
    then: { runs: 1, attempts: { cancelled: 1, returned: 1 }, fates: delayed, leastMs: 50 },
  }),
  row('conn.bandwidth', 'a timeout counts from the start, and a retry gets the reply', {
    given: { policies: brief, fault: { ...once, kibPerSecond: 0.01 } },
    then: { runs: 2, attempts: savedLate, fates: delayed, leastMs: BRIEF_MS },
  }),
  row('conn.slow_drip', 'a timeout ends a reply that never falls silent for long', {
    given: { policies: { ...brief, retry: false }, fault: { chunk: 1, gap: 50 } },
    got: fails('attempt_timeout'),
    then: { runs: 1, attempts: { timeout: 1 }, fates: surfaced, leastMs: BRIEF_MS },
  }),
  row('retry.storm', 'one call becomes three, and the last one masks it', {
    then: { runs: 1, attempts: { transport_error: 2, returned: 1 }, fates: { masked: 2 } },
  }),
  row('retry.storm', 'without retries one call stays one', {
    given: { policies: { retry: { maxRetries: 0 } } },
    got: ({ message }) => assert.match(message ?? '', /503|cannot start/),
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('fanout.amplify', 'nobody notices ten calls for one but the server, and the agent waits for them', {
    given: { fault: { factor: 10 } },
    then: { runs: 10, attempts: returned, fates: delayed },
  }),
  // Apart by more than a busy machine holds up the gateway, to which both might be over at once then.
  row('cold_start', 'a timeout and a retry find the server warmer', {
    given: { policies: { attemptTimeout: { timeout: 2_000 } }, fault: { delay: 3_000 } },
    then: { runs: 1, attempts: savedLate, fates: { delayed: 2 }, leastMs: 3_000 },
  }),
]

/** Refusals and replies that are none. */
const replies: readonly Row[] = [
  row('http.status', 'a status is tried again, and then an error names it without its body', {
    given: { fault: { body: '<h1>secret-trace</h1>' } },
    got: fails('upstream_status', /^[^<]*HTTP 503[^<]*$/, 1502),
    then: { runs: 0, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('http.status', 'a retry masks one status', {
    given: { fault: once },
    then: { runs: 1, attempts: saved, fates: masked },
  }),
  row('http.status', 'a refusal is not tried again', {
    given: { fault: { ...once, status: 410 } },
    got: fails('upstream_refused', /HTTP 410/),
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('rpc.error', 'an error is tried again, and then the agent gets it as it is', {
    given: { fault: { code: -32000, message: 'injected', data: { n: 1 } } },
    got: errs(/injected$/, -32000),
    then: { runs: 0, attempts: { rpc_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('rpc.error', 'a retry masks one error', {
    given: { fault: once },
    then: { runs: 1, attempts: { rpc_error: 1, returned: 1 }, fates: masked },
  }),
  row('rpc.error', "an error that is the caller's is not tried again", {
    given: { fault: { ...once, code: -32602 } },
    got: errs(/./, -32602),
    then: { runs: 0, attempts: { caller_error: 1 }, fates: surfaced },
  }),
  row('rpc.malformed', 'half a reply is tried again, and then becomes a clean error', {
    given: { on: 'http' },
    got: fails('bad_reply', /it may have run/, 1502),
    then: { runs: 3, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('rpc.malformed', 'a retry masks one reply that is no JSON', {
    given: { on: 'http', fault: { ...once, kind: 'bad_json' } },
    then: { runs: 2, attempts: saved, fates: masked },
  }),
  row('rpc.malformed', 'no tool that writes runs again over it', {
    given: { kind: 'write', on: 'http', fault: { ...onceAtWrite, kind: 'bad_json' } },
    got: fails('bad_reply', /it may have run/),
    then: { runs: 1, attempts: broken, fates: surfaced },
  }),
  row('rpc.malformed', 'a web page becomes a clean error, without the page', {
    given: { on: 'http', fault: { kind: 'wrong_content_type' } },
    got: fails('bad_reply', /^[^<]*text\/html[^<]*$/),
    then: { runs: 3, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('rpc.malformed', 'over a pipe a reply that is no JSON is tried again, and then becomes a clean error', {
    given: { on: 'stdio', fault: { kind: 'bad_json' } },
    got: fails('bad_reply', /it may have run/),
    then: { runs: 3, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('rpc.malformed', 'over a pipe a retry masks one reply that is no JSON', {
    given: { on: 'stdio', fault: { ...once, kind: 'bad_json' } },
    then: { runs: 2, attempts: saved, fates: masked },
  }),
  row('rpc.malformed', 'over a pipe no tool that writes runs again over it', {
    given: { kind: 'write', on: 'stdio', fault: { ...onceAtWrite, kind: 'bad_json' } },
    got: fails('bad_reply', /it may have run/),
    then: { runs: 1, attempts: broken, fates: surfaced },
  }),
  row('rpc.wrong_id', "another request's reply is tried again, and never taken for this one's", {
    given: { on: 'http' },
    got: fails('bad_reply', /answered another request/),
    then: { runs: 3, attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
  }),
  row('rpc.wrong_id', 'a retry masks one of them', {
    given: { on: 'http', fault: once },
    then: { runs: 2, attempts: saved, fates: masked },
  }),
  row('rpc.late', 'a timeout and a retry cut one late reply short', {
    given: { policies: brief, fault: { ...once, delay: 2 * BRIEF_MS } },
    then: { runs: 2, attempts: savedLate, fates: delayed, leastMs: BRIEF_MS },
  }),
  row('rpc.version_mismatch', 'a retry masks one refusal of a legacy version', {
    given: { on: 'http', fault: once },
    then: { runs: 1, attempts: { caller_error: 1, returned: 1 }, fates: masked },
  }),
  row('rpc.version_mismatch', 'a refusal of a modern version is the agent to read', {
    given: { on: 'stdio', fault: once },
    got: errs(/./, -32022),
    then: { runs: 0, attempts: { caller_error: 1 }, fates: surfaced },
  }),
  row('auth.expired', 'nobody tries a token again that has expired', {
    got: fails('upstream_unauthorized', /./, 1401),
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('auth.expired', 'no breaker opens, as whoever is refused may have been refused alone', {
    given: { orders: [1, 2, 3, 4, 5, 6] },
    got: fails('upstream_unauthorized'),
    then: { runs: 0, attempts: { transport_error: 6 }, fates: { surfaced: 6 } },
  }),
  row('auth.scope', 'nobody tries a token again that lacks a scope', {
    got: fails('upstream_forbidden'),
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('limit.429', 'a write is not sent again, as only the server knows whether it ran', {
    given: { kind: 'write', fault: { ...onceAtWrite, form: 'absent' } },
    got: (got) => assert.deepEqual([got.reason, got.data.sent], ['upstream_rate_limited', true]),
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('limit.429', 'a retry does not believe an absurd time to come again', {
    given: { fault: { ...once, form: 'absurd' } },
    then: { runs: 1, attempts: saved, fates: masked },
  }),
  row('limit.429', 'a retry waits for a time within the deadline', {
    given: { fault: { ...once, retryAfter: '1s' } },
    then: { runs: 1, attempts: saved, fates: masked, leastMs: 900 },
  }),
  row('limit.429', 'the agent is told at once of a time past the deadline', {
    given: { policies: { deadline: { total: '20s' } }, fault: { retryAfter: '60s', form: 'date' } },
    got(got) {
      fails('upstream_rate_limited')(got)
      assert.ok(Number(got.data.retryAfterMs) > 50_000, shown(got))
    },
    then: { runs: 0, attempts: broken, fates: surfaced },
  }),
  row('registry.tool_missing', 'a call of a tool that is gone is an error, which is not tried again', {
    given: { fault: { tools: ['*'] } },
    got: errs(/Unknown tool/, -32602),
    then: { runs: 0, attempts: { caller_error: 1 }, fates: surfaced },
  }),
  row('registry.moved', 'the agent is told where a tool is now', {
    given: { fault: { replacement: 'elsewhere/words_v2' } },
    got: errs(/has moved, use elsewhere\/words_v2 instead/, -32602),
    then: { runs: 0, attempts: { caller_error: 1 }, fates: surfaced },
  }),
]

/** Streams of events, of a tool that tells of three steps where it is asked to. */
const streams: readonly Row[] = [
  streamed('sse.cut', 'nothing is sent again once something has reached the agent', {
    given: { asks: true, fault: { ...once, afterEvents: 2 } },
    got: failsBehind('upstream_disconnected', 2),
    then: { attempts: broken, fates: surfaced },
  }),
  streamed('sse.cut', 'a retry masks it before that', {
    given: { fault: { ...once, afterEvents: 0 } },
    then: { attempts: saved, fates: masked },
  }),
  streamed('sse.cut', 'a call that writes is not sent again, as it may have run', {
    given: { policies: { effect: 'write' }, fault: onceAtWrite },
    got: failsBehind('upstream_disconnected', 0),
    then: { attempts: broken, fates: surfaced },
  }),
  streamed('sse.stall', 'a timeout and a retry end a silence', {
    given: { policies: brief, fault: { ...once, stall: '60s' } },
    then: { attempts: savedLate, fates: delayed },
  }),
  streamed('sse.stall', 'only a timeout ends it once something has reached the agent', {
    given: { asks: true, policies: brief, fault: { ...once, stall: '60s' } },
    got: failsBehind('attempt_timeout', 1),
    then: { attempts: { timeout: 1 }, fates: surfaced },
  }),
  streamed('sse.stall', 'a short silence loses nothing', {
    given: { asks: true, fault: { ...once, stall: '50ms' } },
    got: (got, steps) => assert.deepEqual([got.text, steps], ['streamed', 3]),
    then: { attempts: returned, fates: delayed },
  }),
  streamed('sse.bad_frame', 'an event that is no JSON is an error, never bytes for the agent', {
    given: { asks: true, fault: once },
    got: failsBehind('bad_reply', 1),
    then: { attempts: broken, fates: surfaced },
  }),
  streamed('sse.bad_frame', 'a retry masks it, unless something was heard', {
    given: { fault: once },
    then: { attempts: saved, fates: masked },
  }),
  streamed('sse.progress_forever', 'only a deadline ends it', {
    given: { asks: true, policies: { deadline: { total: BRIEF_MS } }, fault: { every: '10ms' } },
    got({ reason }, steps) {
      assert.equal(reason, 'deadline_exceeded')
      assert.ok(steps > 3, `${steps} steps`)
    },
    then: { attempts: { timeout: 1 }, fates: surfaced },
  }),
  streamed('sse.cut', 'an agent whose stream can be resumed asks for the rest of it', {
    given: { on: 'http', fault: { ...once, ...agentSide } },
    then: { attempts: returned, fates: surfaced },
  }),
]

const order = orderOf(1)
const { state, ...stateless } = order
const renamed = { ...stateless, status: state }
const rename = { operators: [{ op: 'rename', path: '/state', to: 'status' }] }
const half = { ...order, items: order.items.slice(0, 2) }
const halving = { operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }] }
const enforced = { verdict: { output: 'enforce' }, retry: false }
const unlimited = { floor: 1_000, leastConcurrent: 1_000 }
const retried = { retry: { incorrect: true, base: 1, cap: 5, budget: unlimited } }

/** Results, and which of them the verdict can tell from good ones; their tools have a schema unless they say otherwise. */
const results: readonly Row[] = [
  typed('result.is_error', 'the agent can tell, and nobody tries again', {
    given: { fault: { text: 'The index is locked.' } },
    got: ({ isError, structured, text }) =>
      assert.deepEqual([isError, structured, text], [true, undefined, 'The index is locked.']),
    then: { verdicts: { tool_error: 1 }, fates: surfaced },
  }),
  typed('result.error_as_success', 'nobody sees that an error of the tool arrives as a success', {
    given: { kind: 'failing' },
    got: ({ isError, text }) => assert.deepEqual([isError ?? false, text], [false, 'OK']),
    then: { verdicts: { unchecked: 1 }, fates: escaped },
  }),
  typed('result.error_as_success', 'a schema shows it in place of a good reply, and it is only counted', {
    given: { fault: { of: 'every_reply' } },
    got: says('Error: the request failed'),
    then: { verdicts: { schema_invalid: 1 }, fates: escaped },
  }),
  typed('result.error_as_success', 'an enforced schema makes it an error', {
    given: { policies: enforced, fault: { of: 'every_reply' } },
    got: fails('incorrect_result'),
    then: { verdicts: { schema_invalid: 1 }, fates: surfaced },
  }),
  typed('result.empty', 'a schema shows an empty structured content', {
    got: ({ content, structured }) => assert.deepEqual([content, structured], [[], {}]),
    then: { verdicts: { schema_invalid: 1 }, fates: escaped },
  }),
  typed('result.empty', 'a retry masks it where the schema is enforced', {
    given: { policies: { verdict: { output: 'enforce' } }, fault: once },
    got: both(order),
    then: { verdicts: { schema_invalid: 1, correct: 1 }, fates: masked },
  }),
  typed('result.empty', 'nobody sees an empty text', {
    given: { kind: 'words', fault: { form: 'empty_text' } },
    got: ({ content }) => assert.deepEqual(content, [{ type: 'text', text: '' }]),
    then: { verdicts: { unchecked: 1 }, fates: escaped },
  }),
  typed('result.wrong_entity', 'nobody sees that the order is that of an earlier call', {
    given: { orders: [7, 8] },
    got: both(orderOf(7)),
    then: { verdicts: { correct: 2 }, fates: escaped },
  }),
  typed('result.stale', 'nobody sees that the first reply stays the newest', {
    given: { kind: 'counting', orders: [1, 1, 1] },
    got: says('{"calls":1}'),
    then: { verdicts: { unchecked: 3 }, fates: { escaped: 2 } },
  }),
  typed('result.split_brain', 'the verdict flags a text that differs from the structured content', {
    got(got) {
      assert.deepEqual(got.structured, order)
      assert.notDeepEqual(JSON.parse(got.text), order)
      flagged(got, 'detected', /^the text and the structured content differ$/)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.split_brain', 'the verdict flags structured content that differs from the text', {
    given: { fault: { changes: 'structured', operators: [{ op: 'unit', path: '/weight' }] } },
    got(got) {
      assert.deepEqual(JSON.parse(got.text), order)
      assert.notDeepEqual(got.structured, order)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.oversize', 'the size limit of the server makes a longer one an error', {
    given: { kind: 'words', fault: { bytes: '20MiB' } },
    got: fails('reply_too_large'),
    then: { verdicts: { '': 1 }, fates: surfaced },
  }),
  typed('result.drift', 'a schema shows that a member has another name, and it is only counted', {
    given: { fault: rename },
    got: both(renamed),
    then: { verdicts: { schema_invalid: 1 }, fates: escaped },
  }),
  typed('result.drift', 'an enforced schema makes it an error', {
    given: { policies: enforced, fault: rename },
    got: fails('incorrect_result'),
    then: { verdicts: { schema_invalid: 1 }, fates: surfaced },
  }),
  typed('result.drift', 'a retry of wrong answers masks it', {
    given: { policies: retried, fault: { ...rename, ...once } },
    got: both(order),
    then: { verdicts: { schema_invalid: 1, correct: 1 }, fates: masked },
  }),
  typed('result.drift', 'a prepared answer stands by, and is flagged', {
    given: {
      policies: { ...enforced, degrade: { static: { structuredContent: { ...order, remark: 'prepared' } } } },
      fault: rename,
    },
    got(got) {
      assert.deepEqual(got.structured, { ...order, remark: 'prepared' })
      flagged(got, 'fallback', /^a prepared answer/)
    },
    then: { verdicts: { schema_invalid: 1 }, fates: surfaced },
  }),
  typed('result.drift', 'the verdict flags a text that is no copy any more', {
    given: { fault: { operators: [{ op: 'unit', path: '/weight' }], sync: 'text_only' } },
    got(got) {
      assert.deepEqual(got.structured, order)
      assert.notDeepEqual(JSON.parse(got.text), order)
      flagged(got, 'detected', /differ/)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.drift', 'a schema shows whatever is drawn of the detectable operators', {
    given: {
      orders: Array.from({ length: 10 }, (_, n) => n),
      policies: { breaker: false },
      fault: { detectable: 'schema_detectable' },
    },
    got: (got) => assert.deepEqual(JSON.parse(got.text), got.structured),
    then: { verdicts: { schema_invalid: 10 }, fates: { escaped: 10 } },
  }),
  typed('result.drift', 'no schema shows anything that is drawn of the semantic ones', {
    given: { orders: Array.from({ length: 10 }, (_, n) => n), fault: { detectable: 'semantic' } },
    got(got) {
      assert.notDeepEqual(got.structured, orderOf(9))
      assert.deepEqual(JSON.parse(got.text), got.structured)
    },
    then: {
      verdicts({ correct = 0, partial_silent: short = 0, ...others }) {
        // A total that grew makes the list beside it look short, which is no matter of the schema.
        assert.deepEqual([Number(correct) + Number(short), others], [10, {}])
      },
      fates: ({ escaped: count }) => assert.ok(Number(count) >= 5),
    },
  }),
  typed('result.drift', 'another shape than that of twenty replies before is seen without a schema', {
    given: {
      kind: 'json',
      orders: Array.from({ length: 21 }, () => 1),
      fault: { ...rename, when: { afterCalls: 20 } },
    },
    got: ({ text }) => assert.deepEqual(JSON.parse(text), renamed),
    then: { verdicts: { unchecked: 20, drift: 1 }, fates: escaped },
  }),
  // Its first reply came before its schema was known, and counts as a good one.
  typed('result.drift', 'the breaker stops a tool whose wrong answers are too many', {
    given: {
      orders: [1, 2, 3, 4, 5, 6, 7],
      policies: { breaker: { window: '10m', correctness: { ratio: 0.5, minimum: 5 }, open: '60s' } },
      fault: rename,
    },
    got: fails('breaker_open'),
    then: { verdicts: { schema_invalid: 4 }, fates: { escaped: 4 } },
  }),
  typed('result.partial', 'the verdict flags a list that is shorter than its total', {
    given: { fault: halving },
    got(got) {
      both(half)(got)
      flagged(got, 'detected', /^2 items, where the reply itself says 4$/)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.partial', 'the verdict flags it in a text without a schema, too', {
    given: { kind: 'json', fault: halving },
    got(got) {
      assert.deepEqual(JSON.parse(got.text), half)
      flagged(got, 'detected', /^2 items, where the reply itself says 4$/)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.partial', 'a reply that says so itself is believed', {
    given: { fault: { ...halving, declared: true } },
    got(got) {
      both(half)(got)
      flagged(got, undefined, /^some of the data could not be fetched$/)
    },
    then: { verdicts: { partial_declared: 1 }, fates: surfaced },
  }),
  typed('result.partial', 'a retry of wrong answers gets the whole list', {
    given: { policies: retried, fault: { ...halving, ...once } },
    got: both(order),
    then: { verdicts: { partial_silent: 1, correct: 1 }, fates: masked },
  }),
  typed('result.partial', 'the verdict flags JSON that ends in the middle', {
    given: { kind: 'json', fault: { operators: [{ op: 'cut_json', at: 0.6 }] } },
    got(got) {
      assert.ok(JSON.stringify(order).startsWith(got.text))
      flagged(got, 'detected', /ends in the middle/)
    },
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.partial', 'the verdict flags a total that lies, though the list is whole', {
    given: { fault: { operators: [{ op: 'lie_total', path: '/total' }] } },
    got: ({ structured }) => assert.notEqual((structured as typeof order).total, 4),
    then: { verdicts: { partial_silent: 1 }, fates: surfaced },
  }),
  typed('result.partial', 'nobody sees that words end in the middle', {
    given: { kind: 'words', fault: { operators: [{ op: 'truncate_text', bytes: 9 }] } },
    got: says('the first'),
    then: { verdicts: { unchecked: 1 }, fates: escaped },
  }),
  typed('result.partial', 'nobody sees that a block is missing', {
    given: { kind: 'words', fault: { operators: [{ op: 'drop_blocks', n: 1 }] } },
    got: ({ content }) => assert.equal(content.length, 1),
    then: { verdicts: { unchecked: 1 }, fates: escaped },
  }),
  typed('route.wrong_backend', 'nobody sees that the answer is that of another server', {
    given: { kind: 'who', fault: (lane) => ({ server: otherThan(lane) }) },
    got: ({ text, meta }, _, lane) =>
      assert.deepEqual([text, meta['dev.breakwater/partial']], [pids.get(otherThan(lane)), undefined]),
    then: { verdicts: { unchecked: 1 }, fates: escaped },
  }),
  typed('registry.moved', 'a schema shows the answer of another tool', {
    given: { fault: (lane) => ({ replacement: `${otherThan(lane)}/words_plain`, mode: 'silent' }) },
    got: says(story),
    then: { verdicts: { schema_invalid: 1 }, fates: escaped },
  }),
  typed('registry.moved', 'a tool that is not there either is an error', {
    given: {
      kind: 'words',
      fault: (lane) => ({ replacement: `${otherThan(lane)}/nothing`, mode: 'silent' }),
    },
    got: ({ code, isError }) => assert.ok(code === -32602 || isError === true),
    then: { fates: surfaced },
  }),
  typed('result.drift', 'towards the agent no policy sees it', {
    given: { fault: { ...rename, ...agentSide } },
    got: both(renamed),
    then: { verdicts: { correct: 1 }, fates: escaped },
  }),
  typed('result.partial', 'towards the agent no policy sees it', {
    given: { fault: { ...halving, ...agentSide } },
    got: both(half),
    then: { verdicts: { correct: 1 }, fates: escaped },
  }),
]

/** Would end every attempt, if it saw the fault. */
const hasty = { ...brief, retry: false }

const aimed = (
  type: string,
  given: Given,
  fates: Counts,
  more: Omit<Then, 'fates'> & { got?: Check } = {},
): Row => ({
  ...{ type, title: 'towards the agent no policy sees it', kind: 'plain', policies: hasty },
  ...{ runs: 1, attempts: returned, fates, ...given, ...more, fault: { ...given.fault, ...agentSide } },
})
const unsent = { runs: 0, attempts: {} }

/** Above all policies: the agent meets the fault, and the server is not blamed for it. */
const towardsAgents: readonly Row[] = [
  aimed('conn.refused', {}, surfaced, { got: errs(/^fetch failed$/), ...unsent }),
  // An agent of the legacy era would ask for the rest of its stream.
  aimed('conn.reset', { on: 'stdio', fault: { at: { afterBytes: 20 } } }, surfaced, {
    got: errs(/^terminated$/),
  }),
  aimed('conn.half_open', { fault: { hold: BRIEF_MS + 100 } }, delayed, { leastMs: BRIEF_MS + 100 }),
  aimed('conn.half_open', { fault: { hold: '60s' }, patienceMs: 1_000 }, surfaced, {
    got: errs(/timed out/),
  }),
  aimed('conn.latency', { fault: fixed(BRIEF_MS + 100) }, delayed, { leastMs: BRIEF_MS + 100 }),
  aimed('conn.bandwidth', { fault: { kibPerSecond: 0.05 } }, delayed, { leastMs: BRIEF_MS + 30 }),
  aimed('conn.slow_drip', { fault: { chunk: 8, gap: 180 } }, delayed, { leastMs: BRIEF_MS + 120 }),
  aimed('conn.flap', { fault: { up: 1, down: '10m' }, orders: [1, 2] }, surfaced, {
    got: errs(/^fetch failed$/),
  }),
  aimed('http.status', { fault: { body: 'injected' } }, surfaced, { got: errs(/injected/), ...unsent }),
  aimed('rpc.error', { fault: { message: 'injected' } }, surfaced, {
    got: errs(/injected$/, -32603),
    ...unsent,
  }),
  aimed('rpc.malformed', {}, surfaced, { got: errs(/JSON/) }),
  aimed('rpc.wrong_id', { patienceMs: 300 }, surfaced, { got: errs(/timed out/) }),
  aimed('rpc.duplicate', {}, masked),
  aimed('rpc.late', { fault: { delay: BRIEF_MS + 100 } }, delayed, { leastMs: BRIEF_MS + 100 }),
  aimed('rpc.version_mismatch', { on: 'http' }, surfaced, {
    got: errs(/Unsupported protocol/, 400),
    ...unsent,
  }),
  aimed('rpc.version_mismatch', { on: 'stdio' }, surfaced, { got: errs(/./, -32022), ...unsent }),
  // The client of the SDK fetches the list anew, and calls again.
  aimed('rpc.header_mismatch', { on: 'stdio', fault: once }, surfaced),
  aimed('rpc.header_mismatch', { on: 'http' }, {}),
]

const rows = [...connections, ...replies, ...streams, ...results, ...towardsAgents].map((row, index) => ({
  ...row,
  tool: `${row.kind}_${index}`,
}))

const dead = { retry: false, breaker: { consecutive: 3, open: '10m', maxOpen: '10m' } }
const outages: readonly Act[] = [
  { tool: 'plain_dead_status', type: 'http.status', policies: dead },
  { tool: 'plain_dead_error', type: 'rpc.error', policies: dead },
]
const unreachable: Act = { tool: 'plain_dead_conn', type: 'conn.refused', policies: dead }
const flap: Act = {
  tool: 'plain_flap',
  type: 'conn.flap',
  fault: { up: 500, down: 500 },
  policies: { retry: false, breaker: { consecutive: 2, open: 50, jitter: 0, maxOpen: 100 } },
}
// Longer than it takes to see that calls are held, on a busy machine too.
const held = { type: 'hol.block', fault: { hold: 1_500 } }
/** Policies that let two calls through, by the reason of their rejections. */
const queues: Readonly<Record<string, Act>> = {
  bulkhead_full: {
    ...{ ...held, tool: 'plain_queue' },
    policies: { bulkhead: { concurrent: 2, perTool: 2, queue: 0 } },
  },
  concurrency_limited: {
    ...{ ...held, tool: 'plain_limited' },
    policies: { adaptiveConcurrency: { initial: 2, min: 2, max: 2 } },
  },
}
/** One and a half times as long as the tool takes, and longer than calls that are sent together may come apart. */
const pool: Act = {
  tool: 'slower_pool',
  type: 'pool.exhaust',
  policies: { retry: false, attemptTimeout: { timeout: 2_250 } },
}
const swaps: readonly Act[] = ['upstream', 'client'].map((side) => ({
  tool: `plain_swap_${side}`,
  type: 'rpc.reorder',
  fault: { side, maxHold: '10s' },
}))
const ends: Record<'once' | 'writing' | 'lasting' | 'bystander', Act> = {
  once: { tool: 'slow_killed', type: 'proc.kill', fault: once },
  writing: { tool: 'slowWrite_killed', type: 'proc.kill', fault: { ...onceAtWrite, signal: 'KILL' } },
  lasting: {
    tool: 'slow_gone',
    type: 'proc.kill',
    fault: { signal: 'KILL', restartAfter: '10m' },
    policies: { retry: false },
  },
  bystander: { tool: 'slow_other', type: 'proc.kill', fault: { rate: 0 }, policies: { retry: false } },
}

interface Handshake {
  readonly fault: Json
  readonly state: 'up' | 'down'
  /** The response to a call, as text. */
  readonly says: RegExp
  /** Settings of its server. */
  readonly entry?: Json
}

const modern = { era: 'modern' }
const refusal = { type: 'initialize.refused', code: -32099, message: 'Not now' }
const isRefused = /Not now.*"upstream_refused"/

/** Servers whose handshake or ping is hit; the fault is called after its server. */
const handshakes: Readonly<Record<string, Handshake>> = {
  refused: { fault: refusal, state: 'down', says: isRefused },
  refused_modern: { fault: refusal, state: 'down', says: isRefused, entry: modern },
  refused_process: {
    fault: refusal,
    state: 'down',
    says: /"upstream_(refused|unavailable)"/,
    entry: stdioShop(['plain_plain']),
  },
  hanging: { fault: { type: 'initialize.hang' }, state: 'down', says: /"attempt_timeout"/ },
  outdated: { fault: { type: 'initialize.version' }, state: 'down', says: /"upstream_refused"/ },
  outdated_modern: {
    fault: { type: 'initialize.version' },
    state: 'down',
    says: /"upstream_refused"/,
    entry: modern,
  },
  silent: { fault: { type: 'ping.unanswered' }, state: 'down', says: /plain_plain \d/ },
  puzzled: { fault: { type: 'ping.error' }, state: 'up', says: /plain_plain \d/ },
}

let shop: Shop
let toolbox: HttpToolbox
const pids = new Map<string, string>()

before(async () => {
  toolbox = await HttpToolbox.start()
  // They come before all other servers, so that all of them are on the first page of the list of all.
  const url = await httpShop(['plain_plain'])
  const acts = [
    ...rows,
    ...outages,
    unreachable,
    flap,
    ...Object.values(queues),
    pool,
    ...swaps,
    ...Object.values(ends),
  ]
  shop = await Shop.start(acts, {
    servers: {
      ...Object.fromEntries(
        [...Object.keys(handshakes), 'incapable', 'slow'].map((name) => [
          name,
          {
            ...(handshakes[name]?.entry?.command === undefined && { url }),
            ...{ era: 'legacy', timeouts: { discovery: '400ms' }, health: { every: '1s' } },
            ...handshakes[name]?.entry,
          },
        ]),
      ),
      stormy: { url: toolbox.url },
    },
    faults: [
      ...Object.entries(handshakes).map(([name, { fault }]) => ({ name, match: { server: name }, ...fault })),
      { name: 'incapable', type: 'initialize.no_capabilities', match: { server: 'incapable' } },
    ],
  })
  for (const lane of lanes) pids.set(lane.name, (await shop.call(lane, 'who_plain')).text)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

function check(found: Json, expected: Counts, said: string): void {
  if (typeof expected === 'function') expected(found)
  else assert.deepEqual(found, expected, said)
}

async function play(row: Row & Act, lane: Lane): Promise<void> {
  const { tool, orders = [1], asks, leastMs = 0, patienceMs: timeout = 10_000 } = row
  const since = performance.now()
  let got: Got | undefined
  let steps = 0
  const options = { timeout, ...(asks && { onprogress: () => void steps++ }) }
  for (const order_id of orders) got = await shop.call(lane, tool, { order_id }, options)
  const tookMs = performance.now() - since
  const said = `${lane.name}: ${shown(got)}`
  if (row.got === undefined) assert.match(got!.text, new RegExp(`^${tool} \\d+$`), said)
  else row.got(got!, steps, lane)
  if (row.runs !== undefined) assert.equal(await shop.runs(lane, tool), row.runs, said)
  assert.ok(tookMs >= leastMs - EARLY_MS, `${said} took ${tookMs} ms`)
  if (row.attempts) check(await shop.attempts(lane, tool), row.attempts, said)
  if (row.verdicts) check(await shop.verdicts(lane, tool), row.verdicts, said)
  const fates = await shop.fates(lane, tool)
  check(fates, row.fates, said)
  const injected = await shop.gateway.metric(
    'breakwater_faults_injected_total',
    `fault="${tool}.${lane.name}"`,
  )
  assert.equal(
    injected ?? 0,
    Object.values(fates).reduce<number>((sum, count) => sum + Number(count), 0),
    said,
  )
}

for (const act of outages)
  test(`${act.type}: the breaker keeps calls away from what fails all the time`, () =>
    everywhere(act, async (lane) => {
      for (let i = 0; i < 3; i++) assert.notEqual((await shop.call(lane, act.tool)).reason, 'breaker_open')
      const { reason, data } = await shop.call(lane, act.tool)
      assert.deepEqual([reason, data.by, data.sent], ['breaker_open', 'breaker', false], lane.name)
      const failed = Object.values(await shop.attempts(lane, act.tool))
      assert.deepEqual(failed, [3], 'the fourth was no attempt')
      assert.deepEqual(await shop.fates(lane, act.tool), { surfaced: 3 })
    }))

const opened = (tool: string) =>
  shop.gateway.sums('breakwater_breaker_transitions_total', 'state', `tool="${tool}"`)

/** Calls that wait make up most of the time, and each has a tool of its own. */
const TOGETHER = 12

describe('which policy contains it', { concurrency: TOGETHER }, () => {
  for (const row of rows)
    for (const lane of lanesOf(row))
      test(`${lane.name}: ${row.type}: ${row.title} (${row.tool})`, () => play(row, lane))
})

test('no breaker opened over faults towards agents, and none of them holds a call', async () => {
  const tools = rows.filter(({ policies }) => policies === hasty).map(({ tool }) => tool)
  for (const tool of tools) {
    assert.deepEqual(await opened(tool), {}, tool)
    for (const lane of lanes) await until('none is held', async () => (await shop.held(lane, tool)) === 0)
  }
})

// It comes behind the outages above: their breakers are of the same servers, which it has found to be reachable again.
test('conn.refused: a breaker believes three times that a server is back that takes connections, and then no more', () =>
  everywhere(unreachable, async (lane) => {
    const { tool } = unreachable
    const closed = async () =>
      (
        await shop.gateway.sums(
          'breakwater_breaker_transitions_total',
          'state',
          `server="${lane.name}",tool="${tool}"`,
        )
      ).closed ?? 0
    // A process that cannot be started has no address at which it could be found.
    const early = lane.name === 'stdio' ? 0 : 3
    await until('it has believed it as often as it may', async () => {
      await shop.call(lane, tool)
      return (await closed()) === early
    })
    await until('it is open again', async () => (await shop.call(lane, tool)).reason === 'breaker_open')
    const attempts = await shop.attempts(lane, tool)
    const { reason, data } = await shop.call(lane, tool)
    assert.deepEqual([reason, data.by, data.sent], ['breaker_open', 'breaker', false], lane.name)
    assert.deepEqual(await shop.attempts(lane, tool), attempts, 'the last one was no attempt')
    assert.deepEqual(Object.values(attempts), [3 * (1 + early)])
    assert.deepEqual(await shop.fates(lane, tool), { surfaced: 3 * (1 + early) })
  }))

test('conn.flap: a breaker opens when the server goes, tries it now and then, and closes when it is back', () =>
  everywhere(flap, async (lane) => {
    const reasons = new Set<unknown>()
    const call = async () => {
      const { reason, message } = await shop.call(lane, flap.tool)
      reasons.add(reason)
      return message === undefined
    }
    assert.equal(await call(), true, 'it begins up')
    await until('the breaker keeps calls away', async () => {
      await call()
      return reasons.has('breaker_open')
    })
    await until('calls get through again', call)
    assert.deepEqual([...reasons].sort(), ['breaker_open', 'upstream_unavailable', undefined])
    const labels = `server="${lane.name}",tool="${flap.tool}"`
    const states = await shop.gateway.sums('breakwater_breaker_transitions_total', 'state', labels)
    for (const state of ['open', 'half_open', 'closed']) assert.ok((states[state] ?? 0) > 0, state)
    const { surfaced: count, ...others } = await shop.fates(lane, flap.tool)
    assert.ok(Number(count) >= 2)
    assert.deepEqual(others, {}, 'no fault hit the calls that got through')
  }))

const together = (count: number, lane: Lane, { tool }: Act) =>
  Promise.all(Array.from({ length: count }, () => shop.call(lane, tool)))

const answers = (seen: readonly Got[]) => seen.filter(({ message }) => message === undefined).length

for (const [reason, act] of Object.entries(queues))
  test(`hol.block: the queue stays short where calls are rejected as ${reason}`, () =>
    everywhere(act, async (lane) => {
      const seen = await together(5, lane, act)
      const rejected = seen.filter((got) => got.reason === reason)
      assert.deepEqual([answers(seen), rejected.length], [2, 3], `${lane.name} ${shown(seen)}`)
      assert.deepEqual(await shop.fates(lane, act.tool), { delayed: 2 })
      const labels = `server="${lane.name}"`
      const rejections = await shop.gateway.sums('breakwater_rejections_total', 'reason', labels)
      assert.equal(rejections[reason], 3)
    }))

// A test with a clock shows that calls are not sent once they are given up: here all give up just as the slot comes free.
test('pool.exhaust: a timeout ends the wait for a slot', () =>
  everywhere(pool, async (lane) => {
    const seen = await together(6, lane, pool)
    const { timeout = 0, returned: back = 0 } = await shop.attempts(lane, pool.tool)
    assert.deepEqual([answers(seen), Number(timeout) + Number(back)], [back, 6], shown(seen))
    assert.ok(Number(timeout) >= 4, `${lane.name}: ${String(timeout)} ran out of time`)
    const { masked: well = 0, delayed: late = 0, ...others } = await shop.fates(lane, pool.tool)
    assert.deepEqual([Number(well) + Number(late), others], [back, { surfaced: timeout }])
  }))

for (const act of swaps)
  test(`rpc.reorder (${act.tool}): the second reply overtakes the first, and each goes to its own call`, () =>
    everywhere(act, async (lane) => {
      const arrived: string[] = []
      const call = async () => arrived.push((await shop.call(lane, act.tool)).text)
      const first = call()
      // A call counts as held before it is sent: two calls on their way may arrive in either order.
      await until(
        'the first reply waits',
        async () => (await shop.notes(lane, act.tool))[0]?.effect === 'waits',
      )
      await Promise.all([first, call()])
      assert.deepEqual(arrived, [`${act.tool} 2`, `${act.tool} 1`], lane.name)
      assert.deepEqual(await shop.attempts(lane, act.tool), { returned: 2 })
      assert.deepEqual(await shop.fates(lane, act.tool), { masked: 1, delayed: 1 })
    }))

/** Calls a tool of a server in a session of its own; gives the response as text. */
async function responseOf(server: string): Promise<string> {
  const client = await RawClient.open(shop.gateway.mcp(server))
  return JSON.stringify('error' in client.welcome ? client.welcome : await client.call('plain_plain'))
}

for (const [server, { fault, state, says: words }] of Object.entries(handshakes))
  test(`${String(fault.type)} (${server}): the server counts as ${state}, and the agent sees what that means for its call`, async () => {
    await until('it was hit, and again', async () => (await ofDiscovery(server)).hits > 1)
    await shop.gateway.waitFor(state, server)
    assert.match(await responseOf(server), words)
    if (state === 'up') return
    const { body } = await shop.gateway.admin<{ error?: string }>(`/admin/servers/${server}`)
    assert.ok(body.error?.endsWith(` (injected: ${server})`), body.error)
  })

test('initialize.no_capabilities: a server that says that it can do nothing lists no tools', async () => {
  await shop.gateway.waitFor('up', 'incapable')
  const own = await RawClient.open(shop.gateway.mcp('incapable'))
  assert.equal('tools' in (own.welcome.result as { capabilities: Json }).capabilities, false)
  const names = await namesAmongAll()
  assert.ok(names.includes('puzzled__plain_plain'), names.join())
  assert.ok(!names.some((name) => name.startsWith('incapable__')), names.join())
})

test("what a fault does to the gateway's own questions is counted apart from what it does to calls", async () => {
  const metric = (name: string) => shop.gateway.metric(name, 'fault="incapable"')
  const { injected } = await ofDiscovery('incapable')
  assert.ok(injected > 0)
  assert.equal(await metric('breakwater_discovery_faults_injected_total'), injected)
  assert.equal((await metric('breakwater_faults_injected_total')) ?? 0, 0)
})

/** The count of a fault's effects on questions of the gateway's own. */
async function ofDiscovery(fault: string): Promise<{ readonly hits: number; readonly injected: number }> {
  type Status = { faults: { name: string; discovery: { hits: number; injected: number } }[] }
  const { body } = await shop.gateway.admin<Status>('/admin/chaos')
  return body.faults.find(({ name }) => name === fault)?.discovery ?? { hits: 0, injected: 0 }
}

async function namesAmongAll(): Promise<string[]> {
  const { messages } = await new ModernClient(shop.gateway.mcp()).ask('tools/list')
  return (messages[0]?.result as { tools: { name: string }[] }).tools.map(({ name }) => name)
}

/** Arms a fault at a server; the fault has the name of the server. */
async function inject(server: string, fault: Json): Promise<void> {
  const config = { name: server, rate: 1, allowWrites: true, ...fault }
  const { status, body } = await shop.gateway.post('/chaos/inject', { target: server, config })
  assert.equal(status, 200, JSON.stringify(body))
}

test('registry.slow_list: the last list stays in place of one that is too late', async () => {
  const ofSlow = async () => (await namesAmongAll()).filter((name) => name.startsWith('slow__'))
  const whole = await ofSlow()
  assert.ok(whole.length > 0)
  await inject('slow', { type: 'registry.slow_list', delay: '500ms' })
  await shop.gateway.waitFor('down', 'slow')
  assert.deepEqual(await ofSlow(), whole)
  assert.match(await responseOf('slow'), /plain_plain \d/)
})

test('registry.list_changed_storm: hundreds of notifications make a handful of fetches, and agents hear of as few', async () => {
  const client = await RawClient.open(shop.gateway.mcp('stormy'))
  const streams = await Promise.all(
    [client, await RawClient.open(shop.gateway.mcp())].map((one) => one.listen()),
  )
  await inject('stormy', { type: 'registry.list_changed_storm', perSecond: 500, duration: '1s' })
  type Status = { faults: { name: string; hits: number }[] }
  await until('the first storm is over, and another one has begun', async () => {
    await client.say('pid')
    const { body } = await shop.gateway.admin<Status>('/admin/chaos')
    return body.faults.some(({ name, hits }) => name === 'stormy' && hits > 1)
  })
  const fetched = (await client.say('received')).split(',').filter((method) => method === 'tools/list').length
  assert.ok(fetched < 50, `${fetched} times`)
  for (const stream of streams) {
    const told = stream.messages('notifications/tools/list_changed').length
    assert.ok(told > 0 && told < 50, `${told} times`)
    stream.drop()
  }
})

const started = (lane: Lane) =>
  until('there is a process again', async () => (await shop.call(lane, 'plain_plain')).message === undefined)

// A process is started again a second after it has ended, the next time after two: in the order of these tests.
test('proc.kill: the new process and a retry mask a call that only reads', () =>
  everywhere(ends.once, async (lane) => {
    const since = performance.now()
    assert.match((await shop.call(lane, ends.once.tool)).text, /^slow_killed \d$/)
    assert.ok(performance.now() - since >= 900)
    assert.deepEqual(await shop.attempts(lane, ends.once.tool), { transport_error: 2, returned: 1 })
    assert.deepEqual(await shop.fates(lane, ends.once.tool), { masked: 1 })
  }))

test('proc.kill: all calls under way fail, and one that writes is not sent again', () =>
  everywhere(ends.writing, async (lane) => {
    const tools = [ends.bystander.tool, ends.writing.tool]
    for (const got of await Promise.all(tools.map((tool) => shop.call(lane, tool))))
      fails('upstream_disconnected', /ended by SIGKILL; it may have run/)(got)
    assert.deepEqual(await shop.attempts(lane, ends.writing.tool), { transport_error: 1 })
    assert.deepEqual(await shop.fates(lane, ends.writing.tool), { surfaced: 1 })
    assert.deepEqual(await shop.fates(lane, ends.bystander.tool), {})
    await started(lane)
    assert.equal(await shop.runs(lane, ends.writing.tool), 0)
  }))

test('proc.kill: calls that it hits find no process for as long as it says, though there is one', () =>
  everywhere(ends.lasting, async (lane) => {
    assert.equal((await shop.call(lane, ends.lasting.tool)).reason, 'upstream_disconnected')
    const { reason, data } = await shop.call(lane, ends.lasting.tool)
    assert.equal(reason, 'upstream_unavailable')
    assert.ok(Number(data.retryAfterMs) > 60_000)
    assert.deepEqual(await shop.fates(lane, ends.lasting.tool), { surfaced: 2 })
    await started(lane)
  }))

test('no fault broke down, and once all are stopped handshakes succeed again', async () => {
  assert.equal(await shop.gateway.metric('breakwater_chaos_engine_errors_total'), 0)
  assert.equal(await shop.gateway.metric('breakwater_chaos_armed'), 1)
  shop.gateway.program.signal('SIGUSR2')
  // A process that was refused again and again is started only after a long pause.
  const reached = Object.keys(handshakes).filter((server) => server !== 'refused_process')
  await shop.gateway.waitFor('up', ...reached, 'incapable', 'slow')
  for (const server of reached) assert.match(await responseOf(server), /plain_plain \d/)
})
