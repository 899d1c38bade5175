import type { ServerVital } from '../../../src/experiments/guarded/claims.ts'
import { Lifecycle, type StageOrder, type World } from '../../../src/experiments/guarded/lifecycle.ts'
import { Meter } from '../../../src/experiments/guarded/meter.ts'
import {
  blankRecord,
  type LayerState,
  noHits,
  type RunRecord,
} from '../../../src/experiments/guarded/record.ts'
import type { Spec } from '../../../src/experiments/guarded/spec.ts'
import { experimentSpec } from '../../../src/gateway/guarded/spec.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** A spec with short times: a baseline of two seconds, then two stages of two seconds. */
export const specOf = (more: object = {}): Spec =>
  experimentSpec.parse({
    name: 'drill',
    owner: 'tests',
    reason: 'to see',
    hypothesis: { steadyState: ['error_ratio < 1%', 'p95 < 500ms', 'status = up'] },
    targets: { server: 'a' },
    faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
    stages: [
      { share: 0.25, duration: '2s' },
      { share: 0.5, duration: '2s' },
    ],
    gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }], over: '1s', minimum: 5, missing: '1s' },
    baseline: { duration: '2s', minimum: 10 },
    recovery: { within: '5s', over: '1s' },
    ...more,
  })

export function recordOf(spec: Spec, more: Partial<RunRecord> = {}): RunRecord {
  return {
    format: 1,
    id: 'run-1',
    kind: 'guarded',
    name: spec.name,
    spec,
    shape: 'shape',
    hashes: { config: 'c', policies: 'p', faults: 'f' },
    seed: '0',
    targets: { environment: 'staging', servers: [{ name: 'a', tools: ['t'], hit: ['t'] }] },
    actor: 'tester',
    approver: undefined,
    proof: undefined,
    firstStage: 0,
    state: 'running',
    phase: 'waiting',
    reason: '',
    requestedAt: 0,
    ...blankRecord(spec),
    ...more,
  }
}

/** The calls of an arm: their latency and the share that fails. */
interface Fare {
  tookMs: number
  failing: number
}

/** A run in a simulated world. Calls end at a steady rate, as `fares` says; the run alone arms and disarms faults. */
export function stage(spec: Spec = specOf(), record: Partial<RunRecord> = {}) {
  const clock = new ManualClock()
  const meter = new Meter(clock)
  const done: string[] = []
  const rules = {
    armed: false,
    share: 0,
    isMeasured: false,
    callsPerTick: 4,
    injects: true,
    /** Whether calls of the treatment never end. */
    hangs: false,
    /** Whether the treatment gets no calls any more. */
    isDeserted: false,
    /** An error thrown by reads of servers and layers. */
    defect: undefined as string | undefined,
    engineErrors: 0,
    isReady: true,
    gone: undefined as string | undefined,
    armFails: undefined as string | undefined,
    beginFails: undefined as string | undefined,
    sticks: 0,
    /** Writes a step to the journal; by default at once. */
    written: undefined as ((now: RunRecord) => Promise<string | undefined>) | undefined,
    layers: [] as LayerState[],
    servers: [{ name: 'a', isUp: true, uptimeMs: 60_000, probeFailures: 0 }] as ServerVital[],
    fares: {
      all: { tookMs: 10, failing: 0 },
      control: { tookMs: 10, failing: 0 },
      treatment: { tookMs: 10, failing: 0 },
    } as Record<'all' | 'control' | 'treatment', Fare>,
  }
  let injected = 0
  let calls = 0
  const sound = <T>(value: T): T => {
    if (rules.defect !== undefined) throw new Error(rules.defect)
    return value
  }
  const world: World = {
    begin() {
      if (rules.beginFails !== undefined) throw new Error(rules.beginFails)
      rules.isMeasured = true
      done.push('begin')
    },
    isReady: () => rules.isReady,
    arm({ index, share }: StageOrder) {
      if (rules.armFails !== undefined) throw new Error(rules.armFails)
      rules.armed = true
      rules.share = share
      done.push(`arm ${index}`)
    },
    renew: () => rules.gone,
    rollback() {
      const left = rules.sticks-- > 0 ? ['broken'] : []
      rules.armed = left.length > 0
      rules.share = 0
      done.push('rollback')
      return { armed: left, arms: [], chaos: 'disarmed' }
    },
    end() {
      rules.isMeasured = false
      done.push('end')
    },
    longestMs: () => 55_000,
    servers: () => sound(rules.servers),
    layers: () => sound(rules.layers),
    faults: () => ({
      faults: [{ name: 'broken', type: 'rpc.error', ...noHits, decided: injected, injected }],
      engineErrors: rules.engineErrors,
    }),
  }
  function call(): void {
    const isIn = rules.share > 0
    const arm = !isIn ? 'all' : calls++ % 2 === 0 ? 'treatment' : 'control'
    if (arm === 'treatment' && rules.isDeserted) return
    const { tookMs, failing } = rules.fares[arm]
    const measured = meter.begin(arm, () => 0)
    if (arm === 'treatment' && rules.injects) {
      injected++
      meter.affected(measured.at, 'trace')
    }
    if (arm === 'treatment' && rules.hangs) return
    const isWrong = failing > 0 && calls % Math.round(1 / failing) === 0
    meter.end(measured, { isWrong, isRejected: false, attempts: 1, rejections: [], tookMs })
  }
  const traffic = () => {
    if (rules.isMeasured) for (let n = 0; n < rules.callsPerTick; n++) call()
    clock.after(50, traffic)
  }
  traffic()
  const heard: RunRecord[] = []
  const told = { ticks: 0 }
  const lifecycle = new Lifecycle({
    clock,
    meter,
    world,
    record: recordOf(spec, record),
    onChange(now, what) {
      if (what === 'step') heard.push(now)
      else told.ticks++
      return what === 'step' ? rules.written?.(now) : undefined
    },
  })
  /** Advances until the run reaches a phase or ends. */
  async function until(phase: RunRecord['phase'], index = 0): Promise<RunRecord> {
    for (let n = 0; n < 4_000; n++) {
      const { record: now } = lifecycle
      if (now.phase === 'over' || (now.phase === phase && (phase !== 'stage' || now.stage >= index)))
        return now
      await clock.advance(50)
    }
    throw new Error(`it never came to ${phase}: ${JSON.stringify(lifecycle.record.decisions)}`)
  }
  return { clock, meter, lifecycle, rules, done, heard, told, until }
}
