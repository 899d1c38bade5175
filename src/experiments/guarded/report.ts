import { valueInWords } from '../../claims/judge.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { type Block, markdownBlock, markdownLine } from '../blocks.ts'
import type { Judged } from './claims.ts'
import { approachInWords, breachInWords, ruleInWords } from './gate.ts'
import type { Figures } from './meter.ts'
import { isOver, type RunRecord } from './record.ts'
import { sequenceOf } from './sequence.ts'
import { numbered } from '../../units/numbered.ts'

export interface RunSection {
  readonly title: string
  readonly blocks: readonly Block[]
}

/** Shown for unknown values. */
const NONE = '–'

const time = (wall: number | undefined): string =>
  wall === undefined ? NONE : new Date(wall).toISOString().replace(/^(.{10})T(.{8}).*$/, '$1 $2 UTC')

const percent = (share: number) => valueInWords('share', share)

const ms = (value: number | null | undefined): string =>
  value === undefined || value === null ? NONE : roundedDuration(value)

/** Returns the outcome of a run in one sentence. */
export const sentenceOf = ({ state, reason }: RunRecord): string =>
  `${state.replaceAll('_', ' ')}: ${reason}.`

/** Returns the sections of a report, in order, for any output format. */
export function runSections(run: RunRecord): readonly RunSection[] {
  const { stages, decisions, proposal } = run
  return [
    { title: 'Owner and reason', blocks: [who(run)] },
    { title: 'Hypothesis', blocks: hypothesisBlocks(run) },
    { title: 'Targets', blocks: [targetTable(run)] },
    { title: 'Injected faults', blocks: faultBlocks(run) },
    { title: 'Gate', blocks: gateBlocks(run) },
    ...(stages.length === 0 ? [] : [{ title: 'Stages', blocks: [stageTable(run)] }]),
    ...sequenceSections(run),
    { title: 'Detection and recovery', blocks: recoveryBlocks(run) },
    { title: 'Rollback', blocks: rollbackBlocks(run) },
    { title: 'Estimate and result', blocks: [estimateBlock(run)] },
    {
      title: 'Timeline',
      blocks: [
        {
          table: {
            head: ['after', 'what', 'why'],
            rows: decisions.map(({ atMs, what, why }) => [roundedDuration(atMs), what, why]),
            numbers: Infinity,
          },
        },
      ],
    },
    ...(proposal === undefined ? [] : [{ title: 'Next step', blocks: [proposal] }]),
    { title: 'Evidence', blocks: [evidence(run)] },
  ]
}

function who(run: RunRecord): Block {
  const { spec, actor, approver, proof, requestedAt, beganAt, endedAt, firstStage } = run
  return {
    list: [
      `owner: ${spec.owner}`,
      `reason: ${spec.reason}`,
      `requested by ${actor} at ${time(requestedAt)}`,
      approver === undefined
        ? 'not approved by anybody: the run needs no approval'
        : `approved by ${approver}${proof?.self === true ? ', the requester' : ''}`,
      `ran from ${time(beganAt)} to ${time(endedAt)}`,
      ...(firstStage > 0
        ? [`stages before stage ${firstStage + 1} were skipped, with approval by ${approver}`]
        : []),
    ],
  }
}

function hypothesisBlocks({ spec, hypothesis, stages, firstStage }: RunRecord): Block[] {
  const found = (judged: readonly Judged[]) =>
    judged.map(({ claim, found: seen, holds }) => [claim, seen, word(holds)])
  const table = (head: string, judged: readonly Judged[]): Block[] =>
    judged.length === 0
      ? []
      : [{ table: { head: [head, 'found', 'holds'], rows: found(judged), numbers: Infinity } }]
  return [
    ...(spec.hypothesis.title === undefined ? [] : [spec.hypothesis.title]),
    ...table('before', hypothesis.before),
    ...stages.flatMap(({ claims }, at) => table(`in stage ${firstStage + at + 1}`, claims)),
    ...table('after', hypothesis.after),
  ]
}

