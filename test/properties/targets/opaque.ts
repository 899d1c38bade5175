import assert from 'node:assert/strict'
import fc from 'fast-check'
import { readEventId } from '../../../src/downstream/http/event-stream.ts'
import { type PendingInputCall, PendingInputStore } from '../../../src/downstream/modern/pending-inputs.ts'
import { PendingInputQuota, Quota } from '../../../src/downstream/limits/quotas.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { isGatewayError } from '../../../src/mesh/errors.ts'
import { many, type Page, servers } from '../../registry/listed.ts'
import { testSessions } from '../../downstream/test-sessions.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { damaged } from '../arbitraries.ts'
import { asyncTarget, target, type Target } from '../target.ts'

/** Texts near an issued token and far from an issued token, as a forger might return. */
const near = (text: string): fc.Arbitrary<string> =>
  fc.oneof(
    fc
      .tuple(fc.nat(), fc.nat({ max: 3 }), fc.string({ unit: 'binary', maxLength: 2 }))
      .map(([at, cut, put]) => {
        const place = at % (text.length + 1)
        return text.slice(0, place) + put + text.slice(place + cut)
      }),
    fc.constantFrom(text.toUpperCase(), ` ${text}`, `${text}\0`, text.repeat(2), text.slice(0, -1)),
  )

const hostile = fc.oneof(
  fc.constantFrom('', '__proto__', 'constructor', 'toString', 'null', '[]', 'x'.repeat(100_000), '\ud800'),
  damaged,
)

/** Cursors in our format, with any content. */
const cursor = fc.oneof(
  hostile,
  fc
    .oneof(
      fc.tuple(
        fc.constantFrom<unknown>('a', 'b', 'c', 'gone', '__proto__', 'constructor', 1, null, {}),
        fc.oneof(
          fc.nat({ max: 1_200 }),
          fc.constantFrom<unknown>(-1, 0.5, 499, 500, 501, 2 ** 53 - 1, 2 ** 53, 1e308, '1', null, []),
        ),
      ),
      fc.jsonValue({ maxDepth: 2 }),
    )
    .map((value) => Buffer.from(JSON.stringify(value)).toString('base64url')),
)

/** Tools of the servers a, b and c. */
const sizes = { a: 620, b: 0, c: 530 } as const

let listed: ReturnType<typeof servers> | undefined

const cursors = asyncTarget(
  'any cursor gives a page of what is listed or is refused, and the pages behind it come to an end',
  cursor,
  async (cursor) => {
    const { page } = await (listed ??= servers({ a: many(sizes.a), b: many(sizes.b), c: many(sizes.c) }))
    const known = new Set(
      Object.entries(sizes).flatMap(([name, size]) =>
        Array.from({ length: size }, (_, n) => `${name}__t${n}`),
      ),
    )
    const seen: string[] = []
    let next: string | undefined = cursor
    for (let pages = 0; next !== undefined; pages++) {
      assert.ok(pages <= 3, 'the pages go in circles')
      const read: Page | null = page(next)
      if (read === null) return assert.equal(pages, 0, 'an issued cursor is refused')
      seen.push(...(read.tools ?? []).map(({ name }) => String(name)))
      next = read.nextCursor
    }
    assert.equal(new Set(seen).size, seen.length, 'each tool is listed once')
    // The whole list was seen up to its end: the seen part is the last part.
    assert.deepEqual(seen, [...known].slice(known.size - seen.length))
  },
  200,
)

const sessionIds = target(
  'a session is found by its id, and by nothing else',
  fc.tuple(fc.integer({ min: 1, max: 3 }), hostile, fc.nat()),
  ([count, other, seed]) => {
    const { sessions, add } = testSessions(4)
    const all = Array.from({ length: count }, () => add())
    for (const session of all) {
      assert.equal(sessions.find(session.id), session)
      for (const id of fc.sample(near(session.id), { numRuns: 5, seed }))
        if (!all.some((one) => one.id === id)) assert.equal(sessions.find(id), undefined, id)
    }
    assert.equal(sessions.find(other), undefined)
    // Guessable ids would be no secret.
    assert.equal(new Set(all.map(({ id }) => id)).size, count)
    for (const { id } of all) assert.match(id, /^[\x21-\x7e]{32,}$/)
  },
  200,
)

const eventIds = target(
  'any Last-Event-ID is a place in a stream or is refused, and a place is read as it was written',
  fc.oneof(
    hostile,
    fc.tuple(fc.nat(), fc.nat()).map(([stream, sequence]) => `${stream}-${sequence}`),
    near('12-345'),
    fc.constantFrom('999999999999999999-1', '-1-1', '1--1', '1-1\n', '٣-٤', '1e3-1', '0x1-1', '01-01'),
  ),
  (id) => {
    const place = readEventId(id)
    const written = /^\d+-\d+$/.exec(id)
    if (place === undefined) return
    assert.ok(written !== null && !id.includes('\n'), JSON.stringify(id))
    assert.ok(Number.isSafeInteger(place.stream) && Number.isSafeInteger(place.sequence))
    assert.deepEqual(id.split('-').map(Number), [place.stream, place.sequence])
  },
)

