import { never } from '../../mesh/cancel.ts'
import { wentWrong } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import { createKeyedRandom } from '../../mesh/keyed-random.ts'
import { budgetSchema } from '../../policies/retry/tries.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { SimulatedGateway } from '../gateway.ts'
import { only } from '../policy-choices.ts'
import { lookup } from '../scene.ts'
import type { ServerModel } from '../servers.ts'
import { VirtualClock } from '../virtual-clock.ts'
import { mean, quantile } from '../statistics.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Row, type Study, type StudySeries } from './study.ts'

/** Concurrent runs of the server, and the shortest and longest run, in milliseconds. */
const POOL = 100
const SHORTEST_MS = 100
const LONGEST_MS = 300

const CAPACITY_PER_S = (POOL * 1_000) / ((SHORTEST_MS + LONGEST_MS) / 2)

const CALLS_PER_S = 80

/** Rate limit for calls to a server, in calls per second; the default of the policy `rateLimit`. */
const LIMIT_PER_S = 100

/** Begin and end of the time with a smaller pool (the cut), and the length of a run, in seconds since the start. */
const CUT_FROM_S = 5
const CUT_TO_S = 35
const LENGTH_S = 95

/** Wait before each unbounded retry, in milliseconds. */
const AGAIN_MS = 500

/** Timeout of the caller, in milliseconds. Later answers count as failures. */
const PATIENCE_MS = 5_000

/** A second counts as recovered if at least this share of the calls begun in it is answered in time. */
const WELL = 0.99

interface Stage {
  readonly stage: number
  readonly cut: number
  readonly timeoutMs: Millis
}

/** The stages of the drill. The attempt timeout is shorter from the third stage on. */
const stages: readonly Stage[] = [
  { stage: 1, cut: 0.3, timeoutMs: 5_000 },
  { stage: 2, cut: 0.5, timeoutMs: 5_000 },
  { stage: 3, cut: 0.7, timeoutMs: 1_500 },
  { stage: 4, cut: 0.9, timeoutMs: 1_500 },
]

const retryings = ['bounded', 'unbounded'] as const
type Retrying = (typeof retryings)[number]

interface Cell extends Stage {
  readonly retrying: Retrying
}

const cells: readonly Cell[] = stages.flatMap((stage) =>
  retryings.map((retrying) => ({ ...stage, retrying })),
)

const server: ServerModel = {
  pool: POOL,
  runsOn: true,
  tools: {
    query: {
      ...lookup('query'),
      tookMs: (_, draw) => SHORTEST_MS + (LONGEST_MS - SHORTEST_MS) * draw('run'),
    },
  },
}

/**
 * Maximum number of retries per call, and the retry budget of all calls. The budget limits retries long before the
 * maximum per call.
 */
const RETRIES = 2
const BUDGET = budgetSchema.parse({})

/**
 * Returns the policies of a cell. Bounded: the gateway retries with a budget, after another call has succeeded.
 * Unbounded: the agent retries, and the gateway does not.
 */
const choiceOf = ({ retrying, timeoutMs }: Cell) =>
  only(retrying, {
    attemptTimeout: { timeout: timeoutMs },
    rateLimit: { rate: LIMIT_PER_S },
    ...(retrying === 'bounded' && { retry: { maxRetries: RETRIES } }),
  })

interface Failed {
  server: number
  limiter: number
}

interface Made {
  /** Duration of each call until its answer, in milliseconds; undefined without an answer. */
  readonly tookMs: readonly (Millis | undefined)[]
  readonly tries: number
  readonly during: Failed
  readonly after: Failed
  readonly waiting: readonly number[]
  readonly answered: readonly number[]
  readonly tried: readonly number[]
}

