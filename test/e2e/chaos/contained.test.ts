import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { orderOf } from '../../fixtures/shop/kinds.ts'
import { until } from '../../support/until.ts'
import { cleanUp, type Json } from '../support/gateway.ts'
import { closeClients } from '../support/sdk-client.ts'
import {
  everywhere,
  lanes,
  lanesOf,
  otherThan,
  Shop,
  type Act,
  type Got,
  type Lane,
} from '../support/shop.ts'

/*
 * Which policy contains which fault: the agent's view, the runs of the tool, and the gateway's account. Bytes are in
 * test/wire/cells, layers alone in test/chaos/faults.
 */

type Counts = Json | ((found: Json) => void)

/** Checks the last reply, and the amount of progress before it. */
type Check = (got: Got, steps: number, lane: Lane) => void

/** Calls a fault hits, and their outcome. */
interface Way extends Omit<Act, 'tool' | 'type'> {
  /** The tool's kind: the first word of its name. */
  readonly kind?: string
  /** The orders the client asks for, in sequence. */
  readonly orders?: readonly number[]
  /** Whether the client asks for progress. */
  readonly asks?: true
  /** The client's timeout, in milliseconds. */
  readonly patienceMs?: number
  /** Default: the tool's own answer. */
  readonly got?: Check | undefined
  readonly runs?: number
  readonly attempts?: Counts
  readonly verdicts?: Counts
  readonly fates?: Counts
  /** Minimum duration of the calls, in milliseconds. */
  readonly leastMs?: number
}

/** A fault, the policies against it, and the outcome of a call. */
interface Row extends Way {
  readonly type: string
  readonly title: string
  readonly kind: string
  readonly fates: Counts
}

/** Returns rows a policy contains in the same way: their common parts, and each fault with its own. */
const rowsOf = (title: string, common: Way, cases: readonly (readonly [type: string, way?: Way])[]): Row[] =>
  cases.map(([type, way]) => ({ kind: 'plain', fates: {}, ...common, ...way, type, title }))

/** Timers may fire slightly early, on either side. */
const EARLY_MS = 5

/** Longer than a normal attempt takes, even on a busy machine; in milliseconds. */
const BRIEF_MS = 2_000

const brief = { attemptTimeout: { timeout: BRIEF_MS } }
const once = { maxInjections: 1 }
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
/** Expects an error of somebody other than the gateway. */
const errs =
  (message: RegExp, code?: number) =>
  ({ reason, message: said, code: told, text }: Got) => {
    assert.deepEqual([reason, text], [undefined, ''])
    assert.match(said ?? '', message)
    if (code !== undefined) assert.equal(told, code)
  }
const failsBehind = (reason: string, steps: number) => (got: Got, heard: number) =>
  assert.deepEqual([got.reason, heard], [reason, steps], shown(got))
/** Expects the same value in text and structured content. */
const both = (value: unknown) => (got: Got) => {
  assert.deepEqual([JSON.parse(got.text), got.structured], [value, value])
}
/** Expects the flag of a partial result from this source; a server's flag has no source. */
function flagged({ meta }: Got, source: string | undefined, reason: RegExp): void {
  const flag = meta['dev.breakwater/partial'] as Json | undefined
  assert.equal(flag?.source, source)
  assert.match(String(flag?.reason), reason)
}

const thrice = { policies: brief, attempts: { timeout: 3 }, fates: { surfaced: 3 } }
const unsent = fails('upstream_unavailable', /it was not sent/, 1503)
const mayHaveRun = fails('upstream_disconnected', /it may have run/, 1502)
const unreadable = fails('bad_reply', /it may have run/, 1502)
const namesStatus = fails('upstream_status', /^[^<]*HTTP 503[^<]*$/, 1502)
const namesType = fails('bad_reply', /^[^<]*text\/html[^<]*$/)
const ofAnother = fails('bad_reply', /answered a different request/)
const hasMoved = errs(/has moved, use elsewhere\/words_v2 instead/, -32602)
const comesLate = fails('attempt_timeout', /./, 1504)
const knowsWhen = (got: Got) =>
  assert.ok(got.reason === 'upstream_rate_limited' && Number(got.data.retryAfterMs) > 50_000, shown(got))
