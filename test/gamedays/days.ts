import { GameDay, type Begun } from '../../src/gamedays/gameday.ts'
import type { GameDayPlan } from '../../src/gamedays/plan.ts'
import type { GameDayRecord } from '../../src/gamedays/record.ts'
import type { RunRecord } from '../../src/experiments/guarded/record.ts'
import { gameDayPlanSchema } from '../../src/gateway/gamedays.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'
import { ManualClock } from '../support/manual-clock.ts'

const experiment = (name: string, more: object = {}) => ({
  spec: {
    name,
    owner: 'tests',
    reason: 'to see',
    hypothesis: { steadyState: ['error_ratio < 1%'] },
    targets: { server: 'a' },
    faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
    gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }] },
  },
  ...more,
})

/** A GameDay as in a file: experiments `one`, `two` and `three`, the second after a minute. */
export const written = (more: object = {}) => ({
  name: 'day',
  title: 'A day',
  roles: { lead: 'ops' },
  hypothesis: 'Agents get answers.',
  scope: { servers: ['a'] },
  experiments: [experiment('one'), experiment('two', { after: '1m' }), experiment('three')],
  ...more,
})

export const planOf = (more: object = {}): GameDayPlan => gameDayPlanSchema.parse(written(more))

export function dayRecord(plan: GameDayPlan, more: Partial<GameDayRecord> = {}): GameDayRecord {
  return {
    format: 1,
    id: 'gd-1-00000000',
    plan,
    isComplete: true,
    version: '0.1.0',
    environment: 'staging',
    by: 'ops',
    isOfAgent: false,
    state: 'running',
    reason: 'it runs',
    startedAt: 0,
    endedAt: undefined,
    steps: plan.experiments.map(({ spec: { name } }) => ({
      name,
      state: 'planned',
      runs: [],
      note: '',
      beganAt: undefined,
      result: undefined,
    })),
    pauses: [],
    observations: [],
    actions: [],
    events: [],
    ...more,
  }
}

/** A GameDay over a gateway whose runs begin and end as a test says. */
export function rehearsal(more: object = {}, record: Partial<GameDayRecord> = {}) {
  const clock = new ManualClock()
  const plan = planOf(more)
  /** The run under way or waiting; the gateway has one at a time. */
  let active: RunRecord | undefined
  let runs = 0
  const gateway = {
    /** Answers of `begin` before the usual one. */
    answers: [] as Begun[],
    /** Begins wait until `release` while true. */
    isSlow: false,
    release: () => undefined as void,
    needsApproval: false,
    /** An error that `begin` throws. */
    defect: undefined as string | undefined,
    stopWhy: undefined as string | undefined,
    /** Runs that a stop has ended. */
    stopped: [] as string[],
    get active() {
      return active
    },
    /** Names of the experiments whose runs began, in order. */
    begun: [] as string[],
    approve() {
      active = { ...active!, state: 'running' }
    },
    /** Ends the active run, and tells the GameDay. */
    end(end: Partial<RunRecord> = {}) {
      const run: RunRecord = { ...active!, state: 'completed', phase: 'over', reason: 'it held', ...end }
      active = undefined
      day.ended(run)
    },
    changes: 0,
  }
  const day: GameDay = new GameDay(
    {
      clock,
      plan,
      runs: {
        async begin(spec): Promise<Begun> {
          if (gateway.isSlow) await new Promise<void>((resolve) => (gateway.release = resolve))
          if (gateway.defect !== undefined) throw new Error(gateway.defect)
          const answer = gateway.answers.shift()
          if (answer !== undefined) return answer
          if (active !== undefined) return { ok: false, refusals: ['another run is under way'], isBusy: true }
          const state = gateway.needsApproval ? 'pending_approval' : 'running'
          active = recordOf(specOf({ name: spec.name }), { id: `run-${++runs}`, state })
          gateway.begun.push(spec.name)
          return { ok: true, run: active }
        },
        stop({ id }, by, why) {
          if (active?.id !== id) return
          gateway.stopped.push(id)
          gateway.end({ state: 'aborted', reason: `${by} stopped it: ${why}` })
        },
        get: (name) => (active?.name === name ? active : undefined),
      },
      stopReason: () => gateway.stopWhy,
      onChange: () => void gateway.changes++,
    },
    dayRecord(plan, record),
  )
  const states = () => day.record.steps.map(({ state }) => state)
  return { clock, day, gateway, plan, states }
}
