import { z } from 'zod'
import type { Env } from '../../config/files/interpolate.ts'
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
  faults: z.array(z.object({ name: z.string(), armed: z.boolean() })),
})

const statusAt = (control: Control) => ask(control, { method: 'GET', path: '/admin/chaos' }, status)

type Before = Pick<z.output<typeof status>, 'seed' | 'mode'>

/** Who does it, in the journal. */
const BY = 'breakwater compare'

/** Faults that are armed for a run. All of it rejects with a `CompareError`, but for the end. */
export class ArmedPlan {
  readonly #control: Control
  readonly #before: Before

  private constructor(control: Control, before: Before) {
    this.#control = control
    this.#before = before
  }

  /**
   * Puts the plan in the place of an empty one and arms it, with draws by this seed. A gateway with a plan of its own
   * keeps it, and refuses.
   */
  static async arm(control: Control, plan: Plan, seed: number): Promise<ArmedPlan> {
    const before = await statusAt(control)
    if (before.faults.length > 0)
      throw new CompareError(
        'the gateway has faults of its own, whose place --plan would take: leave it out to play under these, or clear them',
      )
    const armed = new ArmedPlan(control, before)
    const path = `/admin/chaos?by=${encodeURIComponent(BY)}`
    try {
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

  /** Disarms all, and leaves no plan behind. Never rejects; resolves to why it could not be done, if so. */
  async end(): Promise<string | undefined> {
    const body = { by: BY, why: 'the comparison is over' }
    const disarmed = await this.#control({ method: 'POST', path: '/admin/chaos/disarm', body })
    const path = `/admin/chaos?by=${encodeURIComponent(BY)}`
    const { seed, mode } = this.#before
    await this.#control({ method: 'PUT', path, body: { seed, mode, faults: [] } })
    return disarmed.ok ? undefined : `the faults could not be disarmed: ${disarmed.message}`
  }
}

/** Which faults are armed, and how often the engine has failed. */
export async function stateOf(
  control: Control,
): Promise<{ readonly names: readonly string[]; readonly engineErrors: number }> {
  const { faults, engineErrors } = await statusAt(control)
  return { names: faults.flatMap(({ name, armed }) => (armed ? name : [])), engineErrors }
}