const wasSent = ({ reason, data }: Got) =>
  assert.deepEqual([reason, data.sent], ['upstream_rate_limited', true])
const cannotStart = ({ message }: Got) => assert.match(message ?? '', /503|cannot start/)
const pastDeadline = ({ reason }: Got, steps: number) =>
  assert.ok(reason === 'deadline_exceeded' && steps > 3, `${String(reason)}, ${steps} steps`)
const allSteps = (got: Got, steps: number) => assert.deepEqual([got.text, steps], ['streamed', 3])

const mayBeLate = fails('attempt_timeout', /it may have run/)

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n + 1)
const said = { code: -32000, message: 'injected', data: { n: 1 } }
const copying = { ...brief, overdue: { after: 50 } }
const overdue = { policies: { overdue: {} }, orders: upTo(2), leastMs: BRIEF_MS }
const short = { deadline: { total: BRIEF_MS } }
const onceAtWrite = { ...once, allowWrites: true }
const twoRefused = { kind: 'write', runs: 1, fault: { maxInjections: 2, allowWrites: true } }
const badJson = { ...once, kind: 'bad_json' }
const page = { kind: 'wrong_content_type' }
const html = { body: '<h1>secret-trace</h1>' }
const farOff = { retryAfter: '60s', form: 'date' }
const silent = { ...once, stall: '60s' }
const ofCaller = { caller_error: 1 }
const streaming = { kind: 'streaming', got: says('streamed') }
/** Timeouts short enough to end every attempt, if they applied to the fault. */
const hasty = { retry: false, ...brief }
const hedged = { policies: { hedge: { after: 50 } }, leastMs: 50 }
const behindFirst = { ...once, when: { afterCalls: 1 } }
const patient = { policies: { deadline: { total: '20s' } } }

