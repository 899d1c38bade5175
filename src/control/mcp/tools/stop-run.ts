import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import { numbered } from '../../../units/numbered.ts'
import { bounded, cutMark, defineTool } from '../tool.ts'
import { quoted } from '../untrusted.ts'

export const stopRun = defineTool({
  name: 'stop_run',
  title: 'Stop a run',
  description:
    'Ends a run and rolls back its faults at once. Always allowed, free, and repeatable. The run counts as aborted by you, never as completed. A GameDay pauses when its run ends so.',
  access: 'stop',
  isIdempotent: true,
  input: z.strictObject({
    run: z.string().min(1).max(64).optional().describe('Id of a run, or name of its plan.'),
    all: z.boolean().default(false).describe('Ends each active and waiting run, and pauses the GameDay.'),
    why: z.string().min(1).max(300).default('no reason given'),
  }),
  output: z.object({
    stopped: z.array(
      z.looseObject({
        run: z.string(),
        plan: z.string(),
        state: z.string(),
        untrusted: z.looseObject({ reason: z.string() }),
        rollback: z.looseObject({}).optional(),
      }),
    ),
    paused: z.string().optional().describe('Id of the GameDay that the call paused.'),
    cut: cutMark,
  }),
  run({ run, all, why }, { agent, operations: { agentRuns, gameDays } }) {
    if (run === undefined && !all)
      return refusal('invalid', 'give run (an id, or the name of a plan), or all: true')
    // First, so that the GameDay begins no further experiment, and knows who paused it.
    const paused = all ? gameDays.pauseCurrent(agent, quoted(why)) : undefined
    const stopped = agentRuns.active.stop(agent, run !== undefined && !all ? { run } : 'all', quoted(why))
    if ('ok' in stopped) return stopped
    const rows = stopped.slice(0, 16).map(({ id, name, state, reason, rollback }) => ({
      run: id,
      plan: name,
      state,
      untrusted: { reason: quoted(reason) },
      ...(rollback !== undefined && { rollback }),
    }))
    return {
      ok: true,
      text: [
        ...(paused === undefined ? [] : [`The GameDay ${paused} is paused.`]),
        rows.length > 0 ? stoppedInWords(rows) : `No${paused === undefined ? '' : ' other'} run was active.`,
      ].join(' '),
      data: bounded({ stopped: rows, ...(paused !== undefined && { paused }) }),
    }
  },
})

/** A run that was stopped in a stage ends once it knows whether the servers recover. */
function stoppedInWords(rows: readonly { readonly state: string }[]): string {
  const ending = rows.filter(({ state }) => state === 'running').length
  const ended = rows.length - ending
  return [
    ...(ended === 0 ? [] : [`Ended: ${numbered(ended, 'run')}.`]),
    ...(ending === 0
      ? []
      : [`Ending: ${numbered(ending, 'run')}, \`aborted\` once the recovery is over; look with get_run.`]),
    'All faults of these runs are removed.',
  ].join(' ')
}
