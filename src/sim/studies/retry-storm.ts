import type { Outcome } from '../../mesh/call.ts'
import { never } from '../../mesh/cancel.ts'
import { wentWrong } from '../../mesh/classify.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { TimeLimit } from '../../mesh/time-limit.ts'
import { budgetSchema, RetryBudget } from '../../policies/retry/tries.ts'
import { formatDuration } from '../../units/duration.ts'
import { SimulatedGateway } from '../gateway.ts'
import { only, type PolicyChoice, withSettings } from '../policy-choices.ts'
import { lookup } from '../scene.ts'
import type { ServerModel } from '../servers.ts'
import { VirtualClock } from '../virtual-clock.ts'
import { mean } from '../statistics.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Row, type Study, type StudySeries } from './study.ts'

/** Concurrent runs of the server; SHORTEST_MS and LONGEST_MS bound their durations. */
const POOL = 10
const SHORTEST_MS = 50
const LONGEST_MS = 150

const CAPACITY_PER_S = (POOL * 1_000) / ((SHORTEST_MS + LONGEST_MS) / 2)

const CALLS_PER_S = 60

/**
 * Begin and end of the hiccup, during which the server starts no run, and the length of a run, in seconds since the
 * start.
 */
const HICCUP_FROM_S = 10
const HICCUP_TO_S = 14
const LENGTH_S = 60

/** Maximum number of tries on each level, and the wait between two tries, in milliseconds. */
const TRIES = 3
const WAIT_MS = 100

/** Timeout of a try at the server, in milliseconds. The server is not notified, and continues the run. */
const TRY_MS = 1_000

/**
 * Length of a span in seconds, and minimum ratio of answers to calls in a span. The server has recovered when all later
 * spans have this ratio.
 */
const SPAN_S = 5
const WHOLE = 0.95

const server: ServerModel = {
  pool: POOL,
  runsOn: true,
  tools: {
    search: {
      ...lookup('search'),
      tookMs: (_, draw) => SHORTEST_MS + (LONGEST_MS - SHORTEST_MS) * draw('run'),
    },
  },
}

/** A retry budget with the highest allowed settings, in effect without a limit. */
const UNLIMITED = { ratio: 1, floor: 1_000, concurrency: 1, leastConcurrent: 10_000 }

/** The gateway's retry budget after timeouts, which loops outside the gateway use too. */
const { costlyRatio, ratio, floor, ...others } = budgetSchema.parse({})
const TERMS = { ...others, ratio: costlyRatio, floor: (floor * costlyRatio) / ratio }

interface Arm {
  /** The levels that retry. `SDK` is the client library with which the gateway calls the server. */
  readonly levels: readonly ('agent' | 'gateway' | 'SDK')[]
  readonly budgets: 'none' | 'gateway' | 'all'
  readonly others?: true
}

const arms: readonly Arm[] = [
  { levels: [], budgets: 'none' },
  { levels: ['agent'], budgets: 'none' },
  { levels: ['agent'], budgets: 'all' },
  { levels: ['agent', 'gateway'], budgets: 'none' },
  { levels: ['agent', 'gateway'], budgets: 'gateway' },
  { levels: ['agent', 'gateway'], budgets: 'all' },
  { levels: ['agent', 'gateway', 'SDK'], budgets: 'none' },
  { levels: ['agent', 'gateway', 'SDK'], budgets: 'gateway' },
  { levels: ['agent', 'gateway', 'SDK'], budgets: 'all' },
  { levels: ['agent', 'gateway', 'SDK'], budgets: 'gateway', others: true },
]

const levelsOf = ({ levels }: Arm) => (levels.length === 0 ? 'nobody' : levels.join(' x '))
const budgetsOf = ({ budgets, others }: Arm) =>
  others ? 'gateway, all policies' : budgets === 'all' ? 'every level' : budgets
const nameOf = (arm: Arm) => `${levelsOf(arm)}, budgets: ${budgetsOf(arm)}`

/** Returns the policies of the gateway: all defaults, or retries alone. */
function choiceOf(arm: Arm): PolicyChoice {
  const maxRetries = arm.levels.includes('gateway') ? TRIES - 1 : 0
  const retry =
    arm.budgets === 'none' ? { maxRetries, budget: UNLIMITED, waitForProof: false } : { maxRetries }
  return arm.others ? withSettings('default', { retry }) : only('retry only', { retry })
}

/** Counts of a run, for each second. */
interface Load {
  readonly offered: number[]
  readonly answered: number[]
  readonly waiting: number[]
}

/** Retries failures after a fixed wait, as loops in agents and SDKs do. */
class Loop {
  readonly #clock: Clock
  readonly #tries: number
  readonly #budget: RetryBudget | undefined

  constructor(clock: Clock, tries: number, hasBudget: boolean) {
    this.#clock = clock
    this.#tries = tries
    if (hasBudget) this.#budget = new RetryBudget(clock, TERMS)
  }

