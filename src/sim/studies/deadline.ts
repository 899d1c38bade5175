import { sample } from '../../chaos/faults/distributions.ts'
import type { Call } from '../../mesh/call.ts'
import { wentWrong } from '../../mesh/classify.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Millis } from '../../mesh/clock.ts'
import { formatDuration } from '../../units/duration.ts'
import { agents } from '../agents.ts'
import { SimulatedGateway } from '../gateway.ts'
import { only } from '../policy-choices.ts'
import { lookup } from '../scene.ts'
import { newTally, runTasks } from '../tasks.ts'
import { VirtualClock } from '../virtual-clock.ts'
import { mean } from '../statistics.ts'
import { figure, inWords } from './figures.ts'
import { overSeeds, type Row, type Study } from './study.ts'

/** Duration of a run, in milliseconds: 361 on average. */
const LATENCY = { kind: 'lognormal', median: 200, p99: 2_500 } as const

/** Concurrent runs of the server. */
const POOL = 30
const CALLS_PER_S = 80
const CALLS = 4_800

/** Utilization of the pool when no run is given up. */
const BUSY = 0.96

/** Tested deadlines, in milliseconds. */
const TOTALS: readonly Millis[] = [250, 500, 1_000, 2_000, 5_000, 20_000]
const ATTEMPT_MS: Millis = 500

interface Cell {
  readonly total: Millis
  readonly attempt: Millis | undefined
  readonly isForwarded: boolean
}

const cells: readonly Cell[] = TOTALS.flatMap((total) =>
  [undefined, ATTEMPT_MS].flatMap((attempt) =>
    [false, true].map((isForwarded) => ({ total, attempt, isForwarded })),
  ),
)

const choiceOf = ({ total, attempt, isForwarded }: Cell) =>
  only('deadline', {
    deadline: { total, forward: isForwarded ? 'always' : 'never' },
    retry: {},
    ...(attempt !== undefined && { attemptTimeout: { timeout: attempt } }),
  })

/** Returns the clock time of the deadline that was forwarded to the server; infinity without a forwarded deadline. */
const toldUntil = ({ deadline }: Call): Millis =>
  deadline?.reserveMs === undefined ? Infinity : deadline.at - deadline.reserveMs

async function run(cell: Cell, seed: number) {
  const clock = new VirtualClock()
  let workMs = 0
  let inTime = 0
  const gateway = new SimulatedGateway({
    clock,
    seed,
    policies: choiceOf(cell).policies,
    servers: {
      server: {
        pool: POOL,
        runsOn: true,
        tools: {
          search: {
            ...lookup('search'),
            tookMs(call, draw) {
              const leftMs = Math.max(0, toldUntil(call) - clock.now())
              const ms = Math.min(leftMs, sample(LATENCY, draw))
              workMs += ms
              return ms
            },
            fails: (call, now) =>
              now < toldUntil(call)
                ? undefined
                : gatewayError('upstream_unavailable', 'the server ended the run at the forwarded deadline'),
          },
        },
      },
    },
    onCall: ({ record }, outcome) => void (wentWrong(outcome, record) || inTime++),
  })
  const tally = newTally()
  const stepsOf = (task: number) => [
    { server: 'server', tool: 'search', args: { service: `service-${task}` } },
  ]
  await clock.run(
    runTasks(
      gateway,
      clock,
      {
        tasks: CALLS,
        stepsOf,
        agent: agents.naive,
        concurrency: CALLS,
        beginsAt: (task) => (task * 1_000) / CALLS_PER_S,
      },
      tally,
    ),
  )
  const { unwanted, runs } = gateway.servers.get('server')!
  return {
    inTime: inTime / CALLS,
    attempts: tally.attempts / CALLS,
    wasted: unwanted.ms / workMs,
    unwanted: unwanted.runs / runs,
  }
}

