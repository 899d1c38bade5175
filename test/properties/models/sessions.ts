import fc from 'fast-check'
import assert from 'node:assert/strict'
import type { Post } from '../../../src/downstream/modern/post.ts'
import { readFilter, Subscription } from '../../../src/downstream/modern/subscriptions.ts'
import { ReplayBudget, ReplayLog } from '../../../src/downstream/http/event-stream.ts'
import { CallUnderWay, type Session } from '../../../src/downstream/legacy/session.ts'
import type { Caller } from '../../../src/mesh/call.ts'
import type { Signal } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { SharedAttempts } from '../../../src/upstreams/shared-attempts.ts'
import { Subscriptions } from '../../../src/upstreams/shared/shared-connection.ts'
import { IDLE_MS, testSessions, UNUSED_MS } from '../../downstream/test-sessions.ts'
import { TestCaller } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { asyncTarget, target, type Target } from '../target.ts'

const MOST = 4
const SWEEP_MS = 15_000

interface Known {
  readonly session: Session
  state: 'draft' | 'open' | 'leaving' | 'closed'
  usedAt: number
  /** Number of sessions added before. */
  addedAs: number
  /** Whether the session has had a request. */
  used: boolean
  call: CallUnderWay | undefined
}

const sessions = asyncTarget(
  'sessions are found while they are open, counted until they are closed, and closed when nobody uses them',
  fc.array(
    fc.tuple(
      fc.constantFrom('draft', 'draft', 'add', 'add', 'close', 'call', 'end', 'touch', 'advance', 'orphan'),
      fc.nat({ max: 5 }),
      fc.constantFrom(1, 14_999, 15_000, 45_000, 60_000, 76_000),
    ),
    { maxLength: 40, size: 'max' },
  ),
  async (ops) => {
    const { clock, live, server, sessions, generation, draft } = testSessions(MOST)
    const all: Known[] = []
    const close = (known: Known) => {
      known.state = 'closed'
      known.call = undefined
    }
    let swept = 0
    let added = 0
    for (const [op, n, ms] of ops) {
      const open = all.filter(({ state }) => state !== 'closed')
      const one = open[n % Math.max(1, open.length)]
      if (op === 'draft' && open.length < MOST) {
        const session = draft(n % 2 === 0 ? undefined : 's')
        all.push({ session, state: 'draft', usedAt: clock.now(), addedAs: 0, used: false, call: undefined })
      } else if (op === 'add' && one?.state === 'draft') {
        assert.equal(sessions.add(one.session), true)
        one.state = 'open'
        one.addedAs = ++added
      } else if (op === 'close' && one !== undefined) {
        const { call } = one
        await sessions.close(one.session)
        assert.ok(call?.aborted ?? true, 'the calls of the session are ended')
        close(one)
      } else if (op === 'call' && one?.state === 'open' && one.call === undefined) {
        one.call = new CallUnderWay()
        one.session.inFlight.set('call', one.call)
      } else if (op === 'end' && one?.call !== undefined) {
        one.session.inFlight.delete('call')
        one.call = undefined
        sessions.settle(one.session)
        if (one.state === 'leaving') close(one)
      } else if (op === 'touch' && one !== undefined) {
        one.session.touch()
        one.session.used = true
        one.used = true
        one.usedAt = clock.now()
      } else if (op === 'orphan') {
        live.swap(generation())
        sessions.closeOrphans()
        live.swap(generation(server))
        for (const known of open) {
          if (known.state !== 'open' || known.session.endpoint.server === undefined) continue
          if (known.call === undefined) close(known)
          else known.state = 'leaving'
        }
      } else if (op === 'advance') {
        const until = clock.now() + ms
        while (swept + SWEEP_MS <= until) {
          swept += SWEEP_MS
          for (const known of open) {
            const idle = known.call === undefined && swept - known.usedAt > (known.used ? IDLE_MS : UNUSED_MS)
            if (known.state === 'open' && idle) close(known)
          }
        }
        await clock.advance(ms)
      }
      await clock.advance(0)
      const count = (...states: Known['state'][]) => all.filter(({ state }) => states.includes(state)).length
      assert.equal(sessions.size, count('open', 'leaving'))
      const isFull = count('open', 'draft', 'leaving') >= MOST
      // A session without requests makes room: the oldest first.
      const spare = all
        .filter(
          ({ state, used, call, usedAt }) =>
            state === 'open' && !used && call === undefined && usedAt < clock.now(),
        )
        .sort((a, b) => a.addedAs - b.addedAs)
        .at(0)
      assert.equal(sessions.refusal('', '') !== undefined, isFull && spare === undefined)
      if (isFull && spare !== undefined) close(spare)
      for (const { session, state } of all)
        assert.equal(
          sessions.find(session.id),
          ['open', 'leaving'].includes(state) ? session : undefined,
          state,
        )
    }
    await sessions.closeAll()
    for (const { session, state } of all) if (state === 'draft') assert.equal(sessions.add(session), false)
    assert.equal(sessions.size, 0)
  },
)