async function run(cell: Cell, seed: number): Promise<Made> {
  const clock = new VirtualClock()
  const random = createKeyedRandom(seed)
  const tookMs: (Millis | undefined)[] = []
  const during: Failed = { server: 0, limiter: 0 }
  const after: Failed = { server: 0, limiter: 0 }
  const [waiting, answered, tried] = [zeros(), zeros(), zeros()]
  let tries = 0
  const gateway = new SimulatedGateway({
    clock,
    seed,
    servers: { server },
    policies: choiceOf(cell).policies,
  })
  const simulated = gateway.servers.get('server')!
  clock.after(CUT_FROM_S * 1_000, () => simulated.resize(Math.round(POOL * (1 - cell.cut))))
  clock.after(CUT_TO_S * 1_000, () => simulated.resize(POOL))

  async function ask(nth: number): Promise<void> {
    const since = clock.now()
    const asked = {
      server: 'server',
      tool: 'query',
      args: { service: `service-${nth}` },
      intent: `task ${nth}`,
    }
    for (;;) {
      const { call, outcome } = await gateway.call(asked)
      const second = Math.min(LENGTH_S - 1, Math.floor(clock.now() / 1_000))
      // A call rejected by the rate limiter has 0 attempts, but counts as a try.
      const now = Math.max(1, call.record.attempts)
      tries += now
      tried[second]! += now
      if (!wentWrong(outcome, call.record)) {
        answered[second]!++
        tookMs[nth] = clock.now() - since
        return
      }
      const failed = second < CUT_TO_S ? during : after
      if (outcome.kind === 'rejected') failed.limiter++
      else failed.server++
      if (cell.retrying === 'bounded') return
      await clock.sleep(AGAIN_MS, never)
    }
  }

  for (let nth = 0; nth < CALLS; nth++) {
    tookMs.push(undefined)
    // Adds a random offset, because calls at even intervals would always arrive just before the retries of earlier
    // calls.
    const at = nth + random(String(nth), 'arrival')
    clock.after((at * 1_000) / CALLS_PER_S, () => void ask(nth))
  }
  for (let second = 0; second < LENGTH_S; second++)
    clock.after(second * 1_000, () => (waiting[second] = simulated.load.waiting))
  await clock.run(clock.sleep(LENGTH_S * 1_000, never))
  return { tookMs, tries, during, after, waiting, answered, tried }
}
const CALLS = CALLS_PER_S * LENGTH_S
const zeros = () => new Array<number>(LENGTH_S).fill(0)

const isInTime = (ms: Millis | undefined): boolean => ms !== undefined && ms <= PATIENCE_MS

/** Returns the durations of calls begun in these seconds. */
const begunIn = ({ tookMs }: Made, fromS: number, toS: number) =>
  tookMs.slice(fromS * CALLS_PER_S, toS * CALLS_PER_S)

const inTimeOf = (calls: Made['tookMs']): number => mean(calls.map((ms) => (isInTime(ms) ? 1 : 0)))

/** Only calls begun before this second count, because later calls may be under way at the end of the run. */
const LAST_S = LENGTH_S - PATIENCE_MS / 1_000

/** Returns the seconds from the end of the cut until all later seconds count as recovered; undefined if never. */
function recoveryS(made: Made): number | undefined {
  let from: number | undefined
  for (let second = LAST_S - 1; second >= CUT_TO_S; second--) {
    if (inTimeOf(begunIn(made, second, second + 1)) < WELL) break
    from = second
  }
  return from === undefined ? undefined : from - CUT_TO_S
}

/** Returns the cause of most failed tries; `nobody` if enough calls were answered in time. */
function causeOf(success: number, { server, limiter }: Failed): string {
  if (success >= WELL) return 'nobody'
  return limiter > server ? 'own rate limiter' : 'pool'
}

/**
 * A study of a pool that is cut in stages. In the last stages the cut causes an outage, and unbounded retries prolong
 * it.
 */
