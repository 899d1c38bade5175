import { ConditionError, check, readConditions } from '../../../judge/fail-on.ts'
import type { KindContract } from '../../../judge/contract.ts'
import { tasksIn } from '../../../judge/task.ts'
import { judge as judgeTasks, summarize, type Verdicts } from '../../../judge/verdicts.ts'
import { readContracts } from '../../../load/contracts.ts'
import { readRecording, type Recording, RecordingError } from '../../../sim/recording.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../../shared/arguments.ts'
import { unwritable, writeReport } from '../../shared/report-file.ts'
import { judgementJunit } from './junit.ts'
import { foundOf, judgementJson, type Report } from './report.ts'
import { judgementSarif } from './sarif.ts'
import { judgementText } from './text.ts'

const options = {
  baseline: { kind: 'text', value: 'FILE', about: 'a recording without faults, for comparison' },
  contract: {
    kind: 'text',
    value: 'FILE',
    about: 'which tools must run, may be repeated, or are polled: a contract, or a workload with contracts',
  },
  'fail-on': {
    kind: 'text',
    value: 'LIST',
    about: 'conditions such as duplicate_write>0,blind_retry>5%,runaway>baseline+2%',
  },
  format: {
    kind: 'choice',
    of: ['text', 'json', 'junit', 'sarif'],
    value: 'FORMAT',
    default: 'text',
    about: 'text, json, junit or sarif',
  },
  out: { kind: 'text', value: 'FILE', about: 'writes the report to a file (default: standard output)' },
} as const

const usage = `breakwater judge RECORDING [--baseline FILE] [--contract FILE] [--fail-on LIST]

  Finds the mistakes of agents in a recording of a gateway (telemetry.recording.file), task by task: blind retries,
  duplicate writes, corrupt values used, and others. Each finding is proven or likely, and names the recording's lines.

${optionLines(options)}

  Exit codes: 0; 1 when a condition of --fail-on is met; 2 for a recording that cannot be judged, for a condition
  without a decidable task, or for wrong arguments.`

/** The exit code for input that cannot be judged. */
const BAD_INPUT = 2

/** Characters per line of a report in a file. */
const WIDE = 200

export function judge(args: readonly string[], out: Output): Promise<number> {
  return runCommand(
    args,
    { usage, options, positionals: ['RECORDING'] },
    out,
    async (values, [file = '']) => {
      const report = await reportOn(file, values)
      await write(report, values, out)
      return exitCodeOf(report, out)
    },
  )
}

/** Rejects with a `Misuse`, or with an `UnusableInput`. */
async function reportOn(file: string, values: Values<typeof options>): Promise<Report> {
  const conditions = conditionsIn(values)
  if (values.out !== undefined) {
    const why = await unwritable(values.out)
    if (why !== undefined) throw new UnusableInput(`--out ${values.out} cannot be written: ${why}`, BAD_INPUT)
  }
  const kinds = values.contract === undefined ? [] : await contractsAt(values.contract)
  const recording = await recordingAt(file)
  const before = values.baseline === undefined ? undefined : await recordingAt(values.baseline)
  const verdicts = verdictsOn(recording, kinds)
  const rules = summarize(verdicts, before && verdictsOn(before, kinds))
  return {
    file,
    startedAt: recording.header.startedAt,
    calls: recording.calls.length,
    strayCalls: recording.calls.filter(({ task }) => task === undefined).length,
    tasks: verdicts.tasks,
    baselineFile: values.baseline,
    notes: [...recording.notes, ...(before?.notes ?? [])],
    rules,
    findings: verdicts.findings,
    conditions: conditions.map((condition) => ({ condition, met: check(condition, rules) })),
  }
}

function conditionsIn(values: Values<typeof options>) {
  const text = values['fail-on']
  if (text === undefined) return []
  try {
    const conditions = readConditions(text)
    const compares = conditions.find(({ bound }) => bound.kind === 'baseline')
    if (compares !== undefined && values.baseline === undefined)
      throw new Misuse(`--fail-on ${compares.text} needs --baseline FILE`)
    return conditions
  } catch (error) {
    if (!(error instanceof ConditionError)) throw error
    throw new Misuse(`--fail-on: ${error.message}`)
  }
}

async function contractsAt(file: string): Promise<readonly KindContract[]> {
  const read = await readContracts(file)
  if (read.ok) return read.kinds
  throw new UnusableInput(read.problems.join('\n'), BAD_INPUT)
}

async function recordingAt(file: string): Promise<Recording> {
  try {
    return await readRecording(file)
  } catch (error) {
    if (!(error instanceof RecordingError)) throw error
    throw new UnusableInput(error.message, BAD_INPUT)
  }
}

const verdictsOn = (recording: Recording, kinds: readonly KindContract[]): Verdicts =>
  judgeTasks(tasksIn(recording, kinds))

async function write(
  report: Report,
  { format, out: file }: Values<typeof options>,
  out: Output,
): Promise<void> {
  const text = rendered(report, format, file === undefined ? out : {})
  if (file === undefined) return out.stdout(text.trimEnd())
  try {
    await writeReport(file, `${text.trimEnd()}\n`)
  } catch (error) {
    throw new UnusableInput(`--out ${file} cannot be written: ${(error as Error).message}`, BAD_INPUT)
  }
}

function rendered(
  report: Report,
  format: string,
  { width = WIDE, paint }: Pick<Output, 'width' | 'paint'>,
): string {
  switch (format) {
    case 'json':
      return judgementJson(report)
    case 'junit':
      return judgementJunit(report)
    case 'sarif':
      return judgementSarif(report)
    default:
      return judgementText(report, width, paint)
  }
}

/** Tells the conditions that are met, or that nobody can check. */
function exitCodeOf({ conditions, rules }: Report, out: Output): number {
  for (const { condition, met } of conditions) {
    const summary = rules.find(({ rule }) => rule === condition.rule)!
    if (met === 'met') out.stderr(`breakwater: ${condition.text} is met: ${foundOf(summary)}`)
    if (met === 'unknown')
      out.stderr(`breakwater: ${condition.text} cannot be checked: no task is decidable by ${condition.rule}`)
  }
  if (conditions.some(({ met }) => met === 'met')) return 1
  return conditions.some(({ met }) => met === 'unknown') ? BAD_INPUT : 0
}
