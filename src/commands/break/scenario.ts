import { transports } from '../../chaos/fault.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { type Cancellation, ignore } from '../../mesh/cancel.ts'
import type { HandIn } from '../../evidence/hand-in.ts'
import { systemClock } from '../../mesh/clock.ts'
import { glob } from '../../mesh/match.ts'
import { printable } from '../../telemetry/printable.ts'
import {
  controlAccess,
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { gatewayFacts } from '../shared/gateway-facts.ts'
import { documentLines, summaryHint, summaryOption } from '../shared/summary-file.ts'
import { controlAt } from '../shared/control.ts'
import { assertionsOf } from './scenario/assertions.ts'
import { ControlError, type Faults, faultsAt, type KnownServer } from './scenario/gateway.ts'
import { unwritable, writeReport } from '../shared/report-file.ts'
import { junitOf } from './scenario/junit.ts'
import {
  type Aim,
  canHit,
  hitBy,
  lasting,
  MAX_RATE,
  readScenario,
  type Scenario,
  scenarioNames,
} from './scenario/library.ts'
import {
  asJson,
  exitCodeOf,
  introduce,
  judgedRun,
  report,
  reportAll,
  type Result,
} from './scenario/result.ts'
import { runScenario, type ScenarioRun } from './scenario/run.ts'
import { type PlayedScenario, scenarioDocument } from './scenario/summary.ts'
import { type Servers, Traffic, TrafficError } from './scenario/traffic.ts'
import { otherGateway } from '../same-gateway.ts'
import { endingInOrder } from '../shared/signals.ts'
import { numbered } from '../../units/numbered.ts'

const MAX_NAMED = 5

/** Exit code for an invalid, undecided or impossible run. */
const INVALID = 2

/** `breakwater scenario …`: ready-made faults against a running gateway. Resolves to the exit code. */
export function scenario(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options }, out, (values, [what, ...names]) => {
    if (what === 'list' && names.length === 0) return list(out)
    if (what === 'run' && names.length === 0)
      throw new Misuse('NAME is missing; `breakwater scenario list` has the names')
    if (what !== 'run') throw new Misuse('expected list, or run NAME')
    const isAll = names.includes(ALL)
    if (isAll && names.length > 1) throw new Misuse('"all" runs every scenario: expected no other name')
    const { traffic: rate, 'no-traffic': observesOnly, tool, data } = values
    if (rate === 0)
      throw new Misuse('--traffic must be at least 1 call a second; --no-traffic makes no calls')
    if (observesOnly && (rate !== undefined || tool !== undefined))
      throw new Misuse('--no-traffic excludes --traffic N and --tool GLOB')
    return runNamed(names, { ...values, isAll, data: data.replace(/\/+$/, '') }, out, env)
  })
}

async function list(out: Output): Promise<number> {
  // A reader such as `head` may close the pipe early.
  process.stdout.on('error', ignore)
  const names = await scenarioNames()
  const width = Math.max(0, ...names.map((name) => name.length))
  let broken = 0
  for (const name of names) {
    const read = await readScenario(name)
    if (read.ok) out.stdout(`${name.padEnd(width)}  ${read.scenario.description}${limitsOf(read.scenario)}`)
    else for (const problem of read.problems) out.stderr(`breakwater: ${problem}`)
    if (!read.ok) broken++
  }
  return broken === 0 ? 0 : INVALID
}

/** Returns the transports with which a scenario can show an effect. */
const transportsOf = (scenario: Scenario) => transports.filter((transport) => canHit(scenario, transport))

function limitsOf(scenario: Scenario): string {
  const hit = transportsOf(scenario)
  return hit.length === transports.length ? '' : ` (Servers over ${hit.join(' or ')} only.)`
}