const log = target(
  'a replay log has the newest events that fit, and gives a stream those of its own behind a place',
  fc.tuple(
    fc.record({ events: fc.integer({ min: 1, max: 6 }), bytes: fc.integer({ min: 1, max: 60 }) }),
    fc.array(fc.tuple(fc.nat({ max: 2 }), fc.string({ unit: 'binary', maxLength: 20 })), {
      maxLength: 30,
      size: 'max',
    }),
    fc.nat({ max: 2 }),
    fc.nat({ max: 30 }),
  ),
  ([limits, added, stream, behind]) => {
    const log = new ReplayLog(new ReplayBudget({ ...limits, total: Infinity }, () => undefined))
    const events = added.map(([stream, data], at) => ({ stream, sequence: at + 1, data }))
    for (const event of events) log.add(event)
    const kept: typeof events = []
    let bytes = 0
    // Every event older than an evicted event is evicted, too.
    for (const event of events.toReversed()) {
      bytes += Buffer.byteLength(event.data)
      if (kept.length === limits.events || bytes > limits.bytes) break
      kept.unshift(event)
    }
    const told = log.after(stream, behind).map(({ stream, sequence, data }) => ({ stream, sequence, data }))
    assert.deepEqual(
      told,
      kept.filter((event) => event.stream === stream && event.sequence > behind),
    )
  },
)

const uris = ['a:', 'a:/', 'a:/b', 'a:/b/', 'a:/b/c', 'a:/bc', '', '/']

const shared = target(
  'on a shared connection each subscriber is told of what it subscribed to, and of nothing else',
  fc.array(
    fc.tuple(
      fc.constantFrom('add', 'add', 'undo', 'remove', 'release'),
      fc.constantFrom(...uris),
      fc.nat({ max: 2 }),
    ),
    { maxLength: 40, size: 'max' },
  ),
  (ops) => {
    const subscriptions = new Subscriptions()
    const callers: Caller[] = [new TestCaller(), new TestCaller(), new TestCaller()]
    const model = new Map<string, Set<number>>(uris.map((uri) => [uri, new Set()]))
    for (const [op, uri, n] of ops) {
      const caller = callers[n]!
      const theirs = model.get(uri)!
      if (op === 'add') {
        subscriptions.add(uri, caller)
        theirs.add(n)
      } else if (op === 'undo') subscriptions.add(uri, caller)()
      else if (op === 'remove') {
        theirs.delete(n)
        assert.equal(subscriptions.remove(uri, caller), theirs.size > 0)
      } else {
        const alone = [...model].filter(([, callers]) => callers.has(n) && callers.size === 1)
        assert.deepEqual(subscriptions.release(caller).toSorted(), alone.map(([uri]) => uri).toSorted())
        for (const callers of model.values()) callers.delete(n)
      }
      // Undoing a change that changed nothing has no effect.
      for (const changed of uris) {
        const expected = new Set<Caller>()
        for (const [uri, subscribed] of model) {
          const below = uri.endsWith('/') ? uri : `${uri}/`
          if (changed === uri || changed.startsWith(below))
            for (const n of subscribed) expected.add(callers[n]!)
        }
        assert.deepEqual(subscriptions.subscribersOf(changed), expected)
      }
    }
  },
)

