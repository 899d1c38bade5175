import type { Fault } from '../../chaos/plan/common.ts'
import { wentWrong } from '../../mesh/classify.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { thorough } from '../agents.ts'
import { byDefault, none, only, withSettings } from '../policy-choices.ts'
import { simulate } from '../run.ts'
import { CALL_MS, independentErrors, planned, sceneOf } from '../scene.ts'
import { predictedRadius, slisOf } from '../tasks.ts'
import { deviation, isClear, isConstant, mean, meanInWords, quantile, standardError } from '../statistics.ts'
import { figure, inWords, listed } from './figures.ts'
import { overSeeds, type Row, type Study } from './study.ts'

const TASKS = 200
const FAN_OUT = 8

/** Share of first attempts that fail, equal for every form of errors. */
const RATE = 0.02

/** Four servers with two tools each. */
const SERVERS = ['metrics', 'logs', 'traces', 'tickets']
const TOOLS = ['list', 'get'].flatMap((tool) => SERVERS.map((server) => `${server}/${tool}`))

/** Share of the time with an episode at one server, so that 2 % of all calls fail. */
const EPISODE_SHARE = RATE * SERVERS.length
const EPISODE_CALLS = 20

/** An open time longer than any run, in milliseconds. */
const FOR_GOOD_MS = 24 * 60 * 60_000

/** A run with a larger share of failed tasks counts as locked out by a breaker. */
const LOCKED_IN = 0.5

/** A form of errors is reported if retries mend a smaller share of the affected calls. */
const MENDED = 0.5

interface Form {
  readonly name: string
  readonly fault: Fault
  /** Mean length of an error burst, in calls. */
  readonly calls: number
}

/** Returns a fault with errors in bursts; the mean length of a burst is `calls` calls. */
const bursts = (calls: number, rate: number, match?: object): Fault =>
  planned({
    name: 'bursts',
    type: 'rpc.error',
    rate,
    when: { burst: { meanLength: calls, per: 'slot', slot: CALL_MS } },
    ...(match !== undefined && { match }),
  })

const forms: readonly Form[] = [
  { name: 'independent', fault: independentErrors(RATE), calls: 1 },
  ...[4, 16, 64].map((calls) => ({ name: `bursts of ${calls}`, fault: bursts(calls, RATE), calls })),
  {
    name: 'server episodes',
    fault: bursts(EPISODE_CALLS, EPISODE_SHARE, { server: SERVERS[0] }),
    calls: EPISODE_CALLS,
  },
]

const RETRY_ONLY = only('retry only', { retry: {} })
const NO_PROBES = only('breaker without probes', { breaker: { open: FOR_GOOD_MS, maxOpen: FOR_GOOD_MS } })
const WITH_BREAKER = withSettings('default with a breaker', { breaker: {} })
const choices = [none, RETRY_ONLY, byDefault, WITH_BREAKER, NO_PROBES]

/** Probability of a failed task if calls fail independently. */
const PREDICTED = predictedRadius(RATE, FAN_OUT)

/** A study of independent and correlated errors; the share of errors is about the same. */
export const correlated: Study = {
  about: 'two percent of errors, each on its own, in bursts, or while one server is ill',
  seeds: 50,
  async run(options) {
    const { servers, stepsOf } = sceneOf(FAN_OUT, TOOLS)
    const cells = forms.flatMap((form) => choices.map((choice) => ({ form, choice })))
    const runs = await overSeeds(cells, options, async ({ form, choice }, seed) => {
      let hit = 0
      let mended = 0
      const tally = await simulate({
        seed,
        servers,
        choice,
        faults: [form.fault],
        workload: { tasks: TASKS, stepsOf, agent: thorough, stepMs: CALL_MS },
        onCall({ record }, outcome) {
          const isWrong = wentWrong(outcome, record)
          if (record.attempts === 0 || (record.attempts === 1 && !isWrong)) return
          hit++
          if (!isWrong) mended++
        },
      })
      return { tally, hit, mended }
    })
    const measured = cells.map(({ form, choice }, at) => {
      const made = runs[at]!
      const tallies = made.map(({ tally }) => tally)
      const radii = tallies.map((tally) => slisOf(tally).blastRadius)
      return {
        form,
        choice,
        radii,
        radius: mean(radii),
        se: isConstant(radii) ? NaN : standardError(radii),
        sd: radii.length < 2 ? NaN : deviation(radii),
        lockIn: mean(radii.map((radius) => (radius > LOCKED_IN ? 1 : 0))),
        p95: quantile(radii, 0.95),
        max: Math.max(...radii),
        mended: mean(made.flatMap(({ hit, mended }) => (hit === 0 ? [] : mended / hit))),
        tcsr: mean(tallies.map((tally) => slisOf(tally).tcsr)),
        attempts: mean(tallies.map(({ attempts, calls }) => attempts / calls)),
      }
    })
    const { seeds } = options
    // The share of errors is measured by the TCSR without policies. It varies between runs, because bursts are few.
    const errorsOf = (form: Form) =>
      1 - measured.find((one) => one.form === form && one.choice === none)!.tcsr
    return {
      model: `${TASKS} tasks of ${FAN_OUT} calls, one after the other; a task goes on after a failed call; ${TOOLS.length} tools of ${SERVERS.length} servers; a call takes ${formatDuration(CALL_MS)}; ${inWords(RATE, 'share')} of the calls get an error on the first attempt; episodes hit one server for ${inWords(EPISODE_SHARE, 'share')} of the time, ${EPISODE_CALLS} calls on average; seeds: ${seeds}.`,
      tables: [
        {
          name: 'cells',
          title: 'Blast radius by form of errors and policies',
          columns: [
            { key: 'errors', label: 'errors' },
            { key: 'failing', label: 'errors without policies', unit: 'share' },
            { key: 'policies', label: 'policies' },
            { key: 'radius', label: 'blast radius', unit: 'share' },
            { key: 'se', label: '± se', unit: 'share' },
            { key: 'sd', label: 'sd', unit: 'share' },
            { key: 'predicted', label: '1-(1-p)^n', unit: 'share' },
            { key: 'lockIn', label: `runs > ${inWords(LOCKED_IN, 'share')}`, unit: 'share' },
            { key: 'p95', label: 'p95 of seeds', unit: 'share' },
            { key: 'max', label: 'max of seeds', unit: 'share' },
            { key: 'mended', label: 'mended', unit: 'share' },
            { key: 'tcsr', label: 'TCSR', unit: 'share' },
            { key: 'attempts', label: 'attempts/call', unit: 'count' },
          ],
          rows: measured.map(
            ({ form, choice, radius, se, sd, lockIn, p95, max, mended, tcsr, attempts }): Row => ({
              errors: form.name,
              failing: figure(errorsOf(form)),
              policies: choice.name,
              radius: figure(radius),
              se: figure(se),
              sd: figure(sd),
              predicted: figure(PREDICTED),
              lockIn: figure(lockIn),
              p95: figure(p95),
              max: figure(max),
              mended: figure(mended),
              tcsr: figure(tcsr),
              attempts: figure(attempts),
            }),
          ),
          bars: ['radius'],
        },
      ],
      series: [],
      seen: sentences(measured),
    }
  },
}

