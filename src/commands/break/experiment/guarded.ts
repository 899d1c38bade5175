import { userInfo } from 'node:os'
import { readKey } from '../../../chaos/journal/head.ts'
import { formatIssue } from '../../../config/issues/issues.ts'
import { loadConfig } from '../../../config/load.ts'
import type { Plan } from '../../../experiments/guarded/guarded.ts'
import { journalFolder, verifyRuns } from '../../../evidence/journal.ts'
import { judgementOf } from '../../../evidence/verdict.ts'
import { isOver } from '../../../experiments/guarded/record.ts'
import { isRunRecord } from '../../../experiments/guarded/record-shape.ts'
import type { State } from '../../../experiments/guarded/spec.ts'
import { keepAlive, systemClock, type Millis } from '../../../mesh/clock.ts'
import type { guardedInShort } from '../../../routes/admin-guarded.ts'
import type { Tone } from '../../../telemetry/colours.ts'
import { printable } from '../../../telemetry/printable.ts'
import { formatDuration, roundedDuration } from '../../../units/duration.ts'
import { Misuse, UnusableInput } from '../../shared/arguments.ts'
import { ask, type Command, commandFor, type Given, textOf } from '../../shared/control-command.ts'
import { table } from '../../shared/table.ts'
import { bar, seconds } from '../../shared/progress.ts'
import { verdictLines } from '../../shared/verdict-lines.ts'
import { type ReadExperiment, readExperiment } from '../../../gateway/guarded/file.ts'
import { numbered } from '../../../units/numbered.ts'

/** A guarded run, in the format of `/admin/experiments`. */
export type ShownRun = ReturnType<typeof guardedInShort>

/** Returns true if the gateway's answer is a guarded run. */
export const isGuarded = (shown: { readonly kind?: string }): shown is ShownRun => shown.kind === 'guarded'

export const stateTones: Readonly<Record<State, Tone>> = {
  pending_approval: 'doubtful',
  running: 'doubtful',
  completed: 'good',
  deviated: 'bad',
  aborted: 'bad',
  failed: 'bad',
  invalid: 'bad',
  inconclusive: 'doubtful',
}

export const people = {
  by: { kind: 'text', value: 'NAME', about: 'your name for the journal (default: the user of this machine)' },
  'approved-by': {
    kind: 'text',
    value: 'NAME',
    about: 'name of the approver: needed if the experiment wants approval, and to skip stages',
  },
  'from-stage': {
    kind: 'integer',
    value: 'N',
    about: 'the first stage to play, from 1 (default: 1)',
    max: 10,
  },
} as const

const detached = {
  detach: { kind: 'flag', about: 'only begins the run; the gateway continues it in any case' },
} as const

export const validate: Command = {
  positionals: ['FILE'],
  async run({ positionals: [file = ''], out }) {
    const { name, stages, gate } = (await readUsable(file)).spec
    out.stdout(
      `${file}: experiment ${name}, ${numbered(stages.length, 'stage')}, ${numbered(gate.rollbackOn.length, 'rule')} of its gate`,
    )
    return 0
  },
}

export const plan: Command = {
  positionals: ['FILE'],
  options: people,
  async run(given) {
    const body = await bodyOf(given)
    let isRefused = false
    const code = await ask(
      given,
      { method: 'POST', path: '/admin/experiments/plan', body },
      (answer: Plan) => {
        isRefused = answer.refusals.length > 0
        return planLines(answer, given.width)
      },
    )
    return code === 0 && isRefused ? 1 : code
  },
}

export function planLines(plan: Plan, width: number): string[] {
  const { name, targets, stages, rules, faults, refusals, doubts, lengthMs, completedBefore } = plan
  const servers = targets.servers.map(({ name: server, tools, hit }) => [server, tools.length, hit.length])
  return [
    `${name}: takes ${roundedDuration(lengthMs)} plus recovery${completedBefore === 0 ? '' : `; completed earlier with the same plan: ${numbered(completedBefore, 'run')}`}`,
    ...table(['TARGET', 'TOOLS', 'HIT BY FAULTS'], servers, width),
    ...stages.map(
      ({ share, duration, isSkipped }, at) =>
        `stage ${at + 1}: ${Math.round(share * 100)}% for ${formatDuration(duration)}${isSkipped ? ', skipped' : ''}`,
    ),
    ...faults.map(({ name: fault, type, rate }) => `fault ${fault}: ${type}, rate ${rate}`),
    ...rules.map((rule) => `rolled back on: ${rule}`),
    ...doubts.map((doubt) => `doubtful: ${doubt}`),
    ...(plan.waitsBecause === undefined ? [] : [`approval: ${plan.waitsBecause}`]),
    ...(refusals.length === 0
      ? ['the run is allowed now; nothing was injected']
      : refusals.map((refusal) => `refused: ${refusal}`)),
  ]
}

