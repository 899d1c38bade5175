import { stringify } from 'yaml'
import type { Approval } from '../../approval/approval.ts'
import { digestOf } from '../../approval/digest.ts'
import type { HitTool } from '../../approval/envelope.ts'
import type { Env } from '../../config/files/interpolate.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import type { Workload } from '../../load/workload.ts'
import { subjects, type Unit } from '../../claims/subjects.ts'
import { withUnits } from '../../config/schema/with-units.ts'
import type { CallMetric } from '../../experiments/guarded/claims.ts'
import { ruleInWords } from '../../experiments/guarded/gate.ts'
import { experimentSpec } from '../../gateway/guarded/spec.ts'
import { printable } from '../../telemetry/printable.ts'
import { formatDuration } from '../../units/duration.ts'
import { listed, optionLines, optionsOf, type Output, UnusableInput } from '../shared/arguments.ts'
import { ask, type Command, common, type Given, paintOf, runNamed } from '../shared/control-command.ts'
import { table } from '../shared/table.ts'
import { keyOption, signerOf } from './signer.ts'

interface Shown {
  readonly proposal: string
  readonly by: string
  readonly plan: string
  readonly why: string
  readonly state: string
  /** Reasons why the run could not begin at the moment. */
  readonly refusals: readonly string[]
  readonly expiresAt: string
}

/** A run as a person sees the run before signing. */
export interface Signable {
  readonly spec: Spec
  readonly firstStage: number
  readonly by: string
  readonly why?: string
  readonly hit: readonly HitTool[]
  /** Stands for the secrets of the spec, which nobody is shown. */
  readonly sealed: string
  readonly approval: Approval
  readonly refusals?: readonly string[]
}

/** Returns the run in lines: everything that the signature covers. */
export function signableLines({ spec, firstStage, by, why, hit, refusals = [] }: Signable): string[] {
  const servers = [...new Set(hit.map(({ server }) => server))]
  return [
    `${spec.name}, requested by ${by}${why === undefined ? '' : `: ${why}`}`,
    ...(withUnits(experimentSpec, spec) as Spec).faults.map(
      ({ name, type, rate, ttl: _, ...fields }) =>
        `fault ${name}: ${type}, rate ${rate}, ${JSON.stringify(fields)}`,
    ),
    ...spec.stages.map(
      ({ share, duration }, at) =>
        `stage ${at + 1}: ${Math.round(share * 100)}% for ${formatDuration(duration)}${at + 1 < firstStage ? ', skipped' : ''}`,
    ),
    ...spec.gate.rollbackOn.map((rule) => `rolled back on: ${ruleInWords(rule)}`),
    ...servers.map((server) => {
      const tools = hit.filter((one) => one.server === server)
      return `hits ${server}: ${tools.map(({ tool, effect }) => `${toolName(tool)} (${effect})`).join(', ')}`
    }),
    ...(spec.load === undefined ? [] : [loadLine(spec.load)]),
    ...refusals.map((refusal) => `refused now: ${refusal}`),
  ]
}

/** Returns the experiment with all its settings, as YAML in the words of a config. A text stays in its line. */
export const yamlOf = (spec: Spec): string[] =>
  stringify(inConfigWords(spec), {
    blockQuote: false,
    lineWidth: 0,
    doubleQuotedMinMultiLineLength: Infinity,
  })
    .trimEnd()
    .split('\n')

/**
 * Returns the experiment with durations, shares and claims as a config has them. Leaves out `approval`: the signature is
 * the approval.
 */
function inConfigWords({ approval: _, ...spec }: Spec): object {
  const { hypothesis, faults, gate, stages, baseline, estimate, ...rest } = withUnits(
    experimentSpec,
    spec,
  ) as Spec
  const { steadyState, during, ...title } = hypothesis
  const claimed = (claims: typeof steadyState) => claims.map(({ text }) => text)
  const above = <Rule extends { readonly metric: CallMetric; readonly above: number }>(rule: Rule) => {
    const { unit } = subjects[rule.metric]
    return { ...rule, above: valueIn(unit, rule.above) }
  }
  return {
    ...rest,
    hypothesis: {
      ...title,
      steadyState: claimed(steadyState),
      ...(during !== undefined && { during: claimed(during) }),
    },
    // The run sets the `ttl` of its faults.
    faults: faults.map(({ ttl: _, ...fault }) => fault),
    stages: stages.map(({ share, duration }) => ({ share: valueIn('share', share), duration })),
    gate: { ...gate, rollbackOn: gate.rollbackOn.map(above) },
    baseline: {
      ...baseline,
      learn: baseline.learn.map((rule) => ('above' in rule ? above(rule) : rule)),
    },
    ...(Object.keys(estimate).length > 0 && {
      estimate: {
        ...estimate,
        ...(estimate.errorRatio !== undefined && { errorRatio: valueIn('share', estimate.errorRatio) }),
        ...(estimate.p95 !== undefined && { p95: valueIn('ms', estimate.p95) }),
      },
    }),
  }
}