interface Measured {
  readonly form: Form
  readonly choice: { readonly name: string }
  readonly radii: readonly number[]
  readonly radius: number
  readonly lockIn: number
  /** Share of the calls with an error that ended well. */
  readonly mended: number
  readonly tcsr: number
}

function sentences(measured: readonly Measured[]): string[] {
  const cell = (form: Form, choice: { readonly name: string }) =>
    measured.find((one) => one.form === form && one.choice === choice)!
  const share = (value: number) => inWords(value, 'share')
  const bare = forms.map((form) => cell(form, none))
  const names = (found: readonly Form[]) => listed(found.map(({ name }) => name))
  const retried = forms.map((form) => cell(form, RETRY_ONLY))
  // Shows one significant digit of a small share, so a few failed tasks are not shown as 0.
  const fineShare = (value: number) =>
    value < 0.0005 ? `${Number((value * 100).toPrecision(1))} %` : share(value)
  const radiusOf = ({ radii }: Measured) => meanInWords(radii, fineShare)
  const said = [
    `Without policies about the same share of errors fails these shares of the tasks (± standard error): ${listed(bare.map((one) => `${radiusOf(one)} (${one.form.name}; ${share(1 - one.tcsr)} of the calls fail)`))}; for independent errors ${share(PREDICTED)} is predicted.`,
    `Of the calls that meet an error, retries mend ${listed(retried.map((one, at) => `${share(one.mended)} (${one.form.name}; blast radius ${share(bare[at]!.radius)} without policies, ${radiusOf(one)} with retries)`))}.`,
  ]
  const lost = retried.filter(({ mended }) => mended < MENDED).map(({ form }) => form)
  said.push(
    lost.length === 0
      ? `Retries mend at least ${share(MENDED)} of these calls in every form of errors.`
      : `Retries mend less than ${share(MENDED)} of these calls at ${names(lost)}: these errors last ${listed(lost.map(({ calls }) => roundedDuration(calls * CALL_MS)))} on average.`,
  )
  const stuck = forms.filter((form) => cell(form, NO_PROBES).lockIn > cell(form, none).lockIn)
  said.push(
    stuck.length === 0
      ? 'In no form of errors does a breaker without probes fail most tasks of a run more often than no policies do.'
      : `A breaker without probes stays open: more than ${share(LOCKED_IN)} of the tasks fail in ${listed(stuck.map((form) => `${share(cell(form, NO_PROBES).lockIn)} of the seeds (${form.name}; without policies ${share(cell(form, none).lockIn)})`))}.`,
  )
  const worse = forms.filter((form) => {
    const usual = cell(form, byDefault)
    const added = cell(form, WITH_BREAKER)
    return added.radius > usual.radius && isClear(added.radii.map((radius, at) => radius - usual.radii[at]!))
  })
  if (worse.length > 0)
    said.push(
      `With a breaker that probes, the default policies fail more tasks than without one: ${listed(worse.map((form) => `${radiusOf(cell(form, WITH_BREAKER))} instead of ${radiusOf(cell(form, byDefault))} (${form.name})`))}. While the breaker is open, it rejects calls that would have met no error.`,
    )
  return said
}