export const pool: Study = {
  about: 'a pool cut by 30 to 90 percent, and the length of the outage with bounded and unbounded retries',
  seeds: 3,
  async run(options) {
    const runs = await overSeeds(cells, options, run)
    const measured = cells.map((cell, at) => {
      const made = runs[at]!
      const over = (value: (one: Made) => number) => mean(made.map(value))
      const cut = over((one) => inTimeOf(begunIn(one, CUT_FROM_S, CUT_TO_S)))
      const later = over((one) => inTimeOf(begunIn(one, CUT_TO_S, LAST_S)))
      const failed = (when: 'during' | 'after') => ({
        server: over((one) => one[when].server),
        limiter: over((one) => one[when].limiter),
      })
      const recoveries = made.map(recoveryS)
      return {
        cell,
        cut,
        later,
        // A call without an answer counts as an infinite duration.
        p95: over((one) =>
          quantile(
            begunIn(one, CUT_FROM_S, LAST_S).map((ms) => ms ?? Infinity),
            0.95,
          ),
        ),
        tries: over(({ tries }) => tries / CALLS),
        waiting: over(({ waiting }) => Math.max(...waiting)),
        recovered: mean(recoveries.map((seconds) => (seconds === undefined ? 0 : 1))),
        recoveryS: mean(recoveries.filter((seconds) => seconds !== undefined)),
        causeDuring: causeOf(cut, failed('during')),
        causeAfter: causeOf(later, failed('after')),
      }
    })
    return {
      model: `${CALLS_PER_S} calls/s at a server with a pool of ${POOL} and runs of ${SHORTEST_MS} to ${LONGEST_MS}ms (${inWords(CAPACITY_PER_S, 'perSecond')}), behind a rate limit of ${LIMIT_PER_S}/s; the pool is cut for ${CUT_TO_S - CUT_FROM_S}s, and watched for ${LENGTH_S - CUT_TO_S}s after; attempt timeout ${listed(timeoutsInWords)}, without notice to the server; bounded: retries of the gateway, which wait until another call has succeeded, within its retry budget (after timeouts ${inWords(BUDGET.costlyRatio, 'share')} of the calls of ${formatDuration(BUDGET.window)} or ${inWords((BUDGET.floor * BUDGET.costlyRatio) / BUDGET.ratio, 'perSecond')}), ${RETRIES} for a call at most; unbounded: the agent tries again every ${formatDuration(AGAIN_MS)}; an answer within ${formatDuration(PATIENCE_MS)} is in time; seeds: ${options.seeds}.`,
      tables: [
        {
          name: 'stages',
          title: 'The drill by stage and retries',
          columns: [
            { key: 'stage', label: 'stage', unit: 'count' },
            { key: 'cut', label: 'cut by', unit: 'share' },
            { key: 'retries', label: 'retries' },
            { key: 'during', label: 'in time during the cut', unit: 'share' },
            { key: 'after', label: 'in time after the cut', unit: 'share' },
            { key: 'p95', label: 'p95', unit: 'ms', absent: 'no answer' },
            { key: 'tries', label: 'tries/call', unit: 'count' },
            { key: 'waiting', label: 'most waiting', unit: 'count' },
            { key: 'recoveryS', label: 'recovered after', unit: 's', absent: 'never' },
            { key: 'causeDuring', label: 'cause during the cut' },
            { key: 'causeAfter', label: 'cause after the cut' },
          ],
          rows: measured.map(({ cell, ...found }): Row => ({
            stage: cell.stage,
            cut: cell.cut,
            retries: cell.retrying,
            during: figure(found.cut),
            after: figure(found.later),
            p95: figure(found.p95),
            tries: figure(found.tries),
            waiting: figure(found.waiting),
            recoveryS: found.recovered === 1 ? figure(found.recoveryS) : null,
            causeDuring: found.causeDuring,
            causeAfter: found.causeAfter,
          })),
          bars: ['after'],
        },
      ],
      series: cells.flatMap((cell, at) =>
        cell.stage === stages.length ? [seriesOf(cell, runs[at]![0]!)] : [],
      ),
      seen: sentences(measured),
    }
  },
}

const timeoutsInWords = stages
  .filter(({ timeoutMs }, at) => timeoutMs !== stages[at - 1]?.timeoutMs)
  .map(({ stage, timeoutMs }) => `${roundedDuration(timeoutMs)} from stage ${stage} on`)

const nameOf = ({ stage, cut, retrying }: Cell) =>
  `stage ${stage} (cut by ${inWords(cut, 'share')}), ${retrying} retries`

const seriesOf = (cell: Cell, { tried, answered, waiting }: Made): StudySeries => ({
  name: nameOf(cell),
  title: `Load by second: ${nameOf(cell)}`,
  atS: tried.map((_, second) => second),
  lines: [
    { name: 'tries/s', values: tried },
    { name: 'answers/s', values: answered },
    { name: 'waiting', values: waiting },
  ],
})

interface Measured {
  readonly cell: Cell
  readonly cut: number
  readonly later: number
  readonly tries: number
  readonly recovered: number
  readonly recoveryS: number
  readonly causeDuring: string
  readonly causeAfter: string
}

function sentences(measured: readonly Measured[]): string[] {
  const share = (value: number) => inWords(value, 'share')
  const well = measured.filter(
    ({ causeDuring, causeAfter }) => causeDuring === 'nobody' && causeAfter === 'nobody',
  )
  const ill = measured.filter((one) => !well.includes(one))
  const said: string[] = []
  const firstIll = Math.min(...ill.map(({ cell }) => cell.stage), stages.length + 1)
  const others = well.filter(({ cell }) => cell.stage >= firstIll)
  if (firstIll > 1)
    said.push(
      `No outage, with bounded and with unbounded retries: ${firstIll === 2 ? 'stage 1' : `stages 1 to ${firstIll - 1}`}.`,
    )
  if (others.length > 0) said.push(`No outage: ${listed(others.map(({ cell }) => nameOf(cell)))}.`)
  for (const { cell, cut, later, tries, recovered, recoveryS, causeDuring, causeAfter } of ill) {
    const back =
      recovered === 1
        ? `the calls recover ${inWords(recoveryS, 's')} after the end of the cut`
        : `the calls do not recover within ${LAST_S - CUT_TO_S}s after the end of the cut${recovered > 0 ? ` in ${share(1 - recovered)} of the seeds` : ''}`
    said.push(
      `At ${nameOf(cell)}, ${share(cut)} of the calls are in time during the cut (cause: ${causeDuring}), and ${share(later)} after it (cause: ${causeAfter}); ${back}, with ${inWords(tries, 'count')} tries per call.`,
    )
  }
  return said
}