const WAIT_MS = 5 * 60_000
const MOST = { max: 4, perClient: 3 } as const
const MOST_BYTES = { max: 5_000, perClient: 4_000 } as const

interface Waiting {
  readonly client: string
  readonly state: string
  until: number
  /** Bytes of the finished call's answer; undefined while the call runs. */
  bytes: number | undefined
  counted: number
  gone: boolean
}

const requestStates = asyncTarget(
  'a requestState takes its own call up once, within its time, for who may have it, and no other text does',
  fc.array(
    fc.record({
      op: fc.constantFrom(
        ...(['enter', 'enter', 'take', 'misfit', 'forge', 'keep', 'advance', 'close'] as const),
      ),
      n: fc.nat({ max: 9 }),
      client: fc.constantFrom('one', 'two'),
      bytes: fc.constantFrom(0, 1_023, 1_024, 3_000, 4_001),
      ms: fc.constantFrom(1, WAIT_MS - 1, WAIT_MS),
      forged: hostile,
      seed: fc.nat(),
    }),
    { maxLength: 30, size: 'max' },
  ),
  async (ops) => {
    const clock = new ManualClock()
    const quota = new Quota('pendingInputs', 'calls that wait', MOST, () => undefined)
    const pendingInputs = new PendingInputQuota(quota, () => undefined)
    const answers = new Quota('answers', 'bytes of answers', MOST_BYTES, () => undefined)
    const store = new PendingInputStore<PendingInputCall>(clock, { pendingInputs, answers })
    const all: (Waiting & { readonly call: PendingInputCall & { readonly signal: Cancellation } })[] = []
    for (const { op, n, client, bytes, ms, forged, seed } of ops) {
      const open = all.filter(({ gone }) => !gone)
      const one = open[n % Math.max(1, open.length)]
      if (op === 'enter') {
        const isFull =
          open.length >= MOST.max || open.filter((known) => known.client === client).length >= MOST.perClient
        const call = {
          client,
          tenant: `tenant ${all.length}`,
          session: undefined,
          signal: new Cancellation(),
        }
        const state = store.enter(call)
        assert.equal(isGatewayError(state), isFull)
        if (isGatewayError(state)) continue
        assert.ok(store.isOurs(state))
        all.push({
          client,
          state,
          until: clock.now() + WAIT_MS,
          bytes: undefined,
          counted: 0,
          gone: false,
          call,
        })
      } else if (op === 'take' && one !== undefined) {
        assert.equal(
          store.take(one.state, (call) => call.client === one.client),
          one.call,
        )
        one.gone = true
        assert.equal(
          store.take(one.state, () => true),
          undefined,
          'a state is valid once',
        )
      } else if (op === 'misfit' && one !== undefined) {
        assert.equal(
          store.take(one.state, (call) => call.client !== one.client),
          undefined,
        )
      } else if (op === 'forge') {
        const states = fc.sample(near(one?.state ?? 'breakwater.'), { numRuns: 3, seed })
        for (const text of [forged, ...states])
          if (!open.some(({ state }) => state === text))
            assert.equal(
              store.take(text, () => true),
              undefined,
            )
      } else if (op === 'keep' && one?.bytes === undefined && one !== undefined) {
        const held = (of: (known: Waiting) => boolean) =>
          open.filter(of).reduce((sum, { counted }) => sum + counted, 0)
        const isFull =
          bytes >= 1_024 &&
          (held(() => true) + bytes > MOST_BYTES.max ||
            held((known) => known.client === one.client) + bytes > MOST_BYTES.perClient)
        assert.equal(store.keep(one.state, bytes) !== undefined, isFull)
        one.bytes = bytes
        one.counted = bytes >= 1_024 && !isFull ? bytes : 0
        one.until = clock.now() + WAIT_MS
      } else if (op === 'advance') {
        await clock.advance(ms)
        for (const known of open) {
          if (known.until > clock.now()) continue
          known.gone = true
          assert.equal(known.call.signal.aborted, known.bytes === undefined, 'a running call is ended')
        }
      } else if (op === 'close') {
        store.closeAll()
        for (const known of open) {
          known.gone = true
          assert.ok(known.call.signal.aborted)
        }
      }
      const left = all.filter(({ gone }) => !gone)
      assert.equal(store.size, left.length)
      assert.equal(clock.pending, left.length, 'a timer for each waiter, and none without waiters')
    }
  },
)

export const opaqueTargets: readonly Target[] = [cursors, sessionIds, eventIds, requestStates]