async function runNamed(named: readonly string[], asked: Asked, out: Output, env: Env): Promise<number> {
  const names = asked.isAll ? await scenarioNames() : named
  const read = await Promise.all(names.map((name) => readScenario(name)))
  const problems = read.flatMap((one) => (one.ok ? [] : one.problems))
  const noReport = asked.junit === undefined ? undefined : await unwritable(asked.junit)
  if (noReport !== undefined) problems.push(`--junit ${asked.junit} cannot be written: ${noReport}`)
  const noSummary = asked.summary === undefined ? undefined : await unwritable(asked.summary)
  if (noSummary !== undefined) problems.push(`--summary ${asked.summary} cannot be written: ${noSummary}`)
  if (problems.length > 0) {
    for (const problem of problems) out.stderr(`breakwater: ${problem}`)
    return INVALID
  }
  // Faults must be cleared even after a closed pipe or repeated signals.
  process.stdout.on('error', ignore)
  return endingInOrder(async (stop) => {
    const control = controlAt({ base: asked.control, token: asked.token, env, hurry: stop })
    const gateway = faultsAt(control)
    const shown = asked.json ? withoutText(out) : out
    const results: Result[] = []
    const documents: HandIn[] = []
    try {
      const other = asked['no-traffic'] ? undefined : await otherGateway(control, asked.data, stop)
      if (other !== undefined) throw new ControlError(other)
      const facts = asked.summary === undefined ? undefined : await gatewayFacts(control)
      for (const one of read) {
        if (!one.ok) continue
        const { result, played } = await runOne(one.scenario, asked, { gateway, stop, out: shown })
        report(result, shown)
        results.push(result)
        if (facts !== undefined && played !== undefined) documents.push(scenarioDocument(played, facts))
      }
      reportAll(results, shown)
      if (asked.json) out.stdout(asJson(results))
      const isWritten = asked.junit === undefined || (await written(asked.junit, junitOf(results), out))
      const isKept = asked.summary === undefined || (await writtenSummary(asked.summary, documents, out))
      return isWritten && isKept ? exitCodeOf(results) : INVALID
    } catch (error) {
      out.stderr(`breakwater scenario: ${whyNot(error)}`)
      return INVALID
    }
  })
}

/** Resolves to true if the file could be written. */
async function written(path: string, text: string, out: Output): Promise<boolean> {
  try {
    await writeReport(path, text)
    return true
  } catch (error) {
    out.stderr(`breakwater: ${path} cannot be written: ${(error as Error).message}`)
    return false
  }
}

/** As `written`. Runs without injected faults have no summary. */
async function writtenSummary(path: string, documents: readonly HandIn[], out: Output): Promise<boolean> {
  const isWritten = await written(path, documentLines(documents), out)
  if (isWritten) out.stderr(summaryHint(path, documents.length))
  return isWritten
}

/** Returns an output that drops the human-readable result and keeps messages for standard error. */
const withoutText = (out: Output): Output => ({
  stdout: ignore,
  stderr: (line) => out.stderr(line),
  status: out.status,
})

interface OneParts {
  readonly gateway: Faults
  readonly stop: Cancellation
  readonly out: Output
}

/** `played`: undefined for a run that did not begin. */
interface OneRun {
  readonly result: Result
  readonly played?: PlayedScenario
}