/** Calls, connections, refusals and invalid replies. */
const replies: readonly Row[] = [
  ...rowsOf(
    'it is tried again, and then an error says so and whether it may have run',
    { attempts: { transport_error: 3 }, fates: { surfaced: 3 } },
    [
      ['conn.refused', { runs: 0, got: unsent }],
      ['failure_domain', { runs: 0, got: unsent, fault: { down: '10m' } }],
      ['conn.reset', { runs: 3, got: mayHaveRun }],
      ['http.status', { runs: 0, got: namesStatus, fault: html }],
      ['rpc.error', { runs: 0, got: errs(/injected$/, -32000), fault: said, attempts: { rpc_error: 3 } }],
      ['rpc.malformed', { on: 'http', runs: 3, got: unreadable }],
      ['rpc.malformed', { on: 'http', runs: 3, got: namesType, fault: page }],
      ['rpc.malformed', { on: 'stdio', runs: 3, got: unreadable, fault: { kind: 'bad_json' } }],
      ['rpc.wrong_id', { on: 'http', runs: 3, got: ofAnother }],
    ],
  ),
  ...rowsOf('a retry masks one of them', { fault: once, attempts: saved, fates: masked }, [
    ['conn.refused', { kind: 'write', runs: 1, fault: onceAtWrite }],
    ['conn.reset', { runs: 2, fault: { ...once, at: { afterBytes: 20 } } }],
    ['http.status', { runs: 1 }],
    ['rpc.error', { runs: 1, attempts: { rpc_error: 1, returned: 1 } }],
    ['rpc.malformed', { runs: 2, fault: badJson }],
    ['rpc.wrong_id', { on: 'http', runs: 2 }],
    ['rpc.version_mismatch', { on: 'http', runs: 1, attempts: { ...ofCaller, returned: 1 } }],
    ['limit.429', { runs: 1, fault: { ...once, form: 'absurd' } }],
    ['limit.429', { runs: 1, fault: { ...once, retryAfter: '1s' }, leastMs: 900 }],
    ['sse.cut', { ...streaming, fault: { ...once, afterEvents: 0 } }],
    ['sse.bad_frame', streaming],
  ]),
  ...rowsOf(
    'a call that writes is not sent again, as it may have run',
    { kind: 'write', runs: 1, fault: onceAtWrite, attempts: broken, fates: surfaced },
    [
      ['conn.reset', { got: mayHaveRun }],
      ['conn.half_open', { got: mayBeLate, policies: copying, attempts: { timeout: 1 }, leastMs: BRIEF_MS }],
      ['rpc.malformed', { got: unreadable, fault: { ...badJson, allowWrites: true } }],
      ['limit.429', { got: wasSent, runs: 0, fault: { ...onceAtWrite, form: 'absent' } }],
      [
        'sse.cut',
        { kind: 'streaming', got: failsBehind('upstream_disconnected', 0), policies: { effect: 'write' } },
      ],
    ],
  ),
  ...rowsOf(
    'a refusal, or an error that is of the caller, is not tried again',
    { runs: 0, attempts: broken, fates: surfaced },
    [
      ['http.status', { got: fails('upstream_refused', /HTTP 410/), fault: { ...once, status: 410 } }],
      ['rpc.error', { got: errs(/./, -32602), fault: { ...once, code: -32602 }, attempts: ofCaller }],
      ['rpc.version_mismatch', { on: 'stdio', got: errs(/./, -32022), fault: once, attempts: ofCaller }],
      ['auth.expired', { got: fails('upstream_unauthorized', /./, 1401) }],
      ['auth.scope', { got: fails('upstream_forbidden') }],
      ['limit.429', { ...patient, got: knowsWhen, fault: farOff }],
      [
        'registry.tool_missing',
        { got: errs(/Unknown tool/, -32602), fault: { tools: ['*'] }, attempts: ofCaller },
      ],
      ['registry.moved', { got: hasMoved, fault: { replacement: 'elsewhere/words_v2' }, attempts: ofCaller }],
    ],
  ),
  ...rowsOf(
    'no breaker opens, as whoever is refused may have been refused alone',
    { orders: upTo(6), runs: 0 },
    [
      [
        'auth.expired',
        { got: fails('upstream_unauthorized'), attempts: { transport_error: 6 }, fates: { surfaced: 6 } },
      ],
    ],
  ),
]

