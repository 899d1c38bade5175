import type { Client } from '@modelcontextprotocol/client'
import type { Cancellation } from '../../../mesh/cancel.ts'
import { type Clock, type Millis } from '../../../mesh/clock.ts'
import { formatDuration } from '../../../units/duration.ts'
import { type Output, UnusableInput } from '../../shared/arguments.ts'
import type { Cycle } from './file.ts'

/** Time between looks at a proposal that waits for a person, in milliseconds. */
const LOOK_MS: Millis = 2_000

type Data = Readonly<Record<string, unknown>>

/** An answer of a tool. */
interface Answer {
  readonly text: string
  readonly data: Data
}

/** A prompt as a model would get it, and the answers of the tools that the prompt names. */
export interface Step {
  readonly prompt: string
  readonly answers: Readonly<Record<string, Answer>>
}

export interface Steps {
  readonly hypothesis: Step
  readonly plan: Step
  readonly run: Step
  readonly analysis: Step
}

export interface Playing {
  readonly client: Client
  readonly clock: Clock
  readonly stop: Cancellation
  readonly out: Output
  /** Longest wait for a person's approval, in milliseconds. */
  readonly patienceMs: Millis
}

/** Plays the steps of a cycle until the analysis, as an agent would. Rejects with an `UnusableInput`. */
export async function playSteps(cycle: Cycle, playing: Playing): Promise<Steps> {
  const { server, hypothesis: belief } = cycle
  const { out } = playing
  const said = (line: string) => out.stderr(`breakwater: ${line}`)
  const hypothesis = await step(playing, 'hypothesis', { server }, async (call) => {
    await call('get_status')
    const { data } = await call('list_servers', { filter: server })
    if (data.total === 0) throw new UnusableInput(`the gateway has no server ${server}`)
    await call('list_incidents', { server })
    await call('suggest_next', { server })
  })
  const given = cycle.plan === undefined ? { spec: cycle.spec } : { plan: cycle.plan }
  let proposed: Data = {}
  const plan = await step(playing, 'plan', { server, hypothesis: belief }, async (call) => {
    await call('estimate_blast_radius', given)
    const { firstStage, expect, why } = cycle
    const answer = await call('propose_run', { ...given, firstStage, why, ...(expect && { expect }) })
    proposed = answer.data
    said(answer.text)
  })
  if (proposed.needs === 'change')
    throw new UnusableInput(`the run is impossible:\n${(proposed.refusals as string[]).join('\n')}`)
  const proposal = String(proposed.proposal)
  if (proposed.needs === 'approval') await approved(proposal, playing)
  let id = ''
  const run = await step(playing, 'run', { proposal }, async (call) => {
    const { text, data } = await call('start_run', { proposal, key: 'replay-cycle' })
    said(text)
    id = String(data.run)
    for (;;) {
      const { state, plan: name } = (await call('get_run', { run: id, wait: '20s' })).data
      if (state !== 'running') return
      if (playing.stop.aborted)
        throw new UnusableInput(
          `the run ${id} goes on; end it with: breakwater experiment stop ${name as string}`,
        )
    }
  })
  const analysis = await step(playing, 'analysis', { run: id }, async (call) => {
    said((await call('get_run', { run: id, part: 'summary' })).text)
    await call('get_run', { run: id, part: 'stages' }, 'stages')
    await call('get_run', { run: id, part: 'decisions' }, 'decisions')
  })
  await promptOf(playing.client, 'policy_change', { run: id })
  return { hypothesis, plan, run, analysis }
}

type Call = (tool: string, given?: Data, as?: string) => Promise<Answer>

async function step(
  { client }: Playing,
  name: string,
  given: Readonly<Record<string, string>>,
  play: (call: Call) => Promise<void>,
): Promise<Step> {
  const prompt = await promptOf(client, name, given)
  const answers: Record<string, Answer> = {}
  await play(async (tool, args = {}, as = tool) => (answers[as] = await answerOf(client, tool, args)))
  return { prompt, answers }
}

async function promptOf(client: Client, name: string, given: Record<string, string>): Promise<string> {
  const { messages } = await client.getPrompt({ name, arguments: given })
  const { content } = messages[0]!
  return content.type === 'text' ? content.text : ''
}

/** Calls a tool. Rejects with an `UnusableInput` for an error of the tool. */
async function answerOf(client: Client, name: string, args: Data): Promise<Answer> {
  const { content, structuredContent, isError } = await client.callTool({ name, arguments: args })
  const [first] = content
  const text = first?.type === 'text' ? first.text : ''
  if (isError !== true) return { text, data: (structuredContent ?? {}) as Data }
  const { code, message } = JSON.parse(text) as { code: string; message: string }
  throw new UnusableInput(`${name}: ${message} (${code})`)
}

/** Resolves once a person has approved the proposal. */
async function approved(proposal: string, { client, clock, stop, out, patienceMs }: Playing): Promise<void> {
  const since = clock.now()
  const wait = `waits up to ${formatDuration(patienceMs)} for the approval`
  out.stderr(`breakwater: ${wait}`)
  while (clock.now() - since < patienceMs) {
    await clock.sleep(LOOK_MS, stop).catch(() => undefined)
    if (stop.aborted) throw new UnusableInput(`it was stopped before a person approved ${proposal}`)
    const { data } = await answerOf(client, 'get_status', {})
    const own = (data.proposals as { proposal: string; state: string }[]).find(
      (one) => one.proposal === proposal,
    )
    if (own === undefined) throw new UnusableInput(`the proposal ${proposal} is over: play the cycle again`)
    if (own.state === 'approved' || own.state === 'inside') return
  }
  throw new UnusableInput(`nobody approved ${proposal} within ${formatDuration(patienceMs)}`)
}
