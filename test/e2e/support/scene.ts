import assert from 'node:assert/strict'
import { everywhere, type Act, type Lane, type Seen, type Stage } from './stage.ts'

/** A fault, and what has to become of one call that it hits. */
export interface Scene extends Act {
  readonly title: string
  /** What the client has to see instead of an answer: the gateway's reason, a code, or what the SDK says. */
  readonly sees?: { readonly reason?: string; readonly code?: unknown; readonly message?: RegExp }
  /** How often the tool has run then, on each lane. */
  readonly runs: number
  /** Attempts at the server, by what became of them: which policy did what shows there. */
  readonly attempts: Readonly<Record<string, number>>
  /** What became of the injections; one that did nothing is none. */
  readonly fates: Readonly<Record<string, number>>
  /** How long it takes at least, in milliseconds. */
  readonly takesMs?: number
  /** How long the client waits. */
  readonly patienceMs?: number
}

/** Timers may be a hair early, on either side. */
const EARLY_MS = 5

/** Plays a scene on a lane: one call of a client. */
export async function play(stage: Stage, scene: Scene, lane: Lane): Promise<Seen> {
  const { tool, sees, takesMs = 0, patienceMs } = scene
  const seen = await stage.call(lane, tool, patienceMs)
  const said = `${lane.name}: ${JSON.stringify(seen)}`
  const runs = await stage.runs(lane, tool)
  if (sees === undefined) assert.match(seen.text ?? '', new RegExp(`^${tool} \\d$`), said)
  else {
    assert.equal(seen.text, undefined, said)
    if (sees.reason !== undefined) assert.equal(seen.reason, sees.reason, said)
    if (sees.code !== undefined) assert.equal(seen.code, sees.code, said)
    if (sees.message !== undefined) assert.match(seen.message ?? '', sees.message, said)
  }
  assert.equal(runs, scene.runs, `${said} ran ${runs} times`)
  assert.ok(seen.tookMs >= takesMs - EARLY_MS, said)
  assert.deepEqual(await stage.attempts(lane, tool), scene.attempts, said)
  assert.deepEqual(await stage.fates(lane, scene), scene.fates, said)
  const injected = await stage.gateway.sums(
    'breakwater_faults_injected_total',
    'type',
    `fault="${tool}.${lane.name}"`,
  )
  const total = Object.values(scene.fates).reduce((sum, count) => sum + count, 0)
  assert.deepEqual(injected, total === 0 ? {} : { [scene.type]: total }, said)
  return seen
}

export function playEverywhere(stage: Stage, scene: Scene): Promise<void> {
  return everywhere(scene, (lane) => play(stage, scene, lane))
}

/** Says of a stage that no fault broke down: a call that goes on unharmed then would look like one that was saved. */
export async function assertSound({ gateway }: Stage): Promise<void> {
  assert.equal(await gateway.metric('breakwater_chaos_engine_errors_total'), 0)
  assert.equal(await gateway.metric('breakwater_chaos_armed'), 1)
}