export const run: Command = {
  positionals: ['FILE'],
  options: { ...people, ...detached },
  async run(given) {
    const { control, out, values } = given
    const body = await bodyOf(given)
    const answered = await control({ method: 'POST', path: '/admin/experiments', body })
    if (!answered.ok) {
      out.stderr(`breakwater: ${answered.message}`)
      return 1
    }
    const begun = answered.value as ShownRun
    if (begun.state === 'pending_approval' || values.detach === true) return said(given, begun)
    return watch(given, begun)
  },
}

/**
 * `breakwater experiment verify`: checks that no run in the journal was changed, removed or inserted. Needs the key of
 * the journal, but no running gateway.
 */
export const verify: Command = {
  options: {
    state: { kind: 'text', value: 'FOLDER', about: 'gateway.stateDir' },
    config: { kind: 'text', value: 'FILE', about: 'instead of --state: a config with gateway.stateDir' },
  },
  async run(given) {
    const { out, values } = given
    const stateDir = await stateDirOf(given)
    const folder = journalFolder(stateDir)
    const key = await readKey(stateDir)
    if (key === undefined) throw new UnusableInput(`${stateDir} has no key, so no run can be checked`)
    const check = await verifyRuns(folder, key).catch((error: NodeJS.ErrnoException) => {
      const why =
        error.code === 'ENOENT'
          ? 'does not exist: no gateway has used this state folder, or the folder was removed'
          : `cannot be checked: ${error.message}`
      throw new UnusableInput(`${folder} ${why}`)
    })
    const { problems, runs, open } = check
    if (values.json === true)
      out.stdout(JSON.stringify({ ok: problems.length === 0, ...check }, undefined, 2))
    else if (problems.length > 0)
      throw new UnusableInput(problems.map(({ file, why }) => printable(`${file} ${why}`)).join('\n'))
    else
      out.stdout(
        `the journal is whole: ${numbered(runs, 'run')}${open === 0 ? '' : `, and ${open} not yet over`}`,
      )
    return problems.length === 0 ? 0 : 1
  },
}