/** Formats a number exactly, with its unit. */
const valueIn = (unit: Unit, value: number): string | number =>
  unit === 'ms'
    ? formatDuration(value)
    : unit === 'share'
      ? `${Number((value * 100).toPrecision(12))}%`
      : value

/** Returns the name of a tool as it is if it is plain, else in quotes: servers choose the names of their tools. */
const toolName = (name: string) => (/^[\w.:/-]+$/.test(name) ? name : JSON.stringify(name))

/** Returns the calls that the gateway plays during the run: a load may call any tool. */
function loadLine({ workload, concurrency }: NonNullable<Spec['load']>): string {
  const { tasks } = workload as Workload
  const tools = tasks.flatMap(({ steps }) =>
    steps.map(({ server, tool }) => (server === undefined ? tool : `${server}/${tool}`)),
  )
  return `plays ${concurrency} tasks at a time, which call ${[...new Set(tools)].join(', ')}`
}

/** Shows a run, checks that the document covers what is shown, and signs the document. */
export async function signedApprovalOf(given: Given, shown: Signable) {
  const { spec, firstStage, hit, sealed, approval } = shown
  if (
    digestOf({ spec, firstStage: firstStage - 1, sealed }) !== approval.planHash ||
    digestOf(hit) !== approval.targetsHash
  )
    throw new UnusableInput(
      'the gateway asks for a signature of another run than the run shown: nothing was signed',
    )
  for (const line of [...signableLines(shown), 'the whole experiment:', ...yamlOf(spec)])
    given.out.stderr(printable(line, Infinity))
  const sign = await signerOf(given)
  return { approval, signature: sign('approval', approval) }
}

const pathOf = ({ positionals: [id = ''] }: Given) => `/admin/proposals/${encodeURIComponent(id)}`

const list: Command = {
  run: (given) =>
    ask(
      given,
      { method: 'GET', path: '/admin/proposals' },
      ({ proposals }: { proposals: readonly Shown[] }) =>
        proposals.length === 0
          ? ['there are no open proposals of agents']
          : table(
              ['PROPOSAL', 'BY', 'PLAN', 'STATE', 'EXPIRES', 'WHY'],
              proposals.map(({ proposal, by, plan, state, refusals, expiresAt, why }) => [
                proposal,
                by,
                plan,
                state === 'cannot run' ? `${state}: ${refusals.join('; ')}` : state,
                expiresAt,
                why,
              ]),
              given.width,
              paintOf(given),
            ),
    ),
}

const show: Command = {
  positionals: ['PROPOSAL'],
  run: (given) =>
    ask(given, { method: 'GET', path: pathOf(given) }, (shown: Signable) =>
      signableLines(shown).map((line) => printable(line, Infinity)),
    ),
}

const approve: Command = {
  positionals: ['PROPOSAL'],
  options: keyOption,
  async run(given) {
    const answered = await given.control({ method: 'GET', path: pathOf(given) })
    if (!answered.ok) throw new UnusableInput(answered.message)
    const body = await signedApprovalOf(given, answered.value as Signable)
    return ask(
      given,
      { method: 'POST', path: '/admin/proposals/approve', body },
      ({ proposal, by }: Shown) => [`${proposal} is approved: ${by} may start the run once, within an hour`],
    )
  },
}

const commands: Readonly<Record<string, Command>> = { list, show, approve }

const usage = `breakwater proposal: experiments that agents propose over the control MCP server

  breakwater proposal list               shows the open proposals
  breakwater proposal show PROPOSAL      shows faults, stages, gate and targets of a proposal
  breakwater proposal approve PROPOSAL   shows the run, asks for your passphrase, and approves one run

${optionLines([...listed(common), ...optionsOf(commands)])}`

/** `breakwater proposal …`: resolves to the exit code; 2 for wrong arguments. */
export const proposal = (args: readonly string[], out: Output, env: Env): Promise<number> =>
  runNamed(args, { usage, commands }, out, env)
