import { proposalOf } from '../../gamedays/agent-step-runs.ts'
import { gameDayResult, type GameDayRecord, isGameDayOver, type StepRecord } from '../../gamedays/record.ts'
import { rounded } from './run-history.ts'
import type { Operations } from './tool.ts'
import { quoted, shownExceeded } from './untrusted.ts'

/** Suggested time between polls of a GameDay, in milliseconds: while it runs, while it waits for a person, and paused. */
const POLL_MS = { running: 5_000, waits: 15_000, paused: 60_000 }

const iso = (at: number) => new Date(at).toISOString()

/** Returns a GameDay in a sentence and as data. Texts of persons, agents and servers stand under `untrusted`. */
export function gameDayAnswer(
  record: GameDayRecord,
  { agentRuns }: Pick<Operations, 'agentRuns'>,
): { readonly text: string; readonly data: Readonly<Record<string, unknown>> } {
  const { id, plan, state, steps, pauses } = record
  const step = isGameDayOver(record) ? undefined : currentOf(steps)
  const waits = step?.state === 'waits for approval' ? waitingFor(record, step, agentRuns) : undefined
  const poll = state === 'running' ? (waits === undefined ? 'running' : 'waits') : 'paused'
  const pause = pauses.find(({ until }) => until === undefined)
  return {
    text: [
      `GameDay ${plan.name} (${id}) is ${state}.`,
      ...(step === undefined
        ? []
        : [`Experiment ${numberOf(record, step)} of ${steps.length}, ${step.name}, is ${inWords(step)}.`]),
      ...(waits === undefined ? [] : [`A person must approve the run: ${waits.command}`]),
    ].join(' '),
    data: rounded({
      gameday: id,
      plan: plan.name,
      state,
      by: record.by,
      isOfAgent: record.isOfAgent,
      environment: record.environment,
      servers: plan.scope.servers,
      startedAt: iso(record.startedAt),
      ...(record.endedAt !== undefined && { endedAt: iso(record.endedAt) }),
      ...(pause !== undefined && { paused: { by: pause.by, from: iso(pause.from) } }),
      ...(step !== undefined && {
        current: {
          experiment: step.name,
          number: numberOf(record, step),
          state: step.state,
          ...(step.runs.length > 0 && { run: step.runs.at(-1) }),
          ...(waits !== undefined && { waitsFor: waits }),
        },
      }),
      result: gameDayResult(record),
      counts: {
        steps: steps.length,
        observations: record.observations.length,
        actions: record.actions.length,
        events: record.events.length,
      },
      ...(!isGameDayOver(record) && { pollAfterMs: POLL_MS[poll] }),
      untrusted: {
        title: quoted(plan.title),
        reason: quoted(record.reason),
        ...(step !== undefined && step.note !== '' && { note: quoted(step.note) }),
      },
    }),
  }
}

/** Returns the experiment under way, else the next one. */
const currentOf = (steps: readonly StepRecord[]): StepRecord | undefined =>
  steps.find(({ state }) => state === 'running' || state === 'waits for approval' || state === 'waiting') ??
  steps.find(({ state }) => state === 'planned')

const numberOf = ({ steps }: GameDayRecord, { name }: StepRecord): number =>
  steps.findIndex((one) => one.name === name) + 1

const inWords = ({ state }: StepRecord): string =>
  state === 'waits for approval' ? 'waiting for approval' : state

/** Returns the proposal of an agent, or the run of a person, that waits, and the command with which a person approves. */
function waitingFor(
  record: GameDayRecord,
  { name, runs }: StepRecord,
  { proposals, command, trust }: Operations['agentRuns'],
) {
  if (!record.isOfAgent) {
    const key = trust.size > 0 ? ' --key FILE' : ''
    return { run: runs.at(-1), command: command(`breakwater experiment approve ${name}${key}`) }
  }
  const proposal = proposalOf(record, proposals)
  if (proposal === undefined) return undefined
  const { id, expiresAt, exceeded, refused } = proposal
  return {
    proposal: id,
    command: command(`breakwater proposal approve ${id} --key FILE`),
    expiresAt: iso(expiresAt),
    ...(exceeded.length > 0 && { exceeded: shownExceeded(exceeded) }),
    ...(refused !== undefined && { covered: { code: refused.code, message: refused.message } }),
  }
}
