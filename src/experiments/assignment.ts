import { createHash } from 'node:crypto'
import type { Call } from '../mesh/call.ts'
import { createKeyedRandom } from '../mesh/keyed-random.ts'
import { glob } from '../mesh/match.ts'
import { metaOf } from '../protocol/meta.ts'
import { ARM_KEY, type Task, taskOf } from '../protocol/task.ts'
import { taskUnit, tenantUnit } from './samples.ts'
import { armName, type Experiment, splitOf } from './schema.ts'

/** The unit of a call's assignment: all calls of a unit are in the same arm. */
interface Unit {
  /** Unique in its experiment. Session names and header values may be secrets, so the key has digests of them. */
  readonly key: string
  /** True when the call lacked the unit by which the experiment assigns. */
  readonly isFallback: boolean
}

export type Assignment =
  | {
      /** See `armName`: the name outside of the experiment. */
      readonly arm: string
      /** The name inside the experiment. */
      readonly name: string
      readonly unit: string
      readonly isFallback: boolean
      /** True when the agent chose the arm. */
      readonly isAsked: boolean
    }
  /** The call matches, but takes no part: not drawn, or without a unit. */
  | 'not_drawn'
  | 'excluded'

/** Draws are the same in every process: they depend only on the salt and the unit. */
const random = createKeyedRandom(0)

/** Maximum number of remembered assignments. Forgotten units are drawn again, with the same result. */
const MAX_REMEMBERED = 10_000

/**
 * Returns a function that assigns calls to the arms of an experiment. The function returns undefined for calls that do
 * not match. A keyed hash of the unit decides whether the unit takes part; a second, independent hash decides the arm.
 * So a larger share moves no unit to another arm.
 */
export function assigner(experiment: Experiment): (call: Call) => Assignment | undefined {
  const { match, share, assignBy } = experiment
  const salt = experiment.salt ?? experiment.name
  const [server, tool, tenant] = [match.server, match.tool, match.tenant].map((held) => glob(held ?? '*'))
  const arms = [...splitOf(experiment)]
  const names = new Map(arms.map(([name]) => [name, armName(experiment.name, name)]))
  const remembered = new Map<string, Assignment>()

  function into(name: string, { key, isFallback }: Unit): Assignment {
    const arm = names.get(name)
    return arm === undefined
      ? 'excluded'
      : { arm, name, unit: key, isFallback, isAsked: assignBy === 'agent' }
  }

  function drawn(unit: Unit): Assignment {
    if (share < 1 && random(unit.key, `${salt} share`) >= share) return 'not_drawn'
    let u = random(unit.key, `${salt} arm`)
    for (const [name, part] of arms) {
      u -= part
      if (u < 0) return into(name, unit)
    }
    // Rounding: the shares may add up to slightly less than 1.
    return into(arms.at(-1)![0], unit)
  }

  return (call) => {
    if (call.tool === undefined || !server!(call.server) || !tool!(call.tool) || !tenant!(call.tenant))
      return undefined
    const unit = unitOf(call, experiment)
    if (unit === undefined) return 'excluded'
    if (assignBy === 'agent') return into(armOf(call), unit)
    const known = remembered.get(unit.key)
    if (known !== undefined) return known
    const found = drawn(unit)
    if (remembered.size >= MAX_REMEMBERED) remembered.clear()
    remembered.set(unit.key, found)
    return found
  }
}

const unnamed: Readonly<Record<Experiment['assignBy'], string>> = {
  agent: 'no arm of the experiment, or no task (intent)',
  intent: 'no task (intent)',
  session: 'no session',
  tenant: 'no tenant',
  header: 'no value of the header',
}

/** Returns the name that excluded calls lack, as text such as `no task (intent)`. */
export const unnamedBy = ({ assignBy }: Pick<Experiment, 'assignBy'>): string => unnamed[assignBy]

/** Returns the arm chosen by the agent; empty for none. */
function armOf({ message }: Call): string {
  const arm = metaOf(message.value, 'params', ARM_KEY)
  return typeof arm === 'string' ? arm : ''
}

function unitOf(call: Call, { assignBy, header, fallback }: Experiment): Unit | undefined {
  const asked = askedFor(call, assignBy, header)
  if (asked !== undefined) return { key: asked, isFallback: false }
  if (fallback === 'exclude' || assignBy === 'agent') return undefined
  const session = fallback === 'session' ? sessionOf(call) : undefined
  return { key: session ?? tenantOf(call), isFallback: true }
}

function askedFor(
  call: Call,
  assignBy: Experiment['assignBy'],
  header: string | undefined,
): string | undefined {
  switch (assignBy) {
    case 'intent':
    case 'agent': {
      const task: Task | undefined = call.record.intent ?? taskOf(call)
      return task === undefined || task.source === 'session' ? undefined : ofTask(task, call)
    }
    case 'session':
      return sessionOf(call)
    case 'tenant':
      return tenantOf(call)
    case 'header': {
      const held =
        header !== undefined && Object.hasOwn(call.inbound, header) ? call.inbound[header] : undefined
      return typeof held === 'string' && held !== '' ? `header ${digest(held)}` : undefined
    }
  }
}

/** Returns the key of a task. Tasks of two tenants have different keys, even with the same name. */
const ofTask = ({ source, id }: Task, { tenant }: Call) => taskUnit(source, tenant, id)

const tenantOf = ({ tenant }: Call) => tenantUnit(tenant)

const sessions = new WeakMap<object, string>()

/**
 * Returns the key of the caller's session. Undefined for modern callers: they have no session, and one caller may stand
 * for many agents.
 */
function sessionOf({ caller }: Call): string | undefined {
  if (caller.era === 'modern') return undefined
  let unit = sessions.get(caller)
  if (unit === undefined) sessions.set(caller, (unit = `session ${digest(caller.id)}`))
  return unit
}

const digest = (secret: string) => createHash('sha256').update(secret).digest('base64url').slice(0, 22)