const times: readonly Row[] = [
  ...rowsOf(
    'a gate holds a call until the server can be reached again',
    { policies: { gate: {} }, leastMs: 100 },
    [
      [
        'conn.refused',
        { ...twoRefused, attempts: { transport_error: 2, returned: 1 }, fates: { masked: 2 } },
      ],
    ],
  ),
  ...rowsOf('a timeout ends each attempt', { policies: hasty, attempts: { timeout: 1 }, fates: surfaced }, [
    ['conn.half_open', { ...thrice, runs: 3, got: comesLate, leastMs: 3 * BRIEF_MS }],
    ['conn.slow_drip', { runs: 1, got: comesLate, fault: { chunk: 1, gap: 50 }, leastMs: BRIEF_MS }],
    [
      'sse.stall',
      { ...streaming, asks: true, policies: brief, got: failsBehind('attempt_timeout', 1), fault: silent },
    ],
  ]),
  ...rowsOf(
    'a timeout and a retry cut one silence short',
    { policies: brief, attempts: savedLate, fates: delayed, leastMs: BRIEF_MS },
    [
      ['conn.half_open', { runs: 2, fault: once }],
      ['conn.latency', { runs: 1, fault: { ...once, ...fixed('60s') } }],
      ['conn.bandwidth', { runs: 2, fault: { ...once, kibPerSecond: 0.01 } }],
      ['rpc.late', { runs: 2, fault: { ...once, delay: 2 * BRIEF_MS } }],
      ['sse.stall', { ...streaming, fault: silent }],
      // Further apart than stalls of a busy machine, after which both delays could end together.
      ['cold_start', { runs: 1, fault: { delay: 3_000 }, fates: { delayed: 2 }, leastMs: 3_000 }],
    ],
  ),
  ...rowsOf(
    'another attempt is answered in its place',
    { attempts: { cancelled: 1, returned: 1 }, fates: delayed },
    [
      ['conn.latency', { runs: 1, fault: { ...once, ...fixed('60s') }, ...hedged }],
      [
        'conn.half_open',
        { runs: 3, fault: behindFirst, ...overdue, attempts: { cancelled: 1, returned: 2 } },
      ],
    ],
  ),
  ...rowsOf('only the deadline ends it', { policies: short, attempts: { timeout: 1 }, fates: surfaced }, [
    ['conn.half_open', { runs: 1, got: fails('deadline_exceeded', /./, 1504), leastMs: BRIEF_MS }],
    ['sse.progress_forever', { kind: 'streaming', asks: true, got: pastDeadline, fault: { every: '10ms' } }],
  ]),
  ...rowsOf(
    'one call becomes three where it is tried again, and the last one masks it',
    { fates: { masked: 2 } },
    [['retry.storm', { runs: 1, attempts: { transport_error: 2, returned: 1 } }]],
  ),
  ...rowsOf(
    'without retries one call stays one',
    { policies: { retry: { maxRetries: 0 } }, fates: surfaced },
    [['retry.storm', { runs: 0, got: cannotStart, attempts: broken }]],
  ),
  ...rowsOf('nobody notices but the server, and the agent waits', { attempts: returned, fates: delayed }, [
    ['fanout.amplify', { runs: 10, fault: { factor: 10 } }],
    ['sse.stall', { kind: 'streaming', asks: true, got: allSteps, fault: { ...once, stall: '50ms' } }],
  ]),
  ...rowsOf(
    'nothing is sent again once something has reached the agent',
    { kind: 'streaming', asks: true, attempts: broken, fates: surfaced },
    [
      ['sse.cut', { got: failsBehind('upstream_disconnected', 2), fault: { ...once, afterEvents: 2 } }],
      ['sse.bad_frame', { got: failsBehind('bad_reply', 1), fault: once }],
    ],
  ),
]

const order = orderOf(1)
const { state, ...stateless } = order
const renamed = { ...stateless, status: state }
const rename = { operators: [{ op: 'rename', path: '/state', to: 'status' }] }
const half = { ...order, items: order.items.slice(0, 2) }
const halving = { operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }] }
const by = (operator: Json, more: Json = {}) => ({ fault: { operators: [operator], ...more } })
const unit = { op: 'unit', path: '/weight' }
const everyReply = { of: 'every_reply' }
const enforced = { verdict: { output: 'enforce' }, retry: false }
const unlimited = { floor: 1_000, leastConcurrent: 1_000 }
const retried = { retry: { incorrect: true, base: 1, cap: 5, budget: unlimited } }
const prepared = { ...order, remark: 'prepared' }
const standIn = { ...enforced, degrade: { static: { structuredContent: prepared } } }
const wrong = { breaker: { window: '10m', correctness: { ratio: 0.5, minimum: 5 }, open: '60s' } }
const shows = { schema_invalid: 1 }
const replaced = (tool: string) => (lane: Lane) => ({
  replacement: `${otherThan(lane)}/${tool}`,
  mode: 'silent',
})

const locked = { text: 'The index is locked.' }
const ten = upTo(10).map((n) => n - 1)
const allTen = {
  orders: ten,
  policies: { breaker: false },
  verdicts: { schema_invalid: 10 },
  fates: { escaped: 10 },
}
const threeStale = { verdicts: { unchecked: 3 }, fates: { escaped: 2 } }
const lastOf21 = { orders: upTo(21).map(() => 1), verdicts: { unchecked: 20, drift: 1 }, fates: escaped }
const fourWrong = { verdicts: { schema_invalid: 4 }, fates: { escaped: 4 } }
/** A larger total makes its list look short, which is no violation of the schema. */
const correctOrShort = ({ correct = 0, partial_silent: few = 0, ...others }: Json) =>
  assert.deepEqual([Number(correct) + Number(few), others], [10, {}])
