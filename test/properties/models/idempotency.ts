import fc from 'fast-check'
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { openDurable } from '../../../src/gateway/policy-context.ts'
import type { Runs } from '../../../src/policies/idempotency/runs.ts'
import { errorOf, leaving, read, setUp } from '../../policies/idempotency/keyed.ts'
import { OwnLevel } from '../../support/level.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { recordedLog } from '../../support/log.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { MemoryStore } from '../../support/memory-store.ts'
import { asyncTarget, type Target } from '../target.ts'

const WINDOW_MS = 60_000
const LIMIT_MS = 3_600_000
const MOST = 5

const ends = ['answer', 'large', 'lost', 'unsent', 'refused'] as const

const op = fc.tuple(
  fc.constantFrom('send', 'send', 'send', 'end', 'end', 'leave', 'advance', 'restart'),
  fc.constantFrom('k1', 'k2', 'k3', 'k4'),
  fc.nat({ max: 1 }),
  fc.constantFrom(...ends),
  fc.constantFrom(1, 30_000, 59_999, 60_000, 61_000),
)

/** State of one key. */
interface Known {
  readonly args: number
  /** Index among the server's calls in this process; undefined after the call's end. */
  run: number | undefined
  /** The end of the call, if over. */
  end?: (typeof ends)[number] | 'interrupted'
  expiresAt: number
}

/** Whether an end is kept; if not, the same call may run again. */
const isKept = (end: (typeof ends)[number]) => end !== 'unsent' && end !== 'refused'

function idempotency(name: string, { restarts, most }: { restarts: boolean; most: number }): Target {
  return asyncTarget(name, fc.array(op, { maxLength: 40, size: 'max' }), async (ops) => {
    const store = new MemoryStore()
    const settings = { window: WINDOW_MS, limit: LIMIT_MS, maxKeys: most, maxSize: '2KiB' }
    let wall = Date.UTC(2026, 0, 1)
    const begin = () => {
      const context = testPolicyContext(new ManualClock(wall), [], restarts ? store : undefined)
      return setUp({ settings, effect: 'write', context })
    }
    let process = begin()
    let known = new Map<string, Known>()
    let leavers: (() => void)[] = []
    /** Callers that wait for a run, by its index. */
    let waiting = new Map<number, ReturnType<typeof process.send>[]>()
    for (const [op, key, args, end, ms] of ops) {
      const found = known.get(key)
      if (found?.run === undefined && found !== undefined && found.expiresAt <= wall && op === 'send')
        known.delete(key)
      switch (op) {
        case 'send': {
          const before = process.server.calls.length
          const { call, leave } = leaving(key, { args: { args } })
          leavers.push(leave)
          const sent = process.send(call)
          await setImmediate()
          const runs = process.server.calls.length - before
          const same = known.get(key)
          if (same === undefined) {
            for (const [other, { run, expiresAt }] of known)
              if (run === undefined && expiresAt <= wall) known.delete(other)
            // All calls are of one tenant, which may use as many places as remain free.
            const hasRoom = known.size < most - known.size
            assert.equal(runs, hasRoom ? 1 : 0, 'a new key runs if there is room')
            if (!hasRoom) assert.equal(errorOf(sent)?.reason, 'idempotency_full')
            else {
              known.set(key, { args, run: before, expiresAt: Infinity })
              waiting.set(before, [sent])
            }
            break
          }
          assert.equal(runs, 0, 'a running or finished call does not run again')
          if (same.args !== args) assert.equal(errorOf(sent)?.reason, 'idempotency_conflict')
          else if (same.run !== undefined) {
            assert.equal(sent.outcome, undefined)
            waiting.get(same.run)?.push(sent)
          } else if (same.end === 'answer') assert.equal(read(sent)?.id, call.id)
          else assert.equal(errorOf(sent)?.sent, true)
          break
        }
        case 'end': {
          const run = found?.run
          if (found === undefined || run === undefined) break
          if (end === 'answer') process.server.answer(run)
          else if (end === 'large') process.server.answer(run, { text: 'x'.repeat(3_000) })
          else if (end === 'lost') process.server.fail(run, 'upstream_disconnected', true)
          else if (end === 'unsent') process.server.fail(run, 'upstream_unavailable', false)
          else process.server.fail(run, 'upstream_rate_limited', true)
          await setImmediate()
          for (const sent of waiting.get(run) ?? []) assert.ok(sent.outcome, 'every waiter gets the answer')
          waiting.delete(run)
          known.delete(key)
          if (isKept(end)) known.set(key, { ...found, run: undefined, end, expiresAt: wall + WINDOW_MS })
          break
        }
        case 'leave':
          leavers.pop()?.()
          await setImmediate()
          break
        case 'advance':
          wall += ms
          await process.clock.advance(ms)
          break
        case 'restart': {
          if (!restarts) break
          process = begin()
          leavers = []
          waiting = new Map()
          const left = [...known].map(([key, known]): [string, Known] =>
            known.run === undefined
              ? [key, known]
              : [key, { ...known, run: undefined, end: 'interrupted', expiresAt: Infinity }],
          )
          known = new Map(left)
        }
      }
      const snapshot = process.context.state.list<Runs>('idempotency')[0]![1].snapshot()
      const running = [...known.values()].filter(({ run }) => run !== undefined).length
      assert.equal(snapshot.underWay, running)
      if (!restarts) assert.ok(snapshot.underWay + snapshot.over <= most)
      assert.ok(snapshot.bytes >= 0 && snapshot.bytes <= 2_048)
    }
  })
}

