import { parse } from 'yaml'
import type { Line } from '../../../chaos/journal/chain.ts'
import type { DecisionEntry } from '../../../chaos/journal/entry.ts'
import { keptIn, readKey } from '../../../chaos/journal/head.ts'
import { readChain } from '../../../chaos/journal/read-chain.ts'
import { type Differing, replay as replayEntries, type Replayed } from '../../../chaos/journal/explain.ts'
import type { Fault } from '../../../chaos/plan/common.ts'
import { chaos } from '../../../chaos/plan/schema.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { readText, whyUnreadable } from '../../../config/files/read-text.ts'
import { formatIssue } from '../../../config/issues/issues.ts'
import { loadConfig } from '../../../config/load.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { type Plan, readPlan } from '../../../routes/chaos/plan.ts'
import { printablePainted } from '../../../telemetry/printable.ts'
import { Misuse, UnusableInput } from '../../shared/arguments.ts'
import { type Command, type Given, paintOf, textOf } from '../../shared/control-command.ts'
import { table } from '../../shared/table.ts'
import { numbered } from '../../../units/numbered.ts'

/** Maximum number of differences printed in detail. */
const MAX_PRINTED = 50

/** `replay --plan FILE --journal FILE`: checks a journal, and repeats its recorded decisions. */
export const replay: Command = {
  options: {
    plan: { kind: 'text', value: 'FILE', about: 'a plan, or a config with a plan' },
    journal: { kind: 'list', value: 'FILE', about: 'may be repeated, the oldest file first' },
    state: { kind: 'text', value: 'FOLDER', about: "gateway.stateDir (default: the journal's folder)" },
  },
  async run(given) {
    const { values, out } = given
    const path = textOf(values, 'plan')
    const files = Array.isArray(values.journal) ? (values.journal as readonly string[]) : []
    if (path === undefined || files.length === 0)
      throw new Misuse('replay needs --plan FILE and --journal FILE')
    const journal = await readJournal(files, textOf(values, 'state'))
    const replayed = decideAgain(await readPlanFile(path, given.env), journal.lines)
    if (values.json === true) out.stdout(JSON.stringify(replayed, undefined, 2))
    else for (const line of told(replayed, journal, given)) out.stdout(printablePainted(line))
    if (replayed.decisions > 0) return replayed.same === replayed.decisions ? 0 : 1
    throw new UnusableInput('the journal has no decisions: nothing was compared')
  },
}

interface Journal {
  readonly lines: readonly Line[]
  readonly isChecked: boolean
}

/**
 * Reads the files of a journal, oldest first. Checks that each file continues the previous file; with the key, also
 * checks the hash chain. Rejects with an `UnusableInput`.
 */
async function readJournal(files: readonly string[], stateDir: string | undefined): Promise<Journal> {
  const lines: Line[] = []
  const folder = keptIn(files[0] ?? '', stateDir)
  const key = await readKey(folder).catch(({ message }: Error) => {
    throw new UnusableInput(`cannot read the key of the journal: ${message}`)
  })
  let last: string | undefined
  for (const file of files) {
    const chain = await readChain(file, key).catch((error: unknown) => {
      throw new UnusableInput(`cannot read ${file}: ${whyUnreadable(error)}`)
    })
    if (chain === undefined) throw new UnusableInput(`cannot read ${file}: no such file`)
    // A running or killed process may leave an incomplete last line; the lines before it are still usable.
    const { header, broken, hashes } = chain
    if (broken !== undefined)
      throw new UnusableInput(`the chain of ${file} is broken: line ${broken.line} ${broken.why}`)
    if (last !== undefined && header?.previous !== last)
      throw new UnusableInput(`the chain of ${file} is broken: it does not continue the previous file`)
    last = hashes.at(-1) ?? last
    for (const line of chain.lines) lines.push(line)
  }
  return { lines, isChecked: key !== undefined }
}

function told(
  { decisions, same, differing }: Replayed,
  { lines, isChecked }: Journal,
  given: Given,
): string[] {
  const dropped = lines.reduce((sum, line) => sum + (line.kind === 'gap' ? line.dropped : 0), 0)
  const chain = isChecked ? 'the chain is whole' : 'the chain is not checked (no key)'
  const said = [`${numbered(lines.length, 'line')}, ${chain}; ${same} of ${decisions} decisions are the same`]
  if (dropped > 0) said.push(`${dropped} entries were never written: too many at once, or a failing disk`)
  if (differing.length === 0) return said
  const rows = differing
    .slice(0, MAX_PRINTED)
    .map(({ seq, fault, what, was, now }) => [seq, fault, what.replace('_', ' '), String(was), String(now)])
  const more = decisions - same - rows.length
  const rest = more > 0 ? [`and ${more} more`] : []
  return [
    ...said,
    '',
    ...table(['SEQ', 'FAULT', 'WHAT', 'WAS', 'NOW'], rows, given.width, paintOf(given)),
    ...rest,
  ]
}

