import { z } from 'zod'
import type { Env } from '../../config/files/interpolate.ts'
import { REDACTED } from '../../config/secrets/redact-text.ts'
import { printable } from '../../telemetry/printable.ts'
import { UnusableInput } from '../shared/arguments.ts'
import type { Control } from '../shared/control.ts'
import { readPlan } from '../run/plan-file.ts'
import { anything, ask } from './evidence.ts'

/** A plan: the body of `PUT /admin/chaos`, without the seed. */
export type Plan = Readonly<Record<string, unknown>>

/** Lifetime of faults from plans in the formats of other tools; equal to a gateway's default limit. */
const FOREIGN_TTL = '1h'

/** Reads a file with a block `chaos`, a plan, or one of the two other formats. Rejects with an `UnusableInput`. */
export async function planAt(file: string, env: Env): Promise<Plan> {
  const read = await readPlan(file, env, false, { ttl: FOREIGN_TTL })
  if (!read.ok) throw new UnusableInput(read.problems.join('\n'))
  if (read.chaos.faults.length === 0) throw new UnusableInput(`${file} has no faults`)
  const { aliases, faults } = read.written
  return { ...(aliases !== undefined && { aliases }), faults }
}

const count = z.int().min(0)

/** The fields of `/admin/chaos` that this command reads. */
const status = z.object({
  seed: z.union([z.number(), z.string()]),
  mode: z.string(),
  engineErrors: z.number(),
  by: z.string(),
  plannedBy: z.string(),
  faults: z.array(
    z.object({
      name: z.string(),
      type: z.string(),
      id: z.string().optional(),
      armed: z.boolean(),
      config: z.unknown(),
      ...{ injected: count, notApplicable: count, notReached: count },
      ...{ masked: count, delayed: count, surfaced: count, escaped: count },
    }),
  ),
})

/** The fields of `/admin/config` and `/admin/experiments` that this command reads. */
const configured = z.object({
  config: z.object({
    chaos: status.pick({ seed: true, mode: true }).extend({ faults: z.array(z.unknown()) }),
  }),
})
const listed = z.object({
  experiments: z.array(z.object({ name: z.string(), kind: z.string().optional(), state: z.string() })),
})

const statusAt = (control: Control) => ask(control, { method: 'GET', path: '/admin/chaos' }, status)

/** The gateway's plan before a run, which is restored after the run. */
type Before = z.output<typeof configured>['config']['chaos']

/**
 * The author of plans in the journal: `BY` for the plan of a run, `BACK` for a restored plan. Only a plan by `BY` can
 * be left over from a killed run.
 */
const BY = 'breakwater compare'
const BACK = `${BY}, put back`

/** Faults armed for a run. All methods except `end` reject with an `UnusableInput`. */
export class ArmedPlan {
  readonly #control: Control
  readonly #seed: number
  readonly #before: Before

  private constructor(control: Control, seed: number, before: Before) {
    this.#control = control
    this.#seed = seed
    this.#before = before
  }

