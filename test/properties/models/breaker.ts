import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { gatewayError } from '../../../src/mesh/errors.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { answered, failed, setUp, type Held } from '../../policies/breaker/rig.ts'
import { asyncTarget, type Target } from '../target.ts'
import { bulkheadFull } from '../../../src/policies/bulkhead.ts'

const outcomes: Readonly<Record<string, Outcome>> = {
  good: answered(),
  bad: failed(),
  correct: answered('correct'),
  wrong: answered('schema_invalid'),
  cancelled: failed('cancelled'),
  rejected: { kind: 'rejected', error: gatewayError(bulkheadFull, 'full'), by: 'bulkhead' },
}

type Op =
  | { readonly op: 'begin' }
  | { readonly op: 'end'; readonly which: number; readonly as: string }
  | { readonly op: 'advance'; readonly ms: number }
  | { readonly op: 'force'; readonly order: 'open' | 'close' | 'reset' }

const op: fc.Arbitrary<Op> = fc.oneof(
  { weight: 6, arbitrary: fc.constant({ op: 'begin' as const }) },
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('end' as const),
      which: fc.nat({ max: 5 }),
      as: fc.constantFrom('bad', 'bad', ...Object.keys(outcomes)),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant('advance' as const),
      ms: fc.constantFrom(0, 1, 999, 1_000, 2_999, 3_000, 5_000, 9_000, 12_000, 20_000),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('force' as const),
      order: fc.constantFrom('open' as const, 'close' as const, 'reset' as const),
    }),
  },
)

/** Sequences that reach interesting states: failures until the breaker opens, and the wait until probes pass. */
const trip: readonly Op[] = [
  ...Array.from({ length: 4 }, (): Op[] => [{ op: 'begin' }, { op: 'end', which: 5, as: 'bad' }]).flat(),
  { op: 'advance', ms: 5_000 },
]

const ops = fc
  .array(
    fc.oneof(
      { weight: 12, arbitrary: op.map((op): readonly Op[] => [op]) },
      { weight: 1, arbitrary: fc.constant(trip) },
    ),
    { maxLength: 40, size: 'max' },
  )
  .map((parts) => parts.flat())

const WINDOW_MS = 10_000
const BUCKET_MS = WINDOW_MS / 10
const OPEN_MS = 5_000
const MAX_OPEN_MS = 20_000
const PROBE_TIMEOUT_MS = 3_000
const CONSECUTIVE = 4
const MINIMUM = 5
const CHECKED = 3

interface Admitted {
  readonly held: Held
  /** The opening that a probe belongs to; undefined for a call of a closed breaker. */
  readonly probeOf: number | undefined
  readonly generation: number
  readonly expiresAt: number
  over: boolean
}

/** A breaker as its settings describe it, without rings, timers or opossum. */
class Model {
  state: 'closed' | 'open' | 'half_open' = 'closed'
  now = 0
  since = 0
  openForMs = 0
  inARow = 0
  manual = false
  generation = 0
  consecutive = 0
  free = 0
  needed = 0
  samples: { bucket: number; bad: boolean; checked: boolean; wrong: boolean }[] = []
  admitted: Admitted[] = []
  readonly probes: number

  constructor(probes: number) {
    this.probes = probes
  }

  counts() {
    const from = Math.floor(this.now / BUCKET_MS) - 10
    this.samples = this.samples.filter(({ bucket }) => bucket > from)
    return this.samples
  }

  enter(state: Model['state']): void {
    this.state = state
    this.since = this.now
    this.generation++
    if (state === 'closed') {
      this.samples = []
      this.consecutive = 0
    }
  }

  open(): void {
    if (this.state === 'closed' && this.now - this.since >= WINDOW_MS) this.inARow = 0
    this.openForMs = this.manual ? Infinity : Math.min(MAX_OPEN_MS, OPEN_MS * 2 ** this.inARow++)
    this.enter('open')
  }

  /** Whether a call passes. */
  begin(): boolean {
    if (this.state === 'closed') return true
    if (this.state === 'open') {
      if (this.since + this.openForMs > this.now) return false
      this.enter('half_open')
      this.free = this.needed = this.probes
    }
    if (this.free === 0) return false
    this.free--
    return true
  }

