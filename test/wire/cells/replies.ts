import assert from 'node:assert/strict'
import type { Json } from '../../e2e/support/gateway.ts'
import { until } from '../../support/until.ts'
import { BRIEF_MS, type Place, type Seen, type Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'
import { answered, atLeast, calling, failed, noCall, oneCall, ranOnce, shown, type Entries } from './entry.ts'

const DELAY_MS = 400

const streaming = calling('stream', { _meta: { progressToken: 'p' } })

const progressIn = ({ messages }: Exchange) =>
  messages.filter(({ method }) => method === 'notifications/progress').length

/** Plays a call, a list after the server's answer, and another call. */
async function later(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  const first = agent.call('echo')
  await until('the first call is answered', () => stage.seen.gave('tools/call').length > 0)
  await agent.send('tools/list').over
  stage.marks.set('waits', first.chunks.length === 0)
  const second = agent.call('echo')
  await Promise.all([first.over, second.over])
}

/** True when all answers of a server share one stream, where the gateway skips anything that answers no request. */
const sharesStream = ({ side, transport }: Place) => side === 'upstream' && transport !== 'http'

/** A call that ends soon, even without an answer. */
const brief = calling('brief')

/** The server answered, but the gateway did not recognise an answer. */
function unread(seen: Seen): string {
  const exchange = seen.exchange()
  if (!sharesStream(seen.place)) {
    failed(exchange, 'bad_reply')
    return 'the server answers; the agent: bad_reply'
  }
  failed(exchange, 'attempt_timeout', true)
  atLeast(BRIEF_MS, exchange.sentAt, exchange.firstAt)
  return `the server answers; after ${BRIEF_MS} ms the agent: attempt_timeout`
}

/** Faults of HTTP, JSON-RPC, and streams. */
export const replyEntries: Entries = {
  'http.status': {
    fault: { status: 503, body: 'busy' },
    saw(seen) {
      noCall(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.deepEqual([exchange.status, exchange.content], [503, 'busy'])
        return '503; no call at the server'
      }
      failed(exchange, 'upstream_status')
      return 'no call; the agent: upstream_status'
    },
  },
  'rpc.error': {
    fault: { code: -32099, message: 'injected' },
    saw(seen) {
      noCall(seen)
      const { error, answers } = seen.exchange()
      assert.deepEqual([answers.length, error], [1, { code: -32099, message: 'injected' }])
      return 'no call; the agent: -32099, under its id'
    },
  },
  'rpc.malformed': {
    fault: { kind: 'bad_json' },
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.match(exchange.content, /,\}$/)
        assert.deepEqual(exchange.messages, [])
        return 'a body that is no JSON'
      }
      failed(exchange, 'bad_reply')
      return 'the server answers; the agent: bad_reply'
    },
  },
  'rpc.wrong_id': {
    play: brief,
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        const [message] = exchange.messages
        assert.ok(message?.result)
        assert.notEqual(message.id, exchange.id)
        return 'the result under another id'
      }
      return unread(seen)
    },
  },
  'rpc.duplicate': {
    async play(stage) {
      const { place, server, gateway } = stage
      const discarded = () =>
        gateway.log.filter(
          (line) => line.server === server.name && line.msg === 'discarded an answer without a waiting call',
        ).length
      const before = discarded()
      await oneCall(stage)
      const note = (await stage.journal('rpc.duplicate'))?.note
      stage.marks.set('note', note)
      if (!sharesStream(place)) return
      await until(
        'the log reports the answer, or nothing has come',
        () => note === undefined || discarded() > before,
      )
      stage.marks.set('discarded', discarded() - before)
    },
    saw(seen) {
      ranOnce(seen)
      if (seen.place.side === 'client') {
        assert.equal(seen.exchange().answers.length, 2)
        return 'two answers'
      }
      answered(seen.exchange())
      if (sharesStream(seen.place)) {
        assert.equal(seen.marks.get('discarded'), 1)
        return 'one answer: the gateway discards the second (log)'
      }
      assert.ok((seen.marks.get('note') as Json | undefined)?.discarded)
      return 'one answer: the gateway discards the second (journal)'
    },
  },
  'rpc.late': {
    fault: { delay: DELAY_MS },
    saw(seen) {
      ranOnce(seen)
      answered(seen.exchange())
      atLeast(DELAY_MS, seen.gave('tools/call')[0]!.at, seen.exchange().firstAt)
      return `the answer ${DELAY_MS} ms after the server gave it`
    },
  },
  'rpc.reorder': {
    fault: { maxHold: '20s' },
    play: later,
    saw(seen) {
      assert.equal(seen.marks.get('waits'), true)
      const [first, second] = [seen.exchange(0), seen.exchange(2)]
      answered(first)
      answered(second)
      atLeast(0, seen.gave('tools/call')[1]!.at, first.firstAt)
      return 'the first answer comes only when the server has given the second'
    },
  },
  'rpc.version_mismatch': {
    saw(seen) {
      noCall(seen)
      const { status, error } = seen.exchange()
      const code = seen.place.era === 'modern' ? -32022 : -32000
      assert.deepEqual([status, error?.code], [400, code], shown(seen.exchange()))
      assert.match(String(error?.message), /Unsupported protocol version/)
      return `no call; the agent: 400, ${code}`
    },
  },
  'rpc.header_mismatch': {
    idle: {
      'agent, legacy': 'only requests of the modern era over HTTP have headers that repeat the body',
    },
    saw(seen) {
      noCall(seen)
      const { status, error } = seen.exchange()
      assert.deepEqual([status, error?.code], [400, -32020], shown(seen.exchange()))
      return 'no call; the agent: 400, -32020'
    },
  },
  'sse.cut': {
    play: streaming,
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.deepEqual([progressIn(exchange), exchange.answers.length, exchange.end], [1, 0, 'FIN'])
        return 'FIN behind the first event, in the middle of what HTTP promised'
      }
      failed(exchange, 'upstream_disconnected', true)
      assert.equal(progressIn(exchange), 1)
      return 'one event; then the agent: upstream_disconnected'
    },
  },
  'sse.stall': {
    fault: { stall: DELAY_MS },
    play: streaming,
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      answered(exchange)
      assert.equal(progressIn(exchange), 2)
      atLeast(DELAY_MS, seen.sent[0]!.at, exchange.lastAt)
      return `${DELAY_MS} ms of silence behind the first event`
    },
  },
  'sse.bad_frame': {
    play: streaming,
    saw(seen) {
      ranOnce(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.deepEqual([exchange.texts.length, exchange.messages.length, progressIn(exchange)], [3, 2, 1])
        answered(exchange)
        return 'the second of three events is no JSON'
      }
      failed(exchange, 'bad_reply')
      return 'the agent: bad_reply'
    },
  },
  'sse.progress_forever': {
    fault: { every: '20ms' },
    async play(stage) {
      const agent = await stage.agent()
      const call = agent.call('echo', undefined, { _meta: { progressToken: 'p' } })
      // The fault starts before the server answers.
      const isOver = () => progressIn(call) >= 5 && stage.seen.gave('tools/call').length > 0
      await until(
        'the answer of the server and some progress, or an end',
        () => isOver() || call.end !== 'open',
      )
    },
    saw(seen) {
      ranOnce(seen)
      assert.ok(progressIn(seen.exchange()) >= 5)
      assert.equal(seen.exchange().answers.length, 0)
      return 'progress that the server did not report, and no answer though it gave one'
    },
  },
  'session.lost': {
    idle: { 'agent, modern': 'the agent speaks the modern era, which has no sessions' },
    saw(seen) {
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        noCall(seen)
        assert.deepEqual(
          [exchange.status, exchange.messages[0]?.error],
          [404, { code: -32001, message: 'Session not found' }],
        )
        return '404; no call at the server'
      }
      answered(exchange)
      const sessions = seen.calls.map(({ headers }) => headers['mcp-session-id'])
      assert.deepEqual([sessions.length, sessions[0]], [2, 'lost-on-purpose'])
      return 'a call with a session that the server does not know (404), and one with a new session'
    },
  },
  'auth.expired': {
    saw(seen) {
      noCall(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.equal(exchange.status, 401)
        assert.match(String(exchange.header('www-authenticate')), /invalid_token/)
        return '401 invalid_token; no call at the server'
      }
      failed(exchange, 'upstream_unauthorized')
      return 'no call; the agent: upstream_unauthorized'
    },
  },
  'auth.scope': {
    fault: { scope: 'files:write' },
    saw(seen) {
      noCall(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.equal(exchange.status, 403)
        assert.match(String(exchange.header('www-authenticate')), /insufficient_scope.*scope="files:write"/)
        return '403 insufficient_scope; no call at the server'
      }
      failed(exchange, 'upstream_forbidden')
      return 'no call; the agent: upstream_forbidden'
    },
  },
  'auth.refresh_refused': {
    async play(stage) {
      for (const token of ['one', 'two']) {
        const agent = await stage.agent({
          authorization: `Bearer ${token}`,
          'x-user-token': `Bearer ${token}`,
        })
        await agent.call('echo').over
      }
    },
    saw(seen) {
      answered(seen.exchange(0))
      assert.equal(seen.calls.length, 1)
      const exchange = seen.exchange(1)
      if (seen.place.side === 'client') {
        assert.equal(exchange.status, 401)
        return '401 to the second token, whose call the server did not get'
      }
      assert.equal(seen.calls[0]!.headers.authorization, 'Bearer one')
      failed(exchange, 'upstream_unauthorized')
      return 'no call with the second token; the agent: upstream_unauthorized'
    },
  },
  'auth.owner_changed': {
    fault: { as: 'not_found' },
    saw(seen) {
      noCall(seen)
      const { content, isError } = answered(seen.exchange())
      assert.deepEqual([content, isError], [[{ type: 'text', text: 'Not found' }], true])
      return 'no call; the agent: a result "Not found"'
    },
  },
  'limit.429': {
    fault: { retryAfter: '7s' },
    saw(seen) {
      noCall(seen)
      const exchange = seen.exchange()
      if (seen.place.side === 'client') {
        assert.deepEqual([exchange.status, exchange.header('retry-after')], [429, '7'])
        return '429 with Retry-After 7; no call at the server'
      }
      failed(exchange, 'upstream_rate_limited')
      assert.equal(exchange.error?.data?.retryAfterMs, 7_000)
      return 'no call; the agent: upstream_rate_limited, 7 s'
    },
  },
}