  /** Replaces and arms the gateway's plan, with draws by `seed`. Rejects while faults are armed. */
  static async arm(control: Control, plan: Plan, seed: number): Promise<ArmedPlan> {
    const armed = new ArmedPlan(control, seed, await replaceable(control))
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

  /** Renews the lease: without renewals, the gateway ends the faults. */
  async renew(): Promise<void> {
    await this.#control({ method: 'POST', path: '/admin/chaos/renew', body: { by: BY } })
  }

  /**
   * Removes the faults and restores the former plan. Does not change injected faults or plans of other users. Never
   * rejects; resolves to the reason of a failure, or undefined.
   */
  async end(): Promise<string | undefined> {
    const now = await this.#control({ method: 'GET', path: '/admin/chaos' })
    const plannedBy = now.ok ? status.safeParse(now.value).data?.plannedBy : undefined
    if (plannedBy !== undefined && plannedBy !== BY)
      return `the gateway now has another plan, by ${printable(plannedBy)}, which stays in force`
    return exchange(this.#control, this.#seed, this.#before)
  }
}

/**
 * Replaces a comparison's plan by another plan, disarmed. Never rejects; resolves to the reason of a failure, or
 * undefined.
 */
async function exchange(control: Control, seed: Before['seed'], plan: Before): Promise<string | undefined> {
  const put = (by: string, body: object) =>
    control({ method: 'PUT', path: `/admin/chaos?by=${encodeURIComponent(by)}`, body })
  // A plan that replaces an armed plan is armed too, so a plan without faults is put first.
  const gone = await put(BY, { seed, faults: [] })
  if (!gone.ok) return `the faults could not be disarmed: ${gone.message}`
  const back = await put(BACK, plan)
  return back.ok ? undefined : `the former plan could not be put back: ${back.message}`
}

/**
 * Removes faults left over from a killed run, and restores the plan of the config, because the former plan is unknown.
 * Resolves to the names of the removed faults. Rejects with an `UnusableInput`.
 */
export async function takeAwayLeft(control: Control): Promise<readonly string[]> {
  const { plannedBy, by, seed, faults } = await statusAt(control)
  const left = faults.filter(({ id }) => id === undefined)
  // If another user has armed the faults again, they are not left over from a killed run.
  if (plannedBy !== BY || (by !== BY && left.some(({ armed }) => armed))) return []
  await refuseWhileAnotherRuns(control)
  const { chaos } = (await ask(control, { method: 'GET', path: '/admin/config' }, configured)).config
  refuseRedacted(chaos)
  const problem = await exchange(control, seed, chaos)
  if (problem !== undefined) throw new UnusableInput(problem)
  return left.map(({ name }) => name)
}

/** Returns the plan to be replaced by a comparison. Rejects with an `UnusableInput` while faults are armed. */
export async function replaceable(control: Control): Promise<Before> {
  const now = await statusAt(control)
  const armed = now.faults.filter((fault) => fault.armed)
  if (armed.length > 0) {
    const isPlanned = armed.some(({ id }) => id === undefined)
    const ending = isPlanned ? 'disarm' : armed.length > 1 ? 'clear-all' : `clear ${armed[0]!.name}`
    throw new UnusableInput(
      `the gateway has faults of its own armed (${armed.map(({ name }) => name).join(', ')}), so --plan is refused: leave --plan out to play with these faults, or ${isPlanned ? 'disarm' : 'end'} them first (breakwater chaos ${ending})`,
    )
  }
  const before = planOf(now)
  refuseRedacted(before)
  return before
}

/** Throws an `UnusableInput` for a plan with redacted values, which cannot be put back. */
function refuseRedacted(plan: Before): void {
  if (JSON.stringify(plan).includes(REDACTED))
    throw new UnusableInput(
      "the gateway's plan has secret values, so the command could not put the plan back: leave --plan out, or use --config FILE instead of --control",
    )
}

const planOf = ({ seed, mode, faults }: z.output<typeof status>): Before => ({
  seed,
  mode,
  faults: faults.filter(({ id }) => id === undefined).map(({ config }) => config),
})

/** Rejects with an `UnusableInput` while another comparison may be under way, because its faults are still in use. */
async function refuseWhileAnotherRuns(control: Control): Promise<void> {
  const { experiments } = await ask(control, { method: 'GET', path: '/admin/experiments' }, listed)
  const other = experiments.find(({ kind, state }) => kind !== 'guarded' && state === 'running')
  if (other !== undefined)
    throw new UnusableInput(
      `the gateway has the faults of another comparison, perhaps of running experiment "${other.name}": end it first (breakwater experiment stop ${other.name})`,
    )
}

/** An armed fault with its counts so far. */
export type ArmedFault = z.output<typeof status>['faults'][number]

/** Returns the armed faults, and the number of engine failures. */
export async function stateOf(
  control: Control,
): Promise<{ readonly armed: readonly ArmedFault[]; readonly engineErrors: number }> {
  const { faults, engineErrors } = await statusAt(control)
  return { armed: faults.filter(({ armed }) => armed), engineErrors }
}

/** Returns a fault with its counts since an earlier look. */
export const since = (before: ArmedFault, now: ArmedFault): ArmedFault => ({
  ...now,
  injected: now.injected - before.injected,
  notApplicable: now.notApplicable - before.notApplicable,
  notReached: now.notReached - before.notReached,
  masked: now.masked - before.masked,
  delayed: now.delayed - before.delayed,
  surfaced: now.surfaced - before.surfaced,
  escaped: now.escaped - before.escaped,
})
