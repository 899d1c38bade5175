import { faults as registry } from '../../chaos/faults/index.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import { agents as models, type AgentKind, type TaskEnd, taskEnds } from '../agents.ts'
import { byDefault, none, withSettings } from '../policy-choices.ts'
import { simulated } from '../run.ts'
import { CALL_MS, listing, planned, type Scene, sceneOf } from '../scene.ts'
import { mean } from '../statistics.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Row, type Study, type StudyTable } from './study.ts'

const TASKS = 100
const FAN_OUT = 8

/** Lowest rate of faults; higher rates come from the examples. */
const LEAST_RATE = 0.05
const MOST_RATE = 0.1

/** Bytes that `result.oversize` adds. More is unnecessary, because no server here has its own limit. */
const OVERSIZE = 65_536

/** All fault types of results, and one or two types of each other family that affects simulated servers. */
const types = [
  ...Object.keys(registry).filter((type) => type.startsWith('result.')),
  'request.argument_lost',
  'route.wrong_backend',
  'registry.moved',
  'http.status',
  'rpc.error',
  'sse.cut',
  'auth.scope',
  'conn.reset',
  'conn.latency',
  'limit.429',
]

/**
 * A server with the same tools but other answers. Agents call this server only through the fault `route.wrong_backend`.
 */
const OTHER = 'other'

/** Options that replace options of the examples, because the examples name servers or limits that do not exist here. */
const adapted: Readonly<Record<string, object>> = {
  'result.oversize': { bytes: OVERSIZE },
  'route.wrong_backend': { server: OTHER },
}

/** Returns the fault of a type's example, aimed at all servers. */
function exampleOf(type: string): Fault {
  const { match: _, rate, ...example } = registry[type]!.example as unknown as Fault
  return planned({
    ...example,
    ...adapted[type],
    type,
    rate: Math.min(MOST_RATE, Math.max(LEAST_RATE, rate)),
  })
}

function scene(): Scene {
  const { servers, stepsOf } = sceneOf(FAN_OUT, undefined, listing)
  const names = Object.values(servers).flatMap(({ tools }) => Object.keys(tools))
  const tools = Object.fromEntries(names.map((tool) => [tool, listing(`${OTHER}/${tool}`)]))
  return { servers: { ...servers, [OTHER]: { tools } }, stepsOf }
}

const enforced = withSettings('default, enforced', { verdict: { output: 'enforce' } })
const choices = [none, byDefault, enforced]

const kinds = Object.keys(models) as AgentKind[]

const ways = kinds.flatMap((kind) =>
  choices.map((choice) => ({ kind, choice, key: `${kind}: ${choice.name}` })),
)
type Way = (typeof ways)[number]

interface Cell {
  readonly fault: Fault
  readonly way: Way
}

const cells: readonly Cell[] = types.map(exampleOf).flatMap((fault) => ways.map((way) => ({ fault, way })))

interface Made {
  readonly ends: Readonly<Record<TaskEnd, number>>
  /** True if the fault was applied to any call. `why` is a reason why it was not applied to a call, if known. */
  readonly hasHit: boolean
  readonly why: string | undefined
}

async function run({ fault, way: { kind, choice } }: Cell, seed: number): Promise<Made> {
  const { servers, stepsOf } = scene()
  const workload = { tasks: TASKS, stepsOf, agent: models[kind], stepMs: CALL_MS }
  const { tally, gateway } = await simulated({ seed, servers, choice, faults: [fault], workload })
  const decisions = gateway.journal.decisions()
  const idle = decisions.find(({ status, because }) => status === 'not_applicable' || because === 'refused')
  return {
    ends: tally.ends,
    hasHit: decisions.some(({ status }) => status === 'applied'),
    why: idle && (typeof idle.note?.why === 'string' ? idle.note.why : idle.because),
  }
}

/** A study of how agents' tasks end under faults that policies do not absorb. */
export const agents: Study = {
  about: 'tasks that fail safely and tasks that fail silently, by fault, agent and policies',
  seeds: 3,
  async run(options) {
    const runs = await overSeeds(cells, options, run)
    const measured = cells.map((cell, at) => {
      const made = runs[at]!
      const share = (end: TaskEnd) => mean(made.map(({ ends }) => ends[end] / TASKS))
      return {
        cell,
        isApplicable: made.some(({ hasHit }) => hasHit),
        why: made.find(({ why }) => why !== undefined)?.why,
        succeeded: share('succeeded'),
        failed_safely: share('failed_safely'),
        failed_silently: share('failed_silently'),
      }
    })
    return {
      model: `${TASKS} tasks of ${FAN_OUT} calls, one after the other; faults as in their examples, at ${inWords(LEAST_RATE, 'share')} to ${inWords(MOST_RATE, 'share')} of the attempts; naive agents take ${models.naive.about.slice('takes '.length)}; checking ones take ${models.checking.about.slice('takes '.length)}; enforced: verdict turns replies that break their schema into errors; seeds: ${options.seeds}.`,
      tables: taskEnds.toReversed().map((end) => tableOf(end, measured)),
      series: [],
      seen: sentences(measured),
    }
  },
}