const manyEscape = ({ escaped: count }: Json) => assert.ok(Number(count) >= 5)

const isOk = ({ isError, text }: Got) => assert.deepEqual([isError ?? false, text], [false, 'OK'])
const isLocked = ({ isError, structured, text }: Got) =>
  assert.deepEqual([isError, structured, text], [true, undefined, 'The index is locked.'])
const isEmpty = ({ content, structured }: Got) => assert.deepEqual([content, structured], [[], {}])
const hasNoWords = ({ content }: Got) => assert.deepEqual(content, [{ type: 'text', text: '' }])
const hasOneBlock = ({ content }: Got) => assert.equal(content.length, 1)
const ofOther = ({ text, meta }: Got, _: number, lane: Lane) =>
  assert.deepEqual([text, meta['dev.breakwater/partial']], [pids.get(otherThan(lane)), undefined])
const isError = ({ code, isError: is }: Got) => assert.ok(code === -32602 || is === true)
const isRenamed = ({ text }: Got) => assert.deepEqual(JSON.parse(text), renamed)
const lies = ({ structured }: Got) => assert.notEqual((structured as typeof order).total, 4)
const agrees = (got: Got) => assert.deepEqual(JSON.parse(got.text), got.structured)
const drifts = (got: Got) => {
  agrees(got)
  assert.notDeepEqual(got.structured, orderOf(9))
}
const flags =
  (isRight: Check, source: string | undefined, reason: RegExp) => (got: Got, steps: number, lane: Lane) => {
    isRight(got, steps, lane)
    flagged(got, source, reason)
  }
const isShort = flags(both(half), 'detected', /^2 items, but the reply itself says 4$/)
const saysShort = flags(both(half), undefined, /^some of the data could not be fetched$/)
const isHalf = ({ text }: Got) => assert.deepEqual(JSON.parse(text), half)
const tellsShort = flags(isHalf, 'detected', /^2 items, but the reply itself says 4$/)
const begins = ({ text }: Got) => assert.ok(JSON.stringify(order).startsWith(text))
const breaksOff = flags(begins, 'detected', /ends in the middle/)
const isPrepared = flags(
  ({ structured }) => assert.deepEqual(structured, prepared),
  'fallback',
  /^a prepared answer/,
)
/** Expects exactly one of text and structured content to be right. */
const differs = (right: 'text' | 'structured') => (got: Got) => {
  const forms = { text: JSON.parse(got.text) as unknown, structured: got.structured }
  assert.deepEqual(forms[right], order)
  assert.notDeepEqual(forms[right === 'text' ? 'structured' : 'text'], order)
  flagged(got, 'detected', /^the text and the structured content differ$/)
}