  end(call: Admitted, as: string): void {
    if (call.over) return
    call.over = true
    const isNeutral = as === 'cancelled' || as === 'rejected'
    if (call.generation !== this.generation) return
    if (call.probeOf !== undefined) {
      if (isNeutral) this.free++
      else if (as === 'bad' || as === 'wrong') this.open()
      else if (--this.needed === 0) this.enter('closed')
      return
    }
    if (isNeutral) return
    const bad = as === 'bad'
    this.consecutive = bad ? this.consecutive + 1 : 0
    const checked = as === 'correct' || as === 'wrong'
    this.samples.push({ bucket: Math.floor(this.now / BUCKET_MS), bad, checked, wrong: as === 'wrong' })
    const all = this.counts()
    const failures = all.filter((sample) => sample.bad).length
    const judged = all.filter((sample) => sample.checked).length
    const wrong = all.filter((sample) => sample.wrong).length
    const tooMany =
      this.consecutive >= CONSECUTIVE ||
      (failures > 0 && all.length >= MINIMUM && failures >= all.length / 2) ||
      (wrong > 0 && judged >= CHECKED && wrong >= judged / 2)
    if (tooMany) this.open()
  }

  advance(ms: number): void {
    const until = this.now + ms
    for (;;) {
      const due = this.admitted
        .filter(
          ({ over, probeOf, generation, expiresAt }) =>
            !over && probeOf !== undefined && generation === this.generation && expiresAt <= until,
        )
        .sort((a, b) => a.expiresAt - b.expiresAt)[0]
      if (due === undefined) break
      this.now = due.expiresAt
      due.over = true
      this.open()
    }
    this.now = until
  }

  force(order: 'open' | 'close' | 'reset'): void {
    if (order === 'open') {
      if (this.manual) return
      this.manual = true
      this.open()
      return
    }
    if (order === 'reset') this.inARow = 0
    this.manual = false
    const { since, state } = this
    this.enter('closed')
    if (state === 'closed') this.since = since
  }
}

export const breakerTarget: Target = asyncTarget(
  'a breaker does what its settings say, whatever is sent, ended, waited for and done by hand; no rejected call closes it',
  fc.record({ probes: fc.integer({ min: 1, max: 3 }), ops }),
  async ({ probes, ops }) => {
    const rig = setUp({
      window: WINDOW_MS,
      open: OPEN_MS,
      maxOpen: MAX_OPEN_MS,
      consecutive: CONSECUTIVE,
      minimum: MINIMUM,
      correctness: { ratio: 0.5, minimum: CHECKED },
      probes,
      probeTimeout: PROBE_TIMEOUT_MS,
    })
    const model = new Model(probes)
    const admit = () => {
      const passes = model.begin()
      const held = rig.hold()
      assert.equal(held !== undefined, passes, `a call ${passes ? 'passes' : 'is rejected'}`)
      if (held === undefined) return
      const { generation, state, now } = model
      const probeOf = state === 'half_open' ? generation : undefined
      model.admitted.push({ held, probeOf, generation, expiresAt: now + PROBE_TIMEOUT_MS, over: false })
    }
    // A breaker exists from its first call on.
    admit()
    for (const op of ops) {
      const { state: before } = model
      switch (op.op) {
        case 'begin':
          admit()
          break
        case 'end': {
          const [call] = model.admitted.splice(op.which % Math.max(1, model.admitted.length), 1)
          if (call === undefined) break
          model.end(call, op.as)
          if (op.as === 'rejected' && before === 'half_open') assert.equal(model.state, 'half_open')
          await call.held.finish(outcomes[op.as]!)
          await setImmediate()
          break
        }
        case 'advance':
          model.advance(op.ms)
          await rig.clock.advance(op.ms)
          break
        case 'force':
          model.force(op.order)
          rig.breakerOf().force(op.order)
          await setImmediate()
      }
      const { state, manual, generation, consecutive, availability, correctness, openForMs } = rig.snapshot()
      const counts = model.counts()
      const bad = counts.filter((sample) => sample.bad).length
      assert.deepEqual(
        { state, manual, generation, consecutive, bad: availability.bad, good: availability.good },
        {
          state: model.state,
          manual: model.manual,
          generation: model.generation,
          consecutive: model.consecutive,
          bad,
          good: counts.length - bad,
        },
        JSON.stringify(op),
      )
      assert.equal(correctness.bad, counts.filter((sample) => sample.wrong).length)
      if (state === 'open' && !manual) assert.equal(openForMs, model.openForMs)
    }
  },
)