interface Measured extends Readonly<Record<TaskEnd, number>> {
  readonly cell: Cell
  readonly isApplicable: boolean
  readonly why: string | undefined
}

const endInWords: Readonly<Record<TaskEnd, string>> = {
  succeeded: 'succeed',
  failed_safely: 'fail safely: the agent knows that it has no answer',
  failed_silently: 'fail silently: the agent goes on with a wrong value',
}

function tableOf(end: TaskEnd, measured: readonly Measured[]): StudyTable {
  return {
    name: end,
    title: `Share of tasks that ${endInWords[end]}`,
    columns: [
      { key: 'fault', label: 'fault' },
      { key: 'rate', label: 'rate', unit: 'share' },
      ...ways.map(({ key }) => ({ key, label: key, unit: 'share' as const, absent: 'n/a' })),
      { key: 'note', label: 'note' },
    ],
    rows: rowsOf(measured).map(({ fault, ofFault, isApplicable, why }): Row => ({
      fault: fault.type,
      rate: fault.rate,
      ...Object.fromEntries(ofFault.map((one) => [one.cell.way.key, isApplicable ? figure(one[end]) : null])),
      note: isApplicable ? '' : `not applicable: ${why ?? NO_HIT}`,
    })),
    bars: end === 'failed_silently' ? ways.map(({ key }) => key) : [],
  }
}

const rowsOf = (measured: readonly Measured[]) =>
  [...new Set(cells.map(({ fault }) => fault))].map((fault) => {
    const ofFault = measured.filter(({ cell }) => cell.fault === fault)
    return {
      fault,
      ofFault,
      isApplicable: ofFault.some((one) => one.isApplicable),
      why: ofFault.find(({ why }) => why !== undefined)?.why,
    }
  })

/** Smallest relative decrease of a share to report. */
const NOTICEABLE = 0.2

const NO_HIT = 'it hit no call'

function sentences(measured: readonly Measured[]): string[] {
  const share = (value: number) => inWords(value, 'share')
  const rows = rowsOf(measured)
  const known = rows.filter(({ isApplicable }) => isApplicable)
  const silent = (row: (typeof rows)[number], kind: AgentKind, choice: string) =>
    row.ofFault.find(({ cell: { way } }) => way.kind === kind && way.choice.name === choice)!.failed_silently
  const said = ways.map(({ kind, choice, key }) => {
    const found = known.filter((row) => silent(row, kind, choice.name) > 0)
    const most = Math.max(...found.map((row) => silent(row, kind, choice.name)))
    return found.length === 0
      ? `${key}: no task fails silently.`
      : `${key}: tasks fail silently under ${found.length} of ${known.length} faults, at most ${share(most)} of the tasks (${listed(found.filter((row) => silent(row, kind, choice.name) === most).map(({ fault }) => fault.type))}).`
  })
  const deceived = known
    .map(({ fault, ofFault }) => ({
      type: fault.type,
      first: ofFault[0]!.failed_silently,
      best: ofFault.reduce((best, one) => (one.failed_silently < best.failed_silently ? one : best)),
    }))
    .filter(({ first }) => first > 0)
  const isLowered = ({ first, best }: (typeof deceived)[number]) =>
    best.failed_silently <= (1 - NOTICEABLE) * first
  const lowered = deceived.filter(isLowered)
  if (lowered.length > 0)
    said.push(
      `Against ${ways[0]!.key}, fewest tasks fail silently with ${listed(
        ways.flatMap(({ key }) => {
          const found = lowered.filter(({ best }) => best.cell.way.key === key)
          const told = found.map(
            ({ type, first, best }) => `${type} (${share(first)} to ${share(best.failed_silently)})`,
          )
          return found.length === 0 ? [] : [`"${key}" under ${listed(told)}`]
        }),
      )}; if several are equal, only the first is named.`,
    )
  const always = deceived.filter((one) => !isLowered(one))
  if (always.length > 0)
    said.push(
      `No agent or policy here reduces the silent failures by ${share(NOTICEABLE)} under ${listed(always.map(({ type }) => type))}.`,
    )
  const idle = rows.filter(({ isApplicable }) => !isApplicable)
  if (idle.length > 0)
    said.push(
      `The study shows nothing about ${listed(idle.map(({ fault, why }) => `${fault.type} (${why ?? NO_HIT})`))}.`,
    )
  return said
}