async function stateDirOf({ values, env }: Given): Promise<string> {
  const [state, config] = [textOf(values, 'state'), textOf(values, 'config')]
  if ((state === undefined) === (config === undefined))
    throw new Misuse('verify needs either --state FOLDER or --config FILE')
  if (state !== undefined) return state
  const loaded = await loadConfig(config!, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  const { stateDir } = loaded.config.gateway
  if (stateDir === undefined) throw new UnusableInput(`${config} has no gateway.stateDir`)
  return stateDir
}

/** Reads a file's experiment. Rejects with an `UnusableInput`. */
async function readUsable(file: string): Promise<ReadExperiment & { readonly ok: true }> {
  const read = await readExperiment(file)
  if (!read.ok) throw new UnusableInput(read.problems.map((problem) => printable(problem)).join('\n'))
  return read
}

/** Returns the request body for an experiment file. Rejects with an `UnusableInput`. */
async function bodyOf(given: Given): Promise<object> {
  const { positionals, values } = given
  const read = await readUsable(positionals[0] ?? '')
  const approvedBy = textOf(values, 'approved-by')
  const firstStage = values['from-stage']
  return {
    spec: read.written,
    by: person(given),
    ...(approvedBy !== undefined && { approvedBy }),
    ...(firstStage !== undefined && { firstStage }),
  }
}

export const person = ({ values }: Given): string => textOf(values, 'by') ?? userName()

function userName(): string {
  try {
    return userInfo().username
  } catch {
    // In a container, the user may be unknown to the system.
    return 'unknown'
  }
}

/** Poll interval in milliseconds, and longest silence of the gateway before the command gives up. */
export const POLL_MS: Millis = 500
export const SILENT_MS: Millis = 10_000

async function watch(given: Given, begun: ShownRun): Promise<number> {
  const { control, out, values } = given
  const path = `/admin/experiments/${encodeURIComponent(begun.name)}`
  const release = keepAlive()
  const never = new AbortController().signal
  let before = ''
  let heardAt = systemClock.now()
  try {
    for (;;) {
      await systemClock.sleep(POLL_MS, never)
      const answered = await control({ method: 'GET', path })
      if (!answered.ok) {
        if (systemClock.now() - heardAt < SILENT_MS) continue
        out.status?.(undefined)
        out.stderr(`breakwater: ${answered.message}`)
        return 1
      }
      heardAt = systemClock.now()
      const shown = answered.value as ShownRun
      if (shown.id !== begun.id) {
        throw new UnusableInput(
          `run ${begun.id} of ${begun.name} was followed by run ${shown.id} of another user: only the journal shows how the first run ended`,
        )
      }
      if (isOver(shown)) {
        out.status?.(undefined)
        const code = said(given, shown)
        if (values.json !== true) await sayVerdict(given, `${path}/report`)
        return code
      }
      if (out.status !== undefined) out.status(progressLine(shown, out.width ?? given.width))
      else if (placeOf(shown) !== before) out.stderr(`breakwater: ${placeOf(shown)}`)
      before = placeOf(shown)
    }
  } finally {
    out.status?.(undefined)
    release()
  }
}

/** Prints the verdict that the index of runs keeps; nothing if the gateway no longer has the record. */
async function sayVerdict({ control, out }: Given, path: string): Promise<void> {
  const answered = await control({ method: 'GET', path })
  if (!answered.ok || !isRunRecord(answered.value)) return
  for (const line of verdictLines(judgementOf(answered.value))) out.stdout(printable(line))
}

/** Returns the place of a run, such as `stage 2 of 3: 25%`. */
export const placeOf = ({ phase, stage, stages }: ShownRun): string =>
  phase === 'stage'
    ? `stage ${stage} of ${stages.length}: ${Math.round((stages[stage - 1]?.share ?? 0) * 100)}%`
    : phase

/** Returns the progress as one line: `[#####-----] 42%  23s  stage 2 of 3: 25%  treatment 12 calls, 1 failed`. */
function progressLine(shown: ShownRun, width: number): string {
  const { phase, reason } = shown
  const place = phase === 'recovery' ? `recovery: ${reason}` : placeOf(shown)
  return printable([doneWords(shown), place, ...armWords(shown)].join('  ')).slice(0, width)
}

/** Returns the share of a run that is over, as a bar, and the time: `[#####-----] 42%  23s`. */
export function doneWords({ elapsedMs, lengthMs }: ShownRun): string {
  const done = Math.min(1, elapsedMs / lengthMs)
  return `${bar(done, 24)} ${Math.round(done * 100)}%  ${seconds(elapsedMs)}`
}

/** Returns the calls of the last second, by arm: `treatment 12 calls, 1 failed`. */
export const armWords = ({ latest }: ShownRun): string[] =>
  Object.entries(latest?.arms ?? {}).map(
    ([arm, { calls, failed }]) =>
      `${arm} ${numbered(calls, 'call')}${failed > 0 ? `, ${failed} failed` : ''}`,
  )

/** Prints a run's state; returns 0 for a waiting, running or completed run. */
function said(given: Given, shown: ShownRun): number {
  const { out, values } = given
  if (values.json === true) out.stdout(JSON.stringify(shown, undefined, 2))
  else for (const line of runLines(shown, given)) out.stdout(printable(line))
  return ['completed', 'running', 'pending_approval'].includes(shown.state) ? 0 : 1
}

export function runLines(shown: ShownRun, given: Pick<Given, 'values'>): string[] {
  const { name, state, phase, reason, faults, rollback, recovery, detection, proposal } = shown
  const left = rollback === undefined ? [] : [...rollback.armed, ...rollback.arms]
  const approve = `breakwater experiment approve ${name}${shown.needsSignature ? ' --key FILE' : ''}`
  const injected = faults.map((fault) => `${fault.name} ${fault.injected}`).join(', ')
  return [
    `${name}: ${state}${phase === 'over' ? '' : `, ${placeOf(shown)}`}; ${reason}`,
    ...(injected === '' ? [] : [`injected: ${injected}`]),
    ...(detection?.afterMs === undefined
      ? []
      : [`noticed after ${roundedDuration(detection.afterMs)}: ${detection.sign}`]),
    ...(rollback === undefined
      ? []
      : [left.length === 0 ? 'rolled back: none of its faults is armed' : `still armed: ${left.join(', ')}`]),
    ...(recovery?.recoveredAfterMs === undefined
      ? []
      : [
          `steady again ${roundedDuration(recovery.recoveredAfterMs)} after the first effect, ${roundedDuration(recovery.steadyAfterMs ?? 0)} after the end of the faults`,
        ]),
    ...(proposal === undefined ? [] : [proposal]),
    ...(state === 'pending_approval' ? [`${commandFor(given, approve)} lets it begin`] : []),
    ...(state === 'running' ? [`${commandFor(given, `breakwater experiment stop ${name}`)} ends it`] : []),
  ]
}