/** Faults of results, some of them visible to the verdict; most tools have a schema. */
const results: readonly Row[] = [
  ...rowsOf('nobody sees it', { kind: 'words', verdicts: { unchecked: 1 }, fates: escaped }, [
    ['result.error_as_success', { kind: 'failing', got: isOk }],
    ['result.empty', { got: hasNoWords, fault: { form: 'empty_text' } }],
    [
      'result.wrong_entity',
      { kind: 'typed', orders: [7, 8], got: both(orderOf(7)), verdicts: { correct: 2 } },
    ],
    ['result.stale', { kind: 'counting', orders: [1, 1, 1], got: says('{"calls":1}'), ...threeStale }],
    ['result.partial', { got: says('the first'), ...by({ op: 'truncate_text', bytes: 9 }) }],
    ['result.partial', { got: hasOneBlock, ...by({ op: 'drop_blocks', n: 1 }) }],
    ['route.wrong_backend', { kind: 'who', got: ofOther, fault: (lane) => ({ server: otherThan(lane) }) }],
  ]),
  ...rowsOf('a schema shows it, and it is only counted', { kind: 'typed', verdicts: shows, fates: escaped }, [
    ['result.error_as_success', { got: says('Error: the request failed'), fault: everyReply }],
    ['result.empty', { got: isEmpty }],
    ['result.drift', { got: both(renamed), fault: rename }],
    ['result.drift', { got: agrees, fault: { detectable: 'schema_detectable' }, ...allTen }],
    ['registry.moved', { got: says(story), fault: replaced('words_plain') }],
  ]),
  ...rowsOf('an enforced schema makes it an error', { kind: 'typed', policies: enforced, verdicts: shows }, [
    ['result.error_as_success', { got: fails('incorrect_result'), fault: everyReply, fates: surfaced }],
    ['result.drift', { got: fails('incorrect_result'), fault: rename, fates: surfaced }],
  ]),
  ...rowsOf(
    'a retry of wrong answers masks it',
    { kind: 'typed', got: both(order), policies: retried, fates: masked },
    [
      [
        'result.empty',
        { policies: { verdict: { output: 'enforce' } }, fault: once, verdicts: { ...shows, correct: 1 } },
      ],
      ['result.drift', { fault: { ...rename, ...once }, verdicts: { ...shows, correct: 1 } }],
      ['result.partial', { fault: { ...halving, ...once }, verdicts: { partial_silent: 1, correct: 1 } }],
    ],
  ),
  ...rowsOf('the verdict flags it', { kind: 'typed', verdicts: { partial_silent: 1 }, fates: surfaced }, [
    ['result.split_brain', { got: differs('structured') }],
    ['result.split_brain', { got: differs('text'), ...by(unit, { changes: 'structured' }) }],
    ['result.drift', { got: differs('structured'), ...by(unit, { sync: 'text_only' }) }],
    ['result.partial', { got: isShort, fault: halving }],
    ['result.partial', { kind: 'json', got: tellsShort, fault: halving }],
    [
      'result.partial',
      { got: saysShort, fault: { ...halving, declared: true }, verdicts: { partial_declared: 1 } },
    ],
    ['result.partial', { kind: 'json', got: breaksOff, ...by({ op: 'cut_json', at: 0.6 }) }],
    ['result.partial', { got: lies, ...by({ op: 'lie_total', path: '/total' }) }],
  ]),
  ...rowsOf(
    'towards the agent no policy sees it',
    { kind: 'typed', verdicts: { correct: 1 }, fates: escaped },
    [
      ['result.drift', { got: both(renamed), fault: { ...rename, ...agentSide } }],
      ['result.partial', { got: both(half), fault: { ...halving, ...agentSide } }],
    ],
  ),
  ...rowsOf('the agent can tell', { kind: 'words', fates: surfaced }, [
    ['result.is_error', { kind: 'typed', got: isLocked, fault: locked, verdicts: { tool_error: 1 } }],
    ['result.oversize', { got: fails('reply_too_large'), fault: { bytes: '20MiB' }, verdicts: { '': 1 } }],
    ['registry.moved', { got: isError, fault: replaced('nothing') }],
  ]),
  ...rowsOf('a prepared answer stands by, and is flagged', { kind: 'typed', fates: surfaced }, [
    ['result.drift', { got: isPrepared, policies: standIn, fault: rename, verdicts: shows }],
  ]),
  ...rowsOf(
    'no schema shows anything that is drawn of the semantic operators',
    { kind: 'typed', got: drifts },
    [
      [
        'result.drift',
        { orders: ten, fault: { detectable: 'semantic' }, verdicts: correctOrShort, fates: manyEscape },
      ],
    ],
  ),
  ...rowsOf('another shape than that of twenty replies before is seen without a schema', { kind: 'json' }, [
    ['result.drift', { got: isRenamed, fault: { ...rename, when: { afterCalls: 20 } }, ...lastOf21 }],
  ]),
  // The tool's first reply came before its schema was known, and counts as good.
  ...rowsOf('the breaker stops a tool whose wrong answers are too many', { kind: 'typed', policies: wrong }, [
    ['result.drift', { orders: upTo(7), got: fails('breaker_open'), fault: rename, ...fourWrong }],
  ]),
]

