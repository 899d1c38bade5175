import { wentWrong } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import { agents, type Step } from '../agents.ts'
import { byDefault, none, only, policiesOf, without } from '../policy-choices.ts'
import { simulate } from '../run.ts'
import { CALL_MS, lookup } from '../scene.ts'
import type { ServerModel } from '../servers.ts'
import { mean, quantile } from '../statistics.ts'
import { figure, inWords } from './figures.ts'
import { overSeeds, type Row, type Study } from './study.ts'

/** Concurrent runs of the shared server, and slots of its bulkhead. */
const POOL = 64

const SLOW_MS = 5_000

/** Durations of runs vary by this share, up and down. */
const SPREAD = 0.2

/** Agents, each with one task at a time. */
const AGENTS = 160
const TASKS = 800

/** Minimum duration of an agent's step, and interval between starts of tasks, both in milliseconds. */
const STEP_MS = 500
const APART_MS = 25

const kinds = ['fast', 'other', 'fast', 'slow', 'fast', 'other', 'fast', 'fast'] as const
type Kind = (typeof kinds)[number]

const about: Readonly<Record<Kind, string>> = {
  fast: 'fast tools beside the slow one',
  slow: 'the slow tool',
  other: 'another server',
}

const varied =
  (ms: Millis) =>
  (_: unknown, draw: (purpose: string) => number): Millis =>
    ms * (1 - SPREAD + 2 * SPREAD * draw('run'))

const tool = (name: string, ms: Millis) => ({ ...lookup(name), tookMs: varied(ms) })

const servers: Readonly<Record<string, ServerModel>> = {
  shared: {
    pool: POOL,
    tools: { slow: tool('slow', SLOW_MS), fast_1: tool('fast_1', CALL_MS), fast_2: tool('fast_2', CALL_MS) },
  },
  other: { pool: POOL, tools: { other: tool('other', CALL_MS) } },
}

function stepsOf(task: number): readonly Step[] {
  return kinds.map((kind, step) => ({
    server: kind === 'other' ? 'other' : 'shared',
    tool: kind === 'fast' ? `fast_${1 + (step % 2)}` : kind,
    args: { service: `service-${task * kinds.length + step}` },
  }))
}

const kindOf = (called: string | undefined): Kind =>
  called === 'slow' || called === 'other' ? called : 'fast'

const bulkhead = { concurrent: POOL }
const choices = [
  none,
  only('bulkhead only', { bulkhead }),
  without('bulkhead'),
  { ...byDefault, policies: policiesOf({ defaults: { bulkhead } }) },
]

/** A study of a slow tool whose calls block calls of other tools (head-of-line blocking). */
export const hol: Study = {
  about: 'one slow tool beside fast ones on a server (head-of-line blocking), with and without the bulkhead',
  seeds: 5,
  async run(options) {
    const runs = await overSeeds(choices, options, async (choice, seed) => {
      const durations: Record<Kind, number[]> = { fast: [], slow: [], other: [] }
      const good: Record<Kind, number> = { fast: 0, slow: 0, other: 0 }
      let endedMs = 0
      await simulate({
        seed,
        servers,
        choice,
        faults: [],
        workload: {
          tasks: TASKS,
          stepsOf,
          agent: agents.naive,
          concurrency: AGENTS,
          beginsAt: (task) => task * APART_MS,
          stepMs: STEP_MS,
        },
        onCall(call, outcome, ms) {
          const kind = kindOf(call.tool)
          durations[kind].push(ms)
          if (!wentWrong(outcome, call.record)) good[kind]++
          endedMs = Math.max(endedMs, call.record.startedAt + ms)
        },
      })
      return { durations, good, endedMs }
    })
    const measured = choices.flatMap(({ name }, at) =>
      (Object.keys(about) as Kind[]).map((kind) => {
        const over = (value: (run: (typeof runs)[number][number]) => number) => mean(runs[at]!.map(value))
        return {
          policies: name,
          kind,
          p50: over(({ durations }) => quantile(durations[kind], 0.5)),
          p95: over(({ durations }) => quantile(durations[kind], 0.95)),
          success: over(({ durations, good }) => good[kind] / durations[kind].length),
          perSecond: over(({ good, endedMs }) => (good[kind] * 1_000) / endedMs),
        }
      }),
    )
    return {
      model: `${AGENTS} agents with ${TASKS} tasks of ${kinds.length} calls, one of them of the slow tool, with at least ${formatDuration(STEP_MS)} per call; the slow tool takes ${formatDuration(SLOW_MS)}, all others ${formatDuration(CALL_MS)} (±${inWords(SPREAD, 'share')}); a server runs ${POOL} calls at a time, and the bulkhead admits ${POOL} calls to each server; seeds: ${options.seeds}.`,
      tables: [
        {
          name: 'tools',
          title: 'Calls by policies and tool',
          columns: [
            { key: 'policies', label: 'policies' },
            { key: 'tools', label: 'calls of' },
            { key: 'p50', label: 'p50', unit: 'ms' },
            { key: 'p95', label: 'p95', unit: 'ms' },
            { key: 'success', label: 'success', unit: 'share' },
            { key: 'perSecond', label: 'good calls', unit: 'perSecond' },
          ],
          rows: measured.map(({ policies, kind, p50, p95, success, perSecond }): Row => ({
            policies,
            tools: about[kind],
            p50: figure(p50),
            p95: figure(p95),
            success: figure(success),
            perSecond: figure(perSecond),
          })),
          bars: ['p95'],
        },
      ],
      series: [],
      seen: sentences(measured),
    }
  },
}

interface Measured {
  readonly policies: string
  readonly kind: Kind
  readonly p95: number
  readonly success: number
  readonly perSecond: number
}

function sentences(measured: readonly Measured[]): string[] {
  const cell = (policies: string, kind: Kind) =>
    measured.find((one) => one.policies === policies && one.kind === kind)!
  const [bare, limited, , whole] = choices.map(({ name }) => ({
    fast: cell(name, 'fast'),
    slow: cell(name, 'slow'),
    other: cell(name, 'other'),
  }))
  const ms = (value: number) => inWords(value, 'ms')
  const share = (value: number) => inWords(value, 'share')
  const rate = (value: number) => inWords(value, 'perSecond')
  return [
    `The p95 of fast tools on the server with the slow tool is ${ms(bare!.fast.p95)} without policies, ${ms(limited!.fast.p95)} with the bulkhead alone and ${ms(whole!.fast.p95)} with the default policies; ${share(bare!.fast.success)}, ${share(limited!.fast.success)} and ${share(whole!.fast.success)} of their calls succeed.`,
    `Of the calls of the slow tool ${share(bare!.slow.success)} succeed without policies, and ${share(limited!.slow.success)} with the bulkhead alone, which rejects the other calls: ${rate(bare!.slow.perSecond)} and ${rate(limited!.slow.perSecond)} good calls.`,
    `The p95 of the other server is ${ms(bare!.other.p95)} without policies and ${ms(limited!.other.p95)} with the bulkhead; agents that wait for the slow tool call the other server less often: ${rate(bare!.other.perSecond)} and ${rate(limited!.other.perSecond)}.`,
  ]
}