/** Runs a scenario. The result names steps refused by the gateway or its servers. */
async function runOne(written: Scenario, asked: Asked, { gateway, stop, out }: OneParts): Promise<OneRun> {
  const { name, description } = written
  const durationMs = asked.duration ?? written.duration
  const scenario = lasting(written, durationMs)
  const startedAt = systemClock.wall()
  const began = systemClock.now()
  const common = { scenario: name, description, durationMs, startedAt }
  const tookMs = () => systemClock.now() - began
  let hit: readonly string[] = []
  let traffic: Traffic | undefined
  const nothing = (flaws: readonly string[], skipped?: string): Result => {
    return { ...common, checks: [], flaws, skipped, faults: [], servers: hit, tookMs: tookMs() }
  }
  const assertions = assertionsOf(scenario.assert)
  const playedBy = (run: ScenarioRun | undefined, result: Result): OneRun => {
    const rate = traffic && rateOf(asked, scenario)
    const tools = traffic?.tools ?? []
    return { result, played: { scenario, result, assertions, run, rate, tools, toolGlob: asked.tool } }
  }
  // Faults have hit servers once the first is injected, whatever comes then.
  let hasBegun = false
  if (stop.aborted) return { result: nothing(['it was not run: the command was stopped']) }
  try {
    const aimedAt = await aimAt(scenario, asked, { gateway, stop })
    if ('skipped' in aimedAt)
      return { result: asked.isAll ? nothing([], aimedAt.skipped) : nothing([aimedAt.skipped]) }
    ;({ hit, traffic } = aimedAt)
    const { aim, others } = aimedAt
    introduce(scenario, { server: aim.server, durationMs, rate: traffic && rateOf(asked, scenario) }, out)
    const { status } = out
    const say = (line: string) => out.stderr(line)
    const leftOut = traffic?.leftOut ?? []
    if (leftOut.length > 0)
      say(
        `servers not called: ${leftOut.slice(0, MAX_NAMED).join(', ')} (${numbered(leftOut.length, 'server')})`,
      )
    const noting: Faults = {
      ...gateway,
      async inject(...given) {
        const injected = await gateway.inject(...given)
        hasBegun = true
        return injected
      },
    }
    const parts = { gateway: noting, clock: systemClock, stop, say, status, ...(traffic && { traffic }) }
    const run = await runScenario(scenario, { ...aim, hit, others, durationMs }, parts)
    const result: Result = {
      ...common,
      ...judgedRun(run, assertions),
      faults: run.faults,
      traffic: traffic?.report,
      seed: run.seed,
      servers: hit,
      tookMs: tookMs(),
    }
    return run.faults.length === 0 ? { result } : playedBy(run, result)
  } catch (error) {
    const result = { ...nothing([whyNot(error)]), traffic: traffic?.report }
    return hasBegun ? playedBy(undefined, result) : { result }
  }
}

/** Returns the reason why a run failed, as one line. After such an error, the assertions of the run prove nothing. */
function whyNot(error: unknown): string {
  if (error instanceof ControlError || error instanceof TrafficError || error instanceof UnusableInput)
    return error.message
  return `unexpected: ${printable(error instanceof Error ? error.message : String(error), 500)}`
}

const rateOf = (asked: Asked, { traffic }: Scenario): number => asked.traffic ?? traffic

/** Target and calls of a run, or the reason why nothing can be hit. */
type AimedAt =
  | {
      readonly aim: Aim
      readonly hit: readonly string[]
      readonly others: readonly string[]
      readonly traffic: Traffic | undefined
    }
  | { readonly skipped: string }

/**
 * Resolves to the servers to hit: the named servers, or else the first suitable server with a callable tool, or all
 * servers. Every server must be compatible with the faults.
 */
async function aimAt(
  scenario: Scenario,
  asked: Asked,
  { gateway, stop }: Pick<OneParts, 'gateway' | 'stop'>,
): Promise<AimedAt> {
  const known = await gateway.servers()
  const names = known.map(({ name }) => name)
  const { server, 'allow-writes': allowWrites } = asked
  const to = async (aim: Aim): Promise<AimedAt> => {
    const meant = hitBy(scenario, aim, names)
    if (meant.length === 0) throw new TrafficError(`no server matches ${aim.server}; there ${isAre(names)}`)
    const hit = meant.filter((name) => canHit(scenario, transportOf(name, known)))
    if (hit.length === 0) return { skipped: unreachable(scenario, meant) }
    const others = names.filter((name) => !hit.includes(name))
    return { aim, hit, others, traffic: await trafficTo(scenario, asked, { hit, others }, stop) }
  }
  if (server !== undefined) return to({ server, allowWrites })
  if (scenario.hits === 'all_servers') return to({ server: '*', allowWrites })
  const able = known.filter(({ transport }) => canHit(scenario, transport))
  if (able.length === 0 && known.length > 0) return { skipped: unreachable(scenario, names) }
  let refusal: TrafficError | undefined
  for (const { name } of able.toSorted((a, b) => Number(b.isUp) - Number(a.isUp))) {
    try {
      return await to({ server: name, allowWrites })
    } catch (error) {
      if (!(error instanceof TrafficError)) throw error
      refusal ??= error
    }
  }
  throw refusal ?? new TrafficError('there is no server')
}