/** A fault from the runtime API, with its decisions until the next fault of the same name. */
interface Injection {
  readonly fault: Fault
  readonly entries: DecisionEntry[]
}

/** Repeats all decisions of a journal, with the faults of `plan` and the runtime API's faults from the journal. */
function decideAgain({ seed, faults }: Plan, lines: readonly Line[]): Replayed {
  const planned: DecisionEntry[] = []
  /** The latest injection of each fault name; `injections` below has all injections. */
  const injected = new Map<string, Injection>()
  const injections: Injection[] = []
  const names = new Set(faults.map(({ name }) => name))
  // Decisions are written when they finish. Their numbers give the order in which they began.
  for (const line of inOrder(lines)) {
    if (line.kind === 'decision') {
      const made = names.has(line.fault) ? undefined : injected.get(line.fault)
      ;(made?.entries ?? planned).push(line)
      continue
    }
    const fault = line.kind === 'control' && line.type === 'injected' ? line.detail?.fault : undefined
    if (!isObject(fault)) continue
    const made: Injection = { fault: fault as unknown as Fault, entries: [] }
    injected.set(made.fault.name, made)
    injections.push(made)
  }
  const parts = [
    replayEntries({ seed, faults }, planned),
    ...injections.map((made) => replayEntries({ seed, faults: [made.fault] }, made.entries)),
  ]
  const differing: Differing[] = parts.flatMap((part) => part.differing)
  return {
    decisions: sum(parts.map(({ decisions }) => decisions)),
    same: sum(parts.map(({ same }) => same)),
    differing: differing.sort((a, b) => a.seq - b.seq),
  }
}

/** Sorts the entries of each process by `seq`. Each process begins with a control entry whose `seq` is 1. */
function inOrder(lines: readonly Line[]): readonly Line[] {
  const ordered: Line[][] = [[]]
  for (const line of lines) {
    if (line.kind === 'header' || line.kind === 'gap') continue
    if (line.kind === 'control' && line.seq === 1) ordered.push([])
    ordered.at(-1)!.push(line)
  }
  return ordered.flatMap((run) => run.sort((a, b) => numberOf(a) - numberOf(b)))
}

const numberOf = (line: Line) => ('seq' in line ? line.seq : 0)

const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0)

/** A file with one of these top-level keys is a whole config, not a separate plan. */
const blocks = ['chaos', 'gateway', 'mcpServers', 'servers', 'policies']

/**
 * Reads a plan: a separate file in any of the three formats, a block `chaos`, or a whole config. Rejects with an
 * `UnusableInput`.
 */
async function readPlanFile(path: string, env: Env): Promise<Plan> {
  const read = await readText(path)
  if ('problem' in read) throw new UnusableInput(`${path} ${read.problem}`)
  let value: unknown
  try {
    value = parse(read.text)
  } catch (error) {
    throw new UnusableInput(`${path}: ${(error as Error).message}`)
  }
  if (isObject(value) && blocks.some((block) => isObject(value) && block in value)) {
    const loaded = await loadConfig(path, env)
    if (loaded.ok) return loaded.config.chaos
    throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  }
  const defaults = chaos.parse({})
  const { maxTtl } = chaos.safeParse({ maxTtl: isObject(value) ? value.maxTtl : undefined }).data ?? defaults
  const plan = readPlan(planIn(value), { ...defaults, maxTtl })
  if (plan.ok) return plan.value
  const problems = plan.findings.map((finding) =>
    [path, finding.path, finding.message].filter(Boolean).join('  '),
  )
  throw new UnusableInput(problems.join('\n'))
}

/** Returns a block `chaos` without the settings that do not belong to its plan: they have no effect on a replay. */
function planIn(value: unknown): unknown {
  if (!isObject(value)) return value
  const besides = Object.keys(chaos.unwrap().shape).filter(
    (key) => !['seed', 'mode', 'aliases', 'faults'].includes(key),
  )
  return Object.fromEntries(Object.entries(value).filter(([key]) => !besides.includes(key)))
}