const owners = ['a', 'b']

const durable = asyncTarget(
  'what was put into the store on disk is there after any end of the process, once, for its owner, until it expires',
  fc.array(
    fc.tuple(
      fc.constantFrom('put', 'put', 'put', 'delete', 'advance', 'reopen'),
      fc.constantFrom(...owners),
      fc.constantFrom('1', '2', 'a\nb', ''),
      fc.constantFrom(1, 1_000, 100_000),
    ),
    { maxLength: 25, size: 'max' },
  ),
  async (ops) => {
    const stateDir = await mkdtemp(join(tmpdir(), 'breakwater-model-'))
    const clock = new ManualClock()
    const { log, lines } = recordedLog()
    const level = (folder: string) => new OwnLevel(folder)
    const open = async () => (await openDurable({ stateDir, clock, log, level })).store!
    const model = new Map<string, { owner: string; id: string; value: number; expiresAt: number }>()
    let store = await open()
    try {
      for (const [turn, [op, server, id, ms]] of [...ops, ['reopen', 'a', '1', 1] as const].entries()) {
        const records = store.of({ kind: 'model', set: 'default', server })
        const key = JSON.stringify([server, id])
        if (op === 'put') {
          await records.put(id, turn, clock.wall() + ms)
          model.set(key, { owner: server, id, value: turn, expiresAt: clock.wall() + ms })
        } else if (op === 'delete') {
          records.delete(id)
          model.delete(key)
        } else if (op === 'advance') await clock.advance(ms)
        else {
          await store.close()
          store = await open()
          for (const server of owners) {
            const owner = store.of({ kind: 'model', set: 'default', server })
            const left = owner.take().map(({ id, value, expiresAt }) => ({ id, value, expiresAt }))
            const expected = [...model.values()]
              .filter(({ owner, expiresAt }) => owner === server && expiresAt > clock.wall())
              .map(({ id, value, expiresAt }) => ({ id, value, expiresAt }))
            const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1)
            assert.deepEqual(left.toSorted(byId), expected.toSorted(byId))
            assert.deepEqual(owner.take(), [])
          }
        }
      }
      assert.deepEqual(
        lines.filter(({ level }) => Number(level) > 30),
        [],
      )
    } finally {
      await store.close()
      await rm(stateDir, { recursive: true, force: true })
    }
  },
  12,
)

export const idempotencyTargets: readonly Target[] = [
  idempotency(
    'a call with a key runs once, is joined, replayed or refused, and no new key makes another one go',
    {
      restarts: false,
      most: MOST,
    },
  ),
  idempotency('a call with a key runs once even if the process ends at any moment', {
    restarts: true,
    most: 1_000,
  }),
  durable,
]
