import { z } from 'zod'
import type { Env } from '../../config/files/interpolate.ts'
import { REDACTED } from '../../config/secrets/redact-text.ts'
import type { Control } from '../chaos/control.ts'
import { readPlan } from '../plan-file.ts'
import { CompareError } from './agents.ts'
import { anything, ask } from './evidence.ts'

/** A plan that was read: what `PUT /admin/chaos` takes, but for its seed. */
export type Plan = Readonly<Record<string, unknown>>

/** How long faults of the two other formats stay armed: as long as a gateway allows unless it says otherwise. */
const FOREIGN_TTL = '1h'

/** Reads a plan: a file with a block `chaos`, a plan, or one of the two other formats. Rejects with a `CompareError`. */
export async function planAt(file: string, env: Env): Promise<Plan> {
  const read = await readPlan(file, env, false, { ttl: FOREIGN_TTL })
  if (!read.ok) throw new CompareError(read.problems.join('\n'))
  if (read.chaos.faults.length === 0) throw new CompareError(`${file} has no faults`)
  const { aliases, faults } = read.written
  return { ...(aliases !== undefined && { aliases }), faults }
}

/** As much of `/admin/chaos` as is read. */
const status = z.object({
  seed: z.union([z.number(), z.string()]),
  mode: z.string(),
  engineErrors: z.number(),
  by: z.string(),
  plannedBy: z.string(),
  faults: z.array(
    z.object({ name: z.string(), id: z.string().optional(), armed: z.boolean(), config: z.unknown() }),
  ),
})

/** As much of `/admin/config` and `/admin/experiments` as is read. */
const configured = z.object({
  config: z.object({
    chaos: status.pick({ seed: true, mode: true }).extend({ faults: z.array(z.unknown()) }),
  }),
})
const listed = z.object({
  experiments: z.array(z.object({ name: z.string(), kind: z.string().optional(), state: z.string() })),
})

const statusAt = (control: Control) => ask(control, { method: 'GET', path: '/admin/chaos' }, status)

/** The plan put back after a run. */
type Before = z.output<typeof configured>['config']['chaos']

/** Author in the journal. A plan put back under the second name is no leftover of a killed run. */
const BY = 'breakwater compare'
const BACK = `${BY}, put back`

/** Faults that are armed for a run. All of it rejects with a `CompareError`, but for the end. */
export class ArmedPlan {
  readonly #control: Control
  readonly #before: Before
  /** Names of the faults of a killed run that this run took away. */
  readonly left: readonly string[]

  private constructor(control: Control, before: Before, left: readonly string[]) {
    this.#control = control
    this.#before = before
    this.left = left
  }

  /**
   * Replaces the gateway's plan, arms the new one, and draws by `seed`. Takes away faults of a killed run. Rejects while
   * faults of the gateway's own are armed. `experiment`: name of this run's experiment.
   */
  static async arm(control: Control, plan: Plan, seed: number, experiment: string): Promise<ArmedPlan> {
    const now = await statusAt(control)
    const left = now.plannedBy === BY ? now.faults.filter(({ id }) => id === undefined) : []
    if (left.length > 0) await refuseWhileAnotherRuns(control, experiment)
    const standing = now.faults.filter((fault) => fault.armed && !(now.by === BY && left.includes(fault)))
    if (standing.length > 0)
      throw new CompareError(
        `the gateway has faults of its own armed (${standing.map(({ name }) => name).join(', ')}), whose place --plan would take: leave --plan out to play under these, or disarm them first (breakwater chaos disarm)`,
      )
    const before = left.length > 0 ? await planInConfig(control) : planOf(now)
    // Redacted values cannot be put back.
    if (JSON.stringify(before).includes(REDACTED))
      throw new CompareError(
        'the gateway has a plan of its own with values that its control port does not show, so --plan cannot put it back: leave --plan out, or take --config FILE in place of --control',
      )
    const names = left.map(({ name }) => name)
    const armed = new ArmedPlan(control, before, names)
    const path = `/admin/chaos?by=${encodeURIComponent(BY)}`
    try {
      if (left.some((fault) => fault.armed)) {
        const body = { by: BY, why: 'an earlier comparison left them' }
        await ask(control, { method: 'POST', path: '/admin/chaos/disarm', body }, anything)
      }
      await ask(control, { method: 'PUT', path, body: { ...plan, seed } }, anything)
      const body = { by: BY, why: 'compares policy sets' }
      await ask(control, { method: 'POST', path: '/admin/chaos/arm', body }, anything)
      return armed
    } catch (error) {
      await armed.end()
      throw error
    }
  }

  /** Says that the run goes on, to a gateway whose faults end when nobody does. */
  async renew(): Promise<void> {
    await this.#control({ method: 'POST', path: '/admin/chaos/renew', body: { by: BY } })
  }

  /** Disarms all faults and puts back the former plan. Never rejects; resolves to the reason of a failure, or undefined. */
  async end(): Promise<string | undefined> {
    const body = { by: BY, why: 'the comparison is over' }
    const disarmed = await this.#control({ method: 'POST', path: '/admin/chaos/disarm', body })
    const path = `/admin/chaos?by=${encodeURIComponent(BACK)}`
    const back = await this.#control({ method: 'PUT', path, body: this.#before })
    if (!disarmed.ok) return `the faults could not be disarmed: ${disarmed.message}`
    return back.ok ? undefined : `the plan of before could not be put back: ${back.message}`
  }
}

const planOf = ({ seed, mode, faults }: z.output<typeof status>): Before => ({
  seed,
  mode,
  faults: faults.filter(({ id }) => id === undefined).map(({ config }) => config),
})

/** Returns the plan of the config: after a killed run nobody knows the former plan. */
async function planInConfig(control: Control): Promise<Before> {
  return (await ask(control, { method: 'GET', path: '/admin/config' }, configured)).config.chaos
}

/** Rejects with a `CompareError` while another comparison may be under way: its faults are no leftovers yet. */
async function refuseWhileAnotherRuns(control: Control, own: string): Promise<void> {
  const { experiments } = await ask(control, { method: 'GET', path: '/admin/experiments' }, listed)
  const other = experiments.find(
    ({ name, kind, state }) => kind !== 'guarded' && state === 'running' && name !== own,
  )
  if (other !== undefined)
    throw new CompareError(
      `the gateway has the faults of another comparison, perhaps that of experiment "${other.name}", which runs: end it first (breakwater experiment stop ${other.name})`,
    )
}

/** Which faults are armed, and how often the engine has failed. */
export async function stateOf(
  control: Control,
): Promise<{ readonly names: readonly string[]; readonly engineErrors: number }> {
  const { faults, engineErrors } = await statusAt(control)
  return { names: faults.flatMap(({ name, armed }) => (armed ? name : [])), engineErrors }
}
