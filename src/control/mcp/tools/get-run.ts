import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import { isOver, type RunRecord, stagesPlayed } from '../../../experiments/guarded/record.ts'
import { runMarkdownOf } from '../../../experiments/guarded/report.ts'
import { sequenceOf } from '../../../experiments/guarded/sequence.ts'
import { lengthOf } from '../../../experiments/guarded/spec.ts'
import { Cancellation } from '../../../mesh/cancel.ts'
import { duration } from '../../../units/duration.ts'
import { rounded, rowOf } from '../run-history.ts'
import { quoted } from '../untrusted.ts'
import {
  bounded,
  bytesOf,
  defineTool,
  pageArguments,
  pageOf,
  tableAnswer,
  type ToolContext,
} from '../tool.ts'

/** Time between looks at a run while waiting, in milliseconds. */
const LOOK_MS = 1_000

const parts = ['summary', 'stages', 'samples', 'decisions', 'report'] as const

export const getRun = defineTool({
  name: 'get_run',
  title: 'A run',
  description:
    'Returns a run: its summary, or the part `stages`, `samples`, `decisions` or `report` (Markdown). `wait` waits for the end of the run, up to 25s, and sends progress.',
  access: 'read',
  input: z.strictObject({
    run: z.string().min(1).max(64).describe('Id of a run, or name of a plan for its latest run.'),
    part: z.enum(parts).default('summary'),
    wait: duration({ max: 25_000 })
      .default(0)
      .describe('How long to wait for the end of the run, such as `20s`.'),
    ...pageArguments,
  }),
  output: z.looseObject({
    run: z.string().optional(),
    total: z.int().optional(),
    next: z.string().optional(),
    rows: z.array(z.looseObject({})).optional(),
    untrusted: z.looseObject({}).optional(),
  }),
  async run({ run: name, part, wait, ...page }, context) {
    const { history } = context.operations
    const found = await history.find(name)
    if (found === undefined) return refusal('not_found', `there is no run ${name}`, { see: 'list_runs' })
    const run = wait === 0 || isOver(found) ? found : await waitedFor(found, wait, context)
    const state =
      run.state === 'running' && run.phase === 'recovery'
        ? 'ending: recovering'
        : run.state.replaceAll('_', ' ')
    const text = `Run ${run.id} of ${run.name} is ${state}.`
    switch (part) {
      case 'summary':
        return { ok: true, text, data: bounded(rounded(summaryOf(run))) }
      case 'stages':
        return tableAnswer(
          run.stages.map(({ share, beganAtMs, endedAtMs, control, treatment, claims }) =>
            rounded({ share, beganAtMs, endedAtMs, control, treatment, claims }),
          ),
          page,
          text,
        )
      case 'samples':
        return tableAnswer(run.samples.map(rounded), page, text, 'phase')
      case 'decisions':
        return tableAnswer(
          // The reason may quote an agent.
          run.decisions.map(({ why, ...decision }) => ({
            ...rounded(decision),
            untrusted: { why: quoted(why) },
          })),
          page,
          text,
        )
      case 'report':
        return { ok: true, text, data: reportOf(run, page.cursor) }
    }
  },
})

/** Returns a part of the report, which quotes the texts of the spec's author. */
function reportOf(run: RunRecord, from: string | undefined) {
  const { part, ...page } = pageOf(runMarkdownOf(run), from, bytesOf(run.id) + 100)
  return { run: run.id, ...page, untrusted: { part } }
}

/** Resolves with the run at its end, when the time is up, or when the agent cancels. */
async function waitedFor(
  run: RunRecord,
  wait: number,
  { operations, signal, progress }: ToolContext,
): Promise<RunRecord> {
  const { clock, history } = operations
  const until = clock.now() + wait
  const lengthMs = lengthOf(run.spec)
  const cancelled = new Cancellation()
  const cancel = () => cancelled.abort('cancelled')
  signal.addEventListener('abort', cancel, { once: true })
  let now = run
  try {
    while (!isOver(now) && clock.now() < until && !signal.aborted) {
      const done = now.beganAt === undefined ? 0 : Math.min(lengthMs, Math.max(0, clock.wall() - now.beganAt))
      await progress(Math.round(done), lengthMs, `${now.phase}, stage ${now.stage + 1}`)
      await clock.sleep(Math.min(LOOK_MS, until - clock.now()), cancelled).catch(() => undefined)
      now = (await history.find(run.id)) ?? now
    }
  } finally {
    signal.removeEventListener('abort', cancel)
  }
  return now
}

function summaryOf(run: RunRecord): Record<string, unknown> {
  const { hypothesis, breach, nearest, detection, rollback, recovery, estimates, rules, proof, troubles } =
    run
  return {
    ...rowOf(run),
    phase: run.phase,
    stage: run.stage + 1,
    stagesOver: stagesPlayed(run),
    before: hypothesis.before,
    after: hypothesis.after,
    rules: rules.length,
    breach,
    nearest,
    detection,
    sequence: sequenceOf(run),
    rollback,
    recovery,
    faultCounts: run.faults,
    estimateRows: estimates,
    proof,
    troubles: troubles.slice(0, 10),
    proposal: run.proposal,
  }
}
