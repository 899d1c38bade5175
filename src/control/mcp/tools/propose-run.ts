import { z } from 'zod'
import type { Proposal } from '../../../approval/proposals.ts'
import type { Refusal } from '../../../approval/refusal.ts'
import { line } from '../../../experiments/guarded/spec.ts'
import { bounded, defineTool, type Operations } from '../tool.ts'
import { readSpec } from '../read-spec.ts'
import { estimateOf } from '../estimate.ts'
import { quoted, shownExceeded } from '../untrusted.ts'

export const proposeRun = defineTool({
  name: 'propose_run',
  title: 'Propose a run',
  description:
    'Checks a plan or spec and keeps it as a proposal for an hour. Injects nothing. `needs` says whether start_run may follow at once (`nothing`), a person must approve (`approval`), or the run is impossible (`change`).',
  access: 'write',
  isIdempotent: true,
  input: z.strictObject({
    plan: z.string().max(64).optional().describe('Name of a plan from list_plans.'),
    spec: z.record(z.string(), z.unknown()).optional().describe('A whole experiment, as get_plan shows one.'),
    firstStage: z.int().min(1).max(10).default(1).describe('The first stage to run, from 1.'),
    expect: z
      .record(z.string(), z.unknown())
      .optional()
      .describe('Your estimate, as `estimate` of a spec: outcome, detect, recover, errorRatio, p95.'),
    // No pattern, because older validators of JSON Schema know no classes of Unicode.
    why: z
      .string()
      .min(1)
      .max(500)
      .refine((text) => line(500).safeParse(text).success, 'expected one line without control characters')
      .describe('The question that the run answers, in one line.'),
  }),
  output: z.looseObject({
    proposal: z.string(),
    needs: z.enum(['nothing', 'approval', 'change']),
    refusals: z.array(z.string()),
    expiresAt: z.string(),
    planHash: z.string(),
  }),
  async run({ plan, spec: given, firstStage, expect, why }, { agent, operations }) {
    const read = await readSpec({ plan, spec: given, expect }, operations)
    if (!read.ok) return read
    const { spec } = read
    const proposed = await operations.agentRuns.proposals.propose(agent, {
      spec,
      firstStage: firstStage - 1,
      why,
    })
    return proposed.ok ? answerOf(proposed.proposal, operations) : proposed
  },
})

function answerOf(proposal: Proposal, operations: Operations) {
  const { plan, envelope, exceeded, refused, id, expiresAt, planHash, groundHash, targetsHash, hit, spec } =
    proposal
  const refusals = plan.refusals.map((text) => text.slice(0, 400)).slice(0, 8)
  const needs = refusals.length > 0 ? 'change' : envelope === undefined ? 'approval' : 'nothing'
  const { command: commandFor } = operations.agentRuns
  const command = commandFor(`breakwater proposal approve ${id} --key FILE`)
  const sentences = {
    change: operations.chaos.killSwitch.on
      ? `The kill switch is on, so no run can begin: a person must lift the kill with ${commandFor('breakwater chaos lift')}`
      : 'The run is impossible as proposed; see refusals.',
    approval:
      refused === undefined
        ? `A person must approve the run: ${command}`
        : `${sentenceOf(refused)} A person may also approve this run: ${command}`,
    nothing: `The run is inside the envelope ${envelope}: call start_run.`,
  }
  const data = {
    proposal: id,
    needs,
    refusals,
    doubts: plan.doubts.map((text) => text.slice(0, 400)).slice(0, 4),
    ...(needs === 'approval' && { command }),
    ...(envelope !== undefined && { envelope }),
    ...(exceeded.length > 0 && { exceeded: shownExceeded(exceeded) }),
    ...(needs === 'approval' && refused !== undefined && { covered: coveredBy(refused) }),
    expiresAt: new Date(expiresAt).toISOString(),
    planHash,
    groundHash,
    targetsHash,
    stages: plan.stages,
    lengthMs: plan.lengthMs,
    hit: hitRows(hit).slice(0, 16),
    hitTools: hit.length,
    untrusted: { tools: hit.slice(0, 16).map(({ tool }) => quoted(tool)) },
    estimate: estimateOf(spec, operations),
  }
  return { ok: true as const, text: sentences[needs], data: bounded(data) }
}

/** The refusal of `start_run` for a run in an envelope that is suspended, spent or not in force. */
const sentenceOf = ({ message, see }: Refusal): string =>
  `${message.charAt(0).toUpperCase()}${message.slice(1)}${see === undefined ? '' : ` (${see})`}.`

const coveredBy = ({ code, message, see, retryAfterMs }: Refusal) => ({
  code,
  message,
  ...(see !== undefined && { see }),
  ...(retryAfterMs !== undefined && { retryAfterMs }),
})

/** Returns the number of tools that a fault could hit, by server and effect. */
function hitRows(hit: Proposal['hit']) {
  const rows = new Map<string, { server: string; effect: string; tools: number }>()
  for (const { server, effect } of hit) {
    const key = JSON.stringify([server, effect])
    const row = rows.get(key) ?? { server, effect, tools: 0 }
    row.tools++
    rows.set(key, row)
  }
  return [...rows.values()]
}