const transportOf = (name: string, known: readonly KnownServer[]) =>
  known.find((server) => server.name === name)?.transport

const isAre = (names: readonly string[]): string =>
  names.length === 0
    ? 'is none'
    : `${names.length === 1 ? 'is' : 'are'} ${names.slice(0, MAX_NAMED).join(', ')}`

const unreachable = (scenario: Scenario, servers: readonly string[]): string =>
  `it needs a server over ${transportsOf(scenario).join(' or ')}; ${servers.slice(0, 5).join(', ')} ${servers.length === 1 ? 'is' : 'are'} not`

/** Resolves to the run's own calls to hit servers and to other servers; undefined with `--no-traffic`. */
async function trafficTo(
  scenario: Scenario,
  asked: Asked,
  { hit, others }: Servers,
  stop: Cancellation,
): Promise<Traffic | undefined> {
  const { data, tool } = asked
  if (asked['no-traffic']) return undefined
  const isOther = glob(asked.others)
  return Traffic.to(
    { hit, others: scenario.assert.others === undefined ? [] : others.filter((name) => isOther(name)) },
    { data, tool, rate: rateOf(asked, scenario), name: scenario.name },
    systemClock,
    stop,
  )
}

const ALL = 'all'

const options = {
  server: {
    kind: 'text',
    value: 'GLOB',
    about: 'the servers to hit (default: a suitable server, or all, as the scenario says)',
  },
  others: {
    kind: 'text',
    value: 'GLOB',
    default: '*',
    about: 'other servers, which must not notice the faults',
  },
  duration: {
    kind: 'duration',
    min: 1_000,
    value: 'DURATION',
    about: 'duration of the faults, such as 60s (default: from the scenario)',
  },
  traffic: {
    kind: 'integer',
    max: MAX_RATE,
    value: 'N',
    about: 'calls a second to read-only tools (default: from the scenario)',
  },
  'no-traffic': { kind: 'flag', about: 'makes no calls, and observes the calls of others' },
  tool: { kind: 'text', value: 'GLOB', about: 'the tools to call, read-only or not' },
  data: {
    kind: 'url',
    value: 'URL',
    default: 'http://127.0.0.1:8080',
    about: 'the data port, for the calls',
  },
  'allow-writes': {
    kind: 'flag',
    about: 'hits tools not known to be read-only, even if the scenario forbids it',
  },
  summary: summaryOption,
  junit: { kind: 'text', value: 'FILE', about: 'also writes the result as JUnit XML' },
  json: { kind: 'flag', about: 'prints the result as JSON, and nothing else' },
  ...controlAccess,
} as const

/** The options of a run; `data` has no trailing slash. */
type Asked = Values<typeof options> & { readonly isAll: boolean }

const usage = `breakwater scenario: ready-made faults, with assertions on the mesh

  breakwater scenario list              lists the scenarios
  breakwater scenario run NAME…         runs scenarios in turn against a running gateway, and checks their assertions;
                                        NAME may be a file (./mine.yaml), or all

${optionLines(options)}

  Exit codes: 0 when all assertions hold; 1 when an assertion fails; 2 when an assertion was not decided, when a run
  proves nothing or could not begin, or for wrong arguments. \`all\` skips scenarios unsuitable for these servers.`