const word = (holds: boolean | undefined) => (holds === undefined ? 'not measured' : holds ? 'yes' : 'no')

function targetTable({ targets }: RunRecord): Block {
  return {
    table: {
      head: ['server', 'tools', 'hit by faults'],
      rows: targets.servers.map(({ name, tools, hit }) => [name, String(tools.length), String(hit.length)]),
      numbers: 1,
    },
  }
}

function faultBlocks({ spec, faults, engineErrors, rollback }: RunRecord): Block[] {
  const { control, treatment } = spec.arms
  const arms = `Policy sets: ${control} (control), ${treatment} (treatment).`
  if (faults.length === 0) return [`No faults: the arms differ in their policy sets. ${arms}`]
  return [
    {
      table: {
        head: ['fault', 'type', 'decided', 'injected'],
        rows: faults.map(({ name, type, decided, injected }) => [
          name,
          type,
          String(decided),
          String(injected),
        ]),
        numbers: 2,
      },
    },
    arms,
    ...(rollback !== undefined && rollback.atMs === undefined
      ? ['These counts were last written a few seconds before the gateway ended.']
      : []),
    ...(engineErrors === 0 ? [] : [`The engine failed ${numbered(engineErrors, 'time')}.`]),
  ]
}

function gateBlocks(run: RunRecord): Block[] {
  const { rules, spec } = run
  const measured = `Measured over ${formatDuration(spec.gate.over)}, from ${numbered(spec.gate.minimum, 'call')} of an arm on.`
  return [{ list: rules.map(ruleInWords) }, `${gateInWords(run)} ${measured}`]
}

function gateInWords({ breach, nearest, stage, stages, firstStage, spec }: RunRecord): string {
  if (breach !== undefined) return `The gate was breached: ${breachInWords(breach)}.`
  if (stage < 0) return 'The gate was never checked: no stage began.'
  const isThrough = firstStage + stages.length === spec.stages.length
  const held = isThrough ? 'The gate held' : 'The gate was not breached while stages were played'
  return nearest === undefined ? `${held}.` : `${held}; nearest to a limit: ${approachInWords(nearest)}.`
}

function stageTable({ stages, baseline }: RunRecord): Block {
  const row = (first: string, { calls, failed, p50, p95, p99 }: Figures) => [
    first,
    String(calls),
    calls === 0 ? NONE : percent(failed / calls),
    ms(p50),
    ms(p95),
    ms(p99),
  ]
  return {
    table: {
      head: ['arm', 'calls', 'errors', 'p50', 'p95', 'p99'],
      rows: [
        ...(baseline === undefined ? [] : [row('baseline', baseline)]),
        ...stages.flatMap(({ share, control, treatment }) => [
          row(`${percent(share)}: control`, control),
          row(`${percent(share)}: treatment`, treatment),
        ]),
      ],
      numbers: 1,
    },
  }
}

function sequenceSections(run: RunRecord): RunSection[] {
  const rows = sequenceOf(run).map(({ atMs, sign, what }) => [roundedDuration(atMs), sign, what])
  if (rows.length === 0) return []
  const table = { head: ['after', 'sign', 'of the treatment'], rows, numbers: Infinity }
  return [{ title: 'Order of the signs', blocks: [{ table }] }]
}

function recoveryBlocks({ detection, recovery, troubles, probes }: RunRecord): Block[] {
  const lines: string[] = []
  if (detection !== undefined)
    lines.push(
      detection.afterMs === undefined
        ? 'The gateway noticed nothing of the faults: no breaker, ejection or health signal.'
        : `Noticed ${roundedDuration(detection.afterMs)} after the first effect, by ${detection.sign}.`,
    )
  const troubled = [...troubleBlocks(troubles), ...probeBlocks(probes)]
  if (recovery === undefined) return [...lines, ...troubled, 'No recovery was measured.']
  const { recoveredAfterMs, steadyAfterMs, waitedMs, limitMs, layers } = recovery
  lines.push(
    steadyAfterMs === undefined
      ? `The steady state did not come back in ${roundedDuration(waitedMs)}; the limit is ${formatDuration(limitMs)}.`
      : `The steady state was back ${roundedDuration(recoveredAfterMs ?? steadyAfterMs)} after the first effect, and ${roundedDuration(steadyAfterMs)} after the end of the faults.`,
  )
  const rows = Object.entries(layers).map(([name, after]) => [
    name,
    after === null ? 'not recovered' : roundedDuration(after),
  ])
  if (rows.length === 0) return [...lines, ...troubled]
  return [
    ...lines,
    ...troubled,
    { table: { head: ['layer that was in trouble', 'recovered after'], rows, numbers: 1 } },
  ]
}