  async run(attempt: () => Promise<Outcome>, hasFailed: (outcome: Outcome) => boolean): Promise<Outcome> {
    const budget = this.#budget
    budget?.enter(this.#clock.now())
    let outcome = await attempt()
    for (let tries = 1; tries < this.#tries && hasFailed(outcome) && this.#mayRetry(); tries++) {
      await this.#clock.sleep(WAIT_MS, never)
      outcome = await attempt()
      budget?.release()
    }
    budget?.leave()
    return outcome
  }

  #mayRetry(): boolean {
    const budget = this.#budget
    if (budget === undefined) return true
    const now = this.#clock.now()
    if (budget.balance(TERMS, now) < 1 || !budget.hasRoom(TERMS)) return false
    budget.withdraw(now)
    budget.start()
    return true
  }
}

async function run(arm: Arm, seed: number): Promise<Load> {
  const clock = new VirtualClock()
  const load: Load = { offered: zeros(), answered: zeros(), waiting: zeros() }
  const count = (counts: number[]) => {
    const second = Math.floor(clock.now() / 1_000)
    if (second < LENGTH_S) counts[second]!++
  }
  const has = (level: 'agent' | 'SDK') =>
    new Loop(clock, arm.levels.includes(level) ? TRIES : 1, arm.budgets === 'all')
  const agent = has('agent')
  const sdk = has('SDK')
  const limit = new TimeLimit(clock, TRY_MS)
  const gateway = new SimulatedGateway({
    clock,
    seed,
    servers: { server },
    policies: choiceOf(arm).policies,
    library: (next) => (call) =>
      sdk.run(
        () => {
          count(load.offered)
          return limit.run(call, next, TRY_MS, timedOut)
        },
        ({ kind }) => kind === 'failed' && !call.signal.aborted,
      ),
  })
  const simulated = gateway.servers.get('server')!
  clock.after(HICCUP_FROM_S * 1_000, () => simulated.resize(0))
  clock.after(HICCUP_TO_S * 1_000, () => simulated.resize(POOL))

  async function ask(nth: number): Promise<void> {
    const asked = {
      server: 'server',
      tool: 'search',
      args: { service: `service-${nth}` },
      intent: `task ${nth}`,
    }
    const attempt = async () => {
      const { call, outcome } = await gateway.call(asked)
      if (!wentWrong(outcome, call.record)) count(load.answered)
      return outcome
    }
    await agent.run(attempt, ({ kind }) => kind !== 'answered')
  }

  for (let nth = 0; nth < CALLS_PER_S * LENGTH_S; nth++)
    clock.after((nth * 1_000) / CALLS_PER_S, () => void ask(nth))
  for (let second = 0; second < LENGTH_S; second++)
    clock.after(second * 1_000, () => (load.waiting[second] = simulated.load.waiting))
  await clock.run(clock.sleep(LENGTH_S * 1_000, never))
  return load
}

const zeros = () => new Array<number>(LENGTH_S).fill(0)
const timedOut = () =>
  gatewayError('attempt_timeout', `no answer within ${formatDuration(TRY_MS)}`, { sent: true })

/** Returns the seconds after the hiccup until the server has recovered; undefined if it never does. */
function recoveryS({ answered }: Load): number | undefined {
  let from: number | undefined
  for (let second = LENGTH_S - SPAN_S; second >= HICCUP_TO_S; second--) {
    if (sum(answered.slice(second, second + SPAN_S)) < WHOLE * CALLS_PER_S * SPAN_S) break
    from = second
  }
  return from === undefined ? undefined : from - HICCUP_TO_S
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)