const unanswered = { runs: 0, attempts: {} }
const aimed = (fates: Counts, cases: Parameters<typeof rowsOf>[2]): Row[] => {
  const rows = rowsOf(
    'towards the agent no policy sees it',
    { policies: hasty, attempts: returned, fates },
    cases,
  )
  return rows.map((row) => ({ runs: 1, ...row, fault: { ...(row.fault as Json | undefined), ...agentSide } }))
}
const longer = BRIEF_MS + 100

/** Above all policies: the agent meets the fault, and the server is not blamed. */
const towardsAgents: readonly Row[] = [
  ...aimed(surfaced, [
    ['conn.refused', { ...unanswered, got: errs(/^fetch failed$/) }],
    // A legacy agent would resume its stream.
    ['conn.reset', { on: 'stdio', got: errs(/^terminated$/), fault: { at: { afterBytes: 20 } } }],
    ['conn.half_open', { got: errs(/timed out/), fault: { hold: '60s' }, patienceMs: 1_000 }],
    ['conn.flap', { got: errs(/^fetch failed$/), fault: { up: 1, down: '10m' }, orders: [1, 2] }],
    ['http.status', { ...unanswered, got: errs(/injected/), fault: { body: 'injected' } }],
    ['rpc.error', { ...unanswered, got: errs(/injected$/, -32000), fault: said }],
    ['rpc.malformed', { got: errs(/JSON/) }],
    ['rpc.wrong_id', { got: errs(/timed out/), patienceMs: 300 }],
    ['rpc.version_mismatch', { ...unanswered, on: 'http', got: errs(/Unsupported protocol/, 400) }],
    ['rpc.version_mismatch', { ...unanswered, on: 'stdio', got: errs(/./, -32022) }],
    // The SDK's client fetches a new list, and retries.
    ['rpc.header_mismatch', { on: 'stdio', fault: once }],
    // A client with a resumable stream asks for the rest of it.
    ['sse.cut', { ...streaming, on: 'http', fault: once }],
  ]),
  ...aimed(delayed, [
    ['conn.half_open', { fault: { hold: longer }, leastMs: longer }],
    ['conn.latency', { fault: fixed(longer), leastMs: longer }],
    ['conn.bandwidth', { fault: { kibPerSecond: 0.05 }, leastMs: BRIEF_MS + 30 }],
    ['conn.slow_drip', { fault: { chunk: 8, gap: 180 }, leastMs: BRIEF_MS + 120 }],
    ['rpc.late', { fault: { delay: longer }, leastMs: longer }],
  ]),
  ...aimed(masked, [['rpc.duplicate']]),
  ...aimed({}, [['rpc.header_mismatch', { on: 'http' }]]),
]