/** A study of deadlines for tools whose durations have a long tail. */
export const deadline: Study = {
  about: 'deadlines and attempt timeouts for tools with a long tail, and the wasted work',
  seeds: 3,
  async run(options) {
    const runs = await overSeeds(cells, options, run)
    const measured = cells.map((cell, at) => ({
      cell,
      inTime: mean(runs[at]!.map(({ inTime }) => inTime)),
      attempts: mean(runs[at]!.map(({ attempts }) => attempts)),
      wasted: mean(runs[at]!.map(({ wasted }) => wasted)),
      unwanted: mean(runs[at]!.map(({ unwanted }) => unwanted)),
    }))
    return {
      model: `${CALLS} calls at ${CALLS_PER_S}/s; a run takes ${formatDuration(LATENCY.median)} in the median and ${formatDuration(LATENCY.p99)} at p99 (lognormal), ${POOL} at a time, so the pool is busy for ${inWords(BUSY, 'share')} of the time; the server continues a run after its caller has left, but ends it at a forwarded deadline; attempt timeout ${formatDuration(ATTEMPT_MS)} in some rows; seeds: ${options.seeds}.`,
      tables: [
        {
          name: 'deadlines',
          title: 'Calls by deadline, attempt timeout and forwarding',
          columns: [
            { key: 'total', label: 'deadline', unit: 'ms' },
            { key: 'attempt', label: 'attempt timeout', unit: 'ms', absent: 'none' },
            { key: 'forwarded', label: 'forwarded' },
            { key: 'inTime', label: 'in time', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
            { key: 'unwanted', label: 'unwanted runs', unit: 'share' },
            { key: 'wasted', label: 'wasted work', unit: 'share' },
          ],
          rows: measured.map(({ cell, ...found }): Row => ({
            total: cell.total,
            attempt: cell.attempt ?? null,
            forwarded: cell.isForwarded ? 'yes' : 'no',
            inTime: figure(found.inTime),
            attempts: figure(found.attempts),
            unwanted: figure(found.unwanted),
            wasted: figure(found.wasted),
          })),
          bars: ['inTime'],
        },
      ],
      series: [],
      seen: sentences(measured),
    }
  },
}

interface Measured {
  readonly cell: Cell
  readonly inTime: number
  readonly attempts: number
  readonly wasted: number
}

function sentences(measured: readonly Measured[]): string[] {
  const find = (total: Millis, attempt: Millis | undefined, isForwarded: boolean) =>
    measured.find(
      ({ cell }) => cell.total === total && cell.attempt === attempt && cell.isForwarded === isForwarded,
    )!
  const share = (value: number) => inWords(value, 'share')
  const largest = <Pair>(pairs: readonly Pair[], size: (pair: Pair) => number): Pair =>
    pairs.reduce((best, pair) => (size(pair) > size(best) ? pair : best))
  const told = [undefined, ATTEMPT_MS].flatMap((attempt) =>
    TOTALS.map((total) => ({ off: find(total, attempt, false), on: find(total, attempt, true) })),
  )
  const idle = largest(told, ({ off, on }) => off.wasted - on.wasted)
  const helped = largest(told, ({ off, on }) => on.inTime - off.inTime)
  const whole = ({ cell: { total, attempt } }: Measured) =>
    `a deadline of ${formatDuration(total)} ${attempt === undefined ? 'without an attempt timeout' : `and an attempt timeout of ${formatDuration(attempt)}`}`
  const said = [
    `Forwarding the deadline saves the most work at ${whole(idle.off)}: ${share(idle.off.wasted)} of the work of the server is for agents that have left, and ${share(idle.on.wasted)} with forwarding.`,
  ]
  if (helped.on.inTime - helped.off.inTime > MATTERS)
    said.push(
      `Forwarding helps the most calls at ${whole(helped.off)}: ${share(helped.on.inTime)} are answered in time instead of ${share(helped.off.inTime)}.`,
    )
  const timed = TOTALS.map((total) => ({
    bare: find(total, undefined, false),
    timed: find(total, ATTEMPT_MS, false),
  }))
  const inTime = (found: typeof timed) =>
    found
      .map(
        ({ bare, timed }) =>
          `${formatDuration(bare.cell.total)}: ${share(bare.inTime)} to ${share(timed.inTime)}, ${inWords(timed.attempts, 'count')} attempts per call`,
      )
      .join('; ')
  const gain = timed.filter(({ bare, timed }) => timed.inTime - bare.inTime > MATTERS)
  const loss = timed.filter(({ bare, timed }) => bare.inTime - timed.inTime > MATTERS)
  const without = `An attempt timeout of ${formatDuration(ATTEMPT_MS)} without forwarding`
  if (gain.length > 0)
    said.push(`${without} gets more calls answered in time (deadline: share in time): ${inTime(gain)}.`)
  if (loss.length > 0)
    said.push(
      `${without} gets fewer calls answered in time (deadline: share in time): ${inTime(loss)}. The server continues timed-out runs, and the gateway retries their calls.`,
    )
  return said
}

/** Minimum difference of shares that is reported. */
const MATTERS = 0.005