/** A study of retries on zero to three levels, at a server that pauses. */
export const retryStorm: Study = {
  about: 'multiplying retries of agent, gateway and SDK at a pausing server, with and without budgets',
  seeds: 5,
  async run(options) {
    const runs = await overSeeds(arms, options, run)
    const calls = CALLS_PER_S * LENGTH_S
    const measured = arms.map((arm, at) => {
      const loads = runs[at]!
      const recoveries = loads.map(recoveryS).filter((seconds) => seconds !== undefined)
      return {
        arm,
        amplification: mean(loads.map(({ offered }) => sum(offered) / calls)),
        peak: mean(loads.map(({ offered }) => Math.max(...offered))),
        answered: mean(loads.map(({ answered }) => sum(answered) / calls)),
        waiting: mean(loads.map(({ waiting }) => Math.max(...waiting))),
        recovered: recoveries.length / loads.length,
        afterS: mean(recoveries),
      }
    })
    return {
      model: `${CALLS_PER_S} calls/s for ${LENGTH_S}s at a server with a pool of ${POOL} and runs of ${SHORTEST_MS} to ${LONGEST_MS}ms (${inWords(CAPACITY_PER_S, 'perSecond')}); from ${HICCUP_FROM_S}s to ${HICCUP_TO_S}s the server begins no run; each level tries ${TRIES} times; a try times out after ${formatDuration(TRY_MS)}, without notice to the server; seeds: ${options.seeds}.`,
      tables: [
        {
          name: 'arms',
          title: 'Retries by level and budgets',
          columns: [
            { key: 'levels', label: 'levels that retry' },
            { key: 'budgets', label: 'budgets' },
            { key: 'mostTries', label: 'most tries', unit: 'count' },
            { key: 'amplification', label: 'attempts/call', unit: 'count' },
            { key: 'peak', label: 'peak offered', unit: 'perSecond' },
            { key: 'answered', label: 'answered', unit: 'share' },
            { key: 'waiting', label: 'most waiting', unit: 'count' },
            { key: 'recovered', label: 'recovered', unit: 'share' },
            { key: 'afterS', label: 'after', unit: 's', absent: 'never' },
          ],
          rows: measured.map(({ arm, ...found }): Row => ({
            levels: levelsOf(arm),
            budgets: budgetsOf(arm),
            mostTries: TRIES ** arm.levels.length,
            amplification: figure(found.amplification),
            peak: figure(found.peak),
            answered: figure(found.answered),
            waiting: figure(found.waiting),
            recovered: figure(found.recovered),
            afterS: figure(found.afterS),
          })),
          bars: ['amplification'],
        },
      ],
      series: arms.map((arm, at) => seriesOf(arm, runs[at]![0]!)),
      seen: sentences(measured),
    }
  },
}

const seriesOf = (arm: Arm, { offered, answered, waiting }: Load): StudySeries => ({
  name: nameOf(arm),
  title: `Load by second: ${nameOf(arm)}`,
  atS: offered.map((_, second) => second),
  lines: [
    { name: 'offered attempts/s', values: offered },
    { name: 'answers/s', values: answered },
    { name: 'waiting', values: waiting },
  ],
})

interface Measured {
  readonly arm: Arm
  readonly amplification: number
  readonly peak: number
  readonly answered: number
  readonly recovered: number
  readonly afterS: number
}

function sentences(measured: readonly Measured[]): string[] {
  const told = ({ arm }: Measured) => nameOf(arm)
  const nobody = measured.find(({ arm }) => arm.levels.length === 0)!
  const said = [
    `Without retries, the peak is ${inWords(nobody.peak, 'perSecond')}, and ${inWords(nobody.answered, 'share')} of the calls are answered: only the pause loses calls.`,
  ]
  const unbounded = measured
    .filter(({ arm }) => arm.budgets === 'none' && arm.levels.length > 0)
    .map(
      ({ arm, amplification, peak, answered }) =>
        `Without budgets, retries of ${levelsOf(arm)} (${TRIES ** arm.levels.length} tries at most) send ${inWords(amplification, 'count')} attempts per call, at the peak ${inWords(peak, 'perSecond')} to a server that can answer ${inWords(CAPACITY_PER_S, 'perSecond')}, and ${inWords(answered, 'share')} of the calls are answered.`,
    )
  said.push(...unbounded)
  const lost = measured.filter(({ recovered }) => recovered < 1)
  const back = measured.filter(({ recovered }) => recovered === 1)
  if (lost.length > 0)
    said.push(
      `Within ${LENGTH_S - HICCUP_TO_S}s after the pause these combinations do not recover in every seed: ${lost.map((one) => `${told(one)} (${inWords(one.recovered, 'share')})`).join('; ')}.`,
    )
  if (back.length > 0)
    said.push(
      `These combinations recover in every seed: ${back.map((one) => `${told(one)} (after ${inWords(one.afterS, 's')})`).join('; ')}.`,
    )
  const alone = measured.filter(
    ({ arm, recovered }) => arm.budgets === 'gateway' && !arm.others && recovered < 1,
  )
  if (alone.length > 0)
    said.push(
      `A budget of the gateway alone does not end the storm of ${listed(alone.map(({ arm }) => levelsOf(arm)))}: retries on other levels multiply past it.`,
    )
  const multiplied = measured.filter(({ arm, recovered }) => arm.budgets === 'all' && recovered < 1)
  for (const { arm } of multiplied) {
    const allowed = CALLS_PER_S * (1 + TERMS.ratio) ** arm.levels.length
    said.push(
      `Budgets multiply too: with ${inWords(TERMS.ratio, 'share')} on each level, ${levelsOf(arm)} may send ${inWords(allowed, 'perSecond')}, on average over a budget's window of ${formatDuration(TERMS.window)}, for ${inWords(CALLS_PER_S, 'perSecond')} of calls, to a server that can answer ${inWords(CAPACITY_PER_S, 'perSecond')}; the calls do not recover in every seed.`,
    )
  }
  return said
}