const rows = [...replies, ...times, ...results, ...towardsAgents].map((row, index) => ({
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
// Longer than noticing held calls takes, even on a busy machine.
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
/** One and a half times the tool's duration, and longer than the spread of calls sent together. */
const pool: Act = {
  tool: 'slower_pool',
  type: 'pool.exhaust',
  policies: { retry: false, attemptTimeout: { timeout: 2_250 } },
}
const ends: Record<'once' | 'writing', Act> = {
  once: { tool: 'slow_killed', type: 'proc.kill', fault: once },
  writing: { tool: 'slowWrite_killed', type: 'proc.kill', fault: { ...onceAtWrite, signal: 'KILL' } },
}

let shop: Shop
const pids = new Map<string, string>()

before(async () => {
  const together = [unreachable, flap, pool, ...Object.values(queues), ...Object.values(ends)]
  shop = await Shop.start([...rows, ...outages, ...together])
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
      assert.deepEqual(failed, [3], 'the fourth call made no attempt')
      assert.deepEqual(await shop.fates(lane, act.tool), { surfaced: 3 })
    }))

const opened = (tool: string) =>
  shop.gateway.sums('breakwater_breaker_transitions_total', 'state', `tool="${tool}"`)

/** Calls mostly wait, and each has its own tool. */
const TOGETHER = 12

describe('policies contain each fault', { concurrency: TOGETHER }, () => {
  for (const row of rows)
    for (const lane of lanesOf(row))
      test(`${lane.name}: ${row.type}: ${row.title} (${row.tool})`, () => play(row, lane))
})

test('no breaker opened over faults towards agents, and none of them holds a call', async () => {
  const tools = rows.filter(({ policies }) => policies === hasty).map(({ tool }) => tool)
  for (const tool of tools) {
    assert.deepEqual(await opened(tool), {}, tool)
    for (const lane of lanes) await until('no call is held', async () => (await shop.held(lane, tool)) === 0)
  }
})

// Runs after the outages above: their breakers belong to the same servers, found reachable again here.
test('conn.refused: a breaker trusts a server that only accepts connections three times, and then no more', () =>
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
    // A process that cannot start has no address for reachability probes.
    const early = lane.name === 'stdio' ? 0 : 3
    await until('the breaker has closed as often as allowed', async () => {
      await shop.call(lane, tool)
      return (await closed()) === early
    })
    await until(
      'the breaker is open again',
      async () => (await shop.call(lane, tool)).reason === 'breaker_open',
    )
    const attempts = await shop.attempts(lane, tool)
    const { reason, data } = await shop.call(lane, tool)
    assert.deepEqual([reason, data.by, data.sent], ['breaker_open', 'breaker', false], lane.name)
    assert.deepEqual(await shop.attempts(lane, tool), attempts, 'the last call made no attempt')
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
    assert.equal(await call(), true, 'the server is up at the start')
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

// A test with a manual clock shows that abandoned calls are never sent. Here all calls give up just as the slot becomes
// free.
test('pool.exhaust: a timeout ends the wait for a slot', () =>
  everywhere(pool, async (lane) => {
    const seen = await together(6, lane, pool)
    const { timeout = 0, returned: back = 0 } = await shop.attempts(lane, pool.tool)
    assert.deepEqual([answers(seen), Number(timeout) + Number(back)], [back, 6], shown(seen))
    assert.ok(Number(timeout) >= 4, `${lane.name}: ${String(timeout)} ran out of time`)
    const { masked: well = 0, delayed: late = 0, ...others } = await shop.fates(lane, pool.tool)
    assert.deepEqual([Number(well) + Number(late), others], [back, { surfaced: timeout }])
  }))

// A process restarts a second after its end, the next time after two: the tests run in this order.
test('proc.kill: the new process and a retry mask a call that only reads', () =>
  everywhere(ends.once, async (lane) => {
    const since = performance.now()
    assert.match((await shop.call(lane, ends.once.tool)).text, /^slow_killed \d$/)
    assert.ok(performance.now() - since >= 900)
    assert.deepEqual(await shop.attempts(lane, ends.once.tool), { transport_error: 2, returned: 1 })
    assert.deepEqual(await shop.fates(lane, ends.once.tool), { masked: 1 })
  }))

test('proc.kill: a call that writes is not sent again', () =>
  everywhere(ends.writing, async (lane) => {
    fails(
      'upstream_disconnected',
      /ended by SIGKILL; it may have run/,
    )(await shop.call(lane, ends.writing.tool))
    assert.deepEqual(await shop.attempts(lane, ends.writing.tool), { transport_error: 1 })
    assert.deepEqual(await shop.fates(lane, ends.writing.tool), { surfaced: 1 })
    await until(
      'the process answers again',
      async () => (await shop.call(lane, 'plain_plain')).message === undefined,
    )
    assert.equal(await shop.runs(lane, ends.writing.tool), 0)
  }))

test('no fault had an internal error', async () => {
  assert.equal(await shop.gateway.metric('breakwater_chaos_engine_errors_total'), 0)
})