const listening = target(
  'a subscription tells what was asked for and is offered, under its own id, and nothing else',
  fc.tuple(
    fc.record({
      toolsListChanged: fc.boolean(),
      promptsListChanged: fc.boolean(),
      resourcesListChanged: fc.boolean(),
      resourceSubscriptions: fc.array(fc.constantFrom(...uris), { maxLength: 4 }),
    }),
    fc.subarray(['tools', 'prompts', 'resources']),
    fc.boolean(),
    fc.array(fc.constantFrom('tools', 'prompts', 'resources', 'other', ...uris), { maxLength: 8 }),
  ),
  ([wanted, offered, subscribe, events]) => {
    const capabilities = Object.fromEntries(offered.map((name) => [name, { listChanged: true, subscribe }]))
    const filter = readFilter(wanted, capabilities)
    assert.ok(filter)
    const told: { method: string; params: { uri?: string; _meta: Record<string, unknown> } }[] = []
    const post = { tell: (text: string) => void told.push(JSON.parse(text) as (typeof told)[number]) }
    const subscription = new Subscription('id', filter, post as unknown as Post)
    for (const event of events) {
      const value = uris.includes(event)
        ? { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: event } }
        : { jsonrpc: '2.0', method: `notifications/${event}/list_changed`, params: {} }
      subscription.tell({ text: JSON.stringify(value), value })
    }
    const expected = events.filter((event) =>
      uris.includes(event)
        ? offered.includes('resources') && subscribe && wanted.resourceSubscriptions.includes(event)
        : offered.includes(event) && wanted[`${event}ListChanged` as keyof typeof wanted] === true,
    )
    assert.deepEqual(
      told.map(({ method, params }) => params.uri ?? method.split('/')[1]),
      expected,
    )
    assert.ok(told.every(({ params }) => Object.values(params._meta).includes('id')))
    const isEmpty = !uris
      .concat('tools', 'prompts', 'resources')
      .some((event) =>
        uris.includes(event)
          ? filter.resourceSubscriptions.includes(event)
          : filter[`${event}ListChanged` as 'toolsListChanged'],
      )
    assert.equal(subscription.isEmpty, isEmpty)
  },
)

interface Attempt {
  readonly end: Signal
  readonly begunAt: number
  over: boolean
  succeed(value: string): void
  fail(cause: unknown): void
}

const attempts = asyncTarget(
  'whoever joins a shared task is told how it ended, once; three attempts at most are under way, and none for nobody',
  fc.array(
    fc.tuple(
      fc.constantFrom('join', 'join', 'succeed', 'fail', 'fail', 'advance', 'advance', 'abort'),
      fc.nat({ max: 3 }),
      fc.constantFrom(1, 999, 1_000, 2_000, 10_000),
    ),
    { maxLength: 40, size: 'max' },
  ),
  async (ops) => {
    const clock = new ManualClock()
    const begun: Attempt[] = []
    const shared = new SharedAttempts<string>(
      clock,
      (end) =>
        new Promise((resolve, reject) => {
          const over = (tell: () => void) => {
            attempt.over = true
            tell()
          }
          const attempt: Attempt = {
            end,
            begunAt: clock.now(),
            over: false,
            succeed: (value) => over(() => resolve(value)),
            fail: (cause) => over(() => reject(cause)),
          }
          begun.push(attempt)
          end.addEventListener('abort', () => over(() => reject(end.reason)))
        }),
    )
    const joined: { since: number; told: string[] }[] = []
    for (const [op, n, ms] of ops) {
      const underWay = begun.filter(({ over }) => !over)
      const one = underWay[n % Math.max(1, underWay.length)]
      const [oldest] = underWay
      const waiting = joined.filter(({ told }) => told.length === 0)
      if (op === 'join') {
        const mine = { since: clock.now(), told: [] as string[] }
        joined.push(mine)
        shared.join().then(
          (value) => mine.told.push(value),
          () => mine.told.push('failed'),
        )
      } else if (op === 'succeed') one?.succeed('done')
      else if (op === 'fail') one?.fail(gatewayError('upstream_refused', 'no'))
      else if (op === 'abort') shared.abort(gatewayError('cancelled', 'over'))
      else await clock.advance(ms)
      await clock.advance(0)

      const now = begun.filter(({ over }) => !over)
      const left = joined.filter(({ told }) => told.length === 0)
      assert.ok(joined.every(({ told }) => told.length <= 1))
      assert.equal(shared.underWay, left.length > 0)
      assert.equal(now.length > 0, left.length > 0, 'attempts and waiters exist together')
      assert.ok(now.length <= 3)
      if (left.length === 0) assert.equal(clock.pending, 0)
      if (op === 'succeed' && one !== undefined)
        assert.ok(
          waiting.every(({ told }) => told[0] === 'done'),
          'a success counts for all waiting calls',
        )
      if (op === 'abort') assert.deepEqual(left, [])
      if (op === 'fail' && one !== undefined && one === oldest)
        for (const { since, told } of waiting)
          if (since <= one.begunAt || underWay.length === 1) assert.deepEqual(told, ['failed'])
      if (op === 'fail' && one !== oldest) assert.deepEqual(left, waiting)
      if (op === 'advance' && oldest !== undefined)
        assert.equal(oldest.over, false, 'the oldest attempt keeps its time')
    }
  },
)

export const sessionTargets: readonly Target[] = [sessions, log, shared, listening, attempts]