function troubleBlocks(troubles: RunRecord['troubles']): Block[] {
  if (troubles.length === 0) return []
  const rows = troubles.map(({ name, state, fromMs, untilMs }) => [
    name,
    state,
    roundedDuration(fromMs),
    untilMs === undefined || untilMs === null ? NONE : roundedDuration(untilMs - fromMs),
  ])
  return [{ table: { head: ['layer', 'was', 'after', 'for'], rows, numbers: 2 } }]
}

function probeBlocks(probes: RunRecord['probes']): Block[] {
  if (probes.length === 0) return []
  const rows = probes.map(({ atMs, server, state, reason, tookMs }) => [
    server,
    reason === undefined ? state : `${state} (${reason})`,
    roundedDuration(atMs),
    roundedDuration(tookMs),
  ])
  return [{ table: { head: ['probe of', 'found it', 'after', 'took'], rows, numbers: 2 } }]
}

function rollbackBlocks({ rollback }: RunRecord): Block[] {
  if (rollback === undefined) return ['Nothing was put into force.']
  const { armed, arms, atMs, tookMs, chaos, troubled } = rollback
  return [
    armed.length + arms.length === 0
      ? `Nothing of the run is armed, and no call is in its arms: ${lookedAt(atMs, tookMs)}. Chaos was ${chaos}.`
      : `Left behind: ${[...armed, ...arms].join(', ')}.`,
    ...(troubled.length === 0 ? [] : [{ list: troubled.map((layer) => `in trouble by then: ${layer}`) }]),
  ]
}

function lookedAt(atMs: number | undefined, tookMs: number | undefined): string {
  if (atMs === undefined || tookMs === undefined)
    return 'checked at the next start of the gateway, because the gateway and its faults ended before'
  return `checked ${roundedDuration(atMs)} after the start, after a rollback of ${roundedDuration(tookMs)}`
}

function estimateBlock(run: RunRecord): Block {
  const { estimates, spec } = run
  if (estimates.length === 0)
    return Object.keys({ ...spec.estimate }).length === 0
      ? 'The author gave no estimates.'
      : isOver(run)
        ? 'No estimate could be compared with the result.'
        : 'Estimates are compared at the end.'
  const right = estimates.filter(({ isRight }) => isRight).length
  return {
    table: {
      head: [`${right} of ${estimates.length} right`, 'expected', 'found', 'right'],
      rows: estimates.map(({ of, expected, found, isRight }) => [
        of,
        expected,
        found,
        isRight ? 'yes' : 'no',
      ]),
      numbers: Infinity,
    },
  }
}

function evidence({ id, hashes, shape, seed, traces }: RunRecord): Block {
  return {
    list: [
      `run ${id}, shape ${shape}, seed ${seed}`,
      `config ${hashes.config}, policies ${hashes.policies}, faults ${hashes.faults}`,
      ...(traces.length === 0 ? [] : [`traces of calls that were hit: ${traces.join(', ')}`]),
    ],
  }
}

/** Returns the report of a run as Markdown. */
export function runMarkdownOf(run: RunRecord): string {
  const { name, spec } = run
  return [
    `# Guarded experiment ${name}`,
    ...(spec.title === undefined ? [] : [markdownLine(spec.title)]),
    `**${markdownLine(sentenceOf(run))}**`,
    ...runSections(run).flatMap(({ title, blocks }) => [`## ${title}`, ...blocks.map(markdownBlock)]),
  ].join('\n\n')
}
